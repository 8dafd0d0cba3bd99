"""How points look to Optuna: an integer index for an ordinal axis, names otherwise.

Distributions never change during a study, because samplers that learn drop every
trial whose distributions differ.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from allocsearch.search.points import Axis, Points, Row

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution


def distributions(points: Points) -> "dict[str, BaseDistribution]":
    """The distribution of every axis."""
    return {axis.name: _distribution(axis) for axis in points.axes}


def free_distributions(points: Points) -> "dict[str, BaseDistribution]":
    """The distribution of every axis with a choice: more than one value."""
    every = distributions(points)
    return {a.name: every[a.name] for a in points.axes if len(a.values) > 1}


def _distribution(axis: Axis) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, IntDistribution

    if axis.ordinal:
        return IntDistribution(0, len(axis.values) - 1)
    return CategoricalDistribution(axis.values)


def params_of(points: Points, row: Row) -> dict[str, Any]:
    """Optuna's parameters for `row`."""
    return {
        axis.name: i if axis.ordinal else axis.values[i]
        for axis, i in zip(points.axes, row, strict=True)
    }


def row_of(points: Points, params: Mapping[str, Any]) -> Row | None:
    """The indices that `params` stand for, or None where they stand for none.

    An axis with a single value may be left out. The row need not be a member.
    """
    row = []
    for axis in points.axes:
        default = None if len(axis.values) > 1 else _single_param(axis)
        index = _index(axis, params.get(axis.name, default))
        if index is None:
            return None
        row.append(index)
    return tuple(row)


def _single_param(axis: Axis) -> Any:
    return 0 if axis.ordinal else axis.values[0]


def _index(axis: Axis, param: Any) -> int | None:
    if not axis.ordinal:
        return axis.values.index(param) if param in axis.values else None
    inside = isinstance(param, int) and 0 <= param < len(axis.values)
    return int(param) if inside else None


def internal_columns(
    points: Points, space: "Mapping[str, BaseDistribution]", among: np.ndarray
) -> dict[str, np.ndarray]:
    """Optuna's internal value of each parameter of `space` at the positions `among`.

    For an index and for a choice alike that value is the index, as a float.
    """
    chosen = points.array[among]
    return {name: chosen[:, points.axis_index(name)].astype(float) for name in space}


def suggest(trial: "optuna.Trial", axis: Axis) -> None:
    """Give `trial` its parameter for `axis`, unless it has it.

    Raises:
        ValueError: what was put into the database for it is no such parameter.
    """
    if axis.ordinal:
        trial.suggest_int(axis.name, 0, len(axis.values) - 1)
    else:
        trial.suggest_categorical(axis.name, axis.values)
