"""The manifest of a folder of shards: what they were made from, and how far it got."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from allocsearch.errors import DataError
from allocsearch.tasks.fineweb.scans import scan_shard
from allocsearch.tasks.fineweb.shards import write_whole

try:
    import fcntl
except ImportError:  # Windows has none; two writers at once are then not noticed
    fcntl = None

MANIFEST = "manifest.json"
_FORMAT = "allocsearch shards 1"


@dataclass(frozen=True)
class ShardRecord:
    """A finished shard.

    Attributes:
        name: its file, in the manifest's folder.
        split: "train" or "valid".
        n_tokens: how many it holds.
        sha256: of the file.
    """

    name: str
    split: str
    n_tokens: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a folder of shards holds.

    Attributes:
        recipe: everything that decides the tokens, JSON-ready.
        shards: those finished, in order.
        n_documents: documents begun in them.
        place: where to read on; None before the first shard.
        complete: whether all is read.
    """

    recipe: Mapping[str, Any]
    shards: tuple[ShardRecord, ...] = ()
    n_documents: int = 0
    place: Mapping[str, Any] | None = None
    complete: bool = False
    format: str = field(default=_FORMAT)

    @property
    def tokenizer(self) -> Mapping[str, Any]:
        """Name, size and digest of the tokenizer."""
        return self.recipe["tokenizer"]

    def n_tokens(self, split: str) -> int:
        """Tokens of a split in finished shards."""
        return sum(shard.n_tokens for shard in self.shards if shard.split == split)


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; None if it has none.

    Raises:
        DataError: it is damaged or of another version.
    """
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        values = json.loads(content)
        if values.get("format") != _FORMAT:
            raise DataError(
                f"{path}: not a manifest of shards, or of another version; expected "
                f"{_FORMAT!r}, received {values.get('format')!r}"
            )
        values["shards"] = tuple(ShardRecord(**shard) for shard in values["shards"])
        manifest = Manifest(**values)
        manifest.tokenizer["sha256"]
    except DataError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{path}: damaged: {error}") from error
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a folder's manifest, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    content = json.dumps(asdict(manifest), indent=1, ensure_ascii=False)
    write_whole(folder / MANIFEST, content.encode(errors="surrogateescape"))


def begin(folder: Path, recipe: Mapping[str, Any]) -> Manifest:
    """The manifest to work on: that of the folder if there is one, or a fresh one.

    What an interrupted writer left half-done is removed.

    Raises:
        DataError: the folder's shards are of another recipe, or changed or are gone.
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("*.new"):
        left.unlink(missing_ok=True)
    manifest = read_manifest(folder)
    if manifest is None:
        fresh = Manifest(recipe)
        write_manifest(folder, fresh)
        return fresh
    check_recipe(folder, manifest, recipe)
    check_shards(folder, manifest)
    return manifest


def discard(folder: Path, manifest: Manifest) -> None:
    """Remove a manifest and its shards, so that the folder can be begun anew.

    Raises:
        OSError: they cannot be removed.
    """
    (folder / MANIFEST).unlink(missing_ok=True)
    for shard in manifest.shards:
        (folder / shard.name).unlink(missing_ok=True)


def check_recipe(folder: Path, manifest: Manifest, recipe: Mapping[str, Any]) -> None:
    """Refuse to go on with other data or settings.

    Raises:
        DataError: something differs; the message names what.
    """
    old, new = _flat(manifest.recipe), _flat(json.loads(json.dumps(recipe)))
    # The same vocabulary may lie elsewhere now; its digest is compared.
    keys = [key for key in {**old, **new} if key != "tokenizer.name"]
    differing = [key for key in keys if old.get(key) != new.get(key)]
    if not differing:
        return
    key = differing[0]
    more = f" (and {len(differing) - 1} more)" if len(differing) > 1 else ""
    raise DataError(
        f"{folder}: its shards are made from other data or settings: {key} was "
        f"{old.get(key, 'absent')!r} and is now {new.get(key, 'absent')!r}{more}: "
        "repeat what made them, or choose another folder"
    )


def check_shards(folder: Path, manifest: Manifest) -> None:
    """Refuse shards that are not those the manifest tells of.

    Raises:
        DataError: one is missing, broken or changed.
    """
    for shard in manifest.shards:
        problem = shard_problem(folder, shard)
        if problem:
            raise DataError(problem)


def shard_problem(folder: Path, shard: ShardRecord, fresh: bool = False) -> str:
    """What is wrong with a shard, or an empty string; `fresh` as in `scan_shard`."""
    path = folder / shard.name
    if not path.exists():
        return f"{path}: the manifest beside it tells of this shard, but it is missing"
    try:
        scan = scan_shard(path, fresh=fresh)
    except DataError as error:
        return str(error)
    if scan.sha256 != shard.sha256:
        return (
            f"{path}: has changed since it was made (its SHA-256 is not the "
            "manifest's): make it again"
        )
    return ""


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """While no other process writes into a folder.

    Args:
        folder: is made if missing.
        wait: whether to wait for another process.

    Raises:
        DataError: another process writes, and it is not to be waited for.
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError as error:
                raise DataError(
                    f"{folder}: another process is writing shards there: wait for it, "
                    "or choose another folder"
                ) from error
        yield


def _flat(values: Any, key: str = "") -> dict[str, Any]:
    """Nested values by dotted path."""
    if isinstance(values, Mapping):
        inner = [(f"{key}.{k}" if key else k, v) for k, v in values.items()]
    elif isinstance(values, list | tuple):
        inner = [(f"{key}[{i}]", v) for i, v in enumerate(values)]
    else:
        return {key: values}
    flat: dict[str, Any] = {}
    for name, value in inner:
        flat |= _flat(value, name)
    return flat
