"""Expected improvement under a Gaussian process, by enumeration of what is left."""

from dataclasses import dataclass

import numpy as np

from allocsearch.errors import ConfigError
from allocsearch.search.points import Points, Row
from allocsearch.search.samplers.base import Request, ToTheLast, check_at_least_one
from allocsearch.search.samplers.observed import Observed, observe
from allocsearch.search.samplers.random import RandomSampler


@dataclass(frozen=True)
class GPSampler(ToTheLast):
    """The open point with the largest expected improvement, exactly.

    A feasible set is finite, so nothing is lost to an inner search. Results are ranked
    and read off a normal curve first: a few diverged candidates then weigh no more
    than bad ones. Several objectives are joined afresh for every trial, by an augmented
    Chebyshev sum under random weights (ParEGO; Knowles 2006), which covers the front.
    Running trials count as average ones (constant liar), so parallel proposals spread;
    failed ones count as the worst result.

    Attributes:
        n_startup: finished trials before the process is trusted; until then the
            choice is uniform.
        n_observations: results that are looked at, half of them the best ones and
            half the latest: the cost of a proposal is bounded by it.
        n_candidates: open points that are looked at, drawn at random where there are
            more.
    """

    n_startup: int = 10
    n_observations: int = 300
    n_candidates: int = 10_000

    def check(self, points: Points) -> None:  # noqa: ARG002
        """See `Sampler.check`."""
        check_at_least_one("gp", self)
        if self.n_observations < 2:
            raise ConfigError("n_observations of sampler 'gp' is 1; give 2 or more.")

    def propose(self, request: Request) -> Row:
        """See `Sampler.propose`."""
        observed = observe(request)
        if not request.space or len(observed.positions) < self.n_startup:
            return RandomSampler().propose(request)
        rng = np.random.default_rng(request.seed)
        losses = scalarised(observed.losses, rng)
        kept = self._kept(losses)
        candidates = rng.permutation(request.open)[: self.n_candidates]
        scores = _scores(
            request.points,
            Observed(observed.positions[kept], losses[kept, None], observed.running),
            candidates,
        )
        return request.points.rows[candidates[np.argmax(scores)]]

    def _kept(self, losses: np.ndarray) -> np.ndarray:
        n = len(losses)
        if n <= self.n_observations:
            return np.arange(n)
        half = self.n_observations // 2
        best = np.argsort(losses, kind="stable")[:half]
        latest = np.setdiff1d(np.arange(n), best)[-(self.n_observations - half) :]
        return np.union1d(best, latest)


def scalarised(losses: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One loss for several: the augmented Chebyshev sum under random weights.

    Args:
        losses: `[n, n_objectives]`, less is better.
        rng: the weights are uniform on the simplex.

    Returns:
        `[n]`; with one objective, that objective.
    """
    n_objectives = losses.shape[1]
    if n_objectives == 1:
        return losses[:, 0]
    weights = rng.dirichlet(np.ones(n_objectives))
    low, high = losses.min(axis=0), losses.max(axis=0)
    weighted = weights * (losses - low) / np.where(high > low, high - low, 1.0)
    return weighted.max(axis=1) + 0.05 * weighted.sum(axis=1)


def normal_scores(values: np.ndarray) -> np.ndarray:
    """Values by rank on a normal curve, of variance 1; equal values stay equal."""
    from scipy.special import ndtri

    distinct, place, count = np.unique(values, return_inverse=True, return_counts=True)
    if len(distinct) == 1:
        return np.zeros(len(values))
    middle = np.cumsum(count) - (count - 1) / 2  # mean rank of each value, from 1
    scores = ndtri((middle[place] - 0.5) / len(values))
    return scores / scores.std()


def _scores(points: Points, observed: Observed, candidates: np.ndarray) -> np.ndarray:
    from allocsearch.search.samplers.gaussian_process import (
        fit,
        log_expected_improvement,
        metric,
    )

    values = normal_scores(observed.losses[:, 0])
    values = np.concatenate([values, np.full(len(observed.running), values.mean())])
    rows = points.array[np.concatenate([observed.positions, observed.running])]
    process = fit(metric(points), rows, values)
    # The best mean, not the best value: one lucky seed is no reason to stop looking.
    best = process.predict(rows)[0].min()
    mean, deviation = process.predict(points.array[candidates])
    return log_expected_improvement(mean, deviation, best)
