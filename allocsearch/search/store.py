"""A search that lives in a database: propose, record, tell, and go on after a crash."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from allocsearch.errors import ConfigError, StudyError
from allocsearch.search.asking import Asker
from allocsearch.search.identity import Identity
from allocsearch.search.opening import begin, identity_of, missing, names
from allocsearch.search.optuna_space import params_of
from allocsearch.search.points import Points
from allocsearch.search.records import LateResult, Proposal, TrialRecord
from allocsearch.search.riding import ride_out
from allocsearch.search.samplers import make_sampler
from allocsearch.search.storage import describe, open_storage, storage_errors
from allocsearch.search.trial_records import FAIL_REASON, RUNGS, UNTIL, to_record


def list_studies(storage: str) -> list[str]:
    """The names of all studies in a database.

    Args:
        storage: an SQLAlchemy URL.

    Raises:
        StudyError: the database is missing, broken or out of reach.
    """
    rdb = open_storage(storage, create=False)
    with storage_errors(describe(storage)):
        found = names(rdb)
        rdb.engine.dispose()
    return found


class SearchStudy:
    """One search: a budget, an expert and an arm, in one Optuna study.

    Use `open` to begin or continue, `load` to look. Proposals are reproducible with
    one process that asks at a time: after a crash, first finish what `running`
    returns, then ask on.
    """

    def __init__(
        self, storage: str, rdb: RDBStorage, name: str, identity: Identity
    ) -> None:
        """A study that exists; meant for `open` and `load`."""
        self.name = name
        self.points = identity.points
        self.directions = identity.directions
        self._label = describe(storage)
        self._rdb = rdb
        self._study_id = rdb.get_study_id_from_name(name)
        self._study = optuna.load_study(
            study_name=name, storage=rdb, sampler=optuna.samplers.RandomSampler()
        )
        self._asker = Asker(self._study, rdb, self._study_id, identity)

    @classmethod
    def open(
        cls,
        storage: str,
        name: str,
        points: Points,
        *,
        directions: tuple[str, ...],
        sampler: str,
        seed: int,
        sampler_options: Mapping[str, Any] | None = None,
        create: bool = True,
    ) -> "SearchStudy":
        """Begin a study or go on with it.

        Args:
            storage: an SQLAlchemy URL, such as ``sqlite:////path/study.db``.
            name: the study's name.
            points: the space.
            directions: ``"minimize"`` or ``"maximize"`` for each objective.
            sampler: a key of `SAMPLERS`.
            seed: decides every proposal; give each arm one of its own.
            sampler_options: that sampler's options.
            create: whether a missing study, and a missing SQLite file, may be made.

        Raises:
            StudyError: the study cannot be opened or was begun otherwise; nothing is
                written then.
            UnknownNameError: no sampler, or none of its options, has that name.
            ConfigError: a direction, an option or the URL cannot be used.
        """
        options = dict(sampler_options or {})
        wanted = Identity(points, tuple(directions), int(seed), sampler, options)
        make_sampler(sampler, options).check(points)
        rdb = open_storage(storage, create=create)
        with storage_errors(describe(storage)):
            if name not in names(rdb):
                if not create:
                    raise missing(storage, name, rdb)
                begin(rdb, name, wanted)
            identity_of(rdb, name, wanted).refuse_change(wanted, name)
            return cls(storage, rdb, name, wanted)

    @classmethod
    def load(cls, storage: str, name: str) -> "SearchStudy":
        """A study as it was begun, from the database alone. Writes nothing.

        Raises:
            StudyError: there is none, or the database cannot be used.
        """
        rdb = open_storage(storage, create=False)
        with storage_errors(describe(storage)):
            if name not in names(rdb):
                raise missing(storage, name, rdb)
            return cls(storage, rdb, name, identity_of(rdb, name, None))

    def close(self) -> None:
        """Let go of the database's connections."""
        self._rdb.remove_session()
        self._rdb.engine.dispose()

    @ride_out
    def ask(
        self, wanted: Mapping[str, Any] | None = None, most: int | None = None
    ) -> Proposal:
        """The next point to try, stored as running.

        A proposal that somebody put into the database is taken up first, and refused
        if it is outside the space or was proposed before: its trial fails with a
        reason and the next one is tried.

        Args:
            wanted: values for the axes, of which the nearest point that is left is
                taken in place of the sampler's choice.
            most: how many trials the study may have, those of other processes
                included; any number if left out.

        Raises:
            SpaceExhausted: all points, or all that suit the sampler, were proposed.
            EnoughTrials: there are `most` trials.
            StudyError: the database cannot be used.
        """
        with storage_errors(self._label):
            row = None if wanted is None else self.points.nearest_row(wanted)
            return self._asker.next(row, most)

    @ride_out
    def adopt(self, number: int) -> Proposal | None:
        """A trial that a process left running, to be tried under its own number.

        Returns:
            None where it runs no more, or was edited out of the space and so failed.

        Raises:
            StudyError: the database cannot be used.
        """
        with storage_errors(self._label):
            if self._rdb.get_trial(self._trial_id(number)).state != TrialState.RUNNING:
                return None
            return self._asker.adopt(number)

    @ride_out
    def running(self) -> list[Proposal]:
        """The trials that were proposed and not told, by number.

        What a killed process left is to be tried again under its own number. One that
        was edited out of the space is failed and left out.

        Raises:
            StudyError: the database cannot be used.
        """
        with storage_errors(self._label):
            found = [
                self._asker.adopt(trial.number)
                for trial in self._trials()
                if trial.state == TrialState.RUNNING
            ]
        return [proposal for proposal in found if proposal is not None]

    def enqueue(self, values: Mapping[str, Any]) -> None:
        """Have a point tried next.

        Args:
            values: a value for every axis.

        Raises:
            ConfigError: no point of the space has these values.
            StudyError: the database cannot be used.
        """
        row = self.points.row(values)
        if row is None:
            raise ConfigError(
                f"{dict(values)} is not among the {len(self.points)} points of study "
                f"{self.name!r}."
            )
        with storage_errors(self._label):
            self._study.enqueue_trial(params_of(self.points, row))

    @ride_out
    def record(self, number: int, key: str, json_value: Any) -> None:
        """Store something with a running trial.

        Args:
            number: the trial's number.
            key: what it is called; an earlier value of that key is replaced.
            json_value: anything that `json.dumps` takes.

        Raises:
            StudyError: there is no such trial, or (LateResult) it is finished.
        """
        with storage_errors(self._label):
            self._annotate(self._running_id(number), {key: json_value})

    def send(self, number: int, until: float) -> None:
        """Store how far a running trial is to train before it pauses.

        Args:
            number: the trial's number.
            until: a fraction of the horizon.
        """
        self.record(number, UNTIL, until)

    @ride_out
    def pause(
        self,
        number: int,
        fraction: float,
        values: Sequence[float],
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Store a running trial's objectives at a rung, where it waits.

        Args:
            number: the trial's number.
            fraction: of the horizon, at which the values were taken.
            values: one for each direction, finite.
            attributes: stored with the trial.
        """
        with storage_errors(self._label):
            trial_id = self._running_id(number)
            stored = self._rdb.get_trial(trial_id).user_attrs.get(RUNGS, [])
            before = [pair for pair in stored if pair[0] != fraction]
            reached = [*before, [fraction, [float(v) for v in values]]]
            self._annotate(trial_id, {**(attributes or {}), RUNGS: reached})

    @ride_out
    def prune(
        self, number: int, reason: str, attributes: Mapping[str, Any] | None = None
    ) -> None:
        """Finish a paused trial that goes no further.

        Args:
            number: the trial's number.
            reason: a sentence for the user.
            attributes: stored with the trial before it is finished.
        """
        with storage_errors(self._label):
            noted = {**(attributes or {}), FAIL_REASON: reason}
            self._finish(number, noted, TrialState.PRUNED)

    @ride_out
    def annotate(self, key: str, json_value: Any) -> None:
        """Store something with the study, such as what came of a finished trial."""
        with storage_errors(self._label):
            self._rdb.set_study_user_attr(self._study_id, key, json_value)

    @ride_out
    def annotations(self) -> dict[str, Any]:
        """What `annotate` stored, and what the study was begun with."""
        with storage_errors(self._label):
            return dict(self._rdb.get_study_user_attrs(self._study_id))

    @ride_out
    def tell(
        self,
        number: int,
        values: Sequence[float],
        attributes: Mapping[str, Any] | None = None,
    ) -> str:
        """Finish a trial with its objectives.

        Args:
            number: the trial's number.
            values: one for each direction.
            attributes: stored with the trial before it is finished.

        Returns:
            ``"complete"``, or ``"failed"`` where a value is not finite.

        Raises:
            StudyError: there is no such trial, it is finished, or the number of
                values is not that of the objectives.
        """
        numbers = [float(value) for value in values]
        if len(numbers) != len(self.directions):
            raise StudyError(
                f"trial {number} of study {self.name!r} was told {len(numbers)} values "
                f"for {len(self.directions)} objectives."
            )
        for i, value in enumerate(numbers):
            if not math.isfinite(value):
                reason = f"objective {i + 1} of {len(numbers)} is {value}, not finite"
                self.fail(number, reason, attributes)
                return "failed"
        with storage_errors(self._label):
            self._finish(number, attributes or {}, TrialState.COMPLETE, numbers)
        return "complete"

    @ride_out
    def fail(
        self, number: int, reason: str, attributes: Mapping[str, Any] | None = None
    ) -> None:
        """Finish a trial without a result.

        Not for the death of a machine or a process: that says nothing about the
        point, so the trial stays running and is taken up again.

        Args:
            number: the trial's number.
            reason: a sentence for the user.
            attributes: stored with the trial before it is finished.

        Raises:
            StudyError: there is no such trial, or (LateResult) it is finished.
        """
        with storage_errors(self._label):
            noted = {**(attributes or {}), FAIL_REASON: reason}
            self._finish(number, noted, TrialState.FAIL)

    @ride_out
    def records(self) -> list[TrialRecord]:
        """Every trial that was begun, by number, in one read."""
        with storage_errors(self._label):
            trials = self._trials()
        return [to_record(self.points, t) for t in trials]

    def counts(self) -> dict[str, int]:
        """How many trials are in each state, and how many were refused unrun."""
        records = self.records()
        found = Counter("refused" if r.refused else r.state for r in records)
        return {
            k: found[k] for k in ("running", "complete", "pruned", "failed", "refused")
        }

    def _trials(self) -> list[FrozenTrial]:
        trials = self._study.get_trials(deepcopy=False)
        return [t for t in trials if t.state != TrialState.WAITING]

    def _trial_id(self, number: int) -> int:
        try:
            return self._rdb.get_trial_id_from_study_id_trial_number(
                self._study_id, number
            )
        except KeyError as error:
            raise StudyError(f"study {self.name!r} has no trial {number}.") from error

    def _running_id(self, number: int) -> int:
        trial_id = self._trial_id(number)
        state = self._rdb.get_trial(trial_id).state
        if state != TrialState.RUNNING:
            raise self._late(number, state.name.lower())
        return trial_id

    def _late(self, number: int, state: str) -> LateResult:
        return LateResult(
            f"trial {number} of study {self.name!r} is not running but {state}; what "
            "comes late for it is not taken."
        )

    def _finish(
        self,
        number: int,
        attributes: Mapping[str, Any],
        state: TrialState,
        values: Sequence[float] | None = None,
    ) -> None:
        trial_id = self._running_id(number)
        try:
            self._annotate(trial_id, attributes)
            self._rdb.set_trial_state_values(trial_id, state, values)
        except UpdateFinishedTrialError as error:
            raise self._late(number, "finished") from error

    def _annotate(self, trial_id: int, attributes: Mapping[str, Any]) -> None:
        for key, value in attributes.items():
            self._rdb.set_trial_user_attr(trial_id, key, value)
