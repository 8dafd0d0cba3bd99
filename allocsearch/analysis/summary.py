"""The table that answers the question: the best allocation of each arm."""

from collections.abc import Callable, Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from allocsearch.analysis.cells import (
    budget_cell,
    flops_cell,
    horizon_cell,
    pairs_cell,
    read_number,
    seed_note,
    words,
)
from allocsearch.analysis.fitted import Column, FittedTable
from allocsearch.analysis.formats import (
    MISSING,
    arm_label,
    format_count,
    format_score,
    plain,
)
from allocsearch.analysis.rows import Row, summary_notes

Line = tuple[str, Callable[[Row], str]]


def summary_table(rows: Sequence[Row], mode: str = "search") -> RenderableType:
    """The best trial of each arm side by side, one table per (budget, expert).

    Where each arm has an expert of its own, one table per budget.

    Args:
        rows: of `rows.summary_rows`.
        mode: "search", "claim" or "sweep"; it decides what the notes may say.

    Returns:
        A Rich renderable, at most about 75 columns wide for one expert.

    Raises:
        ConfigError: an unknown mode.
    """
    if not rows:
        return Text("No trials yet.")
    parts: list[RenderableType] = []
    for group in _side_by_side(rows):
        parts += [_summary_of_one(group, mode), Text()]
    return Group(*parts[:-1])


def _side_by_side(rows: Sequence[Row]) -> Iterable[list[Row]]:
    budgets: dict[str, list[Row]] = {}
    for row in rows:
        budgets.setdefault(row["budget"], []).append(row)
    for group in budgets.values():
        arms = {row["arm"] for row in group}
        if len(arms) == len(group):
            yield group
            continue
        experts = dict.fromkeys(row["expert"] for row in group)
        yield from ([r for r in group if r["expert"] == name] for name in experts)


def _summary_of_one(rows: Sequence[Row], mode: str) -> RenderableType:
    first = rows[0]
    experts = [plain(name) for name in dict.fromkeys(row["expert"] for row in rows)]
    title = f"Best allocations: {plain(first['task'])}"
    title += f" · {experts[0]}" if len(experts) == 1 else ""
    subtitle = budget_cell(first)
    said = [Text(plain(note)) for note in summary_notes(rows, mode)]
    found = [row for row in rows if row["number"] is not None]
    if not found:
        return Group(Text(title, "bold"), Text(subtitle), *said)
    lines = _summary_lines(found)
    columns = [Column("", [label for label, _ in lines], "left")]
    for row in rows:
        known = row["number"] is not None
        cells = [read(row) if known else MISSING for _, read in lines]
        columns.append(Column(arm_label(row["arm"]), cells))
    return FittedTable(title, columns, [_error_note(found), *said], subtitle)


def _summary_lines(found: Sequence[Row]) -> list[Line]:
    """The label of every line and how to read its cell from a row."""
    several = len({row["expert"] for row in found}) > 1
    lines: list[Line] = [
        ("trial", lambda row: f"#{row['number']}"),
        *([("expert", lambda row: plain(row["expert"]))] if several else []),
        ("depth L", lambda row: str(row["depth"])),
        ("experts E", lambda row: str(row["n_experts"])),
        ("width d", lambda row: str(row["width"])),
        ("radius", lambda row: str(row["radius"])),
        ("aggregation", lambda row: plain(row["aggregation"])),
    ]
    if any(row["options"] for row in found):
        lines.append(("options", lambda row: pairs_cell(row["options"])))
    names = dict.fromkeys(name for row in found for name in row["settings"])
    lines += [(words(n), read_number("settings", n)) for n in names]
    lines += [
        ("work, core", lambda row: flops_cell(row["core_flops"])),
        ("  of which live", lambda row: flops_cell(row["live_core_flops"])),
        ("work, total", lambda row: flops_cell(row["total_flops"])),
        ("parameters", lambda row: format_count(row["parameters"])),
    ]
    return lines + _metric_lines(found) + [("horizon", horizon_cell)]


def _metric_lines(found: Sequence[Row]) -> list[Line]:
    objective = found[0]["objective"]
    lines: list[Line] = [
        (words(objective), lambda r: format_score(r["score"], r["standard_error"]))
    ]
    if any(row["n_confirmed"] for row in found):
        lines.append(("  with fresh seeds", lambda r: _confirmed(r, objective)))
    if any(objective in row["baseline"] for row in found):
        lines.append(("  untrained baseline", read_number("baseline", objective)))
    names = dict.fromkeys(name for row in found for name in row["metrics"])
    for name in names:
        if name == objective:
            continue
        lines.append((words(name), read_number("metrics", name)))
        if any(name in row["baseline"] for row in found):
            lines.append(("  untrained baseline", read_number("baseline", name)))
    tests = dict.fromkeys(name for row in found for name in row["test"])
    return lines + [(f"test {words(n)}", read_number("test", n)) for n in tests]


def _confirmed(row: Row, objective: str) -> str:
    score = row["confirmed"].get(objective)
    if score is None:
        return "failed" if row["n_confirmed"] else MISSING
    return format_score(score, row["confirmed_standard_error"])


def _error_note(found: Sequence[Row]) -> str:
    note = seed_note(found) or "One seed each: no error is known."
    if any(row["n_scored"] > 1 for row in found):
        note += " Winners are picked by this score, so it flatters them"
        fresh = any(row["n_confirmed"] for row in found)
        note += "; fresh seeds had no part in that." if fresh else "."
    return note
