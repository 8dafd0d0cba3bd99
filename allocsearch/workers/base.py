"""What every executor does, and what a job in training may be told."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from allocsearch.attempt import Job
from allocsearch.results import TrialResult
from allocsearch.search import is_shared
from allocsearch.study import Study
from allocsearch.trial import Dropped, Progress

Word = Literal["stop", "hold", "go_on", "drop"]
Why = Literal["finished", "stopped", "dropped"]


@dataclass(frozen=True)
class Ended:
    """A job that an executor trains no more.

    Attributes:
        job: which.
        why: "finished" with a result; "stopped" after a checkpoint; "dropped" without.
        result: what came of it, None unless finished.
    """

    job: Job
    why: Why
    result: TrialResult | None = None


@dataclass(frozen=True)
class Listener:
    """Who is told what happens while jobs train.

    Attributes:
        progressed: a job is this far.
        note: something that the user should know.
        should_stop: asked by executors that train in this process.
    """

    progressed: Callable[[Job, Progress], None]
    note: Callable[[str], None]
    should_stop: Callable[[], bool] = lambda: False


class Executor(Protocol):
    """Trains jobs, each to its end or until it is told to stop."""

    def n_free(self) -> int:
        """How many more jobs it takes now."""
        ...

    def submit(self, job: Job) -> None:
        """Begin to train a job, or take it up from its checkpoint.

        Raises:
            StudyError: nothing can be trained there; says why.
        """
        ...

    def wait(self, seconds: float) -> list[Ended]:
        """What ended, as soon as something did, or nothing after a while.

        Args:
            seconds: about how long to wait at most; one that trains in this process
                waits until the job ends.

        Raises:
            StudyError: the disk's or the cluster's fault, no trial's.
        """
        ...

    def tell(self, job: Job, word: Word) -> None:
        """Tell a job something, from any thread.

        "stop" ends it after a checkpoint, at the next chunk. "hold" makes it wait
        there until "go_on". "drop" ends it without a checkpoint.
        """
        ...

    def close(self) -> None:
        """End every process that it started; jobs that still train are cut off."""
        ...


class Control:
    """What a job has been told; asked by its training after every chunk."""

    def __init__(self, valid_seconds: float | None = None) -> None:
        """Nothing was told yet.

        Args:
            valid_seconds: wait as if on hold after so long without a "go_on"; so a
                process that was frozen meanwhile, and knows of nothing, writes nothing.
        """
        self._changed = threading.Condition()
        self._stop = self._hold = self._drop = False
        self._valid_seconds = valid_seconds
        self._valid_from = time.monotonic()

    def tell(self, word: Word) -> None:
        """Pass on a word, from any thread."""
        with self._changed:
            self._stop |= word == "stop"
            self._drop |= word == "drop"
            if word in ("hold", "go_on"):
                self._hold = word == "hold"
            if word == "go_on":
                self._valid_from = time.monotonic()
            self._changed.notify_all()

    def __call__(self) -> bool:
        """Whether to checkpoint and stop; waits while on hold.

        Raises:
            Dropped: the job is no longer wanted from here.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._drop or not self._in_doubt())
            if self._drop:
                raise Dropped
            return self._stop

    def _in_doubt(self) -> bool:
        silent = time.monotonic() - self._valid_from
        return self._hold or (
            self._valid_seconds is not None and silent > self._valid_seconds
        )


def valid_seconds(study: Study) -> float | None:
    """How long a job may train without being told that it is still this study's."""
    if not is_shared(study.storage):
        return None
    return study.config.execution.lease_seconds
