"""Shards: files of tokens as llm.c and modded-nanogpt write and read them.

256 little-endian int32 (magic 20240520, version 1, number of tokens, zeros), then the
tokens as little-endian uint16.
"""

import os
import tempfile
from pathlib import Path
from typing import Protocol

import numpy as np

from allocsearch.errors import DataError

MAGIC, VERSION = 20240520, 1
HEADER_BYTES = 1024
LARGEST_VOCABULARY = 2**16
_READS_PER_MAPPING = 4096


class Shard(Protocol):
    """Tokens that can be read piece by piece."""

    @property
    def n_tokens(self) -> int:
        """How many there are."""
        ...

    def read(self, start: int, n: int) -> np.ndarray:
        """Tokens `start` to `start + n`, int32; fewer where the shard ends."""
        ...

    def rows(self, start: int, stride: int, n_rows: int, n: int) -> np.ndarray:
        """Stretches of n tokens, int32 [n_rows, n], from `start` on every `stride`.

        All must lie in the shard.
        """
        ...


class ArrayShard:
    """A shard in memory."""

    def __init__(self, tokens: np.ndarray):
        """From tokens, integers [n]."""
        self._tokens = tokens.astype(np.uint16)

    @property
    def n_tokens(self) -> int:
        """See `Shard`."""
        return len(self._tokens)

    def read(self, start: int, n: int) -> np.ndarray:
        """See `Shard`."""
        return self._tokens[start : start + n].astype(np.int32)

    def rows(self, start: int, stride: int, n_rows: int, n: int) -> np.ndarray:
        """See `Shard`."""
        return _rows(self._tokens[start:], stride, n_rows, n)


class MappedShard:
    """A shard file, mapped into memory when it is first read."""

    def __init__(self, path: Path):
        """From a sound shard file.

        Raises:
            DataError: as `count_tokens`.
        """
        self.path = path
        self._n_tokens = count_tokens(path)
        self._mapping: np.ndarray | None = None
        self._n_reads = 0

    @property
    def n_tokens(self) -> int:
        """See `Shard`."""
        return self._n_tokens

    def read(self, start: int, n: int) -> np.ndarray:
        """See `Shard`."""
        return self._tokens()[start : start + n].astype(np.int32)

    def rows(self, start: int, stride: int, n_rows: int, n: int) -> np.ndarray:
        """See `Shard`."""
        return _rows(self._tokens()[start:], stride, n_rows, n)

    def _tokens(self) -> np.ndarray:
        # Pages once read stay resident for as long as a mapping lives.
        if self._mapping is None or self._n_reads >= _READS_PER_MAPPING:
            self._mapping, self._n_reads = map_tokens(self.path), 0
        self._n_reads += 1
        return self._mapping


class PartOfShard:
    """Consecutive tokens of another shard."""

    def __init__(self, whole: Shard, start: int, n_tokens: int):
        """Tokens `start` to `start + n_tokens` of `whole`."""
        self.whole, self.start = whole, start
        self._n_tokens = n_tokens

    @property
    def n_tokens(self) -> int:
        """See `Shard`."""
        return self._n_tokens

    def read(self, start: int, n: int) -> np.ndarray:
        """See `Shard`."""
        n = max(0, min(n, self._n_tokens - start))
        return self.whole.read(self.start + start, n)

    def rows(self, start: int, stride: int, n_rows: int, n: int) -> np.ndarray:
        """See `Shard`."""
        _check_rows(self._n_tokens - start, stride, n_rows, n)
        return self.whole.rows(self.start + start, stride, n_rows, n)


def _rows(tokens: np.ndarray, stride: int, n_rows: int, n: int) -> np.ndarray:
    _check_rows(len(tokens), stride, n_rows, n)
    strides = (stride * tokens.itemsize, tokens.itemsize)
    view = np.lib.stride_tricks.as_strided(tokens, (n_rows, n), strides)
    return view.astype(np.int32)


def _check_rows(n_tokens: int, stride: int, n_rows: int, n: int) -> None:
    if stride * (n_rows - 1) + n > n_tokens:
        raise IndexError("rows beyond the end of a shard")


def count_tokens(path: Path) -> int:
    """The number of tokens in a shard file, whose header and size are checked.

    Raises:
        DataError: it cannot be read, is no shard, or is cut short.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(HEADER_BYTES)
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if not head:
        raise DataError(f"{path}: an empty file, not a shard of tokens")
    if len(head) < HEADER_BYTES:
        raise DataError(
            f"{path}: {size} bytes, but the header of a shard alone has {HEADER_BYTES}"
        )
    magic, version, n_tokens = (int(x) for x in np.frombuffer(head, "<i4", 3))
    if magic != MAGIC:
        raise DataError(
            f"{path}: not a shard of tokens: its first number is {magic}, that of "
            f"llm.c's format {MAGIC}"
        )
    if version != VERSION:
        raise DataError(
            f"{path}: version {version} of the shard format; only {VERSION} "
            "(uint16 tokens) can be read"
        )
    if size != HEADER_BYTES + 2 * n_tokens:
        raise DataError(
            f"{path}: its header promises {n_tokens} tokens, "
            f"{HEADER_BYTES + 2 * n_tokens} bytes, but it has {size} bytes: "
            "copy or make it again"
        )
    return n_tokens


def map_tokens(path: Path) -> np.ndarray:
    """The tokens of a sound shard file, uint16 [n], mapped into memory."""
    if path.stat().st_size == HEADER_BYTES:
        return np.zeros(0, np.uint16)
    # A plain view: slicing the subclass takes ten times as long.
    return np.memmap(path, "<u2", "r", offset=HEADER_BYTES).view(np.ndarray)


def header(n_tokens: int) -> bytes:
    """The header of a shard of `n_tokens`."""
    numbers = np.zeros(HEADER_BYTES // 4, "<i4")
    numbers[:3] = MAGIC, VERSION, n_tokens
    return numbers.tobytes()


def write_shard(path: Path, tokens: np.ndarray) -> None:
    """Write a shard file, whole or not at all.

    Args:
        path: the file; one that exists is replaced.
        tokens: uint16 [n].

    Raises:
        OSError: it cannot be written.
    """
    little = np.ascontiguousarray(tokens, "<u2")
    write_whole(path, header(len(tokens)), little.data)


def write_whole(path: Path, *parts: bytes | memoryview) -> None:
    """Write a file so that a crash leaves the old one or the new, never a part.

    Raises:
        OSError: it cannot be written.
    """
    handle, fresh = tempfile.mkstemp(dir=path.parent, suffix=".new")
    try:
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(fresh, 0o644)
        os.replace(fresh, path)
    except OSError:
        Path(fresh).unlink(missing_ok=True)
        raise
