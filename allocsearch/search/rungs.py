"""Successive halving: most candidates pause early, and the best of them go on.

A trial pauses at rungs, fractions of its horizon. Of all that reached a rung, the best
1/η may go to the next (asynchronous successive halving, Li et al., arXiv:1810.05934).
Hyperband (Li et al., arXiv:1603.06560) runs several ladders at once, some of which
begin at a higher rung. Decisions depend on stored scores alone, so that a resumed
study goes on as the undisturbed one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from allocsearch.errors import ConfigError

Scores = Mapping[float, tuple[float, ...]]


@dataclass(frozen=True)
class Climber:
    """Where one trial stands.

    Attributes:
        number: the trial's number.
        stratum: what one candidate of each is owed the full horizon: its depth.
        scores: by the fraction of the horizon, its objectives there.
        until: the fraction it was last sent to.
        state: "running" (to `until`), "paused" (there), "complete" or "failed".
    """

    number: int
    stratum: Any
    scores: Scores
    until: float
    state: Literal["running", "paused", "complete", "failed"]


@dataclass(frozen=True)
class Rungs:
    """One ladder, or with `brackets` several, of which each trial climbs one.

    Attributes:
        least: the first rung, a fraction of the horizon.
        reduction: η: between rungs training is η times as long for 1/η of the trials.
        brackets: whether some trials begin at a higher rung, as in Hyperband.
        directions: "maximize" or "minimize", for each objective.
    """

    least: float
    reduction: int
    brackets: bool
    directions: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 0 < self.least < 1:
            raise ConfigError(
                f"the first rung is at {self.least}: give a fraction of the horizon "
                "between 0 and 1"
            )
        if self.reduction < 2:
            raise ConfigError(
                f"the reduction between rungs is {self.reduction}: give 2 or more"
            )

    @property
    def fractions(self) -> tuple[float, ...]:
        """Every rung, rising, the last one the full horizon."""
        rungs = [1.0]
        while rungs[0] / self.reduction >= self.least * (1 - 1e-9):
            rungs.insert(0, rungs[0] / self.reduction)
        return tuple(rungs)

    def ladder(self, number: int) -> tuple[float, ...]:
        """The rungs of one trial; the first is where it pauses first."""
        return self.fractions[self._bracket(number) :]

    def after(self, number: int, fraction: float) -> float:
        """The next rung of a trial that stands at `fraction`."""
        return min(rung for rung in self.ladder(number) if rung > fraction + 1e-9)

    def promotion(self, climbers: Sequence[Climber]) -> Climber | None:
        """Who may go on to the next rung; nobody where more must be tried first."""
        for rung in reversed(self.fractions[:-1]):
            for bracket in range(len(self.fractions) if self.brackets else 1):
                here = [
                    c
                    for c in climbers
                    if rung in c.scores and self._bracket(c.number) == bracket
                ]
                best = self._ranked(here, rung)[: len(here) // self.reduction]
                for climber in best:
                    if climber.state == "paused" and climber.until == rung:
                        return climber
        return None

    def owed(self, climbers: Sequence[Climber]) -> Climber | None:
        """Who goes to the full horizon so that one of its stratum has been there.

        Short horizons favour shallow networks; without this, depth would be judged by
        them alone.
        """
        served = {
            c.stratum
            for c in climbers
            if c.state == "complete" or (c.state == "running" and c.until == 1.0)
        }
        paused = [
            c for c in climbers if c.state == "paused" and c.stratum not in served
        ]
        if not paused:
            return None
        stratum = min((c.stratum for c in paused), key=str)
        mine = [c for c in paused if c.stratum == stratum]
        highest = max(c.until for c in mine)
        return self._ranked([c for c in mine if c.until == highest], highest)[0]

    def _ranked(self, climbers: Sequence[Climber], rung: float) -> list[Climber]:
        if not climbers:
            return []
        order = ranked([c.scores[rung] for c in climbers], self.directions)
        return [climbers[i] for i in order]

    def _bracket(self, number: int) -> int:
        """Which rung a trial begins at: the same for a number, in Hyperband's shares.

        Bracket k begins at rung k; its share is (n/(n − k))·η^(n−1−k) of n rungs,
        rounded up, and numbers go round the shares.
        """
        if not self.brackets:
            return 0
        n = len(self.fractions)
        shares = [-(-n * self.reduction ** (n - 1 - k) // (n - k)) for k in range(n)]
        place = number % sum(shares)
        for k, share in enumerate(shares):
            if place < share:
                return k
            place -= share
        raise AssertionError("a place lies within the shares")


def ranked(values: Sequence[Sequence[float]], directions: Sequence[str]) -> list[int]:
    """Positions, best first; ties in order of position.

    One objective is sorted by. Several are by fronts: those that none beats in all,
    then those that only these beat, and so on; within a front, the ones farther from
    their neighbours first (crowding distance, Deb et al., 2002).

    Args:
        values: objectives of each candidate, finite.
        directions: "maximize" or "minimize", for each objective.
    """
    signs = np.array([-1.0 if d == "maximize" else 1.0 for d in directions])
    costs = np.asarray(values, float).reshape(len(values), len(signs)) * signs
    if len(signs) == 1:
        return np.argsort(costs[:, 0], kind="stable").tolist()
    order: list[int] = []
    left = list(range(len(costs)))
    while left:
        front = [i for i in left if not any(_beats(costs[j], costs[i]) for j in left)]
        spread = _crowding(costs[front])
        order += [front[k] for k in np.argsort(-spread, kind="stable")]
        left = [i for i in left if i not in front]
    return order


def _beats(a: np.ndarray, b: np.ndarray) -> bool:
    return bool((a <= b).all() and (a < b).any())


def _crowding(costs: np.ndarray) -> np.ndarray:
    distance = np.zeros(len(costs))
    for column in costs.T:
        order = np.argsort(column, kind="stable")
        span = column[order[-1]] - column[order[0]]
        distance[order[[0, -1]]] = np.inf
        if span > 0 and len(order) > 2:
            gaps = (column[order[2:]] - column[order[:-2]]) / span
            distance[order[1:-1]] += gaps
    return distance
