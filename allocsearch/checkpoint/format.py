"""One step of a checkpoint: the arrays' bytes in one file, and what they are.

`arrays.bin` has the bytes of every array, one after the other. `manifest.json` has
for each array its path in the tree, shape, dtype, place in the file and SHA-256,
beside metadata, versions and a hash of its own; it is written last. Nothing in either
is code, and no name in them is looked up or imported.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from allocsearch.checkpoint.stores import Store
from allocsearch.errors import CheckpointError
from allocsearch.version import __version__

FORMAT = 2
ARRAYS, MANIFEST = "arrays.bin", "manifest.json"

_PIECE = 2**22


@dataclass(frozen=True)
class Snapshot:
    """The arrays of a tree on the host, and what is to be said of them.

    Attributes:
        leaves: by path in the tree.
        metadata: JSON text.
    """

    leaves: dict[str, np.ndarray]
    metadata: str

    @property
    def nbytes(self) -> int:
        """About what it will take on a disk."""
        arrays = sum(leaf.nbytes for leaf in self.leaves.values())
        return arrays + len(self.metadata) + 512 * (len(self.leaves) + 8)


def snapshot(tree: PyTree, metadata: Mapping[str, Any]) -> Snapshot:
    """Arrays of a tree brought to the host; a CPU's are not copied.

    JAX does not reuse the memory of an array that NumPy looks at, so what training
    does next leaves the snapshot alone.

    Args:
        tree: any pytree; leaves that are no arrays are left out.
        metadata: JSON-ready values.
    """
    text = json.dumps(dict(metadata))
    leaves = _raw_leaves(eqx.filter(tree, eqx.is_array))
    for leaf in leaves.values():
        leaf.copy_to_host_async()
    return Snapshot({path: np.asarray(leaf) for path, leaf in leaves.items()}, text)


def write_step(store: Store, step: str, taken: Snapshot) -> None:
    """Write a snapshot as a step."""
    entries: dict[str, Any] = {}
    store.write(
        step,
        {
            ARRAYS: partial(_write_arrays, taken=taken, entries=entries),
            MANIFEST: partial(_write_manifest, taken=taken, entries=entries),
        },
    )


def _write_arrays(file: IO[bytes], *, taken: Snapshot, entries: dict[str, Any]) -> None:
    offset = 0
    for path, leaf in taken.leaves.items():
        digest = hashlib.sha256()
        # Bytes, because not every writer knows bfloat16.
        raw = np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)
        for start in range(0, raw.size, _PIECE):
            piece = raw[start : start + _PIECE].data
            digest.update(piece)
            file.write(piece)
        entries[path] = {
            "shape": list(leaf.shape),
            "dtype": str(leaf.dtype),
            "offset": offset,
            "nbytes": raw.size,
            "sha256": digest.hexdigest(),
        }
        offset += raw.size


def _write_manifest(
    file: IO[bytes], *, taken: Snapshot, entries: dict[str, Any]
) -> None:
    body = {
        "format": FORMAT,
        "allocsearch": __version__,
        "jax": jax.__version__,
        "metadata": json.loads(taken.metadata),
        "leaves": entries,
    }
    manifest = {**body, "manifest_sha256": _digest_json(body)}
    file.write(json.dumps(manifest, indent=1).encode())


@dataclass(frozen=True)
class Checkpoint:
    """One step, whole when it was opened.

    Attributes:
        manifest: versions, metadata and what the arrays are.
    """

    manifest: dict[str, Any]
    _store: Store
    _step: str

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self._store.name}/{self._step}"

    @property
    def metadata(self) -> dict[str, Any]:
        """The values kept beside the arrays."""
        return self.manifest["metadata"]

    def restore(self, template: PyTree, *, partial: bool = False) -> PyTree:
        """Read a tree of the same structure as a template.

        Args:
            template: gives structure, shapes, dtypes and what is not an array.
            partial: whether the checkpoint may hold more than the template.

        Returns:
            The template with the stored arrays in it.

        Raises:
            CheckpointError: it is for another tree, or was damaged meanwhile.
        """
        arrays, static = eqx.partition(template, eqx.is_array)
        wanted = _leaves_by_path(arrays)
        entries = self.manifest["leaves"]
        odd = set(wanted) - set(entries) if partial else set(wanted) ^ set(entries)
        if odd:
            raise self._foreign(f"they differ at {min(odd)}")
        plain = _raw_leaves(arrays)
        for path, leaf in plain.items():
            self._check_kind(path, leaf)
        with _reading(self.name), self._store.open(self._step, ARRAYS) as file:
            leaves = [
                self._read(file, path, plain[path], leaf)
                for path, leaf in wanted.items()
            ]
        treedef = jax.tree_util.tree_structure(arrays)
        return eqx.combine(jax.tree_util.tree_unflatten(treedef, leaves), static)

    def _check_kind(self, path: str, leaf: Any) -> None:
        entry = self.manifest["leaves"][path]
        if [*leaf.shape] != entry["shape"] or str(leaf.dtype) != entry["dtype"]:
            raise self._foreign(
                f"{path} is {entry['dtype']}{entry['shape']}, not "
                f"{leaf.dtype}{[*leaf.shape]}"
            )
        if entry["nbytes"] != leaf.nbytes:
            raise _damaged(self.name, f"{path} has {entry['nbytes']} bytes")

    def _foreign(self, what: str) -> CheckpointError:
        return CheckpointError(f"checkpoint {self.name} is for another network: {what}")

    def _read(self, file: IO[bytes], path: str, plain: Any, leaf: Any) -> Any:
        entry = self.manifest["leaves"][path]
        raw = np.empty(entry["nbytes"], np.uint8)
        digest = hashlib.sha256()
        filled = 0
        for piece in _pieces(file, entry):
            digest.update(piece)
            raw[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
            filled += len(piece)
        if filled != raw.size or digest.hexdigest() != entry["sha256"]:
            raise _damaged(self.name, f"{path} does not match its hash")
        # The template's dtype: equal to the stored one, and no name is looked up.
        value = jnp.asarray(raw.view(plain.dtype).reshape(plain.shape))
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(value, impl=jax.random.key_impl(leaf))
        return value


def open_step(store: Store, step: str) -> Checkpoint:
    """A step whose every byte is what was written.

    Raises:
        CheckpointError: missing, damaged or of another version.
    """
    name = f"{store.name}/{step}"
    with _reading(name), store.open(step, MANIFEST) as file:
        manifest = _checked(file.read(), name)
    with _reading(name), store.open(step, ARRAYS) as file:
        for path, entry in manifest["leaves"].items():
            digest = hashlib.sha256()
            for piece in _pieces(file, entry):
                digest.update(piece)
            if digest.hexdigest() != entry["sha256"]:
                raise _damaged(name, f"{path} does not match its hash")
    return Checkpoint(manifest, store, step)


def _checked(text: bytes, name: str) -> dict[str, Any]:
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(name, "its manifest is not JSON") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        made = manifest.get("allocsearch") if isinstance(manifest, dict) else None
        by = f" (it was written by {made!r})" if isinstance(made, str) else ""
        raise CheckpointError(
            f"checkpoint {name} has another format than this version ({__version__}) "
            f"reads{by}"
        )
    body = {k: v for k, v in manifest.items() if k != "manifest_sha256"}
    if _digest_json(body) != manifest.get("manifest_sha256"):
        raise _damaged(name, "its manifest does not match its hash")
    if not _is_well_formed(manifest):
        raise _damaged(name, "its manifest lacks what one must have")
    return manifest


def _is_well_formed(manifest: dict[str, Any]) -> bool:
    leaves, metadata = manifest.get("leaves"), manifest.get("metadata")
    if not isinstance(leaves, dict) or not isinstance(metadata, dict):
        return False
    return all(_is_entry(entry) for entry in leaves.values())


def _is_entry(entry: Any) -> bool:
    kinds = {"shape": list, "dtype": str, "offset": int, "nbytes": int, "sha256": str}
    return (
        isinstance(entry, dict)
        and all(isinstance(entry.get(name), kind) for name, kind in kinds.items())
        and all(entry[name] >= 0 for name in ("offset", "nbytes"))
    )


def _pieces(file: IO[bytes], entry: Mapping[str, Any]) -> Iterator[bytes]:
    file.seek(entry["offset"])
    left = entry["nbytes"]
    while left and (piece := file.read(min(left, _PIECE))):
        left -= len(piece)
        yield piece


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turn what a damaged or missing file throws into a CheckpointError."""
    try:
        yield
    except CheckpointError:
        raise
    except FileNotFoundError as error:
        raise _damaged(name, "a file is missing") from error
    except Exception as error:  # a file system of fsspec may raise anything
        raise _damaged(name, "its files cannot be read") from error


def _damaged(name: str, what: str) -> CheckpointError:
    return CheckpointError(f"checkpoint {name} is damaged: {what}")


def _leaves_by_path(arrays: PyTree) -> dict[str, Any]:
    paths, _ = jax.tree_util.tree_flatten_with_path(arrays)
    return {jax.tree_util.keystr(path): leaf for path, leaf in paths}


def _raw_leaves(arrays: PyTree) -> dict[str, Any]:
    """Leaves by path, keys of randomness as the numbers they are made of."""
    return {path: _plain(leaf) for path, leaf in _leaves_by_path(arrays).items()}


def _plain(leaf: Any) -> Any:
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def _digest_json(values: Any) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
