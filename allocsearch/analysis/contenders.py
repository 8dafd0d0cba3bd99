"""Which trials may yet be the best, as far as a few seeds can tell."""

from collections.abc import Sequence

from allocsearch.analysis.candidates import candidates, key_of, primary_scores, ranking
from allocsearch.analysis.statistics import search_variances, t_interval
from allocsearch.results import TrialResult


def contenders(results: Sequence[TrialResult]) -> list[TrialResult]:
    """The trials of one search whose intervals reach that of the best, best first.

    Intervals are Student's with the variance pooled over the search. Where there is
    only one seed a trial, so that nothing tells the variance, it is the best quarter,
    at least two.
    """
    ordered = sorted(candidates(results), key=ranking)
    if len(ordered) < 2:
        return ordered
    variance = search_variances(ordered)[key_of(ordered[0])]
    if variance is None:
        return ordered[: max(2, len(ordered) // 4)]
    sign = -1.0 if ordered[0].objective.direction == "minimize" else 1.0
    best, *rest = [
        t_interval([sign * x for x in primary_scores(r)], variance) for r in ordered
    ]
    assert best is not None  # it is finite, and the variance is known
    pairs = zip(ordered[1:], rest, strict=True)
    return [ordered[0], *(r for r, i in pairs if i is None or i.high >= best.low)]
