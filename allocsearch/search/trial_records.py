"""Optuna's trials as ours."""

import math
from datetime import UTC, datetime
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from allocsearch.search.optuna_space import row_of
from allocsearch.search.points import Points
from allocsearch.search.records import State, TrialRecord

POINT = "point"
UNTIL = "until"
"""The fraction of the horizon that a trial was last sent to."""
RUNGS = "rungs"
"""Pairs of a fraction of the horizon and the objectives there."""
FAIL_REASON = "fail_reason"
REFUSED = "refused"
# Every proposal fits its budget. Optuna and its dashboard take a trial for feasible
# when no constraint is above 0, and look for it in one of these two places.
FEASIBLE = {"constraints": [0.0], "constraints:budget": 0.0}
_OWN = (POINT, FAIL_REASON, REFUSED)
_OUTSIDE = "its parameters are not a point of the space"
_NOT_FINITE = "its value is not finite"


def is_sound(trial: FrozenTrial) -> bool:
    """Whether a trial is without a value yet, or has finite ones.

    Ours are never told otherwise; Optuna itself lets infinity be complete, and best.
    """
    return trial.state != TrialState.COMPLETE or all(map(math.isfinite, trial.values))


def to_record(points: Points, trial: FrozenTrial) -> TrialRecord:
    """What is stored of one trial.

    A trial that somebody completed with parameters outside the space, or with a value
    that is not finite, is shown as failed, so that it can never be a best one.
    """
    row = row_of(points, trial.params)
    member = row is not None and row in points
    state = _state(trial, member=member)
    reason = trial.user_attrs.get(FAIL_REASON)
    if reason is None and state == "failed":
        reason = "no reason was recorded" if is_sound(trial) else _NOT_FINITE
        reason = reason if member else _OUTSIDE
    started, finished = _utc(trial.datetime_start), _utc(trial.datetime_complete)
    if started is not None and finished is not None:
        finished = max(started, finished)
    return TrialRecord(
        number=trial.number,
        state=state,
        values=tuple(trial.values or ()) if state == "complete" else None,
        point=points.values(row) if row is not None and member else {},
        attributes=_attributes(trial),
        started=started,
        finished=finished,
        reason=reason if state in ("failed", "pruned") else None,
        refused=bool(trial.user_attrs.get(REFUSED)),
    )


def _state(trial: FrozenTrial, *, member: bool) -> State:
    if not trial.state.is_finished():
        return "running"
    if trial.state == TrialState.PRUNED and member:
        return "pruned"
    complete = trial.state == TrialState.COMPLETE and member and is_sound(trial)
    return "complete" if complete else "failed"


def _attributes(trial: FrozenTrial) -> dict[str, Any]:
    return {key: v for key, v in trial.user_attrs.items() if key not in _OWN}


def _utc(moment: datetime | None) -> datetime | None:
    # Optuna's database keeps the local time of its host, without an offset.
    return None if moment is None else moment.astimezone(UTC)
