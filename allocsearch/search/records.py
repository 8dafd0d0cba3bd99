"""What a search hands out and what it remembers."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from allocsearch.errors import StudyError
from allocsearch.search.points import Row, Scalar

State = Literal["running", "complete", "pruned", "failed"]


class SpaceExhausted(StudyError):  # noqa: N818 - an ending, not a fault
    """Every point has been proposed: the search is over."""


class EnoughTrials(StudyError):  # noqa: N818 - an ending, not a fault
    """The search has as many trials as it was to get."""


class LateResult(StudyError):  # noqa: N818 - nobody's fault
    """A trial that is finished already was told something."""


@dataclass(frozen=True)
class Proposal:
    """A point to try, under the number that it keeps for good.

    Attributes:
        number: the trial's number in its study, from 0.
        values: the value of every axis.
        row: the index on every axis.
    """

    number: int
    values: dict[str, Scalar]
    row: Row


@dataclass(frozen=True)
class TrialRecord:
    """One trial as stored.

    Attributes:
        number: its number in its study.
        state: ``"running"``, ``"complete"``, ``"pruned"`` or ``"failed"``.
        values: the objectives, finite; None unless complete.
        point: the value of every axis; empty where none was settled.
        attributes: what was recorded with the trial.
        started: when it was proposed, in UTC.
        finished: when it was told, in UTC, never before `started`.
        reason: why it failed or was pruned, in a sentence; None otherwise.
        refused: a proposal from outside that was never to be run.
    """

    number: int
    state: State
    values: tuple[float, ...] | None
    point: dict[str, Scalar]
    attributes: Mapping[str, Any]
    started: datetime | None
    finished: datetime | None
    reason: str | None = None
    refused: bool = False
