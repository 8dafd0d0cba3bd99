"""Signals: the first asks for a checkpoint, a second Ctrl-C ends at once.

SIGTERM, SIGUSR1 and SIGUSR2 come from schedulers, which may repeat them and will not
wait: where there is no checkpoint within `GRACE_SECONDS`, as during a long compilation,
the process lets go of its trials without one.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

URGENT = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
SIGNALS = (signal.SIGINT, *URGENT)
GRACE_SECONDS = 8.0
_LETTING_GO_SECONDS = 1.5
_SHOW_CURSOR = b"\x1b[?25h\n"


class Stopper:
    """A context in which signals become a request; calling it tells whether one came.

    Python runs signal handlers between bytecodes only, which may be minutes away
    while XLA compiles. So the interpreter writes each signal to a socket at once, and
    a thread reads it: it says so without delay, and a second Ctrl-C always ends.

    Attributes:
        received: the first signal's number; None before.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        """A stopper that does not listen yet; `say` tells the user something."""
        self.received: int | None = None
        self._say = say
        self._old: dict[int, Any] = {}
        self._let_go: Callable[[], None] = lambda: None

    def __call__(self) -> bool:
        """Whether to stop at the next checkpoint."""
        return self.received is not None

    @property
    def exit_code(self) -> int:
        """128 and the signal's number, as shells have it."""
        return 128 + (self.received or signal.SIGINT)

    def at_last(self, let_go: Callable[[], None]) -> None:
        """What to do, from another thread, before ending without a checkpoint."""
        self._let_go = let_go

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread can listen
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._old_fd = signal.set_wakeup_fd(self._writer.fileno())
        for number in SIGNALS:
            self._old[number] = signal.signal(number, lambda *_: None)
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._old:
            return
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        self._writer.close()

    def _listen(self) -> None:
        deadline = None
        with self._reader:
            while True:
                if deadline is not None:
                    self._reader.settimeout(max(0.01, deadline - time.monotonic()))
                try:
                    byte = self._reader.recv(1)
                except TimeoutError:
                    self._give_up()
                    return
                if not byte:
                    return
                if byte[0] in SIGNALS:
                    self._hear(byte[0])
                if byte[0] in URGENT and deadline is None:
                    deadline = time.monotonic() + GRACE_SECONDS

    def _hear(self, number: int) -> None:
        if self.received is not None:
            if number == signal.SIGINT:
                _end(number)
            return
        self.received = number
        name = signal.Signals(number).name
        more = "once more stops" if number == signal.SIGINT else "Ctrl-C stops"
        self._say(f"{name}: stopping at the next checkpoint; {more} at once")

    def _give_up(self) -> None:
        self._say(
            f"no checkpoint within {GRACE_SECONDS:g} s: ended, to go on from the last"
        )
        letting_go = threading.Thread(target=self._let_go, daemon=True)
        letting_go.start()
        letting_go.join(_LETTING_GO_SECONDS)
        _end(self.received or signal.SIGTERM)


def _end(number: int) -> None:
    if sys.stderr.isatty():
        os.write(2, _SHOW_CURSOR)  # the bars had hidden it
    os._exit(128 + number)
