"""All trials as one data frame."""

import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from allocsearch.allocation import Allocation
from allocsearch.analysis.records import COUNTS, record, records
from allocsearch.analysis.statistics import CONFIDENCE
from allocsearch.results import Objective, TrialResult

if TYPE_CHECKING:
    import pandas as pd

_MAPPINGS = ("settings", "metrics", "baseline", "confirmed", "measures")


def results_frame(
    results: Iterable[TrialResult], confidence: float = CONFIDENCE
) -> "pd.DataFrame":
    """One row per trial, one plain value per column.

    Settings, metrics, baselines and the like have columns named
    ``settings.learning_rate``, ``metrics.solved_fraction``,
    ``baseline.solved_fraction`` and ``confirmed.solved_fraction``; the latter three are
    means over seeds. Counts are nullable integers: missing where a trial failed before
    its network was built. ``options`` is JSON.

    Args:
        results: trials in any order; rows come in listing order (see `grouped`).
        confidence: of ``ci_low`` and ``ci_high``, Student's interval with variance
            pooled within the trial's (budget, expert, arm).

    Returns:
        The frame; no trials give no rows but all fixed columns.

    Raises:
        ConfigError: a confidence outside (0, 1).
    """
    import pandas as pd

    rows = records(results, confidence)
    template = rows[0] if rows else _empty_record()
    names = {
        mapping: list(dict.fromkeys(name for row in rows for name in row[mapping]))
        for mapping in _MAPPINGS
    }
    columns = [
        column
        for name in template
        for column in (
            [f"{name}.{key}" for key in names[name]] if name in names else [name]
        )
    ]
    flat = [_flat(row, names) for row in rows]
    # Counts are built as integers: through floats they would round above 2^53.
    return pd.DataFrame(
        {
            column: pd.array([row[column] for row in flat], dtype="Int64")
            if column in COUNTS
            else [row[column] for row in flat]
            for column in columns
        }
    )


def _flat(row: dict[str, Any], names: dict[str, list[str]]) -> dict[str, Any]:
    flat = {name: value for name, value in row.items() if name not in names}
    flat["options"] = json.dumps(row["options"], sort_keys=True)
    for mapping, keys in names.items():
        flat |= {f"{mapping}.{key}": row[mapping].get(key, math.nan) for key in keys}
    return flat


def _empty_record() -> dict[str, Any]:
    """A record that names the columns where there is no trial to name them."""
    nothing = TrialResult(
        study="",
        task="",
        budget="",
        budget_flops=0,
        number=0,
        state="running",
        allocation=Allocation("", False, 1, 1, 1),
        objectives=(Objective("", "", "maximize"),),
    )
    return record(nothing)
