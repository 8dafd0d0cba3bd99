"""One allocation: build, check its work, train, evaluate along the way, score."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PyTree

from allocsearch import checkpoint
from allocsearch.allocation import Allocation
from allocsearch.audit import audit_model
from allocsearch.candidate import Candidate, describe_candidate
from allocsearch.checkpoint import Place, Writer
from allocsearch.errors import (
    AllocsearchError,
    AuditError,
    BudgetError,
    CheckpointError,
)
from allocsearch.results import SeedResult
from allocsearch.space import core_flops
from allocsearch.tasks.protocol import Task, build_model, n_chunks
from allocsearch.work import Audit, Budget, format_flops


class TrialFailed(AllocsearchError, RuntimeError):  # noqa: N818 - an outcome
    """Training gave nothing that can be scored."""


class Interrupted(Exception):  # noqa: N818 - an ending, not a fault
    """Training stopped on request, after a checkpoint."""


class Dropped(Interrupted):
    """Training stopped at once, without a checkpoint: it is another process's now."""


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
        step_seconds: wall time of training for each step of one seed, compilation
            left out; NaN where nothing was trained.
    """

    seeds: tuple[SeedResult, ...]
    seconds: float
    state: PyTree
    fraction: float = 1.0
    step_seconds: float = math.nan


def audit_candidate(
    task: Task, allocation: Allocation, budget: Budget | None, *, matched: bool = True
) -> Audit | None:
    """Build the network's shapes, count its work and hold it against the budget.

    Args:
        task: gives encoder and head.
        allocation: what to build.
        budget: None where work is only recorded.
        matched: whether the budget must be spent, or is only an upper bound.

    Returns:
        None where the task builds no network.

    Raises:
        AuditError: the traced count is not what the closed form says.
        BudgetError: the network is outside the budget's band.
    """
    if not task.builds_network:
        return None
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
    if budget is not None:
        _hold_against(budget, audit.work.within(budget.scope), allocation, matched)
    return audit


def _hold_against(
    budget: Budget, flops: int, allocation: Allocation, matched: bool
) -> None:
    least = budget.least if matched else 0
    if not least <= flops <= budget.flops:
        raise BudgetError(
            f"{allocation.label} costs {format_flops(flops)}, outside budget "
            f"{budget.name!r} ({format_flops(least)} to {format_flops(budget.flops)})"
        )


def train_candidate(
    task: Task,
    candidate: Candidate,
    *,
    directory: Place | None = None,
    until: float = 1.0,
    checkpoint_seconds: float = 30.0,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[Progress], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Train every seed to the horizon, evaluating along the way.

    Args:
        task: trains and scores.
        candidate: what to train.
        directory: the checkpoint's folder or URL; training goes on from what is there.
        until: pause at the first evaluation that has this fraction of the training
            behind it; what comes of it later is the same, bit for bit.
        checkpoint_seconds: least time between checkpoints.
        should_stop: asked after every chunk.
        on_progress: told after every chunk.
        note: told in a sentence when a damaged checkpoint is passed over.

    Raises:
        StudyError: a checkpoint cannot be written.
        TrialFailed: a metric is not finite; says which, at which seed and step.
        Interrupted: `should_stop` said so; there is a checkpoint if `directory`.
        CheckpointError: what is in `directory` is damaged or of another trial.
    """
    with nullcontext() if directory is None else Writer(directory) as writer:
        training = _Training(task, candidate, writer)
        if directory is not None and checkpoint.exists(directory):
            training.resume(directory, note)
        return _train(training, until, checkpoint_seconds, should_stop, on_progress)


def _train(
    training: "_Training",
    until: float,
    checkpoint_seconds: float,
    should_stop: Callable[[], bool],
    on_progress: Callable[[Progress], None],
) -> Outcome:
    task, candidate = training.task, training.candidate
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
            training.wait()
            raise Interrupted
    # Of what is finished nothing earlier is to be mistaken for it.
    training.save(keep=1 if training.n_done == total else checkpoint.KEPT)
    training.wait()
    return replace(training.outcome(), fraction=training.n_done / total)


def evaluation_points(total: int, n: int) -> set[int]:
    """After which of `total` chunks to evaluate: n evenly spaced, the last included."""
    n = min(n, total)
    return {math.ceil(i * total / n) for i in range(1, n + 1)}


class _Training:
    """A candidate in training, with its curves."""

    def __init__(self, task: Task, candidate: Candidate, writer: Writer | None):
        self.task, self.candidate, self._writer = task, candidate, writer
        self.state = task.init(
            candidate.allocation, candidate.training, candidate.seeds
        )
        self.n_done = 0
        self.seconds = 0.0
        self.curves: list[list[dict[str, float]]] = [[] for _ in candidate.seeds]
        self.chunk_seconds: list[float] = []
        self.training_curves: list[list[dict[str, float]]] = [
            [] for _ in candidate.seeds
        ]
        # Sums of the metrics of the chunks since the last evaluation, and how many.
        self.recent: list[dict[str, float]] = [{} for _ in candidate.seeds]
        self.n_recent = 0
        self.started = time.monotonic()

    def advance(self, *, evaluate: bool) -> dict[str, float]:
        started = time.monotonic()
        self.state, metrics = self.task.train(self.state, 1)
        self.chunk_seconds.append(time.monotonic() - started)
        self.n_done += 1
        self._check_finite(metrics, "training")
        self.recent = [*map(_added, self.recent, metrics)]
        self.n_recent += 1
        if evaluate:
            self._close_training_points()
            metrics = self.task.evaluate(self.state)
            self._check_finite(metrics, "evaluation")
            for curve, point in zip(self.curves, metrics, strict=True):
                curve.append({"steps": float(self.steps), **point})
        return _means(metrics)

    def _close_training_points(self) -> None:
        for curve, sums in zip(self.training_curves, self.recent, strict=True):
            means = {name: total / self.n_recent for name, total in sums.items()}
            point = self.task.training_scores(means)
            curve.append({"steps": float(self.steps), **point})
        self.recent = [{} for _ in self.recent]
        self.n_recent = 0

    def save(self, keep: int = checkpoint.KEPT) -> None:
        """Begin to write a checkpoint."""
        if self._writer is None:
            return
        metadata = {
            "candidate": describe_candidate(self.candidate),
            "n_done": self.n_done,
            "steps": self.steps,
            "curves": self.curves,
            "training_curves": self.training_curves,
            "recent": self.recent,
            "n_recent": self.n_recent,
            "seconds": self._elapsed(),
        }
        self._writer.save(self.state, metadata, keep=keep)

    def wait(self) -> None:
        """Wait until the checkpoint is written."""
        if self._writer is not None:
            self._writer.wait()

    def outcome(self) -> Outcome:
        window = self.task.final_window
        baseline = self.task.baseline()
        seeds = tuple(
            SeedResult(
                seed=seed,
                metrics=_final(curve, window),
                curve=curve,
                baseline=baseline,
                training=_final(training, window),
                training_curve=training,
            )
            for seed, curve, training in zip(
                self.candidate.seeds, self.curves, self.training_curves, strict=True
            )
        )
        return Outcome(
            seeds, self._elapsed(), self.state, step_seconds=self._step_seconds()
        )

    def _step_seconds(self) -> float:
        # The first chunk of a process compiles.
        timed = self.chunk_seconds[1:] or self.chunk_seconds
        if not timed:
            return math.nan
        steps = self.task.steps_per_chunk * len(self.candidate.seeds)
        return fmean(timed) / steps

    def resume(self, directory: Place, note: Callable[[str], None]) -> None:
        """Go on from a checkpoint: the newest one that is whole and of this trial."""

        def check(metadata: Mapping[str, Any]) -> None:
            if metadata.get("candidate") != describe_candidate(self.candidate):
                raise CheckpointError(
                    f"checkpoint {directory} is of another trial: move it away to "
                    "train this one from the start"
                )
            _check_progress(metadata, directory, len(self.candidate.seeds))

        found = checkpoint.latest(directory, check=check, note=note)
        self.state = found.restore(self.state)
        self.n_done = found.metadata["n_done"]
        self.curves = found.metadata["curves"]
        self.training_curves = found.metadata["training_curves"]
        self.recent = found.metadata["recent"]
        self.n_recent = found.metadata["n_recent"]
        self.seconds = found.metadata["seconds"]

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


def _check_progress(metadata: Mapping[str, Any], place: Place, n_seeds: int) -> None:
    numbers = [metadata.get(name) for name in ("n_done", "n_recent", "seconds")]
    known = all(isinstance(number, int | float) for number in numbers)
    lists = [metadata.get(name) for name in ("curves", "training_curves", "recent")]
    if not known or not all(
        isinstance(each, list) and len(each) == n_seeds for each in lists
    ):
        raise CheckpointError(
            f"checkpoint {place} is damaged: it does not say how far training was"
        )


def _means(metrics: Sequence[dict[str, float]]) -> dict[str, float]:
    names = metrics[0] if metrics else ()
    return {name: fmean(m[name] for m in metrics) for name in names}


def _added(sums: dict[str, float], values: dict[str, float]) -> dict[str, float]:
    return {name: sums.get(name, 0.0) + value for name, value in values.items()}


def _final(curve: Sequence[dict[str, float]], window: int) -> dict[str, float]:
    """The mean of the last points of a curve, each metric over those that have it."""
    points = curve[-window:]
    names = dict.fromkeys(name for point in points for name in point)
    return {
        name: fmean(point[name] for point in points if name in point)
        for name in names
        if name != "steps"
    }
