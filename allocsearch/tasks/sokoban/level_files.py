"""Level files on disk: which ones a path means, and what they hold."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from allocsearch.errors import DataError
from allocsearch.tasks.sokoban.level_notes import LevelNotes, together
from allocsearch.tasks.sokoban.level_text import Parsed, parse_boards
from allocsearch.tasks.sokoban.levels import (
    LevelSet,
    largest,
    level_set_from_codes,
    pad_together,
    refuse,
)

SUFFIXES = (".txt", ".xsb", ".sok")
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class FileEntry:
    """What one file gave to a set of levels.

    Attributes:
        n_levels: how many.
        shape: height and width that hold them all.
    """

    n_levels: int
    shape: tuple[int, int]


def level_files(path: Path) -> list[Path]:
    """The file itself, or all level files of a directory at any depth, in order.

    Hidden files and directories are left out.

    Raises:
        DataError: the path is missing or holds no level file.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"{path}: no such file or directory of levels")
    files = sorted(_walk(path))
    if not files:
        raise DataError(
            f"{path}: this directory holds no level files ({', '.join(SUFFIXES)})"
        )
    return files


def parse_file(file: Path) -> Parsed:
    """The boards and problems of one file.

    Raises:
        DataError: it cannot be read.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
    return parse_boards(data, str(file))


def read_levels(path: Path | str, *, max_levels: int | None = None) -> LevelSet:
    """The levels of a file, or of all level files of a directory in order.

    Boards smaller than the largest one read are padded with walls.

    Args:
        path: a file in any form of `level_text`, or a directory of such files.
        max_levels: stop after this many levels; all of them when None.

    Raises:
        DataError: the path is missing, holds no level files, or a level is broken.
    """
    path = Path(path)
    levels, _ = read_files(level_files(path), path, max_levels)
    return levels


def read_files(
    files: Sequence[Path], path: Path, max_levels: int | None
) -> tuple[LevelSet, list[FileEntry]]:
    """As `read_levels`, with what each file read gave.

    Args:
        files: in order.
        path: where they are, for the name of the set.
        max_levels: as `read_levels` takes it.
    """
    check_most(max_levels)
    stacks: list[np.ndarray] = []
    entries: list[FileEntry] = []
    notes: list[tuple[tuple[LevelNotes, ...], int]] = []
    for file in files:
        parsed = parse_file(file)
        refuse(parsed.problems)
        stacks += parsed.stacks
        entries.append(entry_of(parsed.stacks))
        notes.append((parsed.notes, entries[-1].n_levels))
        if n_needed(entries, max_levels) is not None:
            break
    source = source_of(path, files[: len(entries)])
    shape = largest([entry.shape for entry in entries])
    codes = pad_together(stacks, shape, source)[:max_levels]
    kept = together(notes)[:max_levels]
    return level_set_from_codes(codes, source, kept), entries


def entry_of(stacks: Sequence[np.ndarray]) -> FileEntry:
    """The entry of a file with these boards."""
    return FileEntry(sum(map(len, stacks)), largest([stack.shape for stack in stacks]))


def check_most(max_levels: int | None) -> None:
    """Raise unless `max_levels` is None or positive.

    Raises:
        DataError: it is not.
    """
    if max_levels is not None and max_levels < 1:
        raise DataError(f"max_levels must be at least 1, got {max_levels}")


def n_needed(entries: Sequence[FileEntry], max_levels: int | None) -> int | None:
    """How many files give `max_levels`; None if more than these are needed."""
    if max_levels is None:
        return None
    so_far = accumulate(entry.n_levels for entry in entries)
    return next((i for i, n in enumerate(so_far, 1) if n >= max_levels), None)


def source_of(path: Path, files: Sequence[Path]) -> str:
    """What messages and manifests call levels read from these files of `path`."""
    kind = "boxoban" if all(file.suffix == ".txt" for file in files) else "levels"
    names = path.resolve().parts
    if path.is_file():
        return f"{kind}:{'/'.join(names[-3:])}"
    return f"{kind}:{'/'.join(names[-2:])} ({len(files)} files)"


def split_path(root: Path | str, split: str) -> Path:
    """The directory or file under `root` that holds the levels of `split`.

    A `root` that is itself a file, or a directory of level files without splits (as
    Boxoban's ``hard``), serves as its own ``test`` split and has no other.

    Args:
        root: a level file, or a directory such as ``boxoban-levels/unfiltered``.
        split: ``train``, ``valid`` or ``test``.

    Raises:
        DataError: what is missing, and what to do about it.
    """
    root = Path(root)
    if not root.exists():
        raise DataError(f"{root}: no such file or directory of levels")
    found = _found(root, split)
    if len(found) > 1:
        raise DataError(
            f"{root}: split {split!r} is both {found[0].name} and {found[1].name}: "
            "keep one of them"
        )
    if found:
        return found[0]
    present = present_splits(root)
    if not present:
        return _whole(root, split)
    raise DataError(
        f"{root}: no {split!r} split (found {', '.join(present)}): add level files as "
        f"{root / split / '000.txt'} or choose another collection"
    )


def present_splits(root: Path) -> list[str]:
    """Which of train, valid and test are directories or files in `root`."""
    return [split for split in SPLITS if _found(root, split)]


def _found(root: Path, split: str) -> list[Path]:
    """The directory and the files that may hold a split, those that exist."""
    names = (split, *(f"{split}{suffix}" for suffix in SUFFIXES))
    return [root / name for name in names if (root / name).exists()]


def _whole(root: Path, split: str) -> Path:
    """`root` as its own test split, if it holds levels and no collections."""
    if root.is_dir():
        collections = [
            child
            for child in sorted(root.iterdir())
            if child.is_dir() and present_splits(child)
        ]
        if collections:
            raise DataError(
                f"{root}: no {split!r} split here: name one collection, such as "
                f"{collections[-1]}"
            )
        if not any(_walk(root)):
            raise DataError(
                f"{root}: no {split!r} split (found nothing): add level files as "
                f"{root / split / '000.txt'} or choose another collection"
            )
    if split == "test":
        return root
    folder = root if root.is_dir() else root.parent
    raise DataError(
        f"{root}: levels without splits are a test split only, not {split!r}: put "
        f"files in {folder / split} to train on them"
    )


def _walk(path: Path) -> Iterator[Path]:
    """Level files below a directory, links to directories followed once each."""
    entered: set[str] = set()
    for folder, folders, names in os.walk(path, onerror=_refuse, followlinks=True):
        entered.add(os.path.realpath(folder))
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and os.path.realpath(Path(folder, name)) not in entered
        ]
        for name in names:
            if Path(name).suffix.lower() in SUFFIXES and not name.startswith("."):
                yield Path(folder, name)


def _refuse(error: OSError) -> None:
    raise DataError(f"{error.filename}: cannot be read: {error.strerror}") from error
