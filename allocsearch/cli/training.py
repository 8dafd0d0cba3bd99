"""Trains one allocation in front of the user."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from allocsearch.analysis.formats import (
    arm_label,
    format_count,
    format_number,
    format_seconds,
    plain,
)
from allocsearch.analysis.rows import Row
from allocsearch.candidate import Candidate, describe_candidate
from allocsearch.cli import exits
from allocsearch.cli.bars import Bar, make_progress
from allocsearch.cli.choosing import Shape, choose
from allocsearch.cli.exits import NothingToDo
from allocsearch.cli.forecast import ask_if_heavy
from allocsearch.cli.printing import note, show, show_json, stderr
from allocsearch.cli.scoring import scores_table
from allocsearch.cli.stopping import Stopper
from allocsearch.config import StudyConfig
from allocsearch.errors import ConfigError
from allocsearch.plan import AXES, Cell
from allocsearch.tasks.resolve import resolve
from allocsearch.trial import (
    Interrupted,
    Outcome,
    Progress,
    TrialFailed,
    audit_candidate,
    train_candidate,
)
from allocsearch.work import Audit, format_flops

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class _Job:
    """What is to be trained, and where it is kept."""

    cell: Cell
    candidate: Candidate
    audit: Audit
    folder: Path


def train_one(
    config: StudyConfig,
    shape: Shape,
    out: Path | None,
    *,
    yes: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Train an allocation under the first budget of a config.

    Args:
        config: task, budget and training.
        shape: which allocation.
        out: the checkpoint's folder; one of its own below `trained` if None.
        yes: whether a heavy budget needs no question.
        as_json: whether stdout is to be JSON.
        quiet: whether to leave out progress.

    Returns:
        The exit code.

    Raises:
        BudgetError: the allocation is outside the budget.
        NothingToDo: training diverged.
    """
    job = _job(config, shape, out)
    if not ask_if_heavy([job.cell], yes):
        note("nothing was started")
        return exits.NOTHING
    stopper = Stopper(note)
    try:
        with stopper, _shown(job.cell, quiet) as on_progress:
            outcome = _train(job, config, stopper, on_progress)
    except Interrupted:
        note(f"stopped; the same command with --out {job.folder} goes on")
        return stopper.exit_code
    except TrialFailed as error:
        raise NothingToDo(str(error)) from error
    _report(job, outcome, as_json)
    return exits.DONE


def _job(config: StudyConfig, shape: Shape, out: Path | None) -> _Job:
    setting = resolve(config, config.budgets[0])
    expert, allocation = choose(setting, shape)
    cell = Cell(setting, expert, allocation.arm, (allocation,), 1)
    audit = audit_candidate(setting.task, allocation, setting.budget)
    if audit is None:
        name = setting.task_config["name"]
        raise ConfigError(
            f"task {name!r} trains nothing: `allocsearch run --task {name}` replays it"
        )
    coordinates = {axis: getattr(allocation, axis) for axis in AXES}
    candidate = cell.candidate(coordinates, config.seed)
    return _Job(cell, candidate, audit, out or default_folder(cell, candidate))


def _train(
    job: _Job, config: StudyConfig, stopper: Stopper, on_progress: OnProgress
) -> Outcome:
    note(_opening(job))
    return train_candidate(
        job.cell.setting.task,
        job.candidate,
        directory=job.folder,
        checkpoint_seconds=config.output.checkpoint_seconds,
        should_stop=stopper,
        on_progress=on_progress,
    )


def default_folder(cell: Cell, candidate: Candidate) -> Path:
    """A folder that only this candidate has."""
    text = json.dumps(describe_candidate(candidate), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    words = [cell.setting.task_config["name"], cell.budget, candidate.allocation.arm]
    words += candidate.allocation.label.split()
    name = "-".join("".join(c for c in w if c.isalnum() or c in "_=") for w in words)
    return Path("trained") / f"{name}-{digest}"


def _opening(job: _Job) -> str:
    cell, candidate = job.cell, job.candidate
    allocation, training = candidate.allocation, candidate.training
    work = job.audit.work.within(cell.setting.budget.scope)
    share = work / cell.setting.budget.flops
    horizon = training.horizon or cell.setting.task.steps_per_chunk
    return (
        f"{arm_label(allocation.arm)} {allocation.label}: {format_flops(work)} a step, "
        f"{share:.1%} of budget {cell.budget}; {format_count(horizon)} "
        f"{cell.setting.task.unit}, seeds {len(candidate.seeds)}"
    )


@contextmanager
def _shown(cell: Cell, quiet: bool) -> Iterator[OnProgress]:
    """A listener that prints evaluations, below them a bar in a terminal."""
    console = stderr()
    objective = cell.setting.task.objectives[0].name
    if quiet:
        yield lambda _: None
        return
    if not console.is_terminal:
        yield lambda progress: _print_point(progress, cell.setting.task.unit, note)
        return
    with make_progress(console) as bars:
        bar = Bar(bars)
        bar.begin("training", 1.0)
        bar.move(0.0, "compiling")

        def listen(progress: Progress) -> None:
            _print_point(progress, cell.setting.task.unit, bars.console.out)
            bar.follow(progress, objective)

        yield listen


def _print_point(progress: Progress, unit: str, say: Callable[[str], Any]) -> None:
    if not progress.evaluated:
        return
    metrics = ", ".join(
        f"{plain(name).replace('_', ' ')} {format_number(value)}"
        for name, value in progress.metrics.items()
    )
    say(f"{format_count(progress.steps)} {unit}: {metrics}")


def _report(job: _Job, outcome: Outcome, as_json: bool) -> None:
    row = _row(job, outcome)
    if as_json:
        show_json(row)
        return
    show(scores_table(row), f"Trained in {format_seconds(outcome.seconds)}.")
    show(f"checkpoint {job.folder}")


def _row(job: _Job, outcome: Outcome) -> Row:
    allocation, setting = job.candidate.allocation, job.cell.setting
    names = outcome.seeds[0].metrics
    return {
        "label": allocation.label,
        "arm": allocation.arm,
        "allocation": allocation.to_dict(),
        "task": setting.task_config,
        "budget": setting.budget.name,
        "budget_flops": setting.budget.flops,
        "audit": job.audit.to_dict(),
        "training": job.candidate.training.model_dump(mode="json"),
        "split": "valid",
        "trained": 1.0,
        "metrics": {n: fmean(s.metrics[n] for s in outcome.seeds) for n in names},
        "baseline": outcome.seeds[0].baseline,
        "seeds": [{"seed": s.seed, "metrics": s.metrics} for s in outcome.seeds],
        "curves": [s.curve for s in outcome.seeds],
        "seconds": outcome.seconds,
        "checkpoint": str(job.folder),
    }
