"""One allocation: build, check its work, train, evaluate along the way, score."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PyTree

from allocsearch import checkpoint
from allocsearch.allocation import Allocation
from allocsearch.audit import audit_model
from allocsearch.config import TrainingConfig
from allocsearch.errors import AllocsearchError, AuditError, BudgetError
from allocsearch.results import SeedResult
from allocsearch.space import core_flops
from allocsearch.tasks.protocol import Scores, Task, build_model, n_chunks
from allocsearch.work import Audit, Budget, format_flops


class TrialFailed(AllocsearchError, RuntimeError):  # noqa: N818 - an outcome
    """Training gave nothing that can be scored."""


class Interrupted(Exception):  # noqa: N818 - an ending, not a fault
    """Training stopped on request, after a checkpoint."""


class Dropped(Interrupted):
    """Training stopped at once, without a checkpoint: it is another process's now."""


@dataclass(frozen=True)
class Candidate:
    """What one trial trains.

    Attributes:
        allocation: the network.
        training: horizon, learning rate and the rest, every field set.
        seeds: one training run each.
        task: the task's name and fields, as `Setting.task_config` has them.
    """

    allocation: Allocation
    training: TrainingConfig
    seeds: tuple[int, ...]
    task: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """How far a trial is.

    Attributes:
        fraction: of its training, from 0 to 1.
        metrics: means over seeds of the last chunk or evaluation.
        steps: trained so far, in the task's unit.
        evaluated: whether the metrics are of an evaluation.
    """

    fraction: float
    metrics: dict[str, float]
    steps: int = 0
    evaluated: bool = False


@dataclass(frozen=True)
class Outcome:
    """A trained candidate.

    Attributes:
        seeds: one result per seed.
        seconds: wall time, over all restarts.
        state: the trained runs, as the task keeps them.
        fraction: of the training that is done; below 1 where it paused.
    """

    seeds: tuple[SeedResult, ...]
    seconds: float
    state: PyTree
    fraction: float = 1.0


def audit_candidate(task: Task, allocation: Allocation, budget: Budget | None) -> Audit:
    """Build the network's shapes, count its work and hold it against the budget.

    Args:
        task: gives encoder and head.
        allocation: what to build.
        budget: None where work is only recorded.

    Raises:
        AuditError: the traced count is not what the closed form says.
        BudgetError: the network is outside the budget's band.
    """
    shapes = eqx.filter_eval_shape(
        lambda: build_model(task, allocation, key=jax.random.key(0), canonical=True)
    )
    audit = audit_model(shapes, task.observation)
    formula = core_flops(allocation, task.positions)
    if audit.work.core != formula:
        raise AuditError(
            f"{allocation.label} is traced at {audit.work.core} core FLOPs but its "
            f"expert's closed form says {formula}: mend `flops` of expert "
            f"{allocation.expert!r}"
        )
    if budget is not None and not budget.admits(audit.work.within(budget.scope)):
        raise BudgetError(
            f"{allocation.label} costs "
            f"{format_flops(audit.work.within(budget.scope))}, outside budget "
            f"{budget.name!r} ({format_flops(budget.least)} to "
            f"{format_flops(budget.flops)})"
        )
    return audit


def train_candidate(
    task: Task,
    candidate: Candidate,
    *,
    directory: Path | None = None,
    until: float = 1.0,
    checkpoint_seconds: float = 30.0,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Outcome:
    """Train every seed to the horizon, evaluating along the way.

    Args:
        task: trains and scores.
        candidate: what to train.
        directory: the checkpoint's folder; training goes on from what is there.
        until: pause at the first evaluation that has this fraction of the training
            behind it; what comes of it later is the same, bit for bit.
        checkpoint_seconds: least time between checkpoints.
        should_stop: asked after every chunk.
        on_progress: told after every chunk.

    Raises:
        TrialFailed: a metric is not finite; says which, at which seed and step.
        Interrupted: `should_stop` said so; there is a checkpoint if `directory`.
        CheckpointError: the checkpoint in `directory` is for another trial.
    """
    training = _Training(task, candidate, directory)
    total = n_chunks(task, candidate.training)
    due = evaluation_points(total, candidate.training.n_evaluations)
    end = min(point for point in due if point >= until * total)
    saved = time.monotonic()
    while training.n_done < end:
        evaluate = training.n_done + 1 in due
        metrics = training.advance(evaluate=evaluate)
        fraction = training.n_done / total
        on_progress(Progress(fraction, metrics, training.steps, evaluate))
        stop = should_stop() and training.n_done < end
        if stop or time.monotonic() - saved >= checkpoint_seconds:
            training.save()
            saved = time.monotonic()
        if stop:
            raise Interrupted
    training.save()
    return replace(training.outcome(), fraction=training.n_done / total)


def evaluation_points(total: int, n: int) -> set[int]:
    """After which of `total` chunks to evaluate: n evenly spaced, the last included."""
    n = min(n, total)
    return {math.ceil(i * total / n) for i in range(1, n + 1)}


class _Training:
    """A candidate in training, with its curves."""

    def __init__(self, task: Task, candidate: Candidate, directory: Path | None):
        self.task, self.candidate, self.directory = task, candidate, directory
        self.state = task.init(
            candidate.allocation, candidate.training, candidate.seeds
        )
        self.n_done = 0
        self.seconds = 0.0
        self.curves: list[list[dict[str, float]]] = [[] for _ in candidate.seeds]
        self.started = time.monotonic()
        if directory is not None and checkpoint.exists(directory):
            self._resume(directory)

    def advance(self, *, evaluate: bool) -> dict[str, float]:
        self.state, metrics = self.task.train(self.state, 1)
        self.n_done += 1
        self._check_finite(metrics, "training")
        if evaluate:
            metrics = self.task.evaluate(self.state)
            self._check_finite(metrics, "evaluation")
            for curve, point in zip(self.curves, metrics, strict=True):
                curve.append({"steps": float(self.steps), **point})
        return _means(metrics)

    def save(self) -> None:
        if self.directory is None:
            return
        metadata = {
            "candidate": describe_candidate(self.candidate),
            "n_done": self.n_done,
            "steps": self.steps,
            "curves": self.curves,
            "seconds": self._elapsed(),
        }
        checkpoint.save(self.directory, self.state, metadata)

    def outcome(self) -> Outcome:
        window = self.task.final_window
        baseline = self.task.baseline()
        seeds = tuple(
            SeedResult(
                seed, _means([_metrics(p) for p in curve[-window:]]), curve, baseline
            )
            for seed, curve in zip(self.candidate.seeds, self.curves, strict=True)
        )
        return Outcome(seeds, self._elapsed(), self.state)

    def _resume(self, directory: Path) -> None:
        metadata = checkpoint.read_manifest(directory)["metadata"]
        if metadata.get("candidate") != describe_candidate(self.candidate):
            raise checkpoint.CheckpointError(
                f"checkpoint {directory} is of another trial: move it away to train "
                "this one from the start"
            )
        self.state = checkpoint.load(directory, self.state)
        self.n_done = metadata["n_done"]
        self.curves = metadata["curves"]
        self.seconds = metadata["seconds"]

    def _elapsed(self) -> float:
        return self.seconds + time.monotonic() - self.started

    @property
    def steps(self) -> int:
        return self.n_done * self.task.steps_per_chunk

    def _check_finite(self, metrics: Sequence[dict[str, float]], phase: str) -> None:
        for seed, values in zip(self.candidate.seeds, metrics, strict=True):
            for name, value in values.items():
                if not math.isfinite(value):
                    raise TrialFailed(
                        f"{name} is {value} in {phase} of "
                        f"{self.candidate.allocation.label}, seed {seed}, after "
                        f"{self.steps} {self.task.unit}"
                    )


def _means(metrics: Sequence[dict[str, float]]) -> dict[str, float]:
    names = metrics[0] if metrics else ()
    return {name: fmean(m[name] for m in metrics) for name in names}


def _metrics(point: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in point.items() if name != "steps"}


def describe_candidate(candidate: Candidate) -> dict[str, Any]:
    """What a checkpoint says of its candidate, JSON-ready."""
    return {
        "allocation": candidate.allocation.to_dict(),
        "training": candidate.training.model_dump(mode="json"),
        "seeds": list(candidate.seeds),
        # Through JSON, so that tuples and lists compare equal.
        "task": json.loads(json.dumps(dict(candidate.task))),
    }


def candidate_from(description: dict[str, Any]) -> Candidate:
    """The inverse of `describe_candidate`."""
    return Candidate(
        Allocation.from_dict(description["allocation"]),
        TrainingConfig(**description["training"]),
        tuple(description["seeds"]),
        description["task"],
    )


def load_networks(path: Path, task: Task, *, most: int | None = None) -> PyTree:
    """The networks of a checkpoint, as much of a state as `Task.evaluate` reads.

    Args:
        path: the checkpoint's folder.
        task: the task that they were trained on, or one like it.
        most: how many, the first seeds; all of them if left out.

    Raises:
        CheckpointError: it is missing, damaged or foreign.
    """
    candidate = candidate_from(checkpoint.read_manifest(path)["metadata"]["candidate"])
    seeds = candidate.seeds[:most]
    template = task.init_trained(candidate.allocation, candidate.training, seeds)
    return checkpoint.load(path, template, partial=True)


def evaluate_checkpoint(path: Path, task: Task, split: str) -> list[dict[str, float]]:
    """Score the networks of a checkpoint.

    Args:
        path: the checkpoint's folder.
        task: the task that they were trained on, or one like it.
        split: "valid" or "test".

    Returns:
        For each seed its metrics by name.

    Raises:
        CheckpointError: it is missing, damaged or foreign.
    """
    return task.evaluate(load_networks(path, task), split)


def evaluate_checkpoint_each(path: Path, task: Task, split: str) -> list[Scores]:
    """As `evaluate_checkpoint`, and what each item scored, where the task can tell."""
    return task.evaluate_each(load_networks(path, task), split)
