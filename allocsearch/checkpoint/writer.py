"""Writes checkpoints while training goes on."""

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from jaxtyping import PyTree

from allocsearch.analysis.formats import format_bytes
from allocsearch.checkpoint.format import Snapshot, snapshot, write_step
from allocsearch.checkpoint.stores import Place, next_step, open_store, writing
from allocsearch.errors import StudyError

KEPT = 2
"""Steps that stay while a trial runs: the last, and one to fall back on."""


class Writer:
    """Saves steps of one checkpoint, one at a time, in a thread of its own.

    `save` returns once the arrays are on the host; hashing and writing go on beside
    training. The next `save`, `wait` or the end of a ``with`` block waits for them and
    raises what went wrong.
    """

    def __init__(self, place: Place) -> None:
        """A writer of the checkpoint at `place`.

        Raises:
            StudyError: a URL that nothing installed can write to.
        """
        self._store = open_store(place)
        self._thread: threading.Thread | None = None
        self._error: StudyError | None = None

    def save(
        self, tree: PyTree, metadata: Mapping[str, Any], *, keep: int = KEPT
    ) -> None:
        """Begin to write a step.

        Args:
            tree: any pytree; leaves that are no arrays are left out.
            metadata: JSON-ready values kept beside the arrays.
            keep: how many steps stay once this one is there, itself included.

        Raises:
            StudyError: this step does not fit on the disk, or the one before could
                not be written; what was there stays.
        """
        self.wait()
        taken = snapshot(tree, metadata)
        self._check_space(taken.nbytes)
        # A daemon, so that a second Ctrl-C does not wait: half a step is no step.
        self._thread = threading.Thread(
            target=self._write, args=(taken, keep), daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until the last `save` is done.

        Raises:
            StudyError: it could not be written.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.wait()
        elif isinstance(error, Exception) and self._thread is not None:
            self._thread.join()

    def _write(self, taken: Snapshot, keep: int) -> None:
        try:
            with writing(self._store):
                steps = self._store.steps()
                write_step(self._store, next_step(steps), taken)
                for old in steps[: max(0, len(steps) + 1 - keep)]:
                    self._store.remove(old)
        except StudyError as error:
            self._error = error

    def _check_space(self, needed: int) -> None:
        free = self._store.free_bytes()
        if free is not None and free < needed:
            raise StudyError(
                f"checkpoint {self._store.name} cannot be written: it takes "
                f"{format_bytes(needed)}, but its disk has {format_bytes(free)} free: "
                "make room, or set output.checkpoints to another place"
            )


def save(
    place: Place, tree: PyTree, metadata: Mapping[str, Any], *, keep: int = KEPT
) -> None:
    """Write a step, and wait until it is written.

    Args:
        place: the checkpoint's own folder, or a URL.
        tree: any pytree; leaves that are no arrays are left out.
        metadata: JSON-ready values kept beside the arrays.
        keep: how many steps stay, this one included.

    Raises:
        StudyError: it cannot be written; what was there stays.
    """
    with Writer(place) as writer:
        writer.save(tree, metadata, keep=keep)
