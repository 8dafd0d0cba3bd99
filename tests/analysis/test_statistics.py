"""Intervals against SciPy, hand-made numbers and simulated coverage."""

import math
import random

import pytest
from scipy import stats

from allocsearch.analysis.statistics import (
    mean,
    pooled_variance,
    search_variances,
    standard_error,
    t_interval,
)
from allocsearch.errors import ConfigError


@pytest.mark.parametrize("values", [[1.0, 2.0], [0.2, 0.9, 0.4], [3.0, 3.5, 2.0, 9.0]])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_interval_is_scipys(values, confidence):
    expected = stats.t.interval(
        confidence, len(values) - 1, stats.tmean(values), stats.sem(values)
    )
    interval = t_interval(values, confidence=confidence)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx(expected)
    assert interval.standard_error == pytest.approx(stats.sem(values))
    assert standard_error(values) == pytest.approx(stats.sem(values))


def test_three_seeds_against_the_printed_table():
    # t(0.975, 2) = 4.303; values 1, 2, 3 have standard error 1/√3.
    interval = t_interval([1.0, 2.0, 3.0])
    assert interval is not None
    assert interval.high - 2.0 == pytest.approx(4.303 / math.sqrt(3), rel=1e-3)


def test_pooled_variance_is_that_of_a_one_way_analysis():
    groups = [[1.0, 2.0, 4.0], [10.0, 10.5], [3.0], [0.0, 1.0, math.nan]]
    # Squares within: 14/3 and 1/8, on 2 + 1 degrees of freedom.
    variance = pooled_variance(groups)
    assert variance is not None
    assert variance.degrees_of_freedom == 3
    assert variance.value == pytest.approx((14 / 3 + 1 / 8) / 3)


def test_a_single_seed_borrows_the_variance_of_others():
    variance = pooled_variance([[0.0, 2.0], [5.0, 7.0]])
    assert variance is not None
    interval = t_interval([1.0], variance)
    assert interval is not None
    assert interval.standard_error == pytest.approx(math.sqrt(2))
    assert interval.high - 1.0 == pytest.approx(stats.t.ppf(0.975, 2) * math.sqrt(2))
    assert t_interval([1.0]) is None


@pytest.mark.parametrize("values", [[], [math.nan, 1.0], [math.inf, 1.0], [-math.inf]])
def test_no_interval_without_finite_values(values):
    assert t_interval(values) is None
    assert math.isnan(standard_error(values))


def test_the_mean_of_what_is_not_finite_is_not_finite():
    assert mean([math.inf, 1.0]) == math.inf
    assert math.isnan(mean([math.inf, -math.inf]))
    assert math.isnan(mean([]))


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 95.0])
def test_confidence_is_a_probability(confidence):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        t_interval([1.0, 2.0], confidence=confidence)


def test_pooled_interval_covers_as_often_as_it_says():
    rng = random.Random(0)
    covered, width, own_width, n = 0, 0.0, 0.0, 4000
    for _ in range(n // 8):
        groups = [[rng.gauss(k, 1.0) for _ in range(3)] for k in range(8)]
        variance = pooled_variance(groups)
        for k, group in enumerate(groups):
            interval, own = t_interval(group, variance), t_interval(group)
            assert interval is not None
            assert own is not None
            covered += interval.low <= k <= interval.high
            width += interval.high - interval.low
            own_width += own.high - own.low
    # The standard deviation of the estimate is 0.0034, somewhat more as trials share
    # a variance; the gain is the width.
    assert covered / n == pytest.approx(0.95, abs=0.015)
    assert width < 0.6 * own_width


def test_variance_is_pooled_within_a_search_only(trial):
    results = [
        trial((0.0, 2.0), number=0),
        trial((5.0, 7.0), number=1),
        trial((0.0, 20.0), number=2, state="failed"),
        trial((0.0, math.inf), number=3),
        trial((0.0, 40.0), number=0, recurrent=False),
    ]
    variances = search_variances(results)
    recurrent = variances["tiny", "conv_lstm", "recurrent"]
    other = variances["tiny", "conv_lstm", "nonrecurrent"]
    assert recurrent is not None
    assert other is not None
    assert (recurrent.value, recurrent.degrees_of_freedom) == (2.0, 2)
    assert (other.value, other.degrees_of_freedom) == (800.0, 1)
