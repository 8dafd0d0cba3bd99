"""Trains in this process, one trial after the other."""

from allocsearch.attempt import Job, attempt
from allocsearch.config import ExecutionConfig
from allocsearch.study import Study
from allocsearch.trial import Dropped, Interrupted
from allocsearch.workers.base import Control, Ended, Listener, Word, valid_seconds


class Inline:
    """The executor of a laptop: nothing to start, nothing to end."""

    def __init__(self, study: Study, listener: Listener, execution: ExecutionConfig):
        """An executor without a job."""
        del execution
        self._study, self._listener = study, listener
        self._cells = {cell.name: cell for cell in study.cells}
        self._job: Job | None = None
        self._control = Control()

    def n_free(self) -> int:
        """See `Executor`."""
        return 1 if self._job is None else 0

    def submit(self, job: Job) -> None:
        """See `Executor`. Training begins when its end is waited for."""
        self._job, self._control = job, Control(valid_seconds(self._study))

    def wait(self, seconds: float) -> list[Ended]:
        """See `Executor`."""
        del seconds
        if (job := self._job) is None:
            return []
        control = self._control
        try:
            result = attempt(
                self._study,
                self._cells[job.cell],
                job,
                should_stop=lambda: control() or self._listener.should_stop(),
                on_progress=lambda p: self._listener.progressed(job, p),
                note=self._listener.note,
            )
        except Dropped:
            return [Ended(job, "dropped")]
        except Interrupted:
            return [Ended(job, "stopped")]
        finally:
            self._job = None
        return [Ended(job, "finished", result)]

    def tell(self, job: Job, word: Word) -> None:
        """See `Executor`."""
        if job == self._job:
            self._control.tell(word)

    def close(self) -> None:
        """See `Executor`."""
