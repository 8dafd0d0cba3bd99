"""The trial selected at each depth, and how it did: the table that papers print."""

import csv
import io
import math
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from allocsearch.analysis.candidates import (
    Key,
    candidates,
    key_of,
    primary_scores,
    ranking,
)
from allocsearch.analysis.cells import (
    budget_cell,
    flops_cell,
    horizon_cell,
    read_number,
    words,
)
from allocsearch.analysis.fitted import Column, FittedTable
from allocsearch.analysis.formats import arm_label, format_number, listing, plain
from allocsearch.analysis.records import json_ready, record
from allocsearch.analysis.rows import Row
from allocsearch.analysis.statistics import mean, pooled_variance
from allocsearch.analysis.tables import ARM_STYLES, shape_columns
from allocsearch.errors import ConfigError, unknown_name
from allocsearch.results import TrialResult

SELECTIONS = ("objective", "training")


def by_depth_rows(
    results: Iterable[TrialResult], select: str = "objective"
) -> list[Row]:
    """The trial selected at every depth of every (budget, expert, arm).

    Args:
        results: trials in any order.
        select: "objective" for the best score on validation data, or "training" for
            the best while training, measured over the same last part of it.

    Returns:
        Records in listing order, shallow first, with ``"variance"`` (the sample
        variance of a seed's score, with n − 1; unknown for one seed), ``"training"``
        (means over seeds of what was measured while training), ``"n_selected_from"``
        (candidates at that depth) and ``"select"``.

    Raises:
        ConfigError: trials with different objectives, or selected by training where a
            candidate lacks it.
        UnknownNameError: an unknown selection.
    """
    if select not in SELECTIONS:
        raise unknown_name("selection", select, SELECTIONS)
    groups: dict[tuple[Key, int], list[TrialResult]] = {}
    for result in candidates(results):
        place = key_of(result), result.allocation.depth
        groups.setdefault(place, []).append(result)
    order = list(dict.fromkeys(key for key, _ in groups))
    rows = []
    for key, depth in sorted(groups, key=lambda at: (order.index(at[0]), at[1])):
        group = groups[key, depth]
        chosen = min(group, key=_by_training if select == "training" else ranking)
        variance = pooled_variance([primary_scores(chosen)])
        rows.append(
            {
                **record(chosen),
                "variance": variance.value if variance else math.nan,
                "training": _training_means(chosen),
                "n_selected_from": len(group),
                "select": select,
            }
        )
    return json_ready(rows)


def _training_means(result: TrialResult) -> dict[str, float]:
    """What was measured while training, averaged over seeds; NaN where one lacks it."""
    names = dict.fromkeys(name for seed in result.seeds for name in seed.training)
    return {
        name: mean([seed.training.get(name, math.nan) for seed in result.seeds])
        for name in names
    }


def _by_training(result: TrialResult) -> tuple:
    objective = result.objective
    value = _training_means(result).get(objective.name, math.nan)
    if not math.isfinite(value):
        raise ConfigError(
            f"{result.arm} trial {result.number} of study {result.study} has no "
            f"{objective.name} measured while training: the task does not measure it, "
            "no episode ended, or the trial is older than this measure; select by "
            "objective"
        )
    return (-value if objective.direction == "maximize" else value, *ranking(result))


def by_depth_tables(rows: Sequence[Row]) -> RenderableType:
    """A table for each (budget, expert), the arms below each other.

    Args:
        rows: of `by_depth_rows`.

    Returns:
        A Rich renderable.
    """
    if not rows:
        return Text("No complete trial yet, so none is selected.")
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["budget"], row["expert"]), []).append(row)
    parts: list[RenderableType] = []
    for group in groups.values():
        parts += [_table(group), Text()]
    return Group(*parts[:-1])


def _table(rows: Sequence[Row]) -> FittedTable:
    first = rows[0]
    objective = first["objective"]
    arms = [Text(arm_label(row["arm"]), ARM_STYLES[row["arm"]]) for row in rows]
    others = [n for n in _names(rows, "metrics") if n != objective]
    columns = [
        Column("arm", arms, "left"),
        *shape_columns(rows),
        Column(f"mean {words(objective)}", [format_number(r["score"]) for r in rows]),
        Column("variance", [format_number(row["variance"]) for row in rows]),
        Column("seeds", [str(row["n_seeds"]) for row in rows], "right", 2, True),
        *(_numbers(rows, "metrics", name, words(name), 1) for name in others[:1]),
        *(_numbers(rows, "metrics", name, words(name), 5) for name in others[1:]),
    ]
    if objective in _names(rows, "training"):
        heading = f"training {words(objective)}"
        columns.append(_numbers(rows, "training", objective, heading, 3))
    columns += [
        *(
            _numbers(rows, "settings", name, words(name), 4)
            for name in _names(rows, "settings")
        ),
        Column("core work", [flops_cell(r["core_flops"]) for r in rows], "right", 3),
        Column("trial", [f"#{row['number']}" for row in rows], "right", 2),
        Column("of", [str(row["n_selected_from"]) for row in rows], "right", 2),
    ]
    names = plain(first["task"]), plain(first["expert"])
    title = f"Selected at each depth: {' · '.join(names)}"
    horizons = list(dict.fromkeys(horizon_cell(row) for row in rows))
    subtitle = f"{budget_cell(first)} · {listing(horizons)}"
    breaks = [i for i in range(len(rows) - 1) if rows[i]["arm"] != rows[i + 1]["arm"]]
    return FittedTable(title, columns, _notes(first), subtitle, breaks=breaks)


def _names(rows: Sequence[Row], mapping: str) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row[mapping]))


def _numbers(
    rows: Sequence[Row], mapping: str, name: str, heading: str, priority: int
) -> Column:
    read = read_number(mapping, name)
    return Column(heading, [read(row) for row in rows], "right", priority)


def _notes(row: Row) -> list[str]:
    name = words(row["objective"])
    best = "highest" if row["direction"] == "maximize" else "lowest"
    place = "on validation data" if row["select"] == "objective" else "in training"
    return [
        f"Mean and sample variance (n − 1), over seeds, of each seed's {name}, itself "
        "the mean of its last evaluations.",
        f"Of the trials at a depth, the one with the {best} {name} {place}: picked "
        "for it, so a depth with more trials looks better.",
    ]


def by_depth_csv(rows: Sequence[Row]) -> str:
    """The rows as comma-separated values with a header, one row a line.

    Mappings are spread over columns such as ``metrics.solved_fraction``; what is
    unknown is empty.
    """
    flat = [_flat(row) for row in rows]
    names = dict.fromkeys(name for row in flat for name in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(row: Row) -> Row:
    flat: Row = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": x for inner, x in value.items()}
        else:
            flat[name] = value
    return flat
