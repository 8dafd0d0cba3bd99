"""One leg of a trial: from what was proposed to a result, or to a rung on the way.

It touches a trial's checkpoint and nothing else of a study, so that any process that
sees the study's folder can make it; telling the search is the driver's part.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from allocsearch import checkpoint
from allocsearch.candidate import Candidate
from allocsearch.errors import AllocsearchError, CheckpointError, StudyError
from allocsearch.latency import latency_seconds
from allocsearch.objectives import ordered_objectives
from allocsearch.plan import Cell
from allocsearch.programs import release_programs
from allocsearch.results import TrialResult
from allocsearch.study import Study, checkpoint_name
from allocsearch.trial import (
    Interrupted,
    Outcome,
    Progress,
    audit_candidate,
    train_candidate,
)


@dataclass(frozen=True)
class Job:
    """What is to be trained: plain values, the same in every process.

    Attributes:
        cell: name of the cell.
        number: the trial's number in it.
        values: a value for every axis of the cell's points.
        until: the fraction of its training after which it pauses; 1 to its end.
        group: which group of seeds, see `Cell.candidate`.
    """

    cell: str
    number: int
    values: dict[str, Any] = field(default_factory=dict)
    until: float = 1.0
    group: int = 0


def blank_result(study: Study, cell: Cell, job: Job) -> TrialResult:
    """What is known of a trial before it trains; its state is "running"."""
    candidate = candidate_of(study, cell, job)
    task = cell.setting.task
    training = candidate.training
    return TrialResult(
        study=study.name,
        task=cell.setting.task_config["name"],
        budget=cell.budget,
        budget_flops=cell.setting.budget.flops,
        number=job.number,
        state="running",
        allocation=candidate.allocation,
        objectives=ordered_objectives(task.objectives, cell.objectives),
        settings={
            name: getattr(training, name)
            for name in dict.fromkeys(("learning_rate", *cell.fields))
        },
        horizon=training.horizon or task.steps_per_chunk,
        unit=task.unit,
        plugins=cell.plugins(candidate.allocation),
        checkpoint=checkpoint_name(cell.name, job.number, job.group),
    )


def candidate_of(study: Study, cell: Cell, job: Job) -> Candidate:
    """What a job trains."""
    return cell.candidate(job.values, study.config.seed, job.group)


def attempt(
    study: Study,
    cell: Cell,
    job: Job,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[Progress], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
) -> TrialResult:
    """Train a job from where its checkpoint is, and score it.

    Args:
        study: whose folder holds the checkpoint.
        cell: the job's cell.
        job: what to train, and how far.
        should_stop: asked after every chunk.
        on_progress: told after every chunk.
        note: told what the user should know.

    Returns:
        The result: "complete"; "failed", with the reason; or "running" where the job
        paused before the end of training, with the scores so far.

    Raises:
        Interrupted: `should_stop` said so; a checkpoint is written.
        StudyError: the disk's fault, which says nothing of the candidate.
    """
    result = blank_result(study, cell, job)
    candidate, budget = candidate_of(study, cell, job), cell.setting.budget
    try:
        audit = audit_candidate(
            cell.setting.task,
            candidate.allocation,
            budget,
            matched=cell.setting.matched,
        )
        if audit is not None:
            matched = budget.admits(audit.work.within(budget.scope))
            result = replace(result, audit=audit, matched=matched)
        directory = study.checkpoint_at(result.checkpoint)
        train = partial(
            train_candidate,
            cell.setting.task,
            candidate,
            directory=directory,
            until=job.until,
            checkpoint_seconds=study.config.output.checkpoint_seconds,
            should_stop=should_stop,
            on_progress=on_progress,
            note=note,
        )
        try:
            outcome = train()
        except CheckpointError as error:
            note(f"{error}; it is set aside and the trial starts anew")
            checkpoint.set_aside(directory)
            outcome = train()
        result = replace(result, measures=_measures(cell, candidate, outcome))
    except (Interrupted, StudyError):
        raise
    except Exception as error:  # one trial's fault is not the study's
        return replace(result, state="failed", reason=_reason(candidate, error))
    finally:
        release_programs()
    return _scored(result, outcome)


def _measures(cell: Cell, candidate: Candidate, outcome: Outcome) -> dict[str, float]:
    measures = {}
    if math.isfinite(outcome.step_seconds):
        measures["step_seconds"] = outcome.step_seconds
    if any(objective.name == "latency_seconds" for objective in cell.objectives):
        latency = latency_seconds(cell.setting.task, candidate.allocation)
        measures["latency_seconds"] = latency
    return measures


def _scored(result: TrialResult, outcome: Outcome) -> TrialResult:
    return replace(
        result,
        state="complete" if outcome.fraction == 1.0 else "running",
        seeds=outcome.seeds,
        seconds=outcome.seconds,
        fraction=outcome.fraction,
    )


def _reason(candidate: Candidate, error: Exception) -> str:
    if isinstance(error, AllocsearchError):
        return str(error)
    text = " ".join(str(error).split())[:300]
    label = candidate.allocation.label
    return f"{label}, seeds {list(candidate.seeds)}: {type(error).__name__}: {text}"
