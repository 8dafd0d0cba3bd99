"""One chunk of training: updates on successive windows of every stream.

A recurrent network carries state and cache from window to window; its gradient stops
where a window begins (truncated backpropagation through time). A non-recurrent network
sees every window as a sequence of its own.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree, UInt32

from allocsearch.model import Model
from allocsearch.scaling import Optimizer
from allocsearch.tasks.fineweb.cross_entropy import mean_loss
from allocsearch.tasks.trained import Run, mean_gradient


class Batch(eqx.Module):
    """Windows of every stream, and which of their steps start a stream anew.

    Attributes:
        tokens: a window's inputs and, one further, its targets.
        reset: True on the first step of a stream.
    """

    tokens: Int[Array, "*n b t1"]
    reset: Bool[Array, "*n b t"]


class Stream(eqx.Module):
    """Where one run is in the data.

    Attributes:
        position: windows read so far, over all epochs; of this alone the data follow.
        data: a digest of the data, by which others are refused.
        carry: state and cache of every stream, in float32; None without recurrence.
        batch: what the next chunk trains on; None but within a chunk.
    """

    position: Int[Array, ""]
    data: UInt32[Array, "2"]
    carry: PyTree
    batch: Batch | None = None


def fresh_carries(model: Model, n_slots: int) -> PyTree:
    """The carry at the start of a stream, for each of several."""
    return jax.tree.map(
        lambda x: jnp.broadcast_to(x, (n_slots, *x.shape)), model.init_carry()
    )


def features_of(
    model: Model, carry: PyTree, tokens: Int[Array, "b t"], reset: Bool[Array, "b t"]
) -> tuple[PyTree, Array]:
    """What the head reads at every step of several streams, (b, t, d).

    Args:
        model: the network.
        carry: of every stream, before its first token; None where it starts there.
        tokens: of every stream.
        reset: where streams start anew.

    Returns:
        The carries after the last token, None where none were given; and the features.
    """
    z = jax.vmap(jax.vmap(model.encode))(tokens)
    if carry is None:
        return None, jax.vmap(model.core.unroll_from_start)(z, reset)
    return jax.vmap(model.core.unroll)(model.carried(carry), z, reset)


def train_chunk(
    run: Run, optimizer: Optimizer, loss_chunk: int
) -> tuple[Run, dict[str, Array]]:
    """An update for each of the run's windows.

    Args:
        run: with a batch of windows, (n, b, …), in its stream.
        optimizer: makes the updates, in as many parts as it accumulates over.
        loss_chunk: positions whose logits exist at once.

    Returns:
        The run without the batch, and the mean loss.
    """
    batch = run.stream.batch
    run = eqx.tree_at(lambda r: r.stream.batch, run, None, is_leaf=_is_none)
    arrays, static = eqx.partition(run, eqx.is_array)

    def body(arrays: PyTree, windows: Batch) -> tuple[PyTree, Array]:
        run = eqx.combine(arrays, static)
        run, loss = _update(run, windows, optimizer, loss_chunk)
        return eqx.filter(run, eqx.is_array), loss

    arrays, losses = jax.lax.scan(body, arrays, batch)
    return eqx.combine(arrays, static), {"loss": losses.mean()}


def _update(
    run: Run, windows: Batch, optimizer: Optimizer, loss_chunk: int
) -> tuple[Run, Array]:
    """One update on one window of every stream."""
    stream = run.stream
    n_parts = optimizer.training.accumulation

    def loss(model: Model, part: tuple[PyTree, Batch]) -> tuple[Array, PyTree]:
        carry, windows = part
        model = optimizer.computing(model)
        value, carry = window_loss(model, carry, windows, loss_chunk)
        return value, jax.tree.map(_as_kept, carry)

    parts = _in_parts((stream.carry, windows), n_parts)
    value, gradients, carries = mean_gradient(loss, run.model, parts)
    model, state = optimizer.update(gradients, run.optimizer, run.model)
    carry = _together(carries)
    return Run(model, state, Stream(stream.position + 1, stream.data, carry)), value


def window_loss(
    model: Model, carry: PyTree, windows: Batch, loss_chunk: int
) -> tuple[Array, PyTree]:
    """The mean loss over a window of every stream, in nats, and the carries after it.

    Args:
        model: the network.
        carry: before the window, which no gradient flows through; None to begin with
            a fresh one, and to return none.
        windows: (b, …).
        loss_chunk: positions whose logits exist at once.
    """
    tokens, targets = windows.tokens[:, :-1], windows.tokens[:, 1:]
    carry = jax.lax.stop_gradient(carry)
    after, features = features_of(model, carry, tokens, windows.reset)
    loss = mean_loss(model.readout, features, targets, loss_chunk)
    return loss, jax.lax.stop_gradient(after)


def _as_kept(x: Array) -> Array:
    """What is carried between windows has one precision, whatever they compute in."""
    return x.astype(jnp.float32) if eqx.is_inexact_array(x) else x


def _in_parts(tree: PyTree, n: int) -> PyTree:
    """Every n-th stream together, on a new leading axis.

    So each part has as many of every device's streams.
    """
    return jax.tree.map(
        lambda x: jnp.moveaxis(x.reshape(-1, n, *x.shape[1:]), 1, 0), tree
    )


def _together(tree: PyTree) -> PyTree:
    """The inverse of `_in_parts`."""
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape(-1, *x.shape[2:]), tree)


def _is_none(x: Any) -> bool:
    return x is None
