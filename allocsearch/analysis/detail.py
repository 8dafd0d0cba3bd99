"""Everything about one trial, drawn from `rows.detail_row`."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from allocsearch.analysis.fitted import Column, FittedTable
from allocsearch.analysis.formats import (
    MISSING,
    arm_label,
    format_bytes,
    format_count,
    format_number,
    format_score,
    format_seconds,
    plain,
)
from allocsearch.analysis.rows import Row
from allocsearch.work import format_flops

Pairs = Iterable[tuple[str, str]]

_WORK = {
    "core": "core_flops",
    "core, of which live": "live_core_flops",
    "encoder": "encoder_flops",
    "head": "head_flops",
    "total": "total_flops",
    "training, forward included": "training_flops",
    "element-wise, apart": "elementwise_flops",
}


def trial_detail(row: Row) -> RenderableType:
    """One trial in sections: allocation, result, seeds, work, size, provenance.

    Args:
        row: of `rows.detail_row`.

    Returns:
        A Rich renderable.
    """
    title = f"Trial #{row['number']} · {arm_label(row['arm'])} · {plain(row['label'])}"
    parts: list[RenderableType] = [Text(title, style="bold"), _section(_study(row))]
    if row["state"] == "failed":
        reason = plain(row["reason"]) or "no reason was recorded"
        parts += [Text(f"Failed: {reason}", style="red")]
    elif row["state"] == "pruned":
        parts += [Text(f"Pruned: {plain(row['reason'])}", style="dim")]
    parts += [*_titled("Allocation", _allocation(row)), *_seeds(row)]
    if row["core_flops"] is not None:
        work = [(name, format_flops(row[key])) for name, key in _WORK.items()]
        parts += _titled("Work of one step, forward, one stream", work)
        parts += _titled("Size", _size(row))
    parts += _titled("Provenance", _provenance(row))
    return Group(*parts)


def _titled(title: str, pairs: Pairs) -> list[RenderableType]:
    return [Text(), Text(title, style="bold"), _section(pairs)]


def _section(pairs: Pairs) -> Table:
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(no_wrap=True, min_width=26)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(plain(name), style="dim"), Text(plain(value)))
    return table


def _study(row: Row) -> Pairs:
    budget = f"{row['budget']} ({format_flops(row['budget_flops'])} per step)"
    yield "study", row["study"]
    yield "task", row["task"]
    yield "budget", budget
    yield "inside the feasible band", "yes" if row["matched"] else "no"
    yield "state", row["state"]
    yield "horizon", f"{format_count(row['horizon'])} {row['unit']} per seed"
    yield "time", f"{format_seconds(row['seconds'])}, all seeds"


def _allocation(row: Row) -> Pairs:
    yield "expert", row["expert"]
    yield "depth L", str(row["depth"])
    yield "experts E", str(row["n_experts"])
    yield "width d", str(row["width"])
    yield "radius", str(row["radius"])
    yield "aggregation", row["aggregation"]
    for name, value in row["options"].items():
        yield f"option {name}", str(value)
    for name, value in row["settings"].items():
        yield name.replace("_", " "), format_number(value)


def _seeds(row: Row) -> list[RenderableType]:
    """Final metrics per seed, with the mean and the untrained baseline below."""
    if not row["seeds"]:
        return []
    names = list(row["metrics"])
    last = ("mean", *(["untrained"] if row["baseline"] else []))
    labels = [*(str(seed["seed"]) for seed in row["seeds"]), *last]
    columns = [Column("seed", labels, "left")]
    for name in names:
        cells = [format_number(seed["metrics"].get(name)) for seed in row["seeds"]]
        cells += [format_number(row["metrics"][name])]
        cells += [format_number(row["baseline"].get(name))] * (len(last) - 1)
        columns.append(Column(plain(name).replace("_", " "), cells))
    breaks = [len(row["seeds"]) - 1]
    table = FittedTable("Result", columns, _score_notes(row), breaks=breaks)
    return [Text(), table]


def _score_notes(row: Row) -> list[str]:
    better = "higher" if row["direction"] == "maximize" else "lower"
    score = format_score(row["score"], row["standard_error"])
    unit = f" {row['score_unit']}" if row["score_unit"] != row["objective"] else ""
    note = plain(f"{row['objective']}: {score}{unit}, {better} is better")
    if row["standard_error"] is not None:
        note += f" (± standard error over {row['n_seeds']} seeds)"
    if row["ci_low"] is None:
        return [f"{note}."]
    low, high = format_number(row["ci_low"]), format_number(row["ci_high"])
    return [
        f"{note}.",
        f"{row['confidence']:.0%} interval [{low}, {high}]: Student's t, variance "
        "pooled over the trials of this arm.",
    ]


def _size(row: Row) -> Pairs:
    yield "parameters", format_count(row["parameters"])
    yield "parameters of the core", format_count(row["core_parameters"])
    yield "state carried per stream", format_bytes(row["state_bytes"])
    yield "context per stream", format_bytes(row["context_bytes"])


def _provenance(row: Row) -> Pairs:
    yield "digest", row["digest"]
    yield "started", row["started"] or MISSING
    yield "finished", row["finished"] or MISSING
    yield "checkpoint", row["checkpoint"] or MISSING
    yield from row["plugins"].items()
