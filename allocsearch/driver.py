"""Drives a study: what to train next, where, and what the search is told of it."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from statistics import fmean
from typing import Any

from allocsearch.analysis.best import best_by_arm
from allocsearch.attempt import Job, blank_result, candidate_of
from allocsearch.claims import FINALISTS, Alone, Claims, Key, Shared, Word
from allocsearch.config import StudyConfig
from allocsearch.errors import DataError
from allocsearch.folder import Lock, write_json
from allocsearch.plan import Cell, warnings_of
from allocsearch.results import TrialResult
from allocsearch.search import (
    EnoughTrials,
    LateResult,
    SearchStudy,
    SpaceExhausted,
    is_shared,
    ride_out,
)
from allocsearch.search.seeds import derive_seed
from allocsearch.study import Study, prepare
from allocsearch.trial import Candidate, Interrupted, Progress, evaluate_checkpoint
from allocsearch.workers import make_executor
from allocsearch.workers.base import Ended, Executor, Listener

_POLL_SECONDS = 0.5


class Observer:
    """Told what a study does; the default says nothing."""

    def study_started(self, study: Study) -> None:
        """Trials are about to run; cells and earlier trials can be read."""

    def study_stopped(self, study: Study) -> None:
        """`should_stop` said so: a checkpoint is written and the study can go on."""

    def trial_started(self, cell: Cell, number: int, candidate: Candidate) -> None:
        """A trial begins, or is taken up again."""

    def trial_progressed(self, cell: Cell, number: int, progress: Progress) -> None:
        """A trial that began is this far."""

    def trial_finished(self, result: TrialResult) -> None:
        """A trial is complete or has failed."""

    def trial_left(self, cell: Cell, number: int) -> None:
        """A trial is no longer trained here, and not at its end."""

    def note(self, text: str) -> None:
        """Something the user should know, in a sentence."""


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
        self.study, self.observer, self.should_stop = study, observer, should_stop
        self.cells = {cell.name: cell for cell in study.cells}
        self.searches: dict[str, SearchStudy] = {}
        self.n_begun: dict[str, int] = {}
        self.left: list[Job] = []
        self.open = list(study.cells)
        self.n_to_take = float("inf") if most_trials is None else most_trials
        self.running: dict[Key, Job] = {}
        self.elsewhere = False
        self.claims = self._make_claims()
        self.executor: Executor

    def run(self) -> None:
        with ExitStack() as stack:
            stack.callback(self.claims.close)
            stack.enter_context(self._lock())
            listener = Listener(self._progressed, self.observer.note, self.should_stop)
            self.executor = make_executor(self.study, listener)
            stack.callback(self.executor.close)
            stack.callback(self._close_searches)
            try:
                self._run()
            except Interrupted:
                self.observer.study_stopped(self.study)

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

    def _close_searches(self) -> None:
        for search in self.searches.values():
            search.close()

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
        for name, cell in self.cells.items():
            search = self.searches[name] = self._open(cell)
            if not self.claims.shared:
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
                self.executor.submit(job)

    def _collect(self) -> None:
        ended = self.executor.wait(_POLL_SECONDS)
        for one in ended:
            self._take(one)
        if any(one.why == "stopped" for one in ended):
            raise Interrupted
        if self.running and self.should_stop():
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
            if self.should_stop():
                raise Interrupted
            time.sleep(self.study.config.execution.lease_seconds / 100)

    def _take(self, ended: Ended) -> None:
        job = ended.job
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
        return (self.searches[job.cell].name, job.number)

    def _next(self) -> Job | None:
        """What to train next: what was left running, then new proposals.

        Returns:
            None where there is nothing now; there may be later, while trials run.

        Raises:
            Interrupted: `should_stop` said so.
        """
        if self.claims.shared:
            self._look_around()
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
                job = self._propose(cell)
            except EnoughTrials:  # other processes were quicker
                self.open.remove(cell)
                continue
            except SpaceExhausted:
                self.open.remove(cell)
                self.observer.note(
                    f"{cell.name}: all {len(cell.points)} feasible points have been "
                    "tried; the search of this arm ends here"
                )
                continue
            self.n_begun[cell.name] += 1
            if job is not None:
                return job
        return None

    def _propose(self, cell: Cell) -> Job | None:
        """A new trial of a cell; None where another process took it from us."""
        search = self.searches[cell.name]
        with self.claims.turn(search.name):
            proposal = search.ask(most=cell.n_trials)
            if not self.claims.take((search.name, proposal.number)):
                return None
        return Job(cell.name, proposal.number, proposal.values)

    def _look_around(self) -> None:
        """Count what all processes have begun, and take up what one left."""
        if self.should_stop():
            raise Interrupted
        running = set()
        for name, search in self.searches.items():
            begun = [record for record in search.records() if not record.refused]
            self.n_begun[name] = len(begun)
            running |= {(search.name, r.number) for r in begun if r.state == "running"}
        self.elsewhere = bool(running - self.running.keys())
        cells = {search.name: name for name, search in self.searches.items()}
        for key in self.claims.orphans(running):
            if self.left:
                return
            with self.claims.turn(key[0]):
                if not self.claims.take(key):
                    continue
                proposal = self.searches[cells[key[0]]].adopt(key[1])
            if proposal is None:
                self.claims.let_go(key)
            else:
                self.left.append(Job(cells[key[0]], proposal.number, proposal.values))

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

    def _is_complete(self) -> bool:
        return all(
            _n_finished(self.searches[name]) >= cell.n_trials
            for name, cell in self.cells.items()
        )

    def _score_finalists(self) -> None:
        """Score the best trial of each cell on test data, once."""
        with self.claims.turn(self.study.name, FINALISTS):
            self._score_best()

    def _score_best(self) -> None:
        done = ride_out(self.study.finalists)()
        cells = {(c.budget, c.expert.name, c.arm): c for c in self.study.cells}
        entries = []
        for key, trial in best_by_arm(ride_out(self.study.trials)()).items():
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
