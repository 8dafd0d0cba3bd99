"""From a few coordinates to the one allocation that `train` trains."""

from dataclasses import dataclass, replace

from allocsearch.allocation import DEFAULT_AGGREGATION, Allocation, Radius
from allocsearch.config import ExpertConfig, SpaceConfig
from allocsearch.errors import ConfigError
from allocsearch.parsing import parse
from allocsearch.registry import find
from allocsearch.tasks.resolve import Setting


@dataclass(frozen=True)
class Shape:
    """Coordinates of an allocation; None leaves one to the budget.

    Attributes:
        recurrent: which arm.
        depth: levels L; the budget's reference allocation's if None.
        n_experts: experts E; likewise.
        width: channels d; the widest that the budget allows if None.
        radius: a number or "full", as text; full if None.
        aggregation: by name; the default if None.
    """

    recurrent: bool
    depth: int | None = None
    n_experts: int | None = None
    width: int | None = None
    radius: str | None = None
    aggregation: str | None = None


def choose(setting: Setting, shape: Shape) -> tuple[ExpertConfig, Allocation]:
    """The allocation that has these coordinates under the budget.

    A width that was given is not held against the budget here.

    Raises:
        BudgetError: no width fits; the message names the nearest.
        ConfigError: a coordinate is no number, or no expert is meant for the arm.
    """
    expert = _expert(setting, shape)
    aggregation = shape.aggregation or DEFAULT_AGGREGATION
    find("aggregation", aggregation)
    reference = type(setting.task).budgets.get(setting.budget.name)
    usual = reference.reference if reference else None
    base = Allocation(
        expert.name,
        shape.recurrent,
        _first(shape.depth, usual and usual.depth, 1),
        _first(shape.n_experts, usual and usual.n_experts, 1),
        _first(shape.width, setting.budget.granule),
        _radius(shape.radius),
        aggregation,
        setting.options_of(expert),
    )
    if shape.width is not None:
        return expert, base
    axes = {
        "depths": [base.depth],
        "n_experts": [base.n_experts],
        "radii": [base.radius],
        "aggregations": [base.aggregation],
    }
    space = parse(SpaceConfig, {**setting.space.model_dump(), **axes}, "space")
    return expert, replace(setting, space=space).allocations(expert, base.arm)[0]


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _radius(text: str | None) -> Radius:
    if text is None or text == "full":
        return "full"
    if not text.isdecimal():
        raise ConfigError(f"radius is {text!r}: give an integer from 0, or 'full'")
    return int(text)


def _expert(setting: Setting, shape: Shape) -> ExpertConfig:
    arm = "recurrent" if shape.recurrent else "nonrecurrent"
    for expert in setting.experts:
        if arm in expert.arms:
            return expert
    raise ConfigError(
        f"no expert of the task is meant for the {arm} arm: give --expert"
    )
