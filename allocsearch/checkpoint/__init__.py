"""Checkpoints: arrays by their path in the tree, hashed, written whole or not at all.

A checkpoint is a folder, here or at a URL, of numbered steps; the last is what counts
and the one before it is there for when the last turns out to be damaged. A step has
its arrays in one file and a manifest with their hashes. Nothing in it is code, and
nothing is unpickled.
"""

from collections.abc import Callable, Mapping
from typing import Any

from jaxtyping import PyTree

from allocsearch.checkpoint.format import MANIFEST, open_step
from allocsearch.checkpoint.format import Checkpoint as Checkpoint
from allocsearch.checkpoint.stores import Place as Place
from allocsearch.checkpoint.stores import Store, open_store, writing
from allocsearch.checkpoint.stores import as_place as as_place
from allocsearch.checkpoint.stores import below as below
from allocsearch.checkpoint.writer import KEPT as KEPT
from allocsearch.checkpoint.writer import Writer as Writer
from allocsearch.checkpoint.writer import save as save
from allocsearch.errors import CheckpointError
from allocsearch.version import __version__


def latest(
    place: Place,
    *,
    check: Callable[[Mapping[str, Any]], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
) -> Checkpoint:
    """The newest step that is whole and passes a check.

    Args:
        place: the checkpoint's own folder, or a URL.
        check: given a step's metadata, raises CheckpointError to refuse it.
        note: told why a newer step was refused, in a sentence.

    Raises:
        CheckpointError: there is none, or all are damaged or foreign; says why the
            newest is refused.
    """
    store = open_store(place)
    refused: list[CheckpointError] = []
    for step in reversed(store.steps()):
        try:
            found = open_step(store, step)
            check(found.metadata)
        except CheckpointError as error:
            refused.append(error)
            continue
        for error in refused:
            note(f"{error}; {found.name} before it is used")
        return found
    if not refused:
        raise _none(store)
    more = len(refused) - 1
    also = f" ({more} before it refused too)" if more else ""
    raise CheckpointError(f"{refused[0]}{also}") from refused[0]


def load(place: Place, template: PyTree, *, partial: bool = False) -> PyTree:
    """Read the newest whole step into a template: see `Checkpoint.restore`."""
    return latest(place).restore(template, partial=partial)


def read_manifest(place: Place) -> dict[str, Any]:
    """The manifest of the newest whole step: versions, metadata, the arrays' hashes.

    Raises:
        CheckpointError: as `latest`.
    """
    return latest(place).manifest


def exists(place: Place) -> bool:
    """Whether there is a checkpoint, whole, damaged or of an earlier format."""
    store = open_store(place)
    return bool(store.steps()) or store.holds(MANIFEST)


def children(place: Place) -> list[str]:
    """The names of all that is at a place, in any order."""
    return open_store(place).children()


def nbytes(place: Place) -> int:
    """How much a checkpoint takes; 0 where there is none.

    Raises:
        StudyError: nobody can say.
    """
    store = open_store(place)
    with writing(store):
        return store.nbytes()


def remove(place: Place) -> None:
    """Delete a checkpoint, if there is one.

    Raises:
        StudyError: a URL's file system refuses.
    """
    store = open_store(place)
    with writing(store):
        store.clear()


def set_aside(place: Place) -> None:
    """Rename a damaged checkpoint so that its place is free; keeps the last such one.

    Raises:
        StudyError: it cannot be renamed.
    """
    store = open_store(place)
    with writing(store):
        store.set_aside()


def _none(store: Store) -> CheckpointError:
    if store.holds(MANIFEST):
        return CheckpointError(
            f"checkpoint {store.name} has the format of an earlier development "
            f"version, which this one ({__version__}) does not read: train again"
        )
    return CheckpointError(f"there is no checkpoint at {store.name}")
