"""When a study has to stop: a signal, its time, or what its trials may cost."""

import time
from collections.abc import Callable, Hashable

from allocsearch.errors import StudyError
from allocsearch.folder import read_json, write_json
from allocsearch.study import Study

_SAVE_SECONDS = 10.0


class Limits:
    """Asked between chunks whether to stop; counts time and cost over all restarts.

    Attributes:
        reached: which limit ended the study, in a sentence; None for another reason.
    """

    def __init__(self, study: Study, should_stop: Callable[[], bool]):
        """Limits of a study's config, and a request from outside."""
        self.reached: str | None = None
        self._should_stop = should_stop
        self._timeout = study.config.search.timeout
        self._max_cost = study.config.search.max_cost
        self._path = study.directory / "clock.json"
        self._before = self._spent = 0.0
        self._n_devices = 1
        self._begun: dict[Hashable, float] = {}
        self._started = self._saved = time.monotonic()

    def begin(self, spent: float, n_devices: int = 1) -> None:
        """Count from now on.

        Args:
            spent: seconds that finished trials took before.
            n_devices: accelerators that a trial uses.
        """
        self._n_devices = n_devices
        self._before = self._read()
        self._spent = spent
        self._started = self._saved = time.monotonic()

    def __call__(self) -> bool:
        """Whether to stop at the next checkpoint."""
        now = time.monotonic()
        if now - self._saved >= _SAVE_SECONDS:
            self.save()
        if self._should_stop():
            return True
        elapsed = self._before + now - self._started
        seconds = self._spent + sum(now - begun for begun in self._begun.values())
        hours = self._n_devices * seconds / 3600
        if self._timeout is not None and elapsed >= self._timeout:
            self.reached = f"the study has run for its {self._timeout:g} seconds"
        elif self._max_cost is not None and hours >= self._max_cost:
            self.reached = f"the study has used its {self._max_cost:g} device-hours"
        return self.reached is not None

    def job_begun(self, key: Hashable) -> None:
        """Count what a job takes from now on."""
        self._begun[key] = time.monotonic()

    def job_ended(self, key: Hashable) -> None:
        """Count no more for a job."""
        self._spent += time.monotonic() - self._begun.pop(key, time.monotonic())

    def save(self) -> None:
        """Keep the time for the next restart."""
        now = self._saved = time.monotonic()
        if self._path.parent.is_dir():
            write_json(self._path, {"seconds": self._before + now - self._started})

    def _read(self) -> float:
        try:
            seconds = read_json(self._path)["seconds"]
        except (StudyError, KeyError, TypeError):
            return 0.0  # it only serves the limit
        return float(seconds) if isinstance(seconds, int | float) else 0.0
