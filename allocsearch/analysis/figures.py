"""Figures for a paper: fronts and learning curves, as PNG and SVG.

Colours are Okabe and Ito's blue and vermilion, which colour-blind readers tell apart;
each arm also has its own marker, for print without colour.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocsearch.analysis.figure_data import (
    ArmPoints,
    Curve,
    CurvePanel,
    Frame,
    FrontPanel,
    baseline_in_view,
    curve_panels,
    front_panels,
    metric_label,
)
from allocsearch.analysis.formats import arm_label, format_count, format_number
from allocsearch.results import TrialResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

COLORS = {"recurrent": "#0072B2", "nonrecurrent": "#D55E00"}
MARKERS = {"recurrent": "o", "nonrecurrent": "s"}
_GREY = "#555555"
# Arms share integer depths: each moves aside by this many octaves.
_DODGE = {"recurrent": -0.045, "nonrecurrent": 0.045}
_MOST_TICKS = 8
_BASELINE = "untrained baseline"
STYLE: "dict[RcKeyType, Any]" = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _GREY,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6,
    "xtick.color": _GREY,
    "ytick.color": _GREY,
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "path",
    "svg.hashsalt": "allocsearch",
}


def pareto_figure(results: Iterable[TrialResult], x: str = "depth") -> "Figure":
    """Score against cost: the front of each arm, every trial faintly behind it.

    Error bars are 95 % Student intervals with variance pooled over the arm's trials.

    Args:
        results: trials in any order; one panel for each (budget, expert).
        x: a name in `pareto.AXES`.

    Returns:
        A Matplotlib figure, for `save_figure`; without a complete trial it says so.

    Raises:
        UnknownNameError: an unknown axis.
        ConfigError: trials with different objectives.
    """
    panels = front_panels(results, x)
    note = "Lines: best so far along the axis. Faint: all trials."
    if any(p.low < p.high for panel in panels for a in panel.arms for p in a.front):
        note += " Bars: 95 % t interval, variance pooled over trials."
    return _draw(panels, _draw_front, note, _add_legend)


def learning_curves(
    results: Iterable[TrialResult], metric: str | None = None
) -> "Figure":
    """A metric along training: the best trial of each arm, all others faintly.

    Args:
        results: trials in any order; one panel for each (budget, expert).
        metric: a metric of the curves; the primary objective by default.

    Returns:
        A Matplotlib figure, for `save_figure`; without any curve it says so.

    Raises:
        ConfigError: trials with different objectives.
    """
    panels = curve_panels(results, metric)
    note = "Bold: best trial of each arm. Faint: all other trials."
    if any(e > 0 for panel in panels for c in panel.curves for e in c.errors):
        note += " Bands: ± standard error over seeds."
    return _draw(panels, _draw_curves, note, _add_legends)


def save_figure(figure: "Figure", stem: str | Path) -> list[Path]:
    """Write a figure as PNG and SVG; the same figure gives the same bytes.

    Args:
        figure: of `pareto_figure` or `learning_curves`.
        stem: path without the suffix; missing folders are made.

    Returns:
        The two paths.
    """
    import matplotlib as mpl

    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    png, svg = (stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg"))
    with mpl.rc_context(STYLE):
        figure.savefig(png, dpi=200)
        figure.savefig(svg, metadata={"Date": None})
    return [png, svg]


def _draw(
    panels: Sequence[Any],
    draw_panel: Callable[["Axes", Any], None],
    note: str,
    add_legend: Callable[["Figure"], None],
) -> "Figure":
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        columns = min(max(len(panels), 1), 3)
        rows = -(-len(panels) // columns) or 1
        width = 5.2 if columns == 1 else 4.2 * columns
        figure = Figure(figsize=(width, 3.6 * rows), layout="constrained")
        if not panels:
            figure.text(0.5, 0.5, "No complete trial yet.", ha="center", color=_GREY)
            return figure
        # Budgets side by side are compared by eye, so they share the score's axis.
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_axis_off()
        values = [value for panel in panels for value in panel.values]
        for i, (axes, panel) in enumerate(zip(grid.flat, panels, strict=False)):
            _draw_frame(axes, panel.frame, values)
            draw_panel(axes, panel)
            if i % columns == 0:
                objective = panel.frame.objective
                axes.set_ylabel(metric_label(objective), parse_math=False)
        add_legend(figure)
        figure.supxlabel(note, fontsize=7, color=_GREY)
    return figure


def _add_legend(figure: "Figure") -> None:
    """One legend of the arms above all panels."""
    arms: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        arms |= dict(zip(labels, handles, strict=True))
    shown = [arm_label(arm) for arm in COLORS if arm_label(arm) in arms]
    handles = [arms[label] for label in shown]
    figure.legend(handles, shown, loc="outside upper center", ncols=len(shown))


def _add_legends(figure: "Figure") -> None:
    """A legend below every panel, whose winners differ, clear of curves and labels."""
    for axes in figure.axes:
        if axes.get_legend_handles_labels()[1]:
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16))


def _draw_frame(axes: "Axes", frame: Frame, values: list[float]) -> None:
    """The title, and the baseline where drawing it does not dwarf the data."""
    axes.set_title(frame.title, parse_math=False, linespacing=1.4)
    axes.grid(axis="y")
    axes.margins(y=0.1)
    if frame.baseline is None:
        return
    text, size = _BASELINE, {"fontsize": 7.5, "color": _GREY}
    if baseline_in_view(frame.baseline, values):
        axes.axhline(frame.baseline, color=_GREY, ls=(0, (4, 3)), lw=1)
        y, side, place = frame.baseline, "bottom", axes.get_yaxis_transform()
    else:
        below = frame.baseline < min(values)
        text += f" {format_number(frame.baseline)} {'↓' if below else '↑'}"
        y, side = (0.02, "bottom") if below else (0.98, "top")
        place = axes.transAxes
    axes.text(0.99, y, text, size, transform=place, ha="right", va=side)


def _draw_front(axes: "Axes", panel: FrontPanel) -> None:
    deep = panel.axis.name == "depth"
    for arm in panel.arms:
        shift = 2.0 ** _DODGE[arm.arm] if deep else 1.0
        _draw_arm(axes, arm, shift, max(panel.costs))
    axes.set_xlabel(panel.axis.label)
    if deep:
        _depth_axis(axes, panel.costs)
    else:
        _count_axis(axes.xaxis)


def _draw_arm(axes: "Axes", arm: ArmPoints, shift: float, right: float) -> None:
    """One arm's trials, and its front as stairs that end at the dearest trial."""
    color, marker = COLORS[arm.arm], MARKERS[arm.arm]
    axes.plot(
        [p.x * shift for p in arm.points],
        [p.score for p in arm.points],
        ls="none",
        marker=marker,
        ms=4.5,
        mew=0,
        color=color,
        alpha=_faint(0.35, len(arm.points)),
    )
    axes.plot(
        [x * shift for x in [*(p.x for p in arm.front), right]],
        [p.score for p in [*arm.front, arm.front[-1]]],
        drawstyle="steps-post",
        lw=1.1,
        color=color,
        alpha=0.7,
    )
    below = [p.score - p.low for p in arm.front]
    above = [p.high - p.score for p in arm.front]
    axes.errorbar(
        [p.x * shift for p in arm.front],
        [p.score for p in arm.front],
        [below, above],
        fmt=marker,
        ms=6.5,
        mec="white",
        mew=0.8,
        elinewidth=1.1,
        capsize=2.5,
        color=color,
        label=arm_label(arm.arm),
        zorder=3,
    )


def _faint(alpha: float, count: int) -> float:
    """An opacity that keeps a crowd of marks from hiding its density."""
    return max(0.04, alpha * min(1.0, 40 / max(count, 1)))


def _depth_axis(axes: "Axes", depths: list[float]) -> None:
    """A log₂ axis with a tick at every depth, or at powers of two where many."""
    ticks = depths
    if len(depths) > _MOST_TICKS:
        ticks = [2**k for k in range(int(max(depths)).bit_length())]
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(depths) / 1.35, max(depths) * 1.35)
    axes.set_xticks(ticks, labels=[str(int(tick)) for tick in ticks])
    axes.minorticks_off()


def _count_axis(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_count(value)))


def _draw_curves(axes: "Axes", panel: CurvePanel) -> None:
    from matplotlib.collections import LineCollection

    for arm, color in COLORS.items():
        others = [c for c in panel.curves if c.arm == arm and not c.best]
        lines = [list(zip(c.steps, c.means, strict=True)) for c in others]
        alpha = _faint(0.3, len(lines))
        axes.add_collection(LineCollection(lines, colors=color, lw=0.8, alpha=alpha))
    for curve in panel.curves:
        if curve.best:
            _draw_winner(axes, curve)
    axes.autoscale_view()
    axes.set_xlabel(panel.frame.unit, parse_math=False)
    _count_axis(axes.xaxis)


def _draw_winner(axes: "Axes", curve: Curve) -> None:
    color = COLORS[curve.arm]
    axes.plot(
        curve.steps,
        curve.means,
        marker=MARKERS[curve.arm],
        ms=4.5,
        mec="white",
        mew=0.6,
        markevery=max(1, len(curve.steps) // 12),
        color=color,
        lw=1.8,
        label=f"{arm_label(curve.arm)} #{curve.number} ({curve.label})",
        zorder=3,
    )
    low = [m - e for m, e in zip(curve.means, curve.errors, strict=True)]
    high = [m + e for m, e in zip(curve.means, curve.errors, strict=True)]
    axes.fill_between(curve.steps, low, high, color=color, alpha=0.18, lw=0)
