"""A finite set of points with named axes: all that a search needs to know."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from allocsearch.errors import ConfigError

Scalar = str | int | float | bool | None
Row = tuple[int, ...]


@dataclass(frozen=True)
class Axis:
    """One named coordinate.

    Attributes:
        name: what the coordinate is called, such as ``"depth"``.
        values: JSON scalars; the order is the scale of an ordinal axis.
        ordinal: whether neighbours in `values` are alike. False for mere names.
    """

    name: str
    values: tuple[Scalar, ...]
    ordinal: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        # 1, 1.0 and True are equal in Python but not in JSON.
        if len({json.dumps(value) for value in self.values}) != len(self.values):
            raise ConfigError(f"axis {self.name!r} lists a value twice: {self.values}.")
        if not self.values:
            raise ConfigError(f"axis {self.name!r} has no values.")


@dataclass(frozen=True)
class Points:
    """The members of a search space, in canonical order.

    Attributes:
        axes: the coordinates.
        rows: for each member its index on every axis; each member once.
    """

    axes: tuple[Axis, ...]
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", tuple(self.axes))
        rows = tuple(tuple(int(i) for i in row) for row in self.rows)
        object.__setattr__(self, "rows", rows)
        if len(set(self.names)) != len(self.axes):
            raise ConfigError(f"two axes share a name: {', '.join(self.names)}.")
        if len(set(rows)) != len(rows):
            raise ConfigError("a point is listed twice; each must appear once.")
        sizes = [len(axis.values) for axis in self.axes]
        for row in rows:
            if len(row) != len(sizes) or not _in_range(row, sizes):
                raise ConfigError(
                    f"point {row} does not index axes of {sizes} values; give one "
                    "index in range for each axis."
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The axes' names, in order."""
        return tuple(axis.name for axis in self.axes)

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, row: object) -> bool:
        return row in self.positions

    @cached_property
    def positions(self) -> dict[Row, int]:
        """Where each row stands in canonical order."""
        return {row: position for position, row in enumerate(self.rows)}

    @cached_property
    def array(self) -> np.ndarray:
        """The rows as an integer array ``[n_points, n_axes]``."""
        return np.array(self.rows, dtype=np.int64).reshape(len(self), len(self.axes))

    def axis_index(self, name: str) -> int:
        """Which axis is called `name`.

        Raises:
            ConfigError: no axis is.
        """
        if name not in self.names:
            known = ", ".join(self.names)
            raise ConfigError(f"no axis is called {name!r}; the axes are: {known}.")
        return self.names.index(name)

    def values(self, row: Row) -> dict[str, Scalar]:
        """The value of every axis at `row`."""
        return {a.name: a.values[i] for a, i in zip(self.axes, row, strict=True)}

    def row(self, values: Mapping[str, Any]) -> Row | None:
        """The member with these values, or None where there is none.

        Args:
            values: one value for every axis, and nothing else.
        """
        if set(values) != set(self.names):
            return None
        try:
            row = tuple(axis.values.index(values[axis.name]) for axis in self.axes)
        except ValueError:
            return None
        return row if row in self else None

    def nearest_row(self, values: Mapping[str, Any]) -> Row:
        """The index of each axis that comes nearest to some values; maybe no member.

        Args:
            values: one for every axis; a number that the axis lacks stands for the one
                nearest in ratio, anything else for the axis's last.
        """
        return tuple(_nearest_index(axis, values[axis.name]) for axis in self.axes)

    def nearest(self, row: Row, among: Sequence[int] | np.ndarray) -> int:
        """The position, out of `among`, of the member nearest to `row`.

        An ordinal axis counts its steps as a share of its length, any other axis
        counts 1 for a difference. Ties go to the earliest in canonical order.

        Args:
            row: an index on every axis; need not be a member.
            among: positions in `rows`, at least one.
        """
        among = np.sort(np.asarray(among, dtype=np.int64))
        steps = np.abs(self.array[among] - np.asarray(row))
        ordinal = np.array([axis.ordinal for axis in self.axes])
        spans = np.array([max(1, len(axis.values) - 1) for axis in self.axes])
        distance = np.where(ordinal, steps / spans, steps != 0).sum(axis=1)
        # Rounding keeps a tie a tie whatever the order of the sum.
        return int(among[np.argmin(distance.round(9))])

    def digest(self) -> str:
        """SHA-256 of axes and rows: equal only for the same space in the same order."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Plain lists and dicts from which `from_json` builds the same points."""
        axes = [{**asdict(axis), "values": list(axis.values)} for axis in self.axes]
        return {"axes": axes, "rows": [list(row) for row in self.rows]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Points":
        """The points that `to_json` wrote."""
        axes = (Axis(a["name"], tuple(a["values"]), a["ordinal"]) for a in data["axes"])
        return cls(tuple(axes), tuple(tuple(row) for row in data["rows"]))


def _nearest_index(axis: Axis, value: Any) -> int:
    if value in axis.values:
        return axis.values.index(value)
    numbers = {
        i: v for i, v in enumerate(axis.values) if isinstance(v, int | float) and v > 0
    }
    if not isinstance(value, int | float) or value <= 0 or not numbers:
        return len(axis.values) - 1
    return min(numbers, key=lambda i: abs(math.log(numbers[i] / value)))


def _in_range(row: Row, sizes: Sequence[int]) -> bool:
    return all(0 <= i < size for i, size in zip(row, sizes, strict=True))
