"""What a finished trial says: plain values that analysis and storage share."""

import math
from collections.abc import Mapping
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
        state: "complete", "failed" or "running".
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
        values = [s.metrics.get(metric, math.nan) for s in self.seeds]
        if not values or not all(map(math.isfinite, values)):
            return math.nan
        return fmean(values)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values; `from_dict` reads it back."""
        return {
            **asdict(self),
            "allocation": self.allocation.to_dict(),
            "audit": self.audit.to_dict() if self.audit else None,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrialResult":
        """The inverse of `to_dict`."""
        audit = values["audit"]
        return cls(
            **{
                **values,
                "allocation": Allocation.from_dict(values["allocation"]),
                "objectives": tuple(Objective(**o) for o in values["objectives"]),
                "seeds": tuple(SeedResult(**s) for s in values["seeds"]),
                "audit": Audit.from_dict(audit) if audit else None,
            }
        )
