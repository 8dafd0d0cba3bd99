"""One leg of a trial: from what was proposed to a result, or to a rung on the way.

It touches a trial's checkpoint and nothing else of a study, so that any process that
sees the study's folder can make it; telling the search is the driver's part.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from allocsearch.errors import AllocsearchError, CheckpointError, StudyError
from allocsearch.folder import set_aside
from allocsearch.plan import Cell
from allocsearch.results import TrialResult
from allocsearch.study import Study
from allocsearch.trial import (
    Candidate,
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
    """

    cell: str
    number: int
    values: dict[str, Any] = field(default_factory=dict)
    until: float = 1.0


def blank_result(study: Study, cell: Cell, job: Job) -> TrialResult:
    """What is known of a trial before it trains; its state is "running"."""
    candidate = candidate_of(study, cell, job)
    task = cell.setting.task
    path = study.checkpoint_of(cell.name, job.number)
    return TrialResult(
        study=study.name,
        task=cell.setting.task_config["name"],
        budget=cell.budget,
        budget_flops=cell.setting.budget.flops,
        number=job.number,
        state="running",
        allocation=candidate.allocation,
        objectives=task.objectives,
        settings={"learning_rate": candidate.training.learning_rate},
        horizon=candidate.training.horizon or task.steps_per_chunk,
        unit=task.unit,
        plugins=cell.plugins(candidate.allocation),
        checkpoint=str(path.relative_to(study.directory)),
    )


def candidate_of(study: Study, cell: Cell, job: Job) -> Candidate:
    """What a job trains."""
    return cell.candidate(job.values, study.config.seed)


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
    candidate = candidate_of(study, cell, job)
    try:
        audit = audit_candidate(
            cell.setting.task, candidate.allocation, cell.setting.budget
        )
        result = replace(result, audit=audit)
        directory = study.checkpoint_of(cell.name, job.number)
        train = partial(
            train_candidate,
            cell.setting.task,
            candidate,
            directory=directory,
            until=job.until,
            checkpoint_seconds=study.config.output.checkpoint_seconds,
            should_stop=should_stop,
            on_progress=on_progress,
        )
        try:
            outcome = train()
        except CheckpointError as error:
            note(f"{error}; it is set aside and the trial starts anew")
            set_aside(directory)
            outcome = train()
    except (Interrupted, StudyError):
        raise
    except Exception as error:  # one trial's fault is not the study's
        return replace(result, state="failed", reason=_reason(candidate, error))
    return _scored(result, outcome)


def _scored(result: TrialResult, outcome: Outcome) -> TrialResult:
    return replace(
        result,
        state="complete" if outcome.fraction == 1.0 else "running",
        seeds=outcome.seeds,
        seconds=outcome.seconds,
    )


def _reason(candidate: Candidate, error: Exception) -> str:
    if isinstance(error, AllocsearchError):
        return str(error)
    text = " ".join(str(error).split())[:300]
    label = candidate.allocation.label
    return f"{label}, seeds {list(candidate.seeds)}: {type(error).__name__}: {text}"
