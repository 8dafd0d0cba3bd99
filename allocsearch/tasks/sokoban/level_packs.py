"""Levels as bits, and packs of them kept on disk so that large sets load at once.

A packed level is its walls, goals and boxes within the border, a bit a square, and
the player's square: 25 bytes for the 8x8 interior of a Boxoban level. In memory and
on the device levels stay a byte a square (`LevelSet`): 90 MB for 900 000 of Boxoban's,
and a reset copies one row instead of unpacking bits.

A pack is a cache of level files, keyed by their paths, sizes and times. Its SHA-256
is checked before anything in it is believed, so that a damaged or stale one is only
ever rebuilt.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from allocsearch.errors import DataError
from allocsearch.tasks.caching import cache_directory
from allocsearch.tasks.sokoban.board_text import BOX, GOAL, WALL
from allocsearch.tasks.sokoban.level_files import (
    FileEntry,
    check_most,
    level_files,
    n_needed,
    read_files,
    source_of,
)
from allocsearch.tasks.sokoban.level_notes import LevelNotes, Solution
from allocsearch.tasks.sokoban.levels import LevelSet, largest

MIN_BYTES = 4 * 2**20
"""Files of less text in all are parsed in moments and not packed unasked."""

# The number counts up when a text comes to be read, or a level packed, otherwise.
_MAGIC = b"allocsearch levels 2\n"
_BITS = (WALL, GOAL, BOX)
_LEVELS_AT_ONCE = 2**15


@dataclass(frozen=True)
class Pack:
    """Packed levels of a list of files, with what each file gave.

    Attributes:
        bits: uint8 `[N, bytes]`, as from `pack`.
        shape: board height and width.
        entries: one a file, in order.
        notes: what the files say about the levels, one each or none.
    """

    bits: np.ndarray
    shape: tuple[int, int]
    entries: tuple[FileEntry, ...]
    notes: tuple[LevelNotes, ...] = ()


def pack(levels: LevelSet) -> np.ndarray:
    """Levels as bits: uint8 `[N, bytes]`.

    Raises:
        DataError: some border square is not a wall.
    """
    inner = levels.interior()
    flat = inner.boards.reshape(len(inner), -1)
    planes = [np.packbits((flat & bit) != 0, axis=1) for bit in _BITS]
    players = inner.players.astype(_player_type(flat.shape[1]))
    return np.concatenate([*planes, players[:, None].view(np.uint8)], axis=1)


def unpack(bits: np.ndarray, shape: tuple[int, int], source: str) -> LevelSet:
    """The levels of `pack`.

    Args:
        bits: uint8 `[N, bytes]`.
        shape: board height and width, the border included.
        source: what the set is to be called.
    """
    n_levels = len(bits)
    height, width = shape[0] - 2, shape[1] - 2
    n_squares = height * width
    n_bytes = -(-n_squares // 8)
    boards = np.full((n_levels, *shape), WALL, np.uint8)
    for start in range(0, n_levels, _LEVELS_AT_ONCE):
        some = slice(start, start + _LEVELS_AT_ONCE)
        codes = np.zeros((len(bits[some]), n_squares), np.uint8)
        for index, bit in enumerate(_BITS):
            plane = bits[some, index * n_bytes : (index + 1) * n_bytes]
            codes |= np.unpackbits(plane, axis=1, count=n_squares) * np.uint8(bit)
        boards[some, 1:-1, 1:-1] = codes.reshape(-1, height, width)
    kind = _player_type(n_squares)
    players = np.ascontiguousarray(bits[:, len(_BITS) * n_bytes :]).view(kind)[:, 0]
    rows, columns = np.divmod(players.astype(np.int32), np.int32(width))
    return LevelSet(boards, (rows + 1) * np.int32(shape[1]) + columns + 1, source)


def load_levels(
    path: Path | str, *, max_levels: int | None = None, min_bytes: int = MIN_BYTES
) -> LevelSet:
    """As `read_levels`, from a pack where there is a fresh one.

    Reading all of a large set leaves a pack for the next time; where it cannot be
    written, the levels are returned all the same.

    Args:
        path: a level file, or a directory of them.
        max_levels: as `read_levels` takes it.
        min_bytes: size of the files from which on a pack is worth its place.

    Raises:
        DataError: as `read_levels`.
    """
    path = Path(path)
    check_most(max_levels)
    files = level_files(path)
    key = fingerprint(files)
    stored = read_pack(pack_path(files), key)
    if stored is not None:
        return _first(stored, path, files, max_levels)
    levels, entries = read_files(files, path, max_levels)
    if max_levels is None and sum(file.stat().st_size for file in files) >= min_bytes:
        with suppress(OSError):
            write_pack(files, key, levels, entries)
    return levels


def packed_shape(
    path: Path | str, max_levels: int | None = None
) -> tuple[int, int] | None:
    """The board size that `load_levels` would give, if a fresh pack tells it.

    Raises:
        DataError: the path is missing or holds no level files.
    """
    files = level_files(Path(path))
    check_most(max_levels)
    stored = read_pack(pack_path(files), fingerprint(files))
    return None if stored is None else _shape_of(stored, max_levels)


def pack_path(files: Sequence[Path]) -> Path:
    """Where the pack of these files is or would be."""
    names = "\n".join(str(file.resolve()) for file in files)
    name = hashlib.sha256(names.encode(errors="surrogateescape")).hexdigest()[:32]
    return cache_directory() / "levels" / f"{name}.pack"


def fingerprint(files: Sequence[Path]) -> str:
    """What changes when a file does: names, sizes and times of modification."""
    content = hashlib.sha256()
    for file in files:
        try:
            found = file.stat()
        except OSError as error:
            raise DataError(f"{file}: cannot be read: {error.strerror}") from error
        line = f"{file.name}\n{found.st_size}\n{found.st_mtime_ns}\n"
        content.update(line.encode(errors="surrogateescape"))
    return content.hexdigest()


def write_pack(
    files: Sequence[Path], key: str, levels: LevelSet, entries: Sequence[FileEntry]
) -> Path:
    """Write the pack of these files, whole or not at all.

    Args:
        files: where the levels come from.
        key: their fingerprint from before they were read.
        levels: all their levels.
        entries: what each file gave.

    Raises:
        OSError: the cache directory cannot be written.
    """
    path = pack_path(files)
    bits = pack(levels)
    header = {
        "key": key,
        "shape": levels.shape,
        "bits": bits.shape,
        "files": [[entry.n_levels, *entry.shape] for entry in entries],
        "notes": [astuple(notes) for notes in levels.notes],
    }
    body = json.dumps(header).encode() + b"\n" + bits.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(dir=path.parent, suffix=".new")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + hashlib.sha256(body).digest())
            file.write(body)
        os.replace(fresh, path)
    except OSError:
        Path(fresh).unlink(missing_ok=True)
        raise
    return path


def read_pack(path: Path, key: str) -> Pack | None:
    """A pack, or None if it is missing, damaged, or of files that have changed."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    head = len(_MAGIC) + hashlib.sha256().digest_size
    body = memoryview(content)[head:]
    if content[:head] != _MAGIC + hashlib.sha256(body).digest():
        return None
    end = content.index(b"\n", head)
    header: dict[str, Any] = json.loads(content[head:end])
    if header["key"] != key:
        return None
    bits = np.frombuffer(content, np.uint8, offset=end + 1).reshape(header["bits"])
    height, width = header["shape"]
    entries = tuple(FileEntry(n, (h, w)) for n, h, w in header["files"])
    notes = tuple(
        LevelNotes(title, author, tuple(Solution(*saved) for saved in solutions))
        for title, author, solutions in header["notes"]
    )
    return Pack(bits, (height, width), entries, notes)


def _first(
    stored: Pack, path: Path, files: Sequence[Path], max_levels: int | None
) -> LevelSet:
    """What `read_files` would read, from a pack of all files."""
    n_files = n_needed(stored.entries, max_levels) or len(files)
    source = source_of(path, files[:n_files])
    levels = unpack(stored.bits[:max_levels], stored.shape, source)
    levels = replace(levels, notes=stored.notes[:max_levels])
    return levels.cropped(_shape_of(stored, max_levels))


def _shape_of(stored: Pack, max_levels: int | None) -> tuple[int, int]:
    """The size that holds all boards of the files that give that many levels."""
    n_files = n_needed(stored.entries, max_levels) or len(stored.entries)
    return largest([entry.shape for entry in stored.entries[:n_files]])


def _player_type(n_squares: int) -> np.dtype:
    return np.dtype("u1" if n_squares <= 256 else "<u2")
