"""From a history to the next point: pure, so the same history gives the same point."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from allocsearch.search.identity import Identity
from allocsearch.search.optuna_space import free_distributions
from allocsearch.search.points import Row
from allocsearch.search.records import SpaceExhausted
from allocsearch.search.rung_view import as_told
from allocsearch.search.samplers import Request, Sampler, make_sampler
from allocsearch.search.seeds import derive_seed
from allocsearch.search.snapshot import Snapshot
from allocsearch.search.trial_records import is_sound

Taken = dict[int, int]
"""By trial number, the position of the point that the trial was proposed."""


@dataclass(frozen=True)
class Proposer:
    """Proposes members of one study's space that were not proposed before.

    Attributes:
        name: the study's, for messages.
        identity: space, directions, seed and sampler.
    """

    name: str
    identity: Identity

    @cached_property
    def _sampler(self) -> Sampler:
        return make_sampler(self.identity.sampler, self.identity.options)

    @cached_property
    def _directions(self) -> list[StudyDirection]:
        return [StudyDirection[d.upper()] for d in self.identity.directions]

    @cached_property
    def _free(self) -> dict[str, BaseDistribution]:
        return free_distributions(self.identity.points)

    def propose(
        self, trials: Sequence[FrozenTrial], taken: Taken, wanted: Row | None = None
    ) -> tuple[int, FrozenTrial]:
        """The position of the next point, and what the sampler noted of the trial.

        Args:
            trials: of the study, by number, all of them.
            taken: the positions of those that have one.
            wanted: take this point, or the nearest that is left, in place of the
                sampler's choice.

        Raises:
            SpaceExhausted: there is nothing left to propose.
        """
        points, seed = self.identity.points, self.identity.seed
        left = self._left(taken.values())
        number = len(trials)
        # Strangers' trials outside the space, or of no finite value, teach a sampler
        # nothing.
        n_objectives = len(self._directions)
        members = [
            as_told(t, n_objectives)
            for t in trials
            if t.number in taken and is_sound(t)
        ]
        snapshot = Snapshot(self.name, self._directions, members, number)
        request = Request(
            points=points,
            open=left,
            taken=tuple(taken.values()),
            seed=derive_seed(seed, number),
            study_seed=seed,
            study=snapshot.study(),
            positions=tuple(taken[trial.number] for trial in members),
            directions=self._directions,
            trial=snapshot.pending,
            space=self._free,
        )
        row = self._sampler.propose(request) if wanted is None else wanted
        return self._confine(row, left), snapshot.pending

    def _left(self, taken: Iterable[int]) -> np.ndarray:
        """Positions not proposed yet, rising; never none."""
        points = self.identity.points
        mask = np.ones(len(points), dtype=bool)
        mask[list(taken)] = False
        left = np.flatnonzero(mask)
        if not len(left):
            raise SpaceExhausted(
                f"study {self.name!r} has proposed all {len(points)} points of "
                "its space; there is nothing left to try."
            )
        reason = self._sampler.ended(points, tuple(taken), left)
        if reason is not None:
            raise SpaceExhausted(f"study {self.name!r} is over: {reason}.")
        return left

    def _confine(self, row: Row, left: np.ndarray) -> int:
        points = self.identity.points
        position = points.positions.get(row, -1)
        if left[np.searchsorted(left, position) % len(left)] == position:
            return position
        return points.nearest(row, left)
