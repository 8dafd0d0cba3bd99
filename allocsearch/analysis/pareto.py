"""Pareto fronts: the most score for the least of something, depth first of all."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from allocsearch.analysis.candidates import (
    Key,
    candidates,
    common_objective,
    grouped,
    ranking,
)
from allocsearch.errors import unknown_name
from allocsearch.results import TrialResult
from allocsearch.work import Audit


@dataclass(frozen=True)
class Axis:
    """A cost that a front trades against the score; less is always better.

    Attributes:
        name: how options and JSON call it.
        label: how figures call it.
        unit: of its values; empty for counts.
        read: its value for one trial, None where it was not measured.
    """

    name: str
    label: str
    unit: str
    read: Callable[[TrialResult], float | None]


def _audited(read: Callable[[Audit], int]) -> Callable[[TrialResult], int | None]:
    return lambda result: read(result.audit) if result.audit else None


def _measured(name: str) -> Callable[[TrialResult], float | None]:
    return lambda result: result.measures.get(name)


_AXES = (
    Axis("depth", "depth L", "", lambda result: result.allocation.depth),
    Axis("core_flops", "core work", "FLOP", _audited(lambda a: a.work.core)),
    Axis("total_flops", "total work", "FLOP", _audited(lambda a: a.work.total)),
    Axis("training_flops", "training work", "FLOP", _audited(lambda a: a.training)),
    Axis("parameters", "parameters", "", _audited(lambda a: a.parameters)),
    Axis(
        "memory_bytes",
        "state and context",
        "bytes",
        _audited(lambda a: a.state_bytes + a.context_bytes),
    ),
    Axis("seconds", "wall time", "s", lambda result: result.seconds),
    Axis("step_seconds", "training time a step", "s", _measured("step_seconds")),
    Axis("latency_seconds", "latency of a step", "s", _measured("latency_seconds")),
)
AXES = {axis.name: axis for axis in _AXES}


def find_axis(name: str) -> Axis:
    """The axis of this name.

    Raises:
        UnknownNameError: no such axis; the message lists them.
    """
    if name not in AXES:
        raise unknown_name("axis", name, AXES)
    return AXES[name]


def pareto_front(results: Iterable[TrialResult], x: str = "depth") -> list[TrialResult]:
    """The trials that no other beats in both score and `x`, cheapest first.

    A trial is dominated by one that is at least as good in both and better in one.
    Score follows the objective's direction; of `x`, less is better. Where trials tie
    in both, the front keeps one: that of less core work, then shallower, of fewer
    parameters, of lower number. Failed, running and non-finite trials and those
    without a value of `x` never enter; see `candidates` for unmatched ones.

    Args:
        results: trials of one objective; all of them compete.
        x: a name in `AXES`.

    Returns:
        The front, from the smallest `x` to the best score.

    Raises:
        UnknownNameError: an unknown axis.
        ConfigError: trials with different objectives.
    """
    axis = find_axis(x)
    entrants = [
        (value, ranking(result), result)
        for result in candidates(results)
        if (value := axis.read(result)) is not None and math.isfinite(value)
    ]
    objective = common_objective([result for _, _, result in entrants])
    front: list[TrialResult] = []
    for _, _, result in sorted(entrants, key=lambda entrant: entrant[:2]):
        # `objective` is set wherever there is an entrant.
        if not front or (objective and objective.better(result.score, front[-1].score)):
            front.append(result)
    return front


def pareto_fronts(
    results: Iterable[TrialResult], x: str = "depth"
) -> dict[Key, list[TrialResult]]:
    """One front for each (budget, expert, arm), so that budgets never mix.

    Args:
        results: trials of one objective.
        x: a name in `AXES`.

    Returns:
        Fronts in listing order; an arm without a candidate has an empty one.

    Raises:
        UnknownNameError: an unknown axis.
        ConfigError: trials with different objectives.
    """
    results = list(results)
    common_objective(results)
    return {key: pareto_front(group, x) for key, group in grouped(results).items()}
