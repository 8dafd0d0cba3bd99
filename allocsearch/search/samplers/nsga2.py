"""NSGA-II in its steady-state form, confined to the points that are left."""

from dataclasses import dataclass

import numpy as np

from allocsearch.errors import ConfigError
from allocsearch.search.points import Points, Row
from allocsearch.search.samplers.base import Request, ToTheLast, check_at_least_one
from allocsearch.search.samplers.dominance import crowding, ranks
from allocsearch.search.samplers.observed import observe
from allocsearch.search.samplers.random import RandomSampler


@dataclass(frozen=True)
class NSGA2Sampler(ToTheLast):
    """Children of the best trials so far, by front and then by crowding.

    The parents are drawn from the `population` best of all finished trials, so there
    are no generations to keep: a proposal follows from the history alone, and parallel
    workers never wait for one another. Each parent wins a tournament of two, the child
    takes every axis from either, and an axis changes with probability 1 / n_axes: an
    ordinal one mostly to a near value, any other to any. A child that was proposed
    before becomes its nearest open point. Reference: Deb et al. (2002); steady state
    as in Durillo et al. (2009).

    Attributes:
        population: how many trials may become parents; the first as many trials are
            chosen uniformly.
        crossover: probability that a child has two parents rather than one.
    """

    population: int = 20
    crossover: float = 0.9

    def check(self, points: Points) -> None:  # noqa: ARG002
        """See `Sampler.check`."""
        check_at_least_one("nsga2", self, ("population",))
        if not 0 <= self.crossover <= 1:
            raise ConfigError(
                f"crossover of sampler 'nsga2' is {self.crossover}; give a "
                "probability, from 0 to 1."
            )

    def propose(self, request: Request) -> Row:
        """See `Sampler.propose`."""
        observed = observe(request)
        if not request.space or len(observed.positions) < self.population:
            return RandomSampler().propose(request)
        rng = np.random.default_rng(request.seed)
        front = ranks(observed.losses, self.population)
        # Best first: a lower front, then a lonelier place on it, then the older trial.
        order = np.lexsort((-crowding(observed.losses, front), front))
        parents = request.points.array[observed.positions[order[: self.population]]]
        first, second = (parents[_tournament(len(parents), rng)] for _ in range(2))
        both = rng.random(parents.shape[1]) < 0.5
        crossed = np.where(both, first, second)
        child = crossed if rng.random() < self.crossover else first
        return tuple(_mutated(child, request.points, rng).tolist())


def _tournament(n: int, rng: np.random.Generator) -> int:
    """The better of two at random: members stand in order, the best first."""
    return int(rng.integers(n, size=2).min())


def _mutated(row: np.ndarray, points: Points, rng: np.random.Generator) -> np.ndarray:
    free = [i for i, axis in enumerate(points.axes) if len(axis.values) > 1]
    changed = np.array(row)
    chosen = [i for i in free if rng.random() < 1 / len(free)] or [rng.choice(free)]
    for i in chosen:
        axis = points.axes[i]
        others = np.delete(np.arange(len(axis.values)), row[i])
        weights = (
            0.5 ** np.abs(others - row[i]) if axis.ordinal else np.ones(len(others))
        )
        changed[i] = rng.choice(others, p=weights / weights.sum())
    return changed
