"""Which trials are this process's to train, when others may train the same study.

`Alone` is for a study in SQLite, whose folder is locked by its one driver. `Shared` is
for a study in a database server: what it hands out it holds by leases, which a thread
renews for as long as the process lives and the database answers.
"""

import hashlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from allocsearch.errors import StudyError
from allocsearch.search import Leases, ride_out
from allocsearch.search.leases import Lease

Key = tuple[str, int]
"""A trial: name of its search in the database, and its number."""
Word = Literal["hold", "go_on", "drop"]
Tell = Callable[[Key, Word], None]

TURN, FINALISTS = -1, -2
_TURN_SECONDS = 60.0


class Claims(Protocol):
    """Decides which trials are ours."""

    shared: bool

    def turn(self, search: str, number: int = TURN) -> AbstractContextManager[None]:
        """A context that one process at a time is in."""
        ...

    def take(self, key: Key) -> bool:
        """Claim a trial; False where another process has it."""
        ...

    def orphans(self, running: set[Key]) -> list[Key]:
        """Those of the running trials that no process has, in order."""
        ...

    def still_ours(self, key: Key) -> bool:
        """Whether what we found for a trial may be told, now."""
        ...

    def let_go(self, key: Key) -> None:
        """Have a trial no more, so that anybody may take it."""
        ...

    def let_go_of_all(self) -> None:
        """As `let_go`, of everything and without waiting for a database."""
        ...

    def close(self) -> None:
        """Let go of everything, for good."""
        ...


class Alone:
    """The one driver of a study: everything is its own."""

    shared = False

    @contextmanager
    def turn(self, search: str, number: int = TURN) -> Iterator[None]:
        """See `Claims`."""
        del search, number
        yield

    def take(self, key: Key) -> bool:
        """See `Claims`."""
        del key
        return True

    def orphans(self, running: set[Key]) -> list[Key]:
        """See `Claims`: what was left running was taken when the study was opened."""
        del running
        return []

    def still_ours(self, key: Key) -> bool:
        """See `Claims`."""
        del key
        return True

    def let_go(self, key: Key) -> None:
        """See `Claims`."""

    def let_go_of_all(self) -> None:
        """See `Claims`."""

    def close(self) -> None:
        """See `Claims`."""


@dataclass
class _Held:
    lease: Lease
    sure_until: float
    on_hold: bool = False


class Shared:
    """A driver among others. Its methods may be called from any thread."""

    shared = True

    def __init__(self, storage: str, seconds: float, tell: Tell):
        """Holds nothing yet.

        Args:
            storage: an SQLAlchemy URL.
            seconds: how long a lease lasts without being renewed.
            tell: told to "go_on" with a trial whenever it is known to be ours, to
                "hold" it while the database is out of reach and others may have taken
                it, to "drop" it when they have.
        """
        self.worker = this_worker()
        self._leases = Leases.open(storage)
        self._seconds, self._tell = seconds, tell
        self._held: dict[Key, _Held] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._keep, daemon=True).start()

    @contextmanager
    def turn(self, search: str, number: int = TURN) -> Iterator[None]:
        """See `Claims`. Waits for its turn."""
        key = (search, number)
        while not self._take(key, max(self._seconds, _TURN_SECONDS)):
            self._free_from_nobody({key})
            time.sleep(0.05)
        try:
            yield
        finally:
            self.let_go(key)

    def take(self, key: Key) -> bool:
        """See `Claims`."""
        return self._take(key, self._seconds)

    def orphans(self, running: set[Key]) -> list[Key]:
        """See `Claims`. The trials of processes that died on this machine are free."""
        self._free_from_nobody(running)
        live = self._leases.live(sorted({search for search, _ in running}))
        return sorted(running - live - self._held.keys())

    def still_ours(self, key: Key) -> bool:
        """See `Claims`. Waits for a database that is away."""
        held = self._held.get(key)
        if held is None:
            return False
        # Renewed first: what is told next is told within the lease.
        return ride_out(self._leases.renew)(held.lease, max(self._seconds, 60.0))

    def let_go(self, key: Key) -> None:
        """See `Claims`. Waits for a database that is away."""
        with self._lock:
            held = self._held.pop(key, None)
        if held is not None:
            ride_out(self._leases.release)(held.lease)

    def let_go_of_all(self) -> None:
        """See `Claims`. Where the database is away, the leases run out."""
        with self._lock:
            held, self._held = self._held, {}
        with suppress(StudyError):
            for one in held.values():
                self._leases.release(one.lease)

    def close(self) -> None:
        """See `Claims`."""
        self._closed.set()
        self.let_go_of_all()
        self._leases.close()

    def _take(self, key: Key, seconds: float) -> bool:
        asked = time.monotonic()
        lease = self._leases.acquire(*key, self.worker, seconds)
        if lease is None:
            return False
        with self._lock:
            self._held[key] = _Held(lease, asked + seconds)
        return True

    def _free_from_nobody(self, keys: set[Key]) -> None:
        searches = sorted({search for search, _ in keys})
        for holding in ride_out(self._leases.held)(searches):
            lease = holding.lease
            key = (lease.search, lease.number)
            # Ours, but unknown to us: the connection was lost as we claimed it.
            unknown = lease.worker == self.worker and key not in self._held
            if key in keys and (unknown or is_dead(lease.worker)):
                ride_out(self._leases.release)(lease)

    def _keep(self) -> None:
        """Renew what is held, until closed."""
        while not self._closed.wait(self._seconds / 4):
            for key, held in list(self._held.items()):
                self._renew(key, held)

    def _renew(self, key: Key, held: _Held) -> None:
        asked = time.monotonic()
        try:
            ours = self._leases.renew(held.lease, self._seconds)
        except StudyError:
            if time.monotonic() > held.sure_until and not held.on_hold:
                held.on_hold = True
                self._tell(key, "hold")
            return
        with self._lock:
            if self._held.get(key) is not held:
                return  # let go meanwhile
            if not ours:
                del self._held[key]
        if not ours:
            self._tell(key, "drop")
            return
        held.sure_until = asked + self._seconds
        held.on_hold = False
        self._tell(key, "go_on")


def this_worker() -> str:
    """A name that nobody has yet: ``"host:pid:machine-birth-token"``."""
    pid = os.getpid()
    identity = f"{_machine()}-{_birth(pid)}-{secrets.token_hex(4)}"
    return f"{socket.gethostname()}:{pid}:{identity}"


def is_dead(worker: str) -> bool:
    """Whether a worker ran on this machine and is no more. False where unknown."""
    host, pid, identity = [*worker.rsplit(":", 2), "", ""][:3]
    machine, birth = [*identity.split("-"), ""][:2]
    if host != socket.gethostname() or machine != _machine() or not birth:
        return False
    return _birth(int(pid)) != birth


def _machine() -> str:
    """This boot of this machine, and this space of process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        return "unknown"
    return hashlib.sha256(f"{boot}{space}".encode()).hexdigest()[:8]


def _birth(pid: int) -> str:
    """When a process started, in ticks since the boot; "" where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The name, in parentheses, may contain anything; a zombie has ended.
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]
