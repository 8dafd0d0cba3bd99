"""Attention with rotary positions, for queries that each see some of the same rows."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int


def attention(
    queries: Float[Array, "h t c"],
    keys: Float[Array, "h n c"],
    values: Float[Array, "h n c"],
    visible: Bool[Array, "t n"],
) -> Float[Array, "h t c"]:
    """Softmax attention of each head, in float32 between the two products.

    Every query must see a row.
    """
    scores = jnp.einsum(
        "htc,hnc->htn", queries, keys, preferred_element_type=jnp.float32
    )
    scores = jnp.where(visible, scores * queries.shape[-1] ** -0.5, -1e30)
    weights = jax.nn.softmax(scores, axis=-1).astype(values.dtype)
    return jnp.einsum("htn,hnc->htc", weights, values)


def heads_first(x: Float[Array, "*e t d"], n_heads: int) -> Float[Array, "*e h t c"]:
    """Channels divided among heads."""
    return jnp.moveaxis(x.reshape(*x.shape[:-1], n_heads, -1), -2, -3)


def heads_merged(x: Float[Array, "*e h t c"]) -> Float[Array, "*e t d"]:
    """The inverse of `heads_first`."""
    x = jnp.moveaxis(x, -3, -2)
    return x.reshape(*x.shape[:-2], -1)


def rotate(
    x: Float[Array, "*e h t c"], position: Int[Array, " t"]
) -> Float[Array, "*e h t c"]:
    """Rotary positions (Su et al., 2021), exact at any distance from the start.

    Angles are whole numbers of 2⁻³² turns, multiplied by the position in wrapping
    integers, so they lose no precision on streams of billions of steps.
    """
    pairs = x.shape[-1] // 2
    radians = 10_000.0 ** -(np.arange(pairs) / pairs)
    turns = jnp.asarray(np.round(radians / (2 * np.pi) * 2**32).astype(np.uint32))
    phase = position.astype(jnp.uint32)[:, None] * turns
    angle = phase.astype(jnp.float32) * np.float32(2 * np.pi / 2**32)
    cos, sin = (f(angle).astype(x.dtype) for f in (jnp.cos, jnp.sin))
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
