"""Means and intervals over a handful of seeds, with variance pooled over trials.

Two or three seeds say little about their own spread: at three, Student's t has two
degrees of freedom and a half-width of 2.5 standard deviations. Pooling the variance
over the trials of a search lends each of them the degrees of freedom of all, at the
price of assuming that they share one variance.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from allocsearch.analysis.candidates import Key, grouped, has_score, primary_scores
from allocsearch.errors import ConfigError
from allocsearch.results import TrialResult

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Variance:
    """An estimate of the variance of one seed's score.

    Attributes:
        value: the estimate, in squared units of the score.
        degrees_of_freedom: seeds that it rests on, less one for each trial.
    """

    value: float
    degrees_of_freedom: int


@dataclass(frozen=True)
class Interval:
    """A mean with Student's interval.

    Attributes:
        mean: over seeds.
        low: lower end.
        high: upper end.
        standard_error: of the mean, from the variance that the interval uses.
        degrees_of_freedom: of that variance.
        n_seeds: seeds in the mean.
    """

    mean: float
    low: float
    high: float
    standard_error: float
    degrees_of_freedom: int
    n_seeds: int


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean; NaN for no values, infinite or NaN where one is."""
    if all(math.isfinite(x) for x in values):
        return fmean(values) if values else math.nan
    return sum(values)


def standard_error(values: Sequence[float]) -> float:
    """Standard error of the mean; NaN below two values or if one is not finite."""
    variance = pooled_variance([values])
    return math.sqrt(variance.value / len(values)) if variance else math.nan


def pooled_variance(groups: Iterable[Sequence[float]]) -> Variance | None:
    """The variance within groups, pooled over them.

    Args:
        groups: the scores of each trial's seeds. Groups with one value or with a
            non-finite one say nothing about spread and are left out.

    Returns:
        Σ(x − mean of its group)² / Σ(n − 1), or None without degrees of freedom.
    """
    squares, freedom = 0.0, 0
    for group in groups:
        if len(group) < 2 or not all(math.isfinite(x) for x in group):
            continue
        center = fmean(group)
        squares += math.fsum((x - center) ** 2 for x in group)
        freedom += len(group) - 1
    return Variance(squares / freedom, freedom) if freedom else None


def t_interval(
    values: Sequence[float],
    variance: Variance | None = None,
    confidence: float = CONFIDENCE,
) -> Interval | None:
    """Student's interval for the mean of some seeds.

    Args:
        values: one score per seed.
        variance: what is known of one seed's variance, from `pooled_variance`; the
            values' own by default.
        confidence: nominal coverage, strictly between 0 and 1.

    Returns:
        The interval; None for no or non-finite values, and for a single value whose
        variance nothing else tells.

    Raises:
        ConfigError: a confidence outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence is {confidence}: give a number between 0 and 1")
    if not values or not all(math.isfinite(x) for x in values):
        return None
    variance = variance or pooled_variance([values])
    if variance is None:
        return None
    center = fmean(values)
    error = math.sqrt(variance.value / len(values))
    half = _t_quantile(variance.degrees_of_freedom, 0.5 + confidence / 2) * error
    return Interval(
        mean=center,
        low=center - half,
        high=center + half,
        standard_error=error,
        degrees_of_freedom=variance.degrees_of_freedom,
        n_seeds=len(values),
    )


def search_variances(results: Iterable[TrialResult]) -> dict[Key, Variance | None]:
    """The variance of one seed's score, pooled within each (budget, expert, arm)."""
    return {
        key: pooled_variance(primary_scores(r) for r in group if has_score(r))
        for key, group in grouped(results).items()
    }


def _t_quantile(degrees_of_freedom: int, probability: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, probability))
