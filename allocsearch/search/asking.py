"""Giving trials their points: every proposal, whatever its source, passes here."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from allocsearch.search.identity import Identity
from allocsearch.search.optuna_space import (
    distributions,
    free_distributions,
    params_of,
    row_of,
    suggest,
)
from allocsearch.search.proposer import Proposer
from allocsearch.search.records import Proposal, SpaceExhausted
from allocsearch.search.samplers import Request, make_sampler
from allocsearch.search.seeds import derive_seed
from allocsearch.search.trial_records import FAIL_REASON, POINT, REFUSED

Taken = dict[int, int]
"""By trial number, the position of the point that the trial was proposed."""


class Asker:
    """Settles the points of one study's trials."""

    def __init__(self, study: optuna.Study, name: str, identity: Identity) -> None:
        """An asker for `study`, which is called `name`."""
        self._study = study
        self._name = name
        self._points = identity.points
        self._seed = identity.seed
        self._sampler = make_sampler(identity.sampler, identity.options)
        self._space = distributions(identity.points)
        self._free = free_distributions(identity.points)
        self._taken: Taken = {}

    def next(self) -> Proposal:
        """The next proposal; refused trials on the way are failed.

        Raises:
            SpaceExhausted: there is nothing left to propose.
        """
        while True:
            trials = self._study.get_trials(deepcopy=False)
            taken = self._taken_by(trials)
            if all(trial.state != TrialState.WAITING for trial in trials):
                self._refuse_end(taken)
            self._answer_from(taken)
            proposal = self._settle(self._study.ask(), taken)
            if proposal is not None:
                return proposal

    def adopt(self, trial_id: int, number: int) -> Proposal | None:
        """The proposal of a trial that runs already, completed where cut off.

        Returns:
            None where the trial had to be refused.
        """
        taken = self._taken_by(self._study.get_trials(deepcopy=False))
        before = {n: position for n, position in taken.items() if n != number}
        self._answer_from(before)
        return self._settle(optuna.Trial(self._study, trial_id), before)

    def _taken_by(self, trials: Sequence[FrozenTrial]) -> Taken:
        # A point once settled never changes, so each trial is read once.
        for trial in trials:
            if trial.number in self._taken or REFUSED in trial.user_attrs:
                continue
            row = row_of(self._points, trial.params)
            if row is not None and row in self._points:
                self._taken[trial.number] = self._points.positions[row]
        return dict(sorted(self._taken.items()))

    def _left(self, taken: Taken) -> np.ndarray:
        left = np.ones(len(self._points), dtype=bool)
        left[list(taken.values())] = False
        return np.flatnonzero(left)

    def _refuse_end(self, taken: Taken) -> None:
        left = self._left(taken)
        if not len(left):
            raise SpaceExhausted(
                f"study {self._name!r} has proposed all {len(self._points)} points of "
                "its space; there is nothing left to try."
            )
        reason = self._sampler.ended(self._points, tuple(taken.values()), left)
        if reason is not None:
            raise SpaceExhausted(f"study {self._name!r} is over: {reason}.")

    def _answer_from(self, taken: Taken) -> None:
        choose = partial(self._choose, taken)
        self._study.sampler = Proposer(self._space, choose)

    def _choose(
        self, taken: Taken, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, Any]:
        """Parameters for `trial`, or none where no point fits what it has already."""
        given = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
        left = self._agreeing(self._left(taken), given)
        if not len(left):
            return {}
        request = Request(
            points=self._points,
            open=left,
            taken=tuple(taken.values()),
            seed=derive_seed(self._seed, self._name, trial.number),
            study_seed=derive_seed(self._seed, self._name),
            study=study,
            trial=trial,
            space=self._free,
        )
        position = self._sampler.propose(request)
        return params_of(self._points, self._points.rows[position])

    def _agreeing(self, left: np.ndarray, given: Mapping[str, Any]) -> np.ndarray:
        for i, axis in enumerate(self._points.axes):
            if axis.name in given:
                params = range(len(axis.values)) if axis.ordinal else axis.values
                allowed = [j for j, p in enumerate(params) if p == given[axis.name]]
                left = left[np.isin(self._points.array[left, i], allowed)]
        return left

    def _settle(self, trial: optuna.Trial, taken: Taken) -> Proposal | None:
        """Give a trial its parameters, or fail it where they cannot be accepted."""
        try:
            for axis in self._points.axes:
                suggest(trial, axis)
        except ValueError as error:
            return self._refuse(trial, f"its parameters cannot be read ({error})")
        row = row_of(self._points, trial.params)
        if row is None or row not in self._points:
            return self._refuse(trial, f"{trial.params} is not a point of the space")
        position = self._points.positions[row]
        for number, other in taken.items():
            if other == position:
                return self._refuse(trial, f"trial {number} proposed the same point")
        values = self._points.values(row)
        if trial.user_attrs.get(POINT) != values:
            trial.set_user_attr(POINT, values)
        self._taken[trial.number] = position
        return Proposal(trial.number, values, row)

    def _refuse(self, trial: optuna.Trial, reason: str) -> None:
        trial.set_user_attr(FAIL_REASON, f"refused: {reason}")
        trial.set_user_attr(REFUSED, True)
        self._study.tell(trial, state=TrialState.FAIL)
