"""Cross-entropy in nats, with the logits of a few positions at a time.

Logits are the largest arrays of a language model: 50 257 for every position. Here those
of a chunk are made, used for loss and gradient at once, and dropped: no work is done
twice, and no more than a chunk is ever kept.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

Head = Callable[[Array], Array]


def token_losses(
    head: Head,
    features: Float[Array, "b t d"],
    targets: Int[Array, "b t"],
    chunk: int,
) -> Float[Array, "b t"]:
    """The loss of every position.

    Args:
        head: from the features of one position, (d,), to logits.
        features: what the head reads.
        targets: the tokens that come next.
        chunk: most positions whose logits exist at once, b at least.
    """
    pieces = _pieces(features, targets, chunk)
    losses = jax.lax.map(lambda piece: _losses(head, *piece), pieces)
    return jnp.moveaxis(losses, 0, 1).reshape(targets.shape)


def mean_loss(
    head: Head,
    features: Float[Array, "b t d"],
    targets: Int[Array, "b t"],
    chunk: int,
) -> Float[Array, ""]:
    """The mean loss over all positions; its gradient keeps no logits.

    Args:
        head: as of `token_losses`.
        features: likewise.
        targets: likewise.
        chunk: likewise.
    """
    return _mean_loss((head, features), targets, chunk)


@eqx.filter_custom_vjp
def _mean_loss(differentiated: Any, targets: Array, chunk: int) -> Array:
    head, features = differentiated
    return token_losses(head, features, targets, chunk).mean()


@_mean_loss.def_fwd
def _forward(
    perturbed: PyTree, differentiated: Any, targets: Array, chunk: int
) -> tuple[Array, tuple[PyTree, Array]]:
    """The loss, and its gradient, chunk by chunk."""
    del perturbed
    head, features = differentiated
    arrays, static = eqx.partition(head, eqx.is_inexact_array)

    n = targets.size

    def share(arrays: PyTree, features: Array, targets: Array) -> Array:
        losses = _losses(eqx.combine(arrays, static), features, targets)
        return losses.sum() / n

    def body(total: Any, piece: tuple[Array, Array]) -> tuple[Any, Array]:
        loss, gradients = jax.value_and_grad(share, (0, 1))(arrays, *piece)
        summed = jax.tree.map(jnp.add, total, (loss, gradients[0]))
        return summed, gradients[1]

    # Sums over chunks are of float32, whatever the precision of a chunk.
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), arrays)
    start = (jnp.zeros(()), zero)
    (loss, by_arrays), by_features = jax.lax.scan(
        body, start, _pieces(features, targets, chunk)
    )
    by_arrays = jax.tree.map(lambda g, x: g.astype(x.dtype), by_arrays, arrays)
    return loss, (by_arrays, jnp.moveaxis(by_features, 0, 1).reshape(features.shape))


@_mean_loss.def_bwd
def _backward(
    residuals: tuple[PyTree, Array],
    cotangent: Array,
    perturbed: PyTree,
    differentiated: Any,
    targets: Array,
    chunk: int,
) -> PyTree:
    del perturbed, differentiated, targets, chunk
    return jax.tree.map(lambda g: (cotangent * g).astype(g.dtype), residuals)


def _losses(head: Head, features: Array, targets: Array) -> Array:
    logits = jax.vmap(jax.vmap(head))(features).astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - chosen


def _pieces(features: Array, targets: Array, chunk: int) -> tuple[Array, Array]:
    """Both cut along time, in as few equal pieces as the limit lets, on a new axis.

    Streams are not cut, so that each stays on its device.
    """
    b, t = targets.shape
    divisors = [n for n in range(1, t + 1) if t % n == 0]
    length = max(n for n in divisors if n == 1 or b * n <= chunk)

    def cut(x: Array) -> Array:
        shaped = x.reshape(b, t // length, length, *x.shape[2:])
        return jnp.moveaxis(shaped, 1, 0)

    return cut(features), cut(targets)
