"""Tables for a terminal, drawn from the rows that `rows` computes."""

from collections.abc import Callable, Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from allocsearch.analysis.fitted import Cell, Column, FittedTable
from allocsearch.analysis.formats import (
    MISSING,
    arm_label,
    format_bytes,
    format_count,
    format_number,
    format_score,
    format_seconds,
    listing,
    plain,
    score_decimals,
)
from allocsearch.analysis.pareto import find_axis
from allocsearch.analysis.rows import Row, summary_notes
from allocsearch.work import format_flops

MOST_REASONS = 10
ARM_STYLES = {"recurrent": "bright_blue", "nonrecurrent": "dark_orange"}


def summary_table(rows: Sequence[Row], mode: str = "search") -> RenderableType:
    """The best trial of each arm side by side, one table per (budget, expert).

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
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["budget"], row["expert"]), []).append(row)
    parts: list[RenderableType] = []
    for group in groups.values():
        parts += [_summary_of_one(group, mode), Text()]
    return Group(*parts[:-1])


def _summary_of_one(rows: Sequence[Row], mode: str) -> FittedTable:
    lines = _summary_lines([row for row in rows if row["number"] is not None])
    columns = [Column("", [label for label, _ in lines], "left")]
    for row in rows:
        cells: list[Cell] = [MISSING] * len(lines)
        if row["number"] is not None:
            cells = [read(row) for _, read in lines]
        columns.append(Column(arm_label(row["arm"]), cells))
    first = rows[0]
    title = f"Best allocations: {plain(first['task'])} · {plain(first['expert'])}"
    said = [Text(plain(note)) for note in summary_notes(rows, mode)]
    notes = [*filter(None, [_error_note(rows)]), *said]
    return FittedTable(title, columns, notes, f"{_budget(first)} per step")


def _summary_lines(found: Sequence[Row]) -> list[tuple[str, Callable[[Row], str]]]:
    """The label of every line and how to read its cell from a row."""
    lines: list[tuple[str, Callable[[Row], str]]] = [
        ("trial", lambda row: f"#{row['number']}"),
        ("depth L", lambda row: str(row["depth"])),
        ("experts E", lambda row: str(row["n_experts"])),
        ("width d", lambda row: str(row["width"])),
        ("radius", lambda row: str(row["radius"])),
        ("aggregation", lambda row: plain(row["aggregation"])),
    ]
    if any(row["options"] for row in found):
        lines.append(("options", lambda row: _pairs(row["options"])))
    names = dict.fromkeys(name for row in found for name in row["settings"])
    lines += [(_words(n), _reader("settings", n)) for n in names]
    lines += [
        ("work, core", lambda row: _flops(row["core_flops"])),
        ("  of which live", lambda row: _flops(row["live_core_flops"])),
        ("work, total", lambda row: _flops(row["total_flops"])),
        ("parameters", lambda row: format_count(row["parameters"])),
    ]
    return lines + _metric_lines(found) + [("horizon", _horizon)]


def _metric_lines(found: Sequence[Row]) -> list[tuple[str, Callable[[Row], str]]]:
    if not found:
        return []
    objective = found[0]["objective"]
    lines: list[tuple[str, Callable[[Row], str]]] = [
        (_words(objective), lambda r: format_score(r["score"], r["standard_error"]))
    ]
    if any(objective in row["baseline"] for row in found):
        lines.append(("  untrained", _reader("baseline", objective)))
    names = dict.fromkeys(name for row in found for name in row["metrics"])
    for name in names:
        if name == objective:
            continue
        lines.append((_words(name), _reader("metrics", name)))
        if any(name in row["baseline"] for row in found):
            lines.append(("  untrained", _reader("baseline", name)))
    tests = dict.fromkeys(name for row in found for name in row["test"])
    return lines + [(f"test {_words(n)}", _reader("test", n)) for n in tests]


def _reader(mapping: str, name: str) -> Callable[[Row], str]:
    return lambda row: format_number(row[mapping].get(name))


def _error_note(rows: Sequence[Row]) -> str:
    found = [row for row in rows if row["number"] is not None]
    if not found:
        return ""
    seeds = sorted({row["n_seeds"] for row in found})
    if seeds == [1]:
        return "One seed each: no error is known."
    number = listing([str(n) for n in seeds])
    best = " Winners are picked by this score, so it flatters them."
    picked = any(row["n_scored"] > 1 for row in found)
    return f"± standard error over {number} seeds.{best if picked else ''}"


def trials_table(rows: Sequence[Row]) -> RenderableType:
    """Every trial on a line, failures explained below.

    Args:
        rows: of `rows.trials_rows`.

    Returns:
        A Rich renderable that drops its least needed columns where it must.
    """
    if not rows:
        return Text("No trials yet.")
    settings = dict.fromkeys(name for row in rows for name in row["settings"])
    columns = [
        Column("#", [_numbered(row) for row in rows]),
        *_place_columns(rows),
        *_shape_columns(rows),
        *(
            Column(
                _words(name), [_reader("settings", name)(r) for r in rows], "right", 4
            )
            for name in settings
        ),
        Column("core work", [_flops(row["core_flops"]) for row in rows], "right", 2),
        _score_column(rows),
        Column("time", [format_seconds(row["seconds"]) for row in rows], "right", 5),
    ]
    notes = ["★ best of its arm. " + _seed_note(rows)] if _any_best(rows) else []
    notes += _unmatched_note(rows)
    return Group(FittedTable("Trials", columns, notes, _shared(rows)), *_reasons(rows))


def _any_best(rows: Sequence[Row]) -> bool:
    return any(row["best"] for row in rows)


def _numbered(row: Row) -> Text:
    mark = "★" if row["best"] else " "
    return Text(f"{mark} {row['number']}{'' if row['matched'] else '*'}")


def _unmatched_note(rows: Sequence[Row]) -> list[str]:
    if all(row["matched"] for row in rows):
        return []
    return ["* not matched: work outside the budget's feasible band."]


def _reasons(rows: Sequence[Row]) -> list[Text]:
    """Why trials failed, a line each; `show` has the rest."""
    failed = [row for row in rows if row["state"] == "failed"]
    lines = []
    for row in failed[:MOST_REASONS]:
        reason = plain(row["reason"]) or "no reason was recorded"
        line = f"{arm_label(row['arm'])} #{row['number']} failed: {reason}"
        lines.append(Text(line, "red", no_wrap=True, overflow="ellipsis"))
    if len(failed) > MOST_REASONS:
        lines.append(Text(f"{len(failed) - MOST_REASONS} more failed.", "red"))
    return lines


def _score_column(rows: Sequence[Row]) -> Column:
    decimals = score_decimals(row["standard_error"] for row in rows)
    return Column(_objective(rows), [_outcome(row, decimals) for row in rows])


def _outcome(row: Row, decimals: int | None) -> Text:
    if row["state"] != "complete":
        style = "red" if row["state"] == "failed" else "dim"
        return Text(plain(row["state"]), style)
    if row["score"] is None:
        return Text("not finite", "red")
    score = format_score(row["score"], row["standard_error"], decimals)
    return Text(score, "bold" if row.get("best") else "")


def pareto_table(rows: Sequence[Row]) -> RenderableType:
    """The fronts of all arms, cheapest first.

    Args:
        rows: of `rows.pareto_rows`.

    Returns:
        A Rich renderable.
    """
    if not rows:
        return Text("No complete trial yet, so there is no front.")
    axis = find_axis(rows[0]["x"])
    columns = _place_columns(rows)
    if axis.name != "depth":
        cost = [_cost(axis.unit, row["cost"]) for row in rows]
        columns.append(Column(axis.label, cost))
    columns += [
        *_shape_columns(rows),
        Column("core work", [_flops(row["core_flops"]) for row in rows], "right", 2),
        Column("trial", [f"#{row['number']}" for row in rows], "right", 1),
        _score_column(rows),
    ]
    keys = [(row["budget"], row["expert"], row["arm"]) for row in rows]
    breaks = [i for i in range(len(keys) - 1) if keys[i] != keys[i + 1]]
    title = f"Pareto front: {_objective(rows)} against {axis.label}"
    notes = [_seed_note(rows), "A front of what was tried, not a claim about depth."]
    return FittedTable(
        title, columns, [*filter(None, notes)], _shared(rows), breaks=breaks
    )


def _cost(unit: str, value: float) -> str:
    formats = {"FLOP": format_flops, "bytes": format_bytes, "s": format_seconds}
    return formats.get(unit, format_count)(value)


def _place_columns(rows: Sequence[Row]) -> list[Column]:
    """Budget and expert where they vary, and the arm."""
    columns = [
        Column(name, [plain(row[name]) for row in rows], "left")
        for name in ("budget", "expert")
        if len({row[name] for row in rows}) > 1
    ]
    arms = [Text(arm_label(row["arm"]), ARM_STYLES[row["arm"]]) for row in rows]
    return [*columns, Column("arm", arms, "left")]


def _shape_columns(rows: Sequence[Row]) -> list[Column]:
    columns = [
        Column("L", [str(row["depth"]) for row in rows]),
        Column("E", [str(row["n_experts"]) for row in rows]),
        Column("d", [str(row["width"]) for row in rows]),
        Column("radius", [str(row["radius"]) for row in rows], "right", 3, True),
        Column("aggregation", [plain(r["aggregation"]) for r in rows], "left", 3, True),
    ]
    if any(row["options"] for row in rows):
        options = [_pairs(row["options"]) for row in rows]
        columns.append(Column("options", options, "left", 6, True))
    return columns


def _shared(rows: Sequence[Row]) -> str:
    """What all rows share: task, expert and budget, as far as they do."""
    shared = [rows[0]["task"]]
    if len({row["expert"] for row in rows}) == 1:
        shared.append(rows[0]["expert"])
    if len({row["budget"] for row in rows}) == 1:
        shared.append(f"{_budget(rows[0])} per step")
    horizons = {_horizon(row) for row in rows}
    if len(horizons) == 1:
        shared.append(horizons.pop())
    return " · ".join(plain(part) for part in shared)


def _budget(row: Row) -> str:
    return f"budget {plain(row['budget'])} ({_flops(row['budget_flops'])})"


def _seed_note(rows: Iterable[Row]) -> str:
    seeds = sorted(
        {row["n_seeds"] for row in rows if row["standard_error"] is not None}
    )
    if not seeds:
        return ""
    return f"± standard error over {listing([str(n) for n in seeds])} seeds."


def _objective(rows: Sequence[Row]) -> str:
    return _words(rows[0]["objective"])


def _horizon(row: Row) -> str:
    return f"{format_count(row['horizon'])} {plain(row['unit'])}"


def _flops(value: int | None) -> str:
    return MISSING if value is None else format_flops(value)


def _words(name: str) -> str:
    return plain(name).replace("_", " ")


def _pairs(options: dict[str, object]) -> str:
    pairs = (f"{plain(name)}={plain(str(value))}" for name, value in options.items())
    return " ".join(pairs) or MISSING
