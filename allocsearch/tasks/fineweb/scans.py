"""Digests of large files, remembered while size and time of the file are the same."""

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from allocsearch.errors import DataError
from allocsearch.tasks.caching import cache_directory
from allocsearch.tasks.fineweb.shards import (
    HEADER_BYTES,
    count_tokens,
    header,
    map_tokens,
    write_whole,
)

_CHUNK = 2**24
_WORTH_REMEMBERING = 2**20


@dataclass(frozen=True)
class Scan:
    """What reading all of a file once tells.

    Attributes:
        n_bytes: its size.
        sha256: of all its bytes, in hexadecimal.
        largest_token: of a shard with tokens, otherwise -1.
    """

    n_bytes: int
    sha256: str
    largest_token: int = -1


def scan_file(path: Path) -> Scan:
    """Size and digest of any file.

    Raises:
        DataError: it cannot be read.
    """
    return _remembered(path, shard=False)


def scan_shard(path: Path, fresh: bool = False) -> Scan:
    """Size, digest and largest token of a shard.

    Args:
        path: the shard file.
        fresh: read it, whatever is remembered.

    Raises:
        DataError: it cannot be read or is no sound shard.
    """
    return _remembered(path, shard=True, fresh=fresh)


def scan_tokens(tokens: np.ndarray) -> Scan:
    """As `scan_shard` would find them in a file: uint16 [n]."""
    content = hashlib.sha256(header(len(tokens)))
    content.update(tokens.astype("<u2").tobytes())
    largest = int(tokens.max()) if len(tokens) else -1
    return Scan(HEADER_BYTES + 2 * len(tokens), content.hexdigest(), largest)


def _remembered(path: Path, shard: bool, fresh: bool = False) -> Scan:
    n_tokens = count_tokens(path) if shard else -1
    try:
        state = path.stat()
        key = [str(path.resolve()), shard, state.st_size, state.st_mtime_ns]
        stored = None if fresh else _read_note(key)
        if stored is not None:
            return stored
        scan = _scan(path, n_tokens)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if scan.n_bytes >= _WORTH_REMEMBERING:
        with suppress(OSError):
            _write_note(key, scan)
    return scan


def _scan(path: Path, n_tokens: int) -> Scan:
    content = hashlib.sha256()
    n_bytes = 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            content.update(chunk)
            n_bytes += len(chunk)
    largest = -1
    if n_tokens > 0:
        tokens = map_tokens(path)
        largest = max(
            int(tokens[start : start + _CHUNK].max())
            for start in range(0, n_tokens, _CHUNK)
        )
    return Scan(n_bytes, content.hexdigest(), largest)


def _note_path(key: list) -> Path:
    name = hashlib.sha256(f"{key[0]}\n{key[1]}".encode(errors="surrogateescape"))
    return cache_directory() / "scans" / f"{name.hexdigest()[:32]}.json"


def _read_note(key: list) -> Scan | None:
    """What is remembered of a file as it is now, if anything is."""
    try:
        note = json.loads(_note_path(key).read_bytes())
        return Scan(**note["scan"]) if note["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_note(key: list, scan: Scan) -> None:
    path = _note_path(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    note = {"key": key, "scan": asdict(scan)}
    write_whole(path, json.dumps(note).encode(errors="surrogateescape"))
