"""How long the rest will take, from how long the part so far took."""

import time


class Pace:
    """Forecasts the rest of something from this run's own part of it."""

    def __init__(self, total: float, done: float):
        """The clock starts now.

        Args:
            total: the whole, in any unit.
            done: what was done before, which says nothing about today's pace.
        """
        self.total = total
        self._before = done
        self._started = time.monotonic()

    def seconds_left(self, done: float) -> float | None:
        """A forecast; None before anything has moved.

        Args:
            done: how much of the whole is done now.
        """
        moved = done - self._before
        if moved <= 0:
            return None
        elapsed = time.monotonic() - self._started
        return max(0.0, elapsed / moved * (self.total - done))
