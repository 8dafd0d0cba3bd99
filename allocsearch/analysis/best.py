"""The best trial of each search."""

from collections.abc import Iterable

from allocsearch.analysis.candidates import Key, candidates, grouped, ranking
from allocsearch.results import TrialResult


def best_by_arm(results: Iterable[TrialResult]) -> dict[Key, TrialResult]:
    """The best complete trial of every (budget, expert, arm) that has one.

    Trials inside the feasible band come before all others. Equal scores are settled by
    less core work, then the shallower, then fewer parameters, then the lower number.

    Args:
        results: trials in any order.

    Returns:
        The winners in listing order (small budgets first, recurrent first).
    """
    return {
        key: min(group, key=ranking)
        for key, group in grouped(candidates(results)).items()
    }
