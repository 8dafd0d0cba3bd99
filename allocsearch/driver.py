"""Runs the trials of a study in this process, one after the other."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from allocsearch import checkpoint
from allocsearch.analysis.best import best_by_arm
from allocsearch.config import StudyConfig
from allocsearch.errors import AllocsearchError, CheckpointError, DataError, StudyError
from allocsearch.folder import Lock, write_json
from allocsearch.plan import Cell, warnings_of
from allocsearch.results import TrialResult
from allocsearch.retention import prune
from allocsearch.search import Proposal, SearchStudy, SpaceExhausted
from allocsearch.search.seeds import derive_seed
from allocsearch.study import Study, checkpoint_name, prepare
from allocsearch.trial import (
    Candidate,
    Interrupted,
    Outcome,
    Progress,
    audit_candidate,
    evaluate_checkpoint,
    train_candidate,
)
from allocsearch.work import Audit


class Observer:
    """Told what a study does; the default says nothing."""

    def study_started(self, study: Study) -> None:
        """Trials are about to run; cells and earlier trials can be read."""

    def study_stopped(self, study: Study) -> None:
        """`should_stop` said so: a checkpoint is written and the study can go on."""

    def trial_started(self, cell: Cell, number: int, candidate: Candidate) -> None:
        """A trial begins, or is taken up again."""

    def trial_progressed(self, progress: Progress) -> None:
        """The trial that began last is this far."""

    def trial_finished(self, result: TrialResult) -> None:
        """That trial is complete or has failed."""

    def note(self, text: str) -> None:
        """Something the user should know, in a sentence."""


def run(
    config: Study | StudyConfig | Mapping[str, Any] | str | Path,
    *,
    observer: Observer | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Study:
    """Begin a study or go on with it, until every trial is done.

    Args:
        config: a config, the same as a mapping, the path of a YAML file, or a study.
        observer: told what happens.
        should_stop: asked between chunks; True checkpoints and returns early.

    Returns:
        The study; `results`, `pareto` and `finalists` read it.

    Raises:
        ConfigError, UnknownNameError, BudgetError, DataError, PluginError: the config
            cannot be used; nothing is written.
        StudyError: a study of this name was begun otherwise, or is being run now.
    """
    study = prepare(config)
    _Runner(study, observer or Observer(), should_stop).run()
    return study


class _Runner:
    """Runs the trials of a study in this process, one after the other."""

    def __init__(
        self, study: Study, observer: Observer, should_stop: Callable[[], bool]
    ):
        self.study, self.observer, self.should_stop = study, observer, should_stop

    def run(self) -> None:
        with self._lock():
            searches = {cell.name: self._open(cell) for cell in self.study.cells}
            self.observer.study_started(self.study)
            for warning in warnings_of(self.study.cells):
                self.observer.note(warning)
            try:
                self._adopt(searches)
                self._search(searches)
                self._score_finalists()
                prune(self.study, finished=True, note=self.observer.note)
            except Interrupted:
                self.observer.study_stopped(self.study)
            finally:
                for search in searches.values():
                    search.close()

    def _lock(self) -> AbstractContextManager[Any]:
        return Lock(self.study.directory / "lock", f"study {self.study.name!r}")

    def _open(self, cell: Cell) -> SearchStudy:
        sampler, options = cell.sampler
        objectives = cell.setting.task.objectives
        return SearchStudy.open(
            self.study.storage,
            f"{self.study.name}/{cell.name}",
            cell.points,
            directions=(objectives[0].direction,),
            sampler=sampler,
            sampler_options=options,
            seed=derive_seed(self.study.config.seed, cell.name),
        )

    def _adopt(self, searches: dict[str, SearchStudy]) -> None:
        for cell in self.study.cells:
            for proposal in searches[cell.name].running():
                self._trial(cell, searches[cell.name], proposal)

    def _search(self, searches: dict[str, SearchStudy]) -> None:
        counts = {name: _n_finished(search) for name, search in searches.items()}
        open_cells = list(self.study.cells)
        while open_cells := [c for c in open_cells if counts[c.name] < c.n_trials]:
            cell = min(open_cells, key=lambda c: counts[c.name])
            if self.should_stop():
                raise Interrupted
            try:
                proposal = searches[cell.name].ask()
            except SpaceExhausted:
                open_cells.remove(cell)
                self.observer.note(
                    f"{cell.name}: all {len(cell.points)} feasible points have been "
                    "tried; the search of this arm ends here"
                )
                continue
            self._trial(cell, searches[cell.name], proposal)
            counts[cell.name] += 1

    def _trial(self, cell: Cell, search: SearchStudy, proposal: Proposal) -> None:
        candidate = cell.candidate(proposal.values, self.study.config.seed)
        result = self._blank(cell, proposal, candidate)
        search.record(proposal.number, "result", result.to_dict())
        self.observer.trial_started(cell, proposal.number, candidate)
        audit: Audit | None = None
        try:
            task, budget = cell.setting.task, cell.setting.budget
            audit = audit_candidate(task, candidate.allocation, budget)
            outcome = self._train(cell, proposal, candidate)
        except (Interrupted, StudyError):
            raise  # a stop or the disk's fault says nothing about the candidate
        except Exception as error:  # one trial's fault is not the study's
            reason = _reason(candidate, error)
            result = replace(result, state="failed", reason=reason, audit=audit)
            search.fail(proposal.number, reason, {"result": result.to_dict()})
        else:
            result = _complete(result, outcome, audit)
            search.tell(proposal.number, [result.score], {"result": result.to_dict()})
        prune(self.study, cell.name, note=self.observer.note)
        self.observer.trial_finished(result)

    def _train(self, cell: Cell, proposal: Proposal, candidate: Candidate) -> Outcome:
        directory = self.study.checkpoint_of(cell.name, proposal.number)
        train = partial(
            train_candidate,
            cell.setting.task,
            candidate,
            directory=directory,
            checkpoint_seconds=self.study.config.output.checkpoint_seconds,
            should_stop=self.should_stop,
            on_progress=self.observer.trial_progressed,
            note=self.observer.note,
        )
        try:
            return train()
        except CheckpointError as error:
            self.observer.note(f"{error}; it is set aside and the trial starts anew")
            checkpoint.set_aside(directory)
            return train()

    def _blank(
        self, cell: Cell, proposal: Proposal, candidate: Candidate
    ) -> TrialResult:
        task = cell.setting.task
        return TrialResult(
            study=self.study.name,
            task=cell.setting.task_config["name"],
            budget=cell.budget,
            budget_flops=cell.setting.budget.flops,
            number=proposal.number,
            state="running",
            allocation=candidate.allocation,
            objectives=task.objectives,
            settings={"learning_rate": candidate.training.learning_rate},
            horizon=candidate.training.horizon or task.steps_per_chunk,
            unit=task.unit,
            plugins=cell.plugins(candidate.allocation),
            checkpoint=checkpoint_name(cell.name, proposal.number),
        )

    def _score_finalists(self) -> None:
        """Score the best trial of each cell on test data, once."""
        done = self.study.finalists()
        cells = {(c.budget, c.expert.name, c.arm): c for c in self.study.cells}
        entries = []
        for key, trial in best_by_arm(self.study.trials()).items():
            metrics = done.get(key)
            if metrics is None:
                self.observer.note(f"scoring {trial.allocation.label} on test data")
                path = self.study.checkpoint_at(trial.checkpoint)
                try:
                    scores = evaluate_checkpoint(path, cells[key].setting.task, "test")
                except (DataError, CheckpointError) as error:
                    self.observer.note(f"there are no test scores: {error}")
                    continue
                metrics = {n: fmean(s[n] for s in scores) for n in scores[0]}
            entries.append({"key": key, "number": trial.number, "metrics": metrics})
        write_json(self.study.directory / "finalists.json", entries)


def _complete(
    result: TrialResult, outcome: Outcome, audit: Audit | None
) -> TrialResult:
    return replace(
        result,
        state="complete",
        seeds=outcome.seeds,
        audit=audit,
        seconds=outcome.seconds,
    )


def _n_finished(search: SearchStudy) -> int:
    counts = search.counts()
    return counts["complete"] + counts["failed"]


def _reason(candidate: Candidate, error: Exception) -> str:
    if isinstance(error, AllocsearchError):
        return str(error)
    text = " ".join(str(error).split())[:300]
    label = candidate.allocation.label
    return f"{label}, seeds {list(candidate.seeds)}: {type(error).__name__}: {text}"
