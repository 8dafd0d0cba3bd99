"""Tables for a terminal, drawn from the rows that `rows` computes."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from allocsearch.analysis.cells import (
    budget_cell,
    flops_cell,
    horizon_cell,
    objective_name,
    pairs_cell,
    read_number,
    seed_note,
    words,
)
from allocsearch.analysis.fitted import Column, FittedTable
from allocsearch.analysis.formats import (
    arm_label,
    format_bytes,
    format_count,
    format_score,
    format_seconds,
    plain,
    score_decimals,
)
from allocsearch.analysis.pareto import find_axis
from allocsearch.analysis.rows import Row
from allocsearch.work import format_flops

MOST_REASONS = 10
ARM_STYLES = {"recurrent": "bright_blue", "nonrecurrent": "dark_orange"}


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
        *shape_columns(rows),
        *(
            Column(
                words(name),
                [read_number("settings", name)(r) for r in rows],
                "right",
                4,
            )
            for name in settings
        ),
        Column(
            "core work", [flops_cell(row["core_flops"]) for row in rows], "right", 2
        ),
        _score_column(rows),
        Column("time", [format_seconds(row["seconds"]) for row in rows], "right", 5),
    ]
    notes = [f"★ best of its arm. {seed_note(rows)}".strip()] if _any_best(rows) else []
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
    return Column(objective_name(rows), [_outcome(row, decimals) for row in rows])


def _outcome(row: Row, decimals: int | None) -> Text:
    if row["state"] != "complete":
        style = "red" if row["state"] == "failed" else "dim"
        share = f" at {row['fraction']:.0%}" if row["state"] == "pruned" else ""
        return Text(plain(row["state"]) + share, style)
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
        *shape_columns(rows),
        Column(
            "core work", [flops_cell(row["core_flops"]) for row in rows], "right", 2
        ),
        Column("trial", [f"#{row['number']}" for row in rows], "right", 1),
        _score_column(rows),
    ]
    keys = [(row["budget"], row["expert"], row["arm"]) for row in rows]
    breaks = [i for i in range(len(keys) - 1) if keys[i] != keys[i + 1]]
    title = f"Pareto front: {objective_name(rows)} against {axis.label}"
    notes = [seed_note(rows), "A front of what was tried, not a claim about depth."]
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


def shape_columns(rows: Sequence[Row]) -> list[Column]:
    """What was built: L, E, d, and the rest where it varies."""
    columns = [
        Column("L", [str(row["depth"]) for row in rows]),
        Column("E", [str(row["n_experts"]) for row in rows]),
        Column("d", [str(row["width"]) for row in rows]),
        Column("radius", [str(row["radius"]) for row in rows], "right", 3, True),
        Column("aggregation", [plain(r["aggregation"]) for r in rows], "left", 3, True),
    ]
    if any(row["options"] for row in rows):
        options = [pairs_cell(row["options"]) for row in rows]
        columns.append(Column("options", options, "left", 6, True))
    return columns


def _shared(rows: Sequence[Row]) -> str:
    """What all rows share: task, expert and budget, as far as they do."""
    shared = [rows[0]["task"]]
    if len({row["expert"] for row in rows}) == 1:
        shared.append(rows[0]["expert"])
    if len({row["budget"] for row in rows}) == 1:
        shared.append(budget_cell(rows[0]))
    horizons = {horizon_cell(row) for row in rows}
    if len(horizons) == 1:
        shared.append(horizons.pop())
    return " · ".join(plain(part) for part in shared)
