"""Percentile bootstrap intervals of means and ratios over items, such as levels.

Items are drawn with replacement, all columns of an item together, and the quantiles of
the resampled means are the interval (Efron and Tibshirani, An Introduction to the
Bootstrap, 1993, chapter 13).
"""

from typing import TYPE_CHECKING

from allocsearch.analysis.statistics import CONFIDENCE

if TYPE_CHECKING:
    import numpy as np

N_RESAMPLES = 10_000
_MOST_DRAWN = 2**22  # items drawn at once, which bounds memory


def bootstrap_intervals(
    values: "np.ndarray",
    *,
    confidence: float = CONFIDENCE,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> "np.ndarray":
    """Lower and upper end of an interval for the mean of every column.

    Args:
        values: `[items, columns]`, at least one item; NaN makes its column's ends NaN.
        confidence: nominal coverage, strictly between 0 and 1.
        n_resamples: sets of items drawn.
        seed: the same seed draws the same items.

    Returns:
        The ends, `[columns, 2]`.
    """
    import numpy as np

    means = _resampled_means(values, n_resamples, seed)
    tail = (1 - confidence) / 2
    return np.quantile(means, [tail, 1 - tail], axis=0).T


def bootstrap_ratios(
    numerators: "np.ndarray",
    denominators: "np.ndarray",
    *,
    confidence: float = CONFIDENCE,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> "np.ndarray":
    """Ends of an interval for the ratio of the sums of two columns, of every pair.

    Args:
        numerators: `[items, columns]`, at least one item.
        denominators: `[items, columns]`, not negative; a set of items drawn in which a
            column sums to zero is left out, and one that always does has NaN for ends.
        confidence: nominal coverage, strictly between 0 and 1.
        n_resamples: sets of items drawn.
        seed: the same seed draws the same items.

    Returns:
        The ends, `[columns, 2]`.
    """
    import numpy as np

    ends = np.full((numerators.shape[1], 2), np.nan)
    both = np.concatenate([numerators, denominators], axis=1)
    above, below = np.split(_resampled_means(both, n_resamples, seed), 2, axis=1)
    tail = (1 - confidence) / 2
    for column, own in enumerate(ends):
        some = below[:, column] > 0
        if np.any(some):
            ratios = above[some, column] / below[some, column]
            own[:] = np.quantile(ratios, [tail, 1 - tail])
    return ends


def _resampled_means(values: "np.ndarray", n_resamples: int, seed: int) -> "np.ndarray":
    """Means `[n_resamples, columns]`, from how often each item was drawn."""
    import numpy as np

    rng = np.random.default_rng(seed)
    n_items = len(values)
    n_at_once = max(1, _MOST_DRAWN // n_items)
    means = []
    for start in range(0, n_resamples, n_at_once):
        n = min(n_at_once, n_resamples - start)
        drawn = rng.integers(n_items, size=(n, n_items))
        drawn += n_items * np.arange(n)[:, None]
        counts = np.bincount(drawn.reshape(-1), minlength=n * n_items)
        means.append(counts.reshape(n, n_items).astype(np.float64) @ values / n_items)
    return np.concatenate(means)
