"""One worker process as its driver sees it: start, tell, listen, end."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from allocsearch.errors import StudyError

Message = dict[str, Any]
END: Message = {"event": "end"}
"""Said for a process when it has said its last."""
_TAIL = 300


class WorkerProcess:
    """A process that trains one job at a time. Its output goes to a log."""

    def __init__(
        self,
        description: Message,
        heard: Callable[["WorkerProcess", Message], None],
        *,
        log: Path,
        cores: Sequence[int],
        environment: Mapping[str, str],
    ):
        """Start it.

        Args:
            description: the study, as `describe_study` has it.
            heard: told every message, from a thread; `END` is the last.
            log: takes what the process prints.
            cores: numbers of the cores that it keeps to.
            environment: all of its environment variables.

        Raises:
            StudyError: the log cannot be written, or no process be started.
        """
        self.log = log
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with open(log, "ab") as file, _pinned(cores):
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "allocsearch.workers.child"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    text=True,
                    encoding="utf-8",
                    env=environment,
                    # Ctrl-C in a terminal is for the driver alone.
                    start_new_session=True,
                )
        except OSError as error:
            raise StudyError(f"no worker process can be started: {error}") from error
        self._writing = threading.Lock()
        self._heard = heard
        self.pid = self._process.pid
        self.send(description)
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, message: Message) -> None:
        """Send a message; one that is dead does not hear it."""
        with self._writing, suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def end(self, seconds: float = 5.0) -> int:
        """End it, by force if it takes longer than some seconds.

        Returns:
            Its exit code, the negative of a signal that ended it.
        """
        with self._writing, suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def last_words(self) -> str:
        """The end of its log, on one line."""
        with suppress(OSError):
            text = self.log.read_text(encoding="utf-8", errors="replace")
            return " ".join(text[-_TAIL:].split())
        return ""

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError):
            for line in self._process.stdout:
                self._heard(self, json.loads(line))
        self._heard(self, END)


def describe_exit(code: int) -> str:
    """What an exit code says: ``"SIGKILL, as when memory runs out"``."""
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    return f"{name}, as when memory runs out" if -code == signal.SIGKILL else name


@contextmanager
def _pinned(cores: Sequence[int]) -> Iterator[None]:
    # A process keeps to the cores of the thread that started it, from its first
    # moment: JAX counts them when it is imported.
    if not hasattr(os, "sched_setaffinity"):  # as on macOS, which has no such thing
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
