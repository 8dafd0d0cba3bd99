"""Runs the trials of a study in this process, one after the other."""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import fmean
from typing import Any

import jax

from allocsearch.analysis.best import best_by_arm
from allocsearch.attempt import Job, attempt, blank_result, candidate_of
from allocsearch.config import StudyConfig
from allocsearch.errors import CheckpointError, DataError
from allocsearch.folder import Lock, write_json
from allocsearch.limits import Limits
from allocsearch.objectives import values_of
from allocsearch.plan import Cell, warnings_of
from allocsearch.results import TrialResult
from allocsearch.retention import prune
from allocsearch.schedule import CellSchedule
from allocsearch.search import SearchStudy
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

    def trial_paused(self, result: TrialResult) -> None:
        """That trial waits at a rung; it may be taken up again."""

    def trial_finished(self, result: TrialResult) -> None:
        """That trial is complete, was pruned, or has failed."""

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
        self.study, self.observer = study, observer
        self.cells = {cell.name: cell for cell in study.cells}
        self.schedules: dict[str, CellSchedule] = {}
        self.left: list[Job] = []
        self.pruned = False
        self.limits = Limits(study, should_stop)

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
                prune(self.study, finished=True, note=self.observer.note)
            except Interrupted:
                self._stopped()
            finally:
                self.limits.save()
                for schedule in self.schedules.values():
                    schedule.search.close()

    def _stopped(self) -> None:
        reason = self.limits.reached
        if reason is None:
            self.observer.study_stopped(self.study)
            return
        self.observer.note(f"{reason}; a higher limit goes on from here")
        self._score_finalists()

    def _lock(self) -> AbstractContextManager[Any]:
        return Lock(self.study.directory / "lock", f"study {self.study.name!r}")

    def _open_all(self) -> None:
        smaller: dict[tuple[str, str], CellSchedule] = {}
        for name, cell in self._by_budget():
            schedule = CellSchedule(cell, self._open(cell))
            key = cell.expert.name, cell.arm
            if cell.setting.search.warm_start:
                schedule.smaller = smaller.get(key)
            self.schedules[name] = smaller[key] = schedule
        for name in self.cells:
            self.left += self.schedules[name].left_running()
        spent = sum(result.seconds for result in self.study.trials())
        self.limits.begin(spent, jax.local_device_count())

    def _by_budget(self) -> list[tuple[str, Cell]]:
        return sorted(self.cells.items(), key=lambda c: c[1].setting.budget.flops)

    def _open(self, cell: Cell) -> SearchStudy:
        sampler, options = cell.sampler
        return SearchStudy.open(
            self.study.storage,
            f"{self.study.name}/{cell.name}",
            cell.points,
            directions=tuple(o.direction for o in cell.objectives),
            sampler=sampler,
            sampler_options=options,
            seed=derive_seed(self.study.config.seed, cell.name),
        )

    def _next(self) -> Job | None:
        """What to train next; None while there is nothing.

        First what was left running, then the searches, then further seeds for trials
        that may yet be the best, then fresh ones for the winners.

        Raises:
            Interrupted: a stop was asked for, or a limit of the study is reached.
        """
        if self.left:
            return self.left.pop(0)
        if self.limits():
            raise Interrupted
        job = self._of_search()
        if job is not None or self._busy():
            return job
        self._prune()
        schedules = [self.schedules[name] for name in self.cells]
        for schedule in schedules:
            if (job := schedule.race()) is not None:
                return job
        for schedule in schedules:
            if (job := schedule.confirmation()) is not None:
                return job
        return None

    def _of_search(self) -> Job | None:
        waiting = [s for s in self.schedules.values() if self._may_begin(s)]
        for schedule in sorted(waiting, key=lambda s: s.n_begun):
            job = schedule.next()
            while schedule.notes:
                self.observer.note(schedule.notes.pop(0))
            if job is not None:
                return job
        return None

    def _may_begin(self, schedule: CellSchedule) -> bool:
        smaller = schedule.smaller
        return smaller is None or not (smaller.proposes or self._runs(smaller))

    def _runs(self, schedule: CellSchedule) -> bool:
        """Whether trials of a cell are in training now."""
        del schedule
        return False  # one job at a time: none is while another is looked for

    def _busy(self) -> bool:
        return any(map(self._runs, self.schedules.values()))

    def _prune(self) -> None:
        for schedule in self.schedules.values():
            for result in schedule.prune():
                self.observer.trial_finished(result)

    def _trial(self, job: Job) -> None:
        self._begin(job)
        result = attempt(
            self.study,
            self.cells[job.cell],
            job,
            should_stop=self.limits,
            on_progress=self.observer.trial_progressed,
            note=self.observer.note,
        )
        self._finish(job, result)

    def _begin(self, job: Job) -> None:
        cell = self.cells[job.cell]
        if job.group == 0:
            blank = blank_result(self.study, cell, job).to_dict()
            self.schedules[job.cell].search.record(job.number, "result", blank)
        candidate = candidate_of(self.study, cell, job)
        self.observer.trial_started(cell, job.number, candidate)

    def _finish(self, job: Job, result: TrialResult) -> None:
        schedule = self.schedules[job.cell]
        search, stored = schedule.search, {"result": result.to_dict()}
        self.limits.spend()
        values = values_of(result, schedule.cell.objectives)
        if job.group:
            schedule.store_group(job, result)
            self.observer.note(_said_of_seeds(job, result))
            return
        if result.state == "failed":
            search.fail(job.number, result.reason, stored)
        elif result.state == "running" and all(map(math.isfinite, values)):
            search.pause(job.number, job.until, values, stored)
            self.observer.trial_paused(result)
            return
        else:
            search.tell(job.number, values, stored)
        prune(self.study, job.cell, note=self.observer.note)
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
                path = self.study.checkpoint_at(trial.checkpoint)
                try:
                    scores = evaluate_checkpoint(path, cells[key].setting.task, "test")
                except (DataError, CheckpointError) as error:
                    self.observer.note(f"there are no test scores: {error}")
                    continue
                metrics = {n: fmean(s[n] for s in scores) for n in scores[0]}
            entries.append({"key": key, "number": trial.number, "metrics": metrics})
        write_json(self.study.directory / "finalists.json", entries)


def _said_of_seeds(job: Job, result: TrialResult) -> str:
    purpose = "fresh seeds" if job.group < 0 else f"seeds of group {job.group}"
    head = f"{job.cell} #{job.number} {result.allocation.label}, {purpose}: "
    if result.state == "failed":
        return head + f"failed, {result.reason}"
    return head + f"{result.objective.name} {result.score:.4g}"
