"""Which trials may be compared at all, and in what order equals are ranked."""

import math
from collections.abc import Iterable, Sequence

from allocsearch.allocation import ARMS
from allocsearch.errors import ConfigError
from allocsearch.results import Objective, TrialResult

# (budget, expert, arm): what one search covers, within which scores are comparable.
Key = tuple[str, str, str]


def key_of(result: TrialResult) -> Key:
    """The (budget, expert, arm) that a trial belongs to."""
    return result.budget, result.allocation.expert, result.arm


def grouped(results: Iterable[TrialResult]) -> dict[Key, list[TrialResult]]:
    """Trials by (budget, expert, arm), in the order that tables list them.

    Budgets go from small to large, then experts by name, the recurrent arm first, and
    trials by number.
    """
    groups: dict[Key, list[TrialResult]] = {}
    for result in sorted(results, key=_listing_order):
        groups.setdefault(key_of(result), []).append(result)
    return groups


def _listing_order(result: TrialResult) -> tuple:
    return (
        result.budget_flops,
        result.budget,
        result.allocation.expert,
        ARMS.index(result.arm),
        result.number,
        result.study,
    )


def common_objective(results: Sequence[TrialResult]) -> Objective | None:
    """The primary objective that all trials share, None where there are no trials.

    Raises:
        ConfigError: the trials have different objectives, so no order exists.
    """
    objectives = {result.objective for result in results}
    if len(objectives) > 1:
        names = sorted(f"{o.name} ({o.direction})" for o in objectives)
        raise ConfigError(
            f"trials with different objectives cannot be ranked: {', '.join(names)}; "
            "analyse one task at a time"
        )
    return next(iter(objectives), None)


def seed_values(result: TrialResult, metric: str) -> list[float]:
    """One metric of every seed, in seed order; NaN where a seed lacks it."""
    return [float(seed.metrics.get(metric, math.nan)) for seed in result.seeds]


def primary_scores(result: TrialResult) -> list[float]:
    """The primary objective of every seed; NaN where a seed lacks it."""
    return seed_values(result, result.objective.name)


def has_score(result: TrialResult) -> bool:
    """Whether a trial is complete and finite in every seed.

    One diverged seed disqualifies the trial: a mean over the seeds that survived would
    reward instability.
    """
    scores = primary_scores(result)
    complete = result.state == "complete"
    return complete and bool(scores) and all(math.isfinite(s) for s in scores)


def candidates(results: Iterable[TrialResult]) -> list[TrialResult]:
    """The trials that may enter a ranking, a front or a plot.

    Failed, running and non-finite trials never do. Within each (budget, expert, arm),
    trials outside the feasible band count only where none lies inside it, as in a
    controlled sweep.
    """
    chosen: list[TrialResult] = []
    for group in grouped(results).values():
        scored = [result for result in group if has_score(result)]
        chosen += [result for result in scored if result.matched] or scored
    return chosen


def ranking(result: TrialResult) -> tuple:
    """Sort key, best first: score, then less core work, shallower, fewer parameters.

    What still ties is settled by trial number and study name, so that the order never
    depends on the order of the input.
    """
    sign = -1.0 if result.objective.direction == "maximize" else 1.0
    audit = result.audit
    return (
        sign * result.score,
        audit.work.core if audit else math.inf,
        result.allocation.depth,
        audit.parameters if audit else math.inf,
        result.number,
        result.study,
        result.allocation.to_json(),
    )
