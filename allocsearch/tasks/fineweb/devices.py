"""Data parallelism: streams spread over devices, everything else on each of them."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from allocsearch.errors import ConfigError

_AXIS = "slots"


def slot_mesh(n_slots: int, wanted: bool | None) -> Mesh | None:
    """The devices that streams are spread over, or None for the default one alone.

    Args:
        n_slots: how many streams there are.
        wanted: whether to spread them; None where they divide evenly.

    Raises:
        ConfigError: it is wanted and they do not divide.
    """
    devices = jax.devices()
    n = len(devices)
    if wanted is False or n == 1:
        return None
    if n_slots % n:
        if wanted:
            raise ConfigError(
                f"task.n_slots = {n_slots} streams do not divide over {n} devices: "
                f"give a multiple of {n}, or task.data_parallel=false"
            )
        return None
    return Mesh(np.array(devices), (_AXIS,))


def spread(tree: PyTree, mesh: Mesh | None, axis: int) -> PyTree:
    """The arrays of a tree cut along an axis of streams, one part on each device."""
    return _put(tree, mesh, PartitionSpec(*[None] * axis, _AXIS))


def replicate(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """The arrays of a tree whole on every device."""
    return _put(tree, mesh, PartitionSpec())


def _is_array(x: Any) -> bool:
    return isinstance(x, jax.Array | np.ndarray)


def _put(tree: PyTree, mesh: Mesh | None, spec: PartitionSpec) -> PyTree:
    if mesh is None:
        return tree
    arrays, static = eqx.partition(tree, _is_array)
    return eqx.combine(jax.device_put(arrays, NamedSharding(mesh, spec)), static)
