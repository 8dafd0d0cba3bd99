"""Bootstrap intervals against SciPy, the binomial distribution and coverage."""

import numpy as np
import pytest
from scipy import stats

from allocsearch.analysis import bootstrap
from allocsearch.analysis.bootstrap import bootstrap_intervals


def test_intervals_are_scipys_to_sampling_error():
    rng = np.random.default_rng(1)
    values = np.stack([rng.normal(3, 2, 80), rng.exponential(1, 80)], axis=1)
    found = bootstrap_intervals(values)
    for column, (low, high) in zip(values.T, found, strict=True):
        expected = stats.bootstrap(
            (column,),
            np.mean,
            n_resamples=10_000,
            method="percentile",
            rng=np.random.default_rng(2),
        ).confidence_interval
        error = 0.1 * stats.sem(column)
        assert low == pytest.approx(expected.low, abs=error)
        assert high == pytest.approx(expected.high, abs=error)


@pytest.mark.parametrize("n_solved", [5, 60, 190])
@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_resampled_fractions_are_binomial(n_solved, confidence):
    n = 200
    solved = (np.arange(n) < n_solved).astype(float)[:, None]
    ((low, high),) = bootstrap_intervals(solved, confidence=confidence)
    # The number solved among n drawn is binomial: its quantiles, to one level.
    ends = stats.binom(n, n_solved / n).ppf(
        [(1 - confidence) / 2, (1 + confidence) / 2]
    )
    np.testing.assert_allclose([low, high], ends / n, atol=1.01 / n)


def test_intervals_cover_the_true_mean_as_often_as_they_say():
    rng = np.random.default_rng(3)
    samples = rng.normal(size=(100, 400))  # 400 samples of 100 items each
    intervals = bootstrap_intervals(samples, n_resamples=1000)
    covered = np.mean((intervals[:, 0] <= 0) & (intervals[:, 1] >= 0))
    assert covered == pytest.approx(0.95, abs=0.04)


def test_a_seed_decides_the_draws_and_columns_do_not(monkeypatch):
    values = np.random.default_rng(4).normal(size=(30, 3))
    whole = bootstrap_intervals(values)
    np.testing.assert_array_equal(whole, bootstrap_intervals(values))
    np.testing.assert_allclose(whole[1:2], bootstrap_intervals(values[:, 1:2]))
    assert not np.array_equal(whole, bootstrap_intervals(values, seed=1))
    monkeypatch.setattr(bootstrap, "_MOST_DRAWN", 100)  # in pieces
    np.testing.assert_allclose(whole, bootstrap_intervals(values))


def test_items_that_are_all_alike_leave_no_doubt():
    for n in (1, 20):
        intervals = bootstrap_intervals(np.full((n, 1), 0.25))
        np.testing.assert_allclose(intervals, [[0.25, 0.25]])
