"""Drives a study: what to train next, where, and what the search is told of it."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

import jax

from allocsearch.attempt import Job, blank_result, candidate_of
from allocsearch.claims import FINALISTS, Alone, Claims, Key, Shared, Word
from allocsearch.config import StudyConfig
from allocsearch.finalists import score_finalists
from allocsearch.folder import Lock
from allocsearch.limits import Limits
from allocsearch.objectives import values_of
from allocsearch.observer import Observer
from allocsearch.plan import Cell, warnings_of
from allocsearch.results import TrialResult
from allocsearch.retention import prune
from allocsearch.schedule import CellSchedule
from allocsearch.search import LateResult, SearchStudy, is_shared, ride_out
from allocsearch.search.seeds import derive_seed
from allocsearch.study import Study, prepare
from allocsearch.trial import Interrupted, Progress
from allocsearch.workers import make_executor
from allocsearch.workers.base import Ended, Executor, Listener

_POLL_SECONDS = 0.5


def run(
    config: Study | StudyConfig | Mapping[str, Any] | str | Path,
    *,
    observer: Observer | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    most_trials: int | None = None,
    on_claims: Callable[[Claims], None] = lambda _: None,
) -> Study:
    """Begin a study or go on with it, until every trial is done.

    Where `output.storage` is a database server, other processes may run the same study
    at the same time: each trial is trained by one of them.

    Args:
        config: a config, the same as a mapping, the path of a YAML file, or a study.
        observer: told what happens.
        should_stop: asked between chunks; True checkpoints and returns early.
        most_trials: return early after so many trials of this process.
        on_claims: given what holds this process's trials, so that somebody else can
            let go of them where there is no time for a checkpoint.

    Returns:
        The study; `results`, `pareto` and `finalists` read it.

    Raises:
        ConfigError, UnknownNameError, BudgetError, DataError, PluginError: the config
            cannot be used; nothing is written.
        StudyError: a study of this name was begun otherwise, or is being run now, or
            its database, its disk or its cluster cannot be used.
    """
    study = prepare(config)
    runner = _Runner(study, observer or Observer(), should_stop, most_trials)
    on_claims(runner.claims)
    runner.run()
    return study


class _Runner:
    """Runs the trials of a study, beside other such processes if it is shared."""

    def __init__(
        self,
        study: Study,
        observer: Observer,
        should_stop: Callable[[], bool],
        most_trials: int | None,
    ):
        self.study, self.observer = study, observer
        self.limits = Limits(study, should_stop)
        self.cells = {cell.name: cell for cell in study.cells}
        self.schedules: dict[str, CellSchedule] = {}
        self.left: list[Job] = []
        self.n_to_take = float("inf") if most_trials is None else most_trials
        self.running: dict[Key, Job] = {}
        self.elsewhere = False
        self.claims = self._make_claims()
        self.executor: Executor

    def run(self) -> None:
        with ExitStack() as stack:
            stack.callback(self.claims.close)
            stack.enter_context(self._lock())
            listener = Listener(self._progressed, self.observer.note, self.limits)
            self.executor = make_executor(self.study, listener)
            stack.callback(self.executor.close)
            stack.callback(self._close_searches)
            stack.callback(self.limits.save)
            try:
                self._run()
            except Interrupted:
                self._stopped()

    def _run(self) -> None:
        self._open_all()
        self.observer.study_started(self.study)
        for warning in warnings_of(self.study.cells):
            self.observer.note(warning)
        self._train_all()
        # Its processes may have what scoring needs, such as a GPU's memory.
        self.executor.close()
        if self.n_to_take > 0 or self._is_complete():
            self._score_finalists()
            prune(self.study, finished=True, note=self.observer.note)

    def _stopped(self) -> None:
        reason = self.limits.reached
        if reason is None:
            self.observer.study_stopped(self.study)
            return
        self.observer.note(f"{reason}; a higher limit goes on from here")
        self.executor.close()
        self._score_finalists()

    def _close_searches(self) -> None:
        for schedule in self.schedules.values():
            schedule.search.close()

    def _make_claims(self) -> Claims:
        if not is_shared(self.study.storage):
            return Alone()
        seconds = self.study.config.execution.lease_seconds
        return Shared(self.study.storage, seconds, self._tell)

    def _lock(self) -> AbstractContextManager[Any]:
        if self.claims.shared:
            return nullcontext()
        return Lock(self.study.directory / "lock", f"study {self.study.name!r}")

    def _open_all(self) -> None:
        smaller: dict[tuple[str, str], CellSchedule] = {}
        by_budget = sorted(self.cells.values(), key=lambda c: c.setting.budget.flops)
        for cell in by_budget:
            schedule = CellSchedule(cell, self._open(cell))
            key = cell.expert.name, cell.arm
            if cell.setting.search.warm_start:
                schedule.smaller = smaller.get(key)
            self.schedules[cell.name] = smaller[key] = schedule
        if not self.claims.shared:
            for name in self.cells:
                self.left += self.schedules[name].left_running()
        spent = sum(result.seconds for result in self.study.trials())
        self.limits.begin(spent, jax.local_device_count())

    def _open(self, cell: Cell) -> SearchStudy:
        sampler, options = cell.sampler
        return SearchStudy.open(
            self.study.storage,
            f"{self.study.name}/{cell.name}",
            cell.points,
            directions=tuple(objective.direction for objective in cell.objectives),
            sampler=sampler,
            sampler_options=options,
            seed=derive_seed(self.study.config.seed, cell.name),
        )

    def _train_all(self) -> None:
        try:
            while True:
                self._fill()
                if self.running:
                    self._collect()
                elif self.elsewhere and self.n_to_take > 0:
                    self._await_others()
                else:
                    return
        except Interrupted:
            self._drain()
            raise

    def _fill(self) -> None:
        while self.n_to_take > 0 and self.executor.n_free():
            if (job := self._next()) is None:
                return
            self.n_to_take -= 1
            self.running[self._key(job)] = job
            try:
                self._begin(job)
            except LateResult:  # its last holder told it after all
                self._leave(job)
            else:
                self.limits.job_begun(self._key(job))
                self.executor.submit(job)

    def _collect(self) -> None:
        ended = self.executor.wait(_POLL_SECONDS)
        for one in ended:
            self._take(one)
        if any(one.why == "stopped" for one in ended):
            raise Interrupted
        if self.running and self.limits():
            raise Interrupted

    def _drain(self) -> None:
        """Have what trains stop after a checkpoint, and wait for that."""
        for job in list(self.running.values()):
            self.executor.tell(job, "stop")
        while self.running:
            for ended in self.executor.wait(_POLL_SECONDS):
                self._take(ended)

    def _await_others(self) -> None:
        """Look again in a while: other processes may die and leave their trials."""
        for _ in range(10):
            if self.limits():
                raise Interrupted
            time.sleep(self.study.config.execution.lease_seconds / 100)

    def _take(self, ended: Ended) -> None:
        job = ended.job
        self.limits.job_ended(self._key(job))
        if ended.result is None or not self.claims.still_ours(self._key(job)):
            self._leave(job)
            return
        with suppress(LateResult):  # told before the connection was lost
            self._finish(job, ended.result)
        del self.running[self._key(job)]
        self.claims.let_go(self._key(job))

    def _leave(self, job: Job) -> None:
        del self.running[self._key(job)]
        self.claims.let_go(self._key(job))
        self.observer.trial_left(self.cells[job.cell], job.number)

    def _tell(self, key: Key, word: Word) -> None:
        if (job := self.running.get(key)) is not None:
            self.executor.tell(job, word)

    def _progressed(self, job: Job, progress: Progress) -> None:
        self.observer.trial_progressed(self.cells[job.cell], job.number, progress)

    def _key(self, job: Job) -> Key:
        return (self.schedules[job.cell].search.name, job.number)

    def _next(self) -> Job | None:
        """What to train next, by now ours alone.

        First what was left running, then the searches, then further seeds for trials
        that may yet be the best, then fresh ones for the winners.

        Returns:
            None where there is nothing now; there may be later, while trials run.

        Raises:
            Interrupted: a stop was asked for, or a limit of the study is reached.
        """
        if self.claims.shared:
            self._look_around()
        if self.left:
            return self.left.pop(0)
        if self.limits():
            raise Interrupted
        job = self._of_search()
        if job is not None or self._searches():
            return job
        self._prune()
        stages = (CellSchedule.race, CellSchedule.confirmation)
        for stage in stages:
            jobs = [job for name in self.cells for job in stage(self.schedules[name])]
            if jobs:
                return self._claimed(jobs)
        return None

    def _of_search(self) -> Job | None:
        waiting = [s for s in self.schedules.values() if self._may_begin(s)]
        for schedule in sorted(waiting, key=lambda s: s.n_begun):
            with self.claims.turn(schedule.search.name):
                job = schedule.next()
                ours = job is not None and self.claims.take(self._key(job))
            while schedule.notes:
                self.observer.note(schedule.notes.pop(0))
            if ours:
                return job
        return None

    def _may_begin(self, schedule: CellSchedule) -> bool:
        """Whether a cell's turn has come: after the one that it starts warm from."""
        smaller = schedule.smaller
        if smaller is None:
            return True
        runs = any(job.cell == smaller.cell.name for job in self.running.values())
        return not (smaller.proposes or runs or self.elsewhere)

    def _searches(self) -> bool:
        """Whether a trial of a search is in training, here or elsewhere."""
        return self.elsewhere or any(not job.group for job in self.running.values())

    def _claimed(self, jobs: list[Job]) -> Job | None:
        """The first of some jobs that is nobody's yet."""
        for job in jobs:
            key = self._key(job)
            if key not in self.running and self.claims.take(key):
                return job
        # What is not ours is another process's, which may die.
        self.elsewhere = any(self._key(job) not in self.running for job in jobs)
        return None

    def _prune(self) -> None:
        for schedule in self.schedules.values():
            with self.claims.turn(schedule.search.name):
                ended = schedule.prune()
            for result in ended:
                self.observer.trial_finished(result)

    def _look_around(self) -> None:
        """Count what all processes have begun, and take up what one left."""
        if self.limits():
            raise Interrupted
        running: dict[Key, CellSchedule] = {}
        for schedule in self.schedules.values():
            jobs = schedule.left_running()
            running |= {self._key(job): schedule for job in jobs}
        self.elsewhere = bool(running.keys() - self.running.keys())
        for key in self.claims.orphans(set(running)):
            if self.left:
                return
            with self.claims.turn(key[0]):
                if not self.claims.take(key):
                    continue
                job = running[key].adopted(key[1])
            if job is None:
                self.claims.let_go(key)
            else:
                self.left.append(job)

    def _begin(self, job: Job) -> None:
        cell = self.cells[job.cell]
        if not job.group:
            blank = blank_result(self.study, cell, job).to_dict()
            self.schedules[job.cell].search.record(job.number, "result", blank)
        candidate = candidate_of(self.study, cell, job)
        self.observer.trial_started(cell, job.number, candidate)

    def _finish(self, job: Job, result: TrialResult) -> None:
        schedule = self.schedules[job.cell]
        search, stored = schedule.search, {"result": result.to_dict()}
        values = values_of(result, schedule.cell.objectives)
        if job.group:
            schedule.store_group(job, result)
            self.observer.trial_left(schedule.cell, job.number)
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

    def _is_complete(self) -> bool:
        return not any(schedule.lacks_trials for schedule in self.schedules.values())

    def _score_finalists(self) -> None:
        with self.claims.turn(self.study.name, FINALISTS):
            ride_out(score_finalists)(self.study, self.observer.note)


def _said_of_seeds(job: Job, result: TrialResult) -> str:
    purpose = "fresh seeds" if job.group < 0 else f"seeds of group {job.group}"
    head = f"{job.cell} #{job.number} {result.allocation.label}, {purpose}: "
    if result.state == "failed":
        return head + f"failed, {result.reason}"
    return head + f"{result.objective.name} {result.score:.4g}"
