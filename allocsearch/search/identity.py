"""What makes a study the one it is: stored at its start, compared ever after."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from allocsearch.errors import ConfigError, StudyError
from allocsearch.search.points import Points

ATTRIBUTE = "allocsearch"
_FORMAT = 1
_DIRECTIONS = ("minimize", "maximize")


@dataclass(frozen=True)
class Identity:
    """Everything that proposals depend on, besides results.

    Attributes:
        points: the space.
        directions: ``"minimize"`` or ``"maximize"`` for each objective.
        seed: the study's seed.
        sampler: a key of `SAMPLERS`.
        options: that sampler's options.
    """

    points: Points
    directions: tuple[str, ...]
    seed: int
    sampler: str
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        known = set(self.directions) <= set(_DIRECTIONS)
        if not self.directions or not known:
            raise ConfigError(
                f"directions are {self.directions!r}; give 'minimize' or 'maximize' "
                "for each objective, at least one."
            )

    def to_json(self) -> dict[str, Any]:
        """What is stored with the study."""
        return {
            "format": _FORMAT,
            "digest": self.points.digest(),
            "points": self.points.to_json(),
            "directions": list(self.directions),
            "seed": self.seed,
            "sampler": self.sampler,
            "options": dict(self.options),
        }

    @classmethod
    def from_json(cls, data: Any, name: str) -> "Identity":
        """The identity that `to_json` wrote.

        Raises:
            StudyError: the data is damaged or of another format.
        """
        try:
            found = cls(
                points=Points.from_json(data["points"]),
                directions=tuple(data["directions"]),
                seed=int(data["seed"]),
                sampler=str(data["sampler"]),
                options=dict(data["options"]),
            )
            intact = data["format"] == _FORMAT
            intact = intact and found.points.digest() == data["digest"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(name) from error
        if not intact:
            raise _damaged(name)
        return found

    def refuse_change(self, wanted: "Identity", name: str) -> None:
        """Refuse to go on as `wanted` with a study that is as `self`.

        Raises:
            StudyError: with each difference and the way out.
        """
        changes = [
            f"{what} (was {was}, now {now})"
            for what, was, now in self._compared(wanted)
            if was != now
        ]
        if changes:
            raise StudyError(
                f"study {name!r} was begun with another {', '.join(changes)}; go on "
                "with what it was begun with, or give a new study name."
            )

    def _compared(self, wanted: "Identity") -> list[tuple[str, Any, Any]]:
        axes, wanted_axes = self.points.axes, wanted.points.axes
        rows = [("set of points", _set_name(self.points), _set_name(wanted.points))]
        if axes != wanted_axes or list(map(repr, axes)) != list(map(repr, wanted_axes)):
            rows = [("set of axes", _axes_name(self.points), _axes_name(wanted.points))]
        return [
            *rows,
            ("direction", self.directions, wanted.directions),
            ("seed", self.seed, wanted.seed),
            ("sampler", self.sampler, wanted.sampler),
            ("sampler options", dict(self.options), dict(wanted.options)),
        ]


def _set_name(points: Points) -> str:
    return f"{len(points)} points, digest {points.digest()[:12]}"


def _axes_name(points: Points) -> str:
    shown = (f"{axis.name} {list(axis.values)}" for axis in points.axes)
    ordinal = [axis.name for axis in points.axes if axis.ordinal]
    return f"{'; '.join(shown)}; ordinal: {', '.join(ordinal) or 'none'}"


def _damaged(name: str) -> StudyError:
    return StudyError(
        f"study {name!r} has no readable description of its space; it was written by "
        "another program or version, so give a new study name."
    )
