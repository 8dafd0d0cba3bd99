"""The trials of one moment as an Optuna storage: what a sampler may look at.

A sampler that reads the database itself would see whatever other processes add
meanwhile, and would write to it for a trial that does not exist yet. Here it sees a
fixed history, and what it writes about the coming trial is kept until that is stored.
"""

import copy
from collections.abc import Container, Sequence
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

_STUDY_ID = 0


class Snapshot(BaseStorage):
    """One study, read-only but for attributes of the trial that is being proposed.

    Attributes:
        pending: the coming trial, running and without parameters.
    """

    def __init__(
        self,
        name: str,
        directions: Sequence[StudyDirection],
        trials: Sequence[FrozenTrial],
        number: int,
    ) -> None:
        """The study `name` with `trials`, before a trial that will have `number`."""
        self._name = name
        self._directions = list(directions)
        self._trials = list(trials)
        self.pending = create_trial(state=TrialState.RUNNING)
        self.pending.number = number

    def study(self) -> optuna.Study:
        """A new study over this storage: Optuna's keep what they read once."""
        return optuna.load_study(
            study_name=self._name,
            storage=self,
            sampler=optuna.samplers.RandomSampler(),
            pruner=optuna.pruners.NopPruner(),
        )

    def get_all_trials(
        self,
        study_id: int,  # noqa: ARG002
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        found = [t for t in self._trials if states is None or t.state in states]
        return copy.deepcopy(found) if deepcopy else found

    def get_trial(self, trial_id: int) -> FrozenTrial:
        for trial in [self.pending, *self._trials]:
            if trial._trial_id == trial_id:
                return trial
        raise KeyError(trial_id)

    def get_study_id_from_name(self, study_name: str) -> int:
        if study_name != self._name:
            raise KeyError(study_name)
        return _STUDY_ID

    def get_study_name_from_id(self, study_id: int) -> str:  # noqa: ARG002
        return self._name

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:  # noqa: ARG002
        return self._directions

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:  # noqa: ARG002
        return {}

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:  # noqa: ARG002
        return {}

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """Forgotten: a sampler that caches here has to do without."""

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._pending(trial_id).system_attrs[key] = value

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._pending(trial_id).user_attrs[key] = value

    def _pending(self, trial_id: int) -> FrozenTrial:
        if trial_id != self.pending._trial_id:
            raise _read_only()
        return self.pending

    def create_new_study(self, *_: Any, **__: Any) -> int:
        raise _read_only()

    def delete_study(self, *_: Any, **__: Any) -> None:
        raise _read_only()

    def set_study_user_attr(self, *_: Any, **__: Any) -> None:
        raise _read_only()

    def get_all_studies(self) -> list[Any]:
        raise _read_only()

    def create_new_trial(self, *_: Any, **__: Any) -> int:
        raise _read_only()

    def set_trial_param(self, *_: Any, **__: Any) -> None:
        raise _read_only()

    def set_trial_state_values(self, *_: Any, **__: Any) -> bool:
        raise _read_only()

    def set_trial_intermediate_value(self, *_: Any, **__: Any) -> None:
        raise _read_only()


def _read_only() -> RuntimeError:
    return RuntimeError("a sampler tried to change the study while it was proposing")
