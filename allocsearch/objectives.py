"""What a search improves: the task's own objectives, and what a network costs."""

from collections.abc import Sequence

from allocsearch.analysis.pareto import AXES
from allocsearch.errors import ConfigError, unknown_name
from allocsearch.results import Objective, TrialResult


def searched_objectives(
    own: Sequence[Objective], names: Sequence[str]
) -> tuple[Objective, ...]:
    """The objectives of a search.

    Args:
        own: the task's, primary first.
        names: of the task's, or of `allocsearch.analysis.pareto.AXES`, of which less is
            better; none for the task's first alone.

    Raises:
        UnknownNameError: a name is neither.
        ConfigError: a name twice, or none of the task's own among them.
    """
    if not names:
        return (own[0],)
    by_name = {objective.name: objective for objective in own}
    found = []
    for name in names:
        if name in by_name:
            found.append(by_name[name])
        elif name in AXES:
            found.append(Objective(name, AXES[name].unit, "minimize"))
        else:
            raise unknown_name("objective", name, [*by_name, *AXES])
    if len(set(names)) < len(names):
        raise ConfigError(f"search.objectives names one twice: {', '.join(names)}")
    if not set(names) & set(by_name):
        raise ConfigError(
            f"search.objectives has no score of the task, only costs: add one of "
            f"{', '.join(by_name)}"
        )
    return tuple(found)


def ordered_objectives(
    own: Sequence[Objective], searched: Sequence[Objective]
) -> tuple[Objective, ...]:
    """The task's objectives, the first of them that is searched in front.

    It is what "best" means where one trial has to be named.
    """
    first = next(objective for objective in searched if objective in own)
    return (first, *(objective for objective in own if objective != first))


def values_of(
    result: TrialResult, objectives: Sequence[Objective]
) -> tuple[float, ...]:
    """What a trial reached, one value for each objective; NaN where it is unknown."""
    own = {objective.name for objective in result.objectives}
    return tuple(
        result.mean(objective.name)
        if objective.name in own
        else _cost(result, objective.name)
        for objective in objectives
    )


def _cost(result: TrialResult, name: str) -> float:
    value = AXES[name].read(result)
    return float("nan") if value is None else float(value)
