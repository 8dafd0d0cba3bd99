"""What a finished trial says: plain values that analysis and storage share."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any, Literal

from allocsearch.allocation import Allocation
from allocsearch.work import Audit

Direction = Literal["maximize", "minimize"]


@dataclass(frozen=True)
class Objective:
    """A metric that a study improves.

    Attributes:
        name: a key of the metrics that the task's evaluation returns.
        unit: what one is: "return", "nats/token", "fraction".
        direction: which way is better.
    """

    name: str
    unit: str
    direction: Direction

    def better(self, a: float, b: float) -> bool:
        """Whether a is strictly better than b."""
        return a > b if self.direction == "maximize" else a < b


@dataclass(frozen=True)
class SeedResult:
    """One training run of a candidate.

    Attributes:
        seed: the seed of initialisation, data order and environment.
        metrics: final metrics on validation data, by name.
        curve: evaluations along the way; each has "steps" in the task's unit and the
            metrics at that point.
        baseline: the same metrics of an untrained reference (a random policy, say),
            empty where the task has none.
        training: as `metrics`, but measured while training, on training data, since
            the evaluation before; empty in results that were stored without.
        training_curve: as `curve`, likewise.
    """

    seed: int
    metrics: dict[str, float]
    curve: list[dict[str, float]] = field(default_factory=list)
    baseline: dict[str, float] = field(default_factory=dict)
    training: dict[str, float] = field(default_factory=dict)
    training_curve: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class TrialResult:
    """One candidate of a study, trained with every seed of its group, or failed.

    Attributes:
        study: the study's name.
        task: the task's name.
        budget: name of the budget it was matched to.
        budget_flops: that budget, in FLOPs.
        number: the trial's number within its (budget, expert, arm).
        state: "complete", "failed", "running", or "pruned" where training stopped at a
            rung because others did better.
        allocation: what was built.
        objectives: what was measured, primary first.
        settings: searched values outside the allocation, such as the learning rate.
        seeds: one result per seed, in seed order; empty unless complete.
        horizon: training length per seed, in `unit`.
        unit: "environment steps" or "tokens".
        audit: counted work, parameters and bytes; None before the network was built.
        seconds: wall time of training and evaluation, all seeds.
        matched: whether the work lies in the budget's feasible band.
        reason: why it failed, empty otherwise.
        plugins: entry point → "distribution version" of everything it used.
        checkpoint: path of the trained networks relative to the study, or empty.
        measures: what was timed, by name: "step_seconds" of training for each step of
            one seed, and where it is an objective "latency_seconds" of one step.
        fraction: of the horizon that was trained; below 1 where it was pruned.
        confirmed: runs of the finished trial with fresh seeds, which did not choose it.
        started: UTC, ISO 8601.
        finished: UTC, ISO 8601.
    """

    study: str
    task: str
    budget: str
    budget_flops: int
    number: int
    state: str
    allocation: Allocation
    objectives: tuple[Objective, ...]
    settings: dict[str, float] = field(default_factory=dict)
    seeds: tuple[SeedResult, ...] = ()
    horizon: int = 0
    unit: str = "steps"
    audit: Audit | None = None
    seconds: float = 0.0
    matched: bool = True
    reason: str = ""
    plugins: dict[str, str] = field(default_factory=dict)
    checkpoint: str = ""
    measures: dict[str, float] = field(default_factory=dict)
    fraction: float = 1.0
    confirmed: tuple[SeedResult, ...] = ()
    started: str = ""
    finished: str = ""

    @property
    def arm(self) -> str:
        """``"recurrent"`` or ``"nonrecurrent"``."""
        return self.allocation.arm

    @property
    def objective(self) -> Objective:
        """The primary objective."""
        return self.objectives[0]

    @property
    def score(self) -> float:
        """Mean of the primary objective over seeds; NaN before completion."""
        return self.mean(self.objective.name)

    def mean(self, metric: str) -> float:
        """Mean of any metric over seeds; NaN where a seed lacks or broke it."""
        return _mean_of(self.seeds, metric)

    def confirmed_mean(self, metric: str) -> float:
        """Mean of any metric over the fresh seeds; NaN where there are none."""
        return _mean_of(self.confirmed, metric)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values; `from_dict` reads it back."""
        return {
            **asdict(self),
            "allocation": self.allocation.to_dict(),
            "audit": self.audit.to_dict() if self.audit else None,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrialResult":
        """The inverse of `to_dict`.

        Raises:
            LookupError, TypeError, ValueError: `to_dict` does not make such values.
        """
        _check_kinds(values)
        audit = values["audit"]
        return cls(
            **{
                **values,
                "allocation": Allocation.from_dict(values["allocation"]),
                "objectives": tuple(Objective(**o) for o in values["objectives"]),
                "seeds": seeds_of(values["seeds"]),
                "confirmed": seeds_of(values.get("confirmed", ())),
                "audit": Audit.from_dict(audit) if audit else None,
            }
        )


def seeds_of(stored: Iterable[Mapping[str, Any]]) -> tuple[SeedResult, ...]:
    """The inverse of `asdict` of each.

    Raises:
        LookupError, TypeError, ValueError: they are nothing of that kind.
    """
    stored = list(stored)
    _check_seeds(stored)
    return tuple(SeedResult(**seed) for seed in stored)


def _mean_of(seeds: Iterable[SeedResult], metric: str) -> float:
    values = [seed.metrics.get(metric, math.nan) for seed in seeds]
    if not values or not all(map(math.isfinite, values)):
        return math.nan
    return fmean(values)


_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("study", "task", "budget", "state", "unit", "reason"), str),
    **dict.fromkeys(("checkpoint", "started", "finished"), str),
    **dict.fromkeys(("budget_flops", "number", "horizon"), int),
    **dict.fromkeys(("settings", "plugins"), dict),
    "seconds": (int, float),
    "matched": bool,
}


def _check_kinds(values: Mapping[str, Any]) -> None:
    for name, kind in _KINDS.items():
        if name in values and not isinstance(values[name], kind):
            raise TypeError(f"{name} is {values[name]!r}")
    texts = [text for objective in values["objectives"] for text in objective.values()]
    texts += [values["allocation"][name] for name in ("expert", "aggregation")]
    if not values["objectives"] or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"not all of {texts!r} are names")


def _check_seeds(seeds: Iterable[Mapping[str, Any]]) -> None:
    for seed in seeds:
        for numbers in (seed["metrics"], seed.get("baseline", {}), *seed["curve"]):
            if not all(isinstance(number, int | float) for number in numbers.values()):
                raise TypeError(f"metrics are {numbers!r}")
