"""Trains in worker processes on this machine, kept for one trial after another."""

import os
import signal
import socket
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from allocsearch.attempt import Job, blank_result, candidate_of
from allocsearch.config import ExecutionConfig
from allocsearch.errors import StudyError
from allocsearch.results import TrialResult
from allocsearch.study import Study
from allocsearch.trial import Progress
from allocsearch.workers.base import Ended, Listener, Word
from allocsearch.workers.devices import (
    available_cores,
    environment_of,
    share_of_cores,
    share_of_gpus,
    visible_gpus,
)
from allocsearch.workers.process import END, WorkerProcess, describe_exit
from allocsearch.workers.serving import describe_study

_FROM_OUTSIDE = {-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}
"""Exit codes that say nothing of the trial."""


@dataclass
class _Slot:
    """A place for one process, and the job in it."""

    number: int
    process: WorkerProcess | None = None
    ready: bool = False
    job: Job | None = None
    last: Progress | None = None
    n_crashes: int = 0
    stopping: bool = False


class Local:
    """Processes that outlive trials, so that starting and compiling are paid once.

    Each keeps to its own share of the cores and to its own GPUs. Where a trial's
    process crashes, the trial goes on from its checkpoint in a new one; if it crashes
    again, that trial has failed.
    """

    def __init__(self, study: Study, listener: Listener, execution: ExecutionConfig):
        """An executor whose processes start when there is something to do.

        Raises:
            ConfigError: there are not as many GPUs as one trial is to get.
        """
        self._study, self._listener, self._execution = study, listener, execution
        self._cells = {cell.name: cell for cell in study.cells}
        self._slots = [_Slot(i) for i in range(execution.n_workers)]
        self._heard: SimpleQueue[tuple[WorkerProcess, dict[str, Any]]] = SimpleQueue()
        self._description = describe_study(study)
        share_of_gpus(0, execution.n_workers, visible_gpus(), execution.gpus_per_trial)

    def n_free(self) -> int:
        """See `Executor`."""
        return sum(slot.job is None for slot in self._slots)

    def submit(self, job: Job) -> None:
        """See `Executor`."""
        free = [slot for slot in self._slots if slot.job is None]
        slot = next((s for s in free if s.process is not None), free[0])
        slot.job, slot.last, slot.n_crashes, slot.stopping = job, None, 0, False
        self._start(slot, job)

    def wait(self, seconds: float) -> list[Ended]:
        """See `Executor`."""
        ended = []
        while True:
            try:
                process, message = self._heard.get(timeout=seconds)
            except Empty:
                return ended
            ended += self._hear(process, message)
            # What has been heard meanwhile is passed on at once, then no more waiting.
            if self._heard.empty():
                return ended

    def tell(self, job: Job, word: Word) -> None:
        """See `Executor`."""
        for slot in self._slots:
            if slot.job == job and slot.process is not None:
                slot.stopping |= word in ("stop", "drop")
                slot.process.send({"tell": word})

    def close(self) -> None:
        """See `Executor`."""
        processes = [slot.process for slot in self._slots if slot.process is not None]
        for slot in self._slots:
            slot.process = slot.job = None
        for process in processes:
            process.end()

    def _start(self, slot: _Slot, job: Job) -> None:
        if slot.process is None:
            slot.process, slot.ready = self._new_process(slot.number), False
        slot.process.send({"job": asdict(job)})

    def _new_process(self, number: int) -> WorkerProcess:
        n, execution = len(self._slots), self._execution
        cores = available_cores()
        return WorkerProcess(
            self._description,
            lambda process, message: self._heard.put((process, message)),
            log=self._log(number),
            cores=share_of_cores(number, n, cores, execution.cpus_per_trial),
            environment=environment_of(number, n, execution.gpus_per_trial),
        )

    def _log(self, number: int) -> Path:
        name = f"{socket.gethostname()}-{os.getpid()}-{number}.log"
        return self._study.directory / "logs" / name

    def _hear(self, process: WorkerProcess, message: dict[str, Any]) -> list[Ended]:
        slot = next((s for s in self._slots if s.process is process), None)
        if slot is None:
            return []  # of a process that was ended
        kind = message["event"]
        if message == END:
            return self._bury(slot, process)
        if kind == "error":
            raise StudyError(message["text"])
        slot.ready |= kind == "ready"
        job = slot.job
        if job is None or kind == "ready":
            return []
        if kind == "progress":
            fields = {k: v for k, v in message.items() if k != "event"}
            slot.last = Progress(**fields)
            self._listener.progressed(job, slot.last)
            return []
        if kind == "note":
            self._listener.note(message["text"])
            return []
        slot.job = None
        if kind == "finished":
            return [Ended(job, kind, TrialResult.from_dict(message["result"]))]
        return [Ended(job, kind)]

    def _bury(self, slot: _Slot, process: WorkerProcess) -> list[Ended]:
        """Go on after the death of a process."""
        code = process.end()
        slot.process = None
        if (job := slot.job) is None:
            return []
        if slot.stopping:
            slot.job = None
            return [Ended(job, "stopped")]
        from_outside = code in _FROM_OUTSIDE
        slot.n_crashes += not from_outside
        if not slot.ready and (code > 0 or slot.n_crashes > 1):
            raise StudyError(
                f"a worker process ended by {describe_exit(code)} before it could "
                f"train anything; its output is in {process.log}: "
                f"{process.last_words()}"
            )
        if slot.n_crashes > 1:
            slot.job = None
            return [Ended(job, "finished", self._failed(slot, job, process, code))]
        self._listener.note(
            f"{job.cell} #{job.number}: its process ended by {describe_exit(code)}; "
            "it goes on in a new one from its last checkpoint"
        )
        self._start(slot, job)
        return []

    def _failed(
        self, slot: _Slot, job: Job, process: WorkerProcess, code: int
    ) -> TrialResult:
        cell = self._cells[job.cell]
        candidate = candidate_of(self._study, cell, job)
        unit = cell.setting.task.unit
        at = f"after {slot.last.steps} {unit}" if slot.last else f"before any {unit}"
        reason = (
            f"{candidate.allocation.label}, seeds {list(candidate.seeds)}: it ended "
            f"its process twice, the second time {at} by {describe_exit(code)}; its "
            f"output is in {process.log}"
        )
        blank = blank_result(self._study, cell, job)
        return replace(blank, state="failed", reason=reason)
