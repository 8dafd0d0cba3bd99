"""Giving trials their points: every proposal, whatever its source, passes here."""

from collections.abc import Sequence

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from allocsearch.search.identity import Identity
from allocsearch.search.optuna_space import (
    distributions,
    params_of,
    row_of,
    suggest,
)
from allocsearch.search.points import Row
from allocsearch.search.proposing import Proposer, Taken
from allocsearch.search.records import EnoughTrials, Proposal
from allocsearch.search.seeds import derive_seed
from allocsearch.search.trial_records import (
    FAIL_REASON,
    FEASIBLE,
    POINT,
    REFUSED,
)


class Asker:
    """Settles the points of one study's trials.

    A proposal is computed from a snapshot of all trials and then stored, point and
    all, in one transaction. The trial must get the number that the snapshot foretold,
    or another process came between and the proposal is thrown away: so no point is
    given twice, and a killed process leaves a whole proposal or none.
    """

    def __init__(
        self, study: optuna.Study, rdb: RDBStorage, study_id: int, identity: Identity
    ) -> None:
        """An asker for `study`, which `rdb` keeps under `study_id`."""
        self._study = study
        self._rdb = rdb
        self._study_id = study_id
        self._points = identity.points
        self._seed = identity.seed
        self._space = distributions(identity.points)
        self._proposer = Proposer(study.study_name, identity)
        self._finished: Taken = {}

    def next(self, wanted: Row | None = None, most: int | None = None) -> Proposal:
        """The next proposal; refused trials on the way are failed.

        Args:
            wanted: take this point, or the nearest that is left, in place of the
                sampler's choice.
            most: how many trials there may be, those of other processes included.

        Raises:
            SpaceExhausted: there is nothing left to propose.
            EnoughTrials: there are `most` trials.
        """
        proposal = None
        while proposal is None:
            trials = self._study.get_trials(deepcopy=False)
            # Exact, as a proposal is thrown away if anything came after this look.
            if most is not None and _n_begun(trials) >= most:
                raise EnoughTrials(
                    f"study {self._study.study_name!r} has its {most} trials."
                )
            taken = self._taken_by(trials)
            waiting = [t.number for t in trials if t.state == TrialState.WAITING]
            if waiting:
                proposal = self._take_up(waiting[0], taken)
            else:
                proposal = self._propose(trials, taken, wanted)
        return proposal

    def adopt(self, number: int) -> Proposal | None:
        """The proposal of a trial that runs already; None where it is refused."""
        taken = self._taken_by(self._study.get_trials(deepcopy=False))
        before = {n: position for n, position in taken.items() if n != number}
        return self._settle(number, before)

    def _taken_by(self, trials: Sequence[FrozenTrial]) -> Taken:
        taken = {}
        for trial in trials:
            position = self._finished.get(trial.number)
            if position is None:
                position = self._position(trial)
                # What another process has running it may yet throw away.
                if position is not None and trial.state.is_finished():
                    self._finished[trial.number] = position
            if position is not None:
                taken[trial.number] = position
        return taken

    def _position(self, trial: FrozenTrial) -> int | None:
        row = row_of(self._points, trial.params)
        if row is None or REFUSED in trial.user_attrs:
            return None
        return self._points.positions.get(row)

    def _propose(
        self, trials: Sequence[FrozenTrial], taken: Taken, wanted: Row | None
    ) -> Proposal | None:
        position, pending = self._proposer.propose(trials, taken, wanted)
        return self._store(len(trials), position, pending)

    def _store(
        self, number: int, position: int, pending: FrozenTrial
    ) -> Proposal | None:
        row = self._points.rows[position]
        values = self._points.values(row)
        trial = create_trial(
            state=TrialState.RUNNING,
            params=params_of(self._points, row),
            distributions=self._space,
            user_attrs={**pending.user_attrs, POINT: values},
            system_attrs={**pending.system_attrs, **FEASIBLE},
        )
        trial_id = self._rdb.create_new_trial(self._study_id, trial)
        if self._rdb.get_trial(trial_id).number != number:
            return self._refuse(trial_id, "another process proposed at the same time")
        return Proposal(number, values, row)

    def _take_up(self, number: int, taken: Taken) -> Proposal | None:
        """Start a trial that somebody enqueued; None where it cannot be run."""
        # The database lets one process alone move a trial from waiting to running.
        if not self._rdb.set_trial_state_values(self._id(number), TrialState.RUNNING):
            return None
        return self._settle(number, taken)

    def _settle(self, number: int, taken: Taken) -> Proposal | None:
        """Complete a stored trial's parameters, or fail it where that cannot be."""
        trial_id = self._id(number)
        seed = derive_seed(self._seed, number)
        self._study.sampler = optuna.samplers.RandomSampler(seed=seed)
        trial = optuna.Trial(self._study, trial_id)
        try:
            for axis in self._points.axes:
                suggest(trial, axis)
        except ValueError as error:
            return self._refuse(trial_id, f"its parameters cannot be read ({error})")
        row = row_of(self._points, trial.params)
        if row is None or row not in self._points:
            return self._refuse(trial_id, f"{trial.params} is not a point of the space")
        position = self._points.positions[row]
        if position in taken.values():
            return self._refuse(trial_id, "its point was proposed before")
        values = self._points.values(row)
        if trial.user_attrs.get(POINT) != values:
            self._rdb.set_trial_user_attr(trial_id, POINT, values)
        self._mark_feasible(trial_id)
        return Proposal(number, values, row)

    def _mark_feasible(self, trial_id: int) -> None:
        known = self._rdb.get_trial_system_attrs(trial_id)
        for key, value in FEASIBLE.items():
            if key not in known:
                self._rdb.set_trial_system_attr(trial_id, key, value)

    def _refuse(self, trial_id: int, reason: str) -> None:
        self._rdb.set_trial_user_attr(trial_id, FAIL_REASON, f"refused: {reason}")
        self._rdb.set_trial_user_attr(trial_id, REFUSED, True)
        self._rdb.set_trial_state_values(trial_id, TrialState.FAIL)

    def _id(self, number: int) -> int:
        return self._rdb.get_trial_id_from_study_id_trial_number(self._study_id, number)


def _n_begun(trials: Sequence[FrozenTrial]) -> int:
    return sum(
        t.state != TrialState.WAITING and REFUSED not in t.user_attrs for t in trials
    )
