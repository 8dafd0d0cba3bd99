"""Score against depth as plain text, for a terminal without a picture viewer."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from allocsearch.analysis.figure_data import (
    FrontPanel,
    baseline_in_view,
    front_panels,
    metric_label,
)
from allocsearch.analysis.formats import arm_label, format_count, format_number
from allocsearch.results import TrialResult

FRONT = {"recurrent": "●", "nonrecurrent": "■"}
OTHER = {"recurrent": "○", "nonrecurrent": "□"}
_SIDE = {"recurrent": -1, "nonrecurrent": 1}
_LEAST_WIDTH, _LEAST_HEIGHT = 40, 6


@dataclass(frozen=True)
class _Scale:
    """Maps values to cells: low to cell 0, high to the last."""

    low: float
    high: float
    cells: int

    def cell(self, value: float) -> int:
        share = (value - self.low) / (self.high - self.low)
        return round(share * (self.cells - 1))


def terminal_plot(
    results: Iterable[TrialResult], x: str = "depth", width: int = 80, height: int = 14
) -> str:
    """Every candidate as a mark, those on the Pareto front filled.

    Args:
        results: trials in any order; one plot for each (budget, expert).
        x: a name in `pareto.AXES`.
        width: of the text in columns, at least 40.
        height: of the plotting area in lines, at least 6.

    Returns:
        Lines of plain Unicode text no wider than `width`, without a final newline.

    Raises:
        UnknownNameError: an unknown axis.
        ConfigError: trials with different objectives.
    """
    panels = front_panels(results, x)
    if not panels:
        return "No complete trial yet, so there is nothing to plot."
    width, height = max(width, _LEAST_WIDTH), max(height, _LEAST_HEIGHT)
    return "\n\n".join(_plot(panel, width, height) for panel in panels)


def _plot(panel: FrontPanel, width: int, height: int) -> str:
    upward, baseline = _upward(panel, height)
    ticks = nice_ticks(upward.low, upward.high, max(2, height // 3))
    labels = {height - 1 - upward.cell(tick): format_number(tick) for tick in ticks}
    margin = max(map(len, labels.values()), default=0) + 1
    across = _across(panel, width - margin - 2)
    grid = [[" "] * across.cells for _ in range(height)]
    if baseline is not None:
        grid[height - 1 - upward.cell(baseline)] = ["╌"] * across.cells
    _mark(grid, panel, across, upward)
    lines = [*panel.frame.title.splitlines(), metric_label(panel.frame.objective)]
    for row, cells in enumerate(grid):
        edge = "┤" if row in labels else "│"
        lines.append(f"{labels.get(row, ''):>{margin}} {edge}{''.join(cells)}")
    indent = " " * (margin + 1)
    lines += [indent + line for line in _axis(panel, across)]
    lines += _legend(panel, baseline, width)
    return "\n".join(line[:width].rstrip() for line in lines)


def _position(panel: FrontPanel, cost: float) -> float:
    """Depth on a log₂ scale, everything else as it is."""
    return math.log2(cost) if panel.axis.name == "depth" else cost


def _across(panel: FrontPanel, cells: int) -> _Scale:
    places = [_position(panel, cost) for cost in panel.costs]
    low, high = min(places), max(places)
    pad = 0.08 * (high - low) or abs(high) / 2 or 1.0
    return _Scale(low - pad, high + pad, cells)


def _upward(panel: FrontPanel, cells: int) -> tuple[_Scale, float | None]:
    """The vertical scale, and the baseline where it is in view."""
    values = [p.score for arm in panel.arms for p in arm.points]
    baseline = panel.frame.baseline
    baseline = baseline if baseline_in_view(baseline, values) else None
    if baseline is not None:
        values.append(baseline)
    low, high = min(values), max(values)
    pad = 0.04 * (high - low) or abs(high) / 2 or 1.0
    return _Scale(low - pad, high + pad, cells), baseline


def _mark(
    grid: list[list[str]], panel: FrontPanel, across: _Scale, upward: _Scale
) -> None:
    """Put trials on the grid, fronts last so that nothing hides them."""
    aside = panel.axis.name == "depth"
    marks = [(arm.arm, OTHER, arm.points) for arm in panel.arms]
    marks += [(arm.arm, FRONT, arm.front) for arm in panel.arms]
    for arm, symbols, points in marks:
        for point in points:
            column = across.cell(_position(panel, point.x))
            column += _SIDE[arm] if aside else 0
            grid[upward.cells - 1 - upward.cell(point.score)][column] = symbols[arm]


def _axis(panel: FrontPanel, across: _Scale) -> list[str]:
    """The horizontal axis with a label under each tick that has room for one."""
    if panel.axis.name == "depth":
        ticks: Sequence[float] = panel.costs
    else:
        ticks = nice_ticks(across.low, across.high, 4)
    rule, text = ["─"] * across.cells, " " * across.cells
    free = 0
    for tick in ticks:
        column = across.cell(_position(panel, tick))
        label = format_count(tick)
        start = max(0, column - len(label) // 2)
        if start < free or start + len(label) > across.cells:
            continue
        rule[column] = "┬"
        text = text[:start] + label + text[start + len(label) :]
        free = start + len(label) + 1
    name = panel.axis.label.center(across.cells)
    return [f"└{''.join(rule)}", f" {text}", f" {name}"]


def _legend(panel: FrontPanel, baseline: float | None, width: int) -> list[str]:
    entries = [
        f"{FRONT[arm.arm]} {OTHER[arm.arm]} {arm_label(arm.arm)}" for arm in panel.arms
    ]
    entries.append("filled: front")
    if panel.frame.baseline is not None:
        value = format_number(panel.frame.baseline)
        seen = baseline is not None
        entries.append(f"╌ untrained {value}" if seen else f"untrained {value} (off)")
    line = "  ".join(entries)
    return [line] if len(line) <= width else entries


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """At most `most` + 1 multiples of 1, 2 or 5 times a power of ten in [low, high].

    Args:
        low: start of the range.
        high: its end, above `low`.
        most: intervals wanted.
    """
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s for s in (1, 2, 5, 10) if s * power >= rough * (1 - 1e-9)) * power
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]
