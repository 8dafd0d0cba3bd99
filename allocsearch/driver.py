"""Runs the trials of a study in this process, one after the other."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import fmean
from typing import Any

from allocsearch.analysis.best import best_by_arm
from allocsearch.attempt import Job, attempt, blank_result, candidate_of
from allocsearch.config import StudyConfig
from allocsearch.errors import DataError
from allocsearch.folder import Lock, write_json
from allocsearch.plan import Cell, warnings_of
from allocsearch.results import TrialResult
from allocsearch.search import SearchStudy, SpaceExhausted
from allocsearch.search.seeds import derive_seed
from allocsearch.study import Study, prepare
from allocsearch.trial import Candidate, Interrupted, Progress, evaluate_checkpoint


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
        self.cells = {cell.name: cell for cell in study.cells}
        self.searches: dict[str, SearchStudy] = {}
        self.n_begun: dict[str, int] = {}
        self.left: list[Job] = []
        self.open = list(study.cells)

    def run(self) -> None:
        with self._lock():
            self._open_all()
            self.observer.study_started(self.study)
            for warning in warnings_of(self.study.cells):
                self.observer.note(warning)
            try:
                while (job := self._next()) is not None:
                    self._trial(job)
                self._score_finalists()
            except Interrupted:
                self.observer.study_stopped(self.study)
            finally:
                for search in self.searches.values():
                    search.close()

    def _lock(self) -> AbstractContextManager[Any]:
        return Lock(self.study.directory / "lock", f"study {self.study.name!r}")

    def _open_all(self) -> None:
        for name, cell in self.cells.items():
            search = self.searches[name] = self._open(cell)
            running = search.running()
            self.left += [Job(name, p.number, p.values) for p in running]
            self.n_begun[name] = _n_finished(search) + len(running)

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

    def _next(self) -> Job | None:
        """What to train next: what was left running, then new proposals.

        Raises:
            Interrupted: `should_stop` said so.
        """
        if self.left:
            return self.left.pop(0)
        while self.open:
            if self.should_stop():
                raise Interrupted
            cell = min(self.open, key=lambda c: self.n_begun[c.name])
            if self.n_begun[cell.name] >= cell.n_trials:
                self.open.remove(cell)
                continue
            try:
                proposal = self.searches[cell.name].ask()
            except SpaceExhausted:
                self.open.remove(cell)
                self.observer.note(
                    f"{cell.name}: all {len(cell.points)} feasible points have been "
                    "tried; the search of this arm ends here"
                )
                continue
            self.n_begun[cell.name] += 1
            return Job(cell.name, proposal.number, proposal.values)
        return None

    def _trial(self, job: Job) -> None:
        self._begin(job)
        result = attempt(
            self.study,
            self.cells[job.cell],
            job,
            should_stop=self.should_stop,
            on_progress=self.observer.trial_progressed,
            note=self.observer.note,
        )
        self._finish(job, result)

    def _begin(self, job: Job) -> None:
        cell = self.cells[job.cell]
        blank = blank_result(self.study, cell, job)
        self.searches[job.cell].record(job.number, "result", blank.to_dict())
        candidate = candidate_of(self.study, cell, job)
        self.observer.trial_started(cell, job.number, candidate)

    def _finish(self, job: Job, result: TrialResult) -> None:
        search, stored = self.searches[job.cell], {"result": result.to_dict()}
        if result.state == "failed":
            search.fail(job.number, result.reason, stored)
        else:
            search.tell(job.number, [result.score], stored)
        self.observer.trial_finished(result)

    def _score_finalists(self) -> None:
        """Score the best trial of each cell on test data, once."""
        done = self.study.finalists()
        cells = {(c.budget, c.expert.name, c.arm): c for c in self.study.cells}
        entries = []
        for key, trial in best_by_arm(self.study.trials()).items():
            metrics = done.get(key)
            if metrics is None:
                self.observer.note(f"scoring {trial.allocation.label} on test data")
                path = self.study.directory / trial.checkpoint
                try:
                    scores = evaluate_checkpoint(path, cells[key].setting.task, "test")
                except DataError as error:
                    self.observer.note(f"there are no test scores: {error}")
                    continue
                metrics = {n: fmean(s[n] for s in scores) for n in scores[0]}
            entries.append({"key": key, "number": trial.number, "metrics": metrics})
        write_json(self.study.directory / "finalists.json", entries)


def _n_finished(search: SearchStudy) -> int:
    counts = search.counts()
    return counts["complete"] + counts["failed"]
