"""One trial as a flat record of plain values, which tables and the data frame share."""

import math
from collections.abc import Callable, Iterable
from typing import Any

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

COUNTS: dict[str, Callable[[Audit], int]] = {
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


def records(
    results: Iterable[TrialResult], confidence: float = CONFIDENCE
) -> list[dict[str, Any]]:
    """A record of every trial, in listing order (see `grouped`).

    Args:
        results: trials in any order. Intervals pool variance within each
            (budget, expert, arm) of them.
        confidence: nominal coverage of ``ci_low`` and ``ci_high``.

    Returns:
        Records as of `record`.

    Raises:
        ConfigError: a confidence outside (0, 1).
    """
    results = [result for group in grouped(results).values() for result in group]
    variances = search_variances(results)
    return [record(r, variances[key_of(r)], confidence) for r in results]


def record(
    result: TrialResult,
    variance: Variance | None = None,
    confidence: float = CONFIDENCE,
) -> dict[str, Any]:
    """A trial as plain values.

    Args:
        result: the trial.
        variance: of one seed's score; the trial's own seeds tell it by default.
        confidence: nominal coverage of ``ci_low`` and ``ci_high``.

    Returns:
        Scalars by name, and mappings of floats for ``settings``, ``metrics``,
        ``baseline`` and ``confirmed`` (means over seeds) and ``measures``. What is
        unknown is NaN, or None for a count.
    """
    return {
        **_identity(result),
        **_score(result, variance, confidence),
        **_counts(result.audit),
        **_course(result),
    }


def baseline_means(result: TrialResult) -> dict[str, float]:
    """The untrained reference's metrics, each averaged over the seeds that have it."""
    names = dict.fromkeys(name for seed in result.seeds for name in seed.baseline)
    return {
        name: mean([s.baseline[name] for s in result.seeds if name in s.baseline])
        for name in names
    }


def confirmed_means(result: TrialResult) -> dict[str, float]:
    """The metrics of fresh seeds, which did not choose the trial, averaged."""
    names = dict.fromkeys(name for seed in result.confirmed for name in seed.metrics)
    return {name: result.confirmed_mean(name) for name in names}


def json_ready(value: Any) -> Any:
    """The same value with None for every float that JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(name): json_ready(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(entry) for entry in value]
    return value


def _identity(result: TrialResult) -> dict[str, Any]:
    allocation = result.allocation.to_dict()
    del allocation["recurrent"]
    return {
        "study": result.study,
        "task": result.task,
        "budget": result.budget,
        "budget_flops": result.budget_flops,
        "expert": allocation.pop("expert"),
        "arm": result.arm,
        "number": result.number,
        "state": result.state,
        **allocation,
        "settings": dict(result.settings),
    }


def _score(
    result: TrialResult, variance: Variance | None, confidence: float
) -> dict[str, Any]:
    scores = primary_scores(result)
    interval = t_interval(scores, variance, confidence)
    metrics = dict.fromkeys(name for seed in result.seeds for name in seed.metrics)
    return {
        "objective": result.objective.name,
        "score_unit": result.objective.unit,
        "direction": result.objective.direction,
        "score": mean(scores),
        "standard_error": standard_error(scores),
        "ci_low": interval.low if interval else math.nan,
        "ci_high": interval.high if interval else math.nan,
        "n_seeds": len(scores),
        "metrics": {name: mean(seed_values(result, name)) for name in metrics},
        "baseline": baseline_means(result),
        "confirmed": confirmed_means(result),
        "n_confirmed": len(result.confirmed),
        "confirmed_standard_error": standard_error(
            [s.metrics.get(result.objective.name, math.nan) for s in result.confirmed]
        ),
    }


def _counts(audit: Audit | None) -> dict[str, int | None]:
    return {name: read(audit) if audit else None for name, read in COUNTS.items()}


def _course(result: TrialResult) -> dict[str, Any]:
    return {
        "horizon": result.horizon,
        "unit": result.unit,
        "fraction": result.fraction,
        "seconds": result.seconds,
        "measures": dict(result.measures),
        "matched": result.matched,
        "reason": result.reason,
        "started": result.started,
        "finished": result.finished,
    }
