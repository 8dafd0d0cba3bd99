"""What every sampler is asked and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from allocsearch.errors import ConfigError
from allocsearch.search.points import Points, Row

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Request:
    """All that a proposal may depend on.

    Attributes:
        points: the whole space.
        open: positions in ``points.rows`` that may be answered, rising, at least one.
        taken: positions proposed before, by trial number.
        seed: the trial's own seed, from the study's seed, its arm and the number.
        study_seed: the seed that all trials of the study and arm share.
        study: the finished and running trials as an Optuna study that cannot be
            changed, for samplers that learn.
        positions: of the points of that study's trials, in their order.
        directions: of the study.
        trial: the coming trial; attributes that are set on it are stored with it.
        space: the distribution of every axis with more than one value.
    """

    points: Points
    open: np.ndarray
    taken: tuple[int, ...]
    seed: int
    study_seed: int
    study: "optuna.Study"
    positions: tuple[int, ...]
    directions: "Sequence[optuna.study.StudyDirection]"
    trial: "optuna.trial.FrozenTrial"
    space: "dict[str, optuna.distributions.BaseDistribution]"


class Sampler(Protocol):
    """A rule for what to try next: a frozen dataclass whose fields are its options.

    A sampler keeps nothing between proposals. The same request gets the same answer,
    so a resumed study goes on as the undisturbed one would have.
    """

    def check(self, points: Points) -> None:
        """Refuse a space that the options do not fit.

        Raises:
            ConfigError: with the option and what it may be.
        """
        ...

    def ended(
        self, points: Points, taken: Sequence[int], left: np.ndarray
    ) -> str | None:
        """Why the search is over although points are left; None while it is not.

        Args:
            points: the whole space.
            taken: positions proposed before, by trial number.
            left: positions not proposed yet, rising, at least one.
        """
        ...

    def propose(self, request: Request) -> Row:
        """A row, best one of the open points: any other becomes its nearest open one.

        Not called before at least one point is open.
        """
        ...


class ToTheLast:
    """A sampler that goes on as long as there are points."""

    def ended(
        self,
        points: Points,
        taken: Sequence[int],
        left: np.ndarray,
    ) -> None:
        """See `Sampler.ended`: never before the last point."""


def check_at_least_one(
    sampler: str, options: Any, names: Sequence[str] | None = None
) -> None:
    """Refuse counts below 1.

    Args:
        sampler: its name.
        options: an instance of its class.
        names: the fields that count something; all of them if left out.

    Raises:
        ConfigError: with the option and its value.
    """
    for name in names or [field.name for field in fields(options)]:
        if getattr(options, name) < 1:
            raise ConfigError(
                f"{name} of sampler {sampler!r} is {getattr(options, name)}; give 1 or "
                "more."
            )
