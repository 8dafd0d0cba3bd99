"""All trials as one data frame."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from allocsearch.analysis.candidates import (
    grouped,
    key_of,
    primary_scores,
    seed_values,
)
from allocsearch.analysis.statistics import (
    CONFIDENCE,
    Variance,
    mean,
    search_variances,
    standard_error,
    t_interval,
)
from allocsearch.results import TrialResult
from allocsearch.work import Audit

if TYPE_CHECKING:
    import pandas as pd

Read = Callable[[TrialResult], Any]

_IDENTITY: dict[str, Read] = {
    "study": lambda r: r.study,
    "task": lambda r: r.task,
    "budget": lambda r: r.budget,
    "budget_flops": lambda r: r.budget_flops,
    "expert": lambda r: r.allocation.expert,
    "arm": lambda r: r.arm,
    "number": lambda r: r.number,
    "state": lambda r: r.state,
    "depth": lambda r: r.allocation.depth,
    "n_experts": lambda r: r.allocation.n_experts,
    "width": lambda r: r.allocation.width,
    "radius": lambda r: r.allocation.radius,
    "aggregation": lambda r: r.allocation.aggregation,
    "options": lambda r: json.dumps(dict(r.allocation.options), sort_keys=True),
}
_COUNTS: dict[str, Callable[[Audit], int]] = {
    "core_flops": lambda a: a.work.core,
    "live_core_flops": lambda a: a.live_core,
    "encoder_flops": lambda a: a.work.encoder,
    "head_flops": lambda a: a.work.head,
    "total_flops": lambda a: a.work.total,
    "training_flops": lambda a: a.training,
    "elementwise_flops": lambda a: a.elementwise,
    "parameters": lambda a: a.parameters,
    "core_parameters": lambda a: a.core_parameters,
    "state_bytes": lambda a: a.state_bytes,
    "context_bytes": lambda a: a.context_bytes,
}
_COURSE: dict[str, Read] = {
    "horizon": lambda r: r.horizon,
    "unit": lambda r: r.unit,
    "seconds": lambda r: r.seconds,
    "matched": lambda r: r.matched,
    "reason": lambda r: r.reason,
    "started": lambda r: r.started,
    "finished": lambda r: r.finished,
}
_SCORE = (
    *("objective", "score_unit", "direction", "score", "standard_error"),
    *("ci_low", "ci_high", "n_seeds"),
)


def results_frame(
    results: Iterable[TrialResult], confidence: float = CONFIDENCE
) -> "pd.DataFrame":
    """One row per trial, one plain value per column.

    Settings, metrics and baselines have columns named ``settings.learning_rate``,
    ``metrics.solved_fraction`` and ``baseline.solved_fraction``; the latter two are
    means over seeds. Counts are nullable integers: missing where a trial failed before
    its network was built.

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

    results = [result for group in grouped(results).values() for result in group]
    variances = search_variances(results)
    names = _open_names(results)
    rows = [_row(r, names, variances[key_of(r)], confidence) for r in results]
    fixed = [*_IDENTITY, *_SCORE, *_COUNTS, *_COURSE]
    frame = pd.DataFrame(rows, columns=pd.Index(list(rows[0]) if rows else fixed))
    # Counts stay integers where some are missing; floats would round above 2^53.
    return frame.astype(dict.fromkeys(_COUNTS, "Int64"))


def baseline_mean(result: TrialResult, metric: str) -> float:
    """The untrained reference's metric, averaged over seeds; NaN if none."""
    values = [s.baseline[metric] for s in result.seeds if metric in s.baseline]
    return mean(values)


def _open_names(results: list[TrialResult]) -> dict[str, list[str]]:
    """Settings, metrics and baseline metrics in order of first appearance."""
    seeds = [seed for result in results for seed in result.seeds]
    return {
        "settings": _distinct(result.settings for result in results),
        "metrics": _distinct(seed.metrics for seed in seeds),
        "baseline": _distinct(seed.baseline for seed in seeds),
    }


def _distinct(mappings: Iterable[Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))


def _row(
    result: TrialResult,
    names: dict[str, list[str]],
    variance: Variance | None,
    confidence: float,
) -> dict[str, Any]:
    return {
        **{name: read(result) for name, read in _IDENTITY.items()},
        **{
            f"settings.{n}": result.settings.get(n, math.nan) for n in names["settings"]
        },
        **_score(result, variance, confidence),
        **{f"metrics.{n}": mean(seed_values(result, n)) for n in names["metrics"]},
        **{f"baseline.{n}": baseline_mean(result, n) for n in names["baseline"]},
        **_counts(result),
        **{name: read(result) for name, read in _COURSE.items()},
    }


def _score(
    result: TrialResult, variance: Variance | None, confidence: float
) -> dict[str, Any]:
    scores = primary_scores(result)
    interval = t_interval(scores, variance, confidence)
    values = (
        *(result.objective.name, result.objective.unit, result.objective.direction),
        *(mean(scores), standard_error(scores)),
        *((interval.low, interval.high) if interval else (math.nan, math.nan)),
        len(scores),
    )
    return dict(zip(_SCORE, values, strict=True))


def _counts(result: TrialResult) -> dict[str, int | None]:
    audit = result.audit
    return {name: read(audit) if audit else None for name, read in _COUNTS.items()}
