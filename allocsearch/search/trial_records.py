"""Optuna's trials as ours."""

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
_OWN = (POINT, FAIL_REASON, REFUSED)
_OUTSIDE = "its parameters are not a point of the space"


def to_record(points: Points, trial: FrozenTrial) -> TrialRecord:
    """What is stored of one trial.

    A trial that somebody completed with parameters outside the space is shown as
    failed, so that it can never be a best one.
    """
    row = row_of(points, trial.params)
    member = row is not None and row in points
    state = _state(trial, member=member)
    reason = trial.user_attrs.get(FAIL_REASON)
    if reason is None and state == "failed":
        reason = "no reason was recorded" if member else _OUTSIDE
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
    complete = trial.state == TrialState.COMPLETE and member
    return "complete" if complete else "failed"


def _attributes(trial: FrozenTrial) -> dict[str, Any]:
    return {key: v for key, v in trial.user_attrs.items() if key not in _OWN}


def _utc(moment: datetime | None) -> datetime | None:
    # Optuna's database keeps the local time of its host, without an offset.
    return None if moment is None else moment.astimezone(UTC)
