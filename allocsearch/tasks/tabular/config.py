"""The tabular task's own fields."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from allocsearch.parsing import Section
from allocsearch.results import Direction, Objective


def _as_objective(value: Any) -> Any:
    """``"loss:minimize:nats"`` written out."""
    if not isinstance(value, str):
        return value
    name, *rest = value.split(":")
    return {"name": name, **dict(zip(("direction", "unit"), rest, strict=False))}


def _as_objectives(value: Any) -> Any:
    values = [value] if isinstance(value, str | Mapping) else value
    return tuple(_as_objective(item) for item in values)


class ObjectiveConfig(Section):
    """One column that a study improves."""

    name: str
    """The column."""
    direction: Direction = "maximize"
    """Which way is better."""
    unit: str = ""
    """What one is, as "nats/token"."""

    def build(self) -> Objective:
        """The objective as results keep it."""
        return Objective(self.name, self.unit, self.direction)


class TabularConfig(Section):
    """The task's own fields."""

    data: str = ""
    """The table: a .csv, .parquet or .json file."""
    objectives: Annotated[
        tuple[ObjectiveConfig, ...], BeforeValidator(_as_objectives)
    ] = ()
    """Columns to improve, primary first, as `loss:minimize`; `score` if empty."""
    cost: str = "flops"
    """The column that a budget binds; without it every row costs the same."""
    unit: str = "steps"
    """What the column `steps` counts."""
