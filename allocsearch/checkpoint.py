"""Checkpoints: arrays by their path in the tree, hashed, written whole or not at all.

A checkpoint is a folder with `arrays.npz` and `manifest.json`. It is made beside its
place and renamed into it, so a reader finds the old one or the new one. Nothing in it
is code, and nothing is unpickled.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jaxtyping import PyTree

from allocsearch.errors import CheckpointError, StudyError
from allocsearch.version import __version__

FORMAT = 1


def save(directory: Path, tree: PyTree, metadata: Mapping[str, Any]) -> None:
    """Write the arrays of a tree.

    Args:
        directory: the checkpoint's own folder; one that is there is replaced.
        tree: any pytree; leaves that are no arrays are left out.
        metadata: JSON-ready values kept beside the arrays.

    Raises:
        StudyError: the disk is full or cannot be written; what was there stays.
    """
    fresh = directory.with_name(directory.name + ".new")
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        _write(fresh, tree, metadata)
        _put_in_place(fresh, directory)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise StudyError(
            f"checkpoint {directory} cannot be written: {error.strerror or error}"
        ) from error


def load(directory: Path, template: PyTree, *, partial: bool = False) -> PyTree:
    """Read a tree of the same structure as a template.

    Args:
        directory: where `save` wrote.
        template: gives structure, shapes, dtypes and what is not an array.
        partial: whether the checkpoint may hold more than the template.

    Returns:
        The template with the stored arrays in it.

    Raises:
        CheckpointError: missing, damaged, of another version or for another tree.
    """
    directory = _present(directory)
    manifest = read_manifest(directory)
    arrays, static = eqx.partition(template, eqx.is_array)
    paths, treedef = jax.tree_util.tree_flatten_with_path(arrays)
    wanted = {jax.tree_util.keystr(path): leaf for path, leaf in paths}
    entries = manifest["leaves"]
    odd = set(wanted) - set(entries) if partial else set(wanted) ^ set(entries)
    if odd:
        raise CheckpointError(
            f"checkpoint {directory} is for another network: they differ at {min(odd)}"
        )
    stored = _read_arrays(directory, manifest)
    leaves = [
        _restore(directory, path, stored[path], entries[path], leaf)
        for path, leaf in wanted.items()
    ]
    return eqx.combine(jax.tree_util.tree_unflatten(treedef, leaves), static)


def exists(directory: Path) -> bool:
    """Whether there is a checkpoint, whole or damaged."""
    return (directory / "manifest.json").exists() or _old(directory).exists()


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest: version, metadata and the leaves' shapes and hashes.

    Raises:
        CheckpointError: missing, damaged or of another version.
    """
    directory = _present(directory)
    path = directory / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint at {directory}") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"checkpoint {directory} is damaged: its manifest cannot be read"
        ) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"checkpoint {directory} has another format than this version "
            f"({__version__}) reads"
        )
    body = {k: v for k, v in manifest.items() if k != "manifest_sha256"}
    if _digest_json(body) != manifest.get("manifest_sha256"):
        raise CheckpointError(
            f"checkpoint {directory} is damaged: its manifest does not match its hash"
        )
    return manifest


def _write(fresh: Path, tree: PyTree, metadata: Mapping[str, Any]) -> None:
    arrays = eqx.filter(tree, eqx.is_array)
    paths, _ = jax.tree_util.tree_flatten_with_path(arrays)
    data = {jax.tree_util.keystr(path): _plain(leaf) for path, leaf in paths}
    leaves = {
        path: {
            "shape": list(value.shape),
            "dtype": str(value.dtype),
            "sha256": hashlib.sha256(value.tobytes()).hexdigest(),
        }
        for path, value in data.items()
    }
    # Raw bytes: the npy format does not know bfloat16.
    names = {path: f"leaf{i}" for i, path in enumerate(data)}
    for path, name in names.items():
        leaves[path]["name"] = name
    with open(fresh / "arrays.npz", "wb") as file:
        raw = {
            names[path]: np.frombuffer(value.tobytes(), np.uint8)
            for path, value in data.items()
        }
        np.savez(file, allow_pickle=False, **raw)
        file.flush()
        os.fsync(file.fileno())
    body = {
        "format": FORMAT,
        "allocsearch": __version__,
        "metadata": dict(metadata),
        "leaves": leaves,
    }
    manifest = {**body, "manifest_sha256": _digest_json(body)}
    with open(fresh / "manifest.json", "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def _put_in_place(fresh: Path, directory: Path) -> None:
    old = _old(directory)
    if directory.exists():
        shutil.rmtree(old, ignore_errors=True)
        directory.rename(old)
    fresh.rename(directory)
    shutil.rmtree(old, ignore_errors=True)


def _old(directory: Path) -> Path:
    return directory.with_name(directory.name + ".old")


def _present(directory: Path) -> Path:
    # A kill between the two renames leaves only the old one.
    old = _old(directory)
    return old if not directory.exists() and old.exists() else directory


def _plain(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def _read_arrays(directory: Path, manifest: dict[str, Any]) -> dict[str, np.ndarray]:
    try:
        with np.load(directory / "arrays.npz", allow_pickle=False) as file:
            return {p: file[e["name"]] for p, e in manifest["leaves"].items()}
    except Exception as error:  # a damaged archive may raise anything
        raise CheckpointError(
            f"checkpoint {directory} is damaged: its arrays cannot be read"
        ) from error


def _restore(
    directory: Path, path: str, raw: np.ndarray, entry: dict[str, Any], leaf: Any
) -> Any:
    if hashlib.sha256(raw.tobytes()).hexdigest() != entry["sha256"]:
        raise CheckpointError(
            f"checkpoint {directory} is damaged: {path} does not match its hash"
        )
    expected = _plain(leaf)
    if [*expected.shape] != entry["shape"] or str(expected.dtype) != entry["dtype"]:
        raise CheckpointError(
            f"checkpoint {directory} is for another network: {path} is "
            f"{entry['dtype']}{entry['shape']}, not "
            f"{expected.dtype}{[*expected.shape]}"
        )
    dtype = np.dtype(getattr(ml_dtypes, entry["dtype"], entry["dtype"]))
    value = jnp.asarray(np.frombuffer(raw.tobytes(), dtype).reshape(entry["shape"]))
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(value, impl=jax.random.key_impl(leaf))
    return value


def _digest_json(values: Any) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
