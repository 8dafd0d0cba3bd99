"""A table of results, read and checked: each allocation with its cost and curves."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from allocsearch.allocation import DEFAULT_AGGREGATION, Allocation
from allocsearch.errors import AllocsearchError, DataError

DEFAULTS = {
    "expert": "table",
    "recurrent": True,
    "radius": "full",
    "aggregation": DEFAULT_AGGREGATION,
}
"""What an absent column means."""
REQUIRED = ("depth", "n_experts", "width")
COORDINATES = (*REQUIRED, *DEFAULTS)
SEED, STEPS = "seed", "steps"
TEST = "test_"
"""Columns of test data begin with this."""
_TRUE, _FALSE = ("true", "1", "recurrent"), ("false", "0", "nonrecurrent")


@dataclass(frozen=True, eq=False)
class Curve:
    """One training run in a table.

    Attributes:
        steps: where it was evaluated, rising; one 1 where the table has no steps.
        metrics: by column, a value at each of them.
    """

    steps: np.ndarray
    metrics: Mapping[str, np.ndarray]

    def at(self, steps: int) -> dict[str, float]:
        """The last evaluation up to `steps`, or the first one."""
        i = max(0, int(np.searchsorted(self.steps, steps, side="right")) - 1)
        return {name: float(values[i]) for name, values in self.metrics.items()}


@dataclass(frozen=True, eq=False)
class Table:
    """Allocations in the order of the table, with what is known of them.

    Attributes:
        costs: FLOPs of each allocation, at least 1.
        curves: of each allocation, its runs by rising seed.
        digest: SHA-256 of the file.
        has_costs: whether the table has a column of costs.
    """

    costs: Mapping[Allocation, int]
    curves: Mapping[Allocation, Sequence[Curve]] = field(repr=False)
    digest: str
    has_costs: bool

    @cached_property
    def steps(self) -> np.ndarray:
        """Every number of steps in the table, rising."""
        every = [curve.steps for runs in self.curves.values() for curve in runs]
        return np.unique(np.concatenate(every))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The metrics' names, in order."""
        return tuple(next(iter(self.curves.values()))[0].metrics)


def read_table(path: Path, cost: str = "flops") -> Table:
    """Read and check a table.

    Args:
        path: a .csv, .parquet or .json file (a list of records), one row for each
            allocation, or for each allocation, seed and number of steps.
        cost: the column that a budget binds, whole FLOPs; it may be missing.

    Raises:
        DataError: the file cannot be read, lacks a column, or has a row that says
            nothing, too much, or the same as another.
    """
    frame = _read(path)
    missing = [name for name in REQUIRED if name not in frame]
    if missing:
        raise DataError(
            f"table {path} has no column {missing[0]!r}; it needs "
            f"{', '.join(REQUIRED)} and has {', '.join(map(str, frame.columns))}"
        )
    if frame.empty:
        raise DataError(f"table {path} has no rows")
    frame["_allocation"] = _allocations(path, frame)
    has_costs = cost in frame
    known = {*COORDINATES, SEED, STEPS, cost, "_allocation"}
    metrics = [name for name in frame if name not in known]
    for name in (*metrics, *(n for n in (SEED, STEPS, cost) if n in frame)):
        _check_numbers(path, frame, name)
    _check_once(path, frame)
    groups = cast(
        "list[tuple[Allocation, pd.DataFrame]]",
        list(frame.groupby("_allocation", sort=False)),
    )
    return Table(
        costs={a: _cost(path, a, rows, cost, has_costs) for a, rows in groups},
        curves={a: _curves(rows, metrics) for a, rows in groups},
        digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        has_costs=has_costs,
    )


def _read(path: Path) -> pd.DataFrame:
    readers = {".csv": pd.read_csv, ".parquet": pd.read_parquet, ".json": pd.read_json}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"table {path} must end in {', '.join(readers)}")
    try:
        return reader(path)
    except FileNotFoundError:
        raise DataError(f"there is no table {path}") from None
    except ImportError as error:
        raise DataError(
            f"table {path} needs pyarrow: pip install 'allocsearch[parquet]'"
        ) from error
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        text = " ".join(str(error).split())[:200]
        raise DataError(f"table {path} cannot be read: {text}") from error


def _allocations(path: Path, frame: pd.DataFrame) -> list[Allocation]:
    columns = [name for name in COORDINATES if name in frame]
    found: dict[tuple[Any, ...], Allocation] = {}
    for i, values in enumerate(zip(*(frame[name] for name in columns), strict=True)):
        if values not in found:
            given = dict(zip(columns, values, strict=True))
            found[values] = _allocation(path, i, given)
    _check_distinct(path, found)
    rows = zip(*(frame[name] for name in columns), strict=True)
    return [found[values] for values in rows]


def _check_distinct(path: Path, found: Mapping[tuple[Any, ...], Allocation]) -> None:
    # A radius of E − 1 and "full" are one network, as are aggregations of one expert.
    first: dict[Allocation, tuple[Any, ...]] = {}
    for values, allocation in found.items():
        other = first.setdefault(allocation, values)
        if other != values:
            raise DataError(
                f"table {path} has two names for {allocation.arm} {allocation.label}: "
                f"{_listed(other)} and {_listed(values)}; keep one of them"
            )


def _listed(values: tuple[Any, ...]) -> str:
    return "(" + ", ".join(map(str, values)) + ")"


def _allocation(path: Path, i: int, given: Mapping[str, Any]) -> Allocation:
    values = {**DEFAULTS, **given}
    try:
        depth, n_experts, width = (_whole(name, values[name]) for name in REQUIRED)
        return Allocation(
            expert=str(values["expert"]),
            recurrent=_truth(values["recurrent"]),
            depth=depth,
            n_experts=n_experts,
            width=width,
            radius=_radius(values["radius"]),
            aggregation=str(values["aggregation"]),
        )
    except AllocsearchError as error:
        raise DataError(f"table {path}, row {i + 1}: {error}") from error


def _whole(name: str, value: Any) -> int:
    if isinstance(value, str) or not np.isfinite(value) or value != int(value):
        raise DataError(f"{name} is {value}: give a whole number")
    return int(value)


def _truth(value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in (*_TRUE, *_FALSE):
        raise DataError(f"recurrent is {value}: give true or false")
    return text in _TRUE


def _radius(value: Any) -> Any:
    if isinstance(value, str):
        text = value.strip().lower()
        return text if not text.isdecimal() else int(text)
    # A column with some numbers and some gaps holds floats: a gap means full.
    return "full" if pd.isna(value) else _whole("radius", value)


def _check_numbers(path: Path, frame: pd.DataFrame, name: str) -> None:
    try:
        numbers = np.asarray(pd.to_numeric(frame[name]), dtype=float)
    except (TypeError, ValueError):
        raise DataError(
            f"table {path}, column {name!r}: {frame[name].iloc[0]!r} is no number; "
            "columns other than coordinates hold metrics, so leave text out"
        ) from None
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise DataError(
            f"table {path}, row {bad[0] + 1}: {name} is "
            f"{numbers[bad[0]]}, not finite; leave such rows out"
        )
    frame[name] = numbers


def _check_once(path: Path, frame: pd.DataFrame) -> None:
    keys = ["_allocation", *(name for name in (SEED, STEPS) if name in frame)]
    twice = np.flatnonzero(frame.duplicated(keys).to_numpy())
    if len(twice):
        allocation = frame["_allocation"].iloc[twice[0]]
        raise DataError(
            f"table {path}, row {twice[0] + 1}: {allocation.arm} {allocation.label} is "
            f"there before with the same {' and '.join(keys[1:]) or 'coordinates'}; "
            f"give each row once, or tell runs apart by a column {SEED!r}"
        )


def _cost(
    path: Path, allocation: Any, rows: pd.DataFrame, cost: str, has_costs: bool
) -> int:
    if not has_costs:
        return 1
    values = rows[cost].unique()
    if len(values) > 1 or values[0] < 1 or values[0] != int(values[0]):
        raise DataError(
            f"table {path}: {cost} of {allocation.arm} {allocation.label} is "
            f"{', '.join(f'{v:g}' for v in values[:3])}; give one whole number of at "
            "least 1 for each allocation"
        )
    return int(values[0])


def _curves(rows: pd.DataFrame, metrics: Sequence[str]) -> tuple[Curve, ...]:
    runs = [run for _, run in rows.groupby(SEED)] if SEED in rows else [rows]
    return tuple(_curve(run, metrics) for run in runs)


def _curve(run: pd.DataFrame, metrics: Sequence[str]) -> Curve:
    if STEPS in run:
        run = run.sort_values(STEPS)
        steps = run[STEPS].to_numpy().astype(np.int64)
    else:
        steps = np.ones(1, dtype=np.int64)
    return Curve(steps, {name: run[name].to_numpy() for name in metrics})
