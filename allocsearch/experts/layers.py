"""Small pieces that several experts share: normalisation, products, convolutions."""

import jax
import jax.custom_batching
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, PRNGKeyArray

from allocsearch.experts.protocol import Read

SAVED = "preactivation"
"""Name of the values that a memory-lean gradient keeps; all else is recomputed."""


def rms_norm(x: Float[Array, "*axes d"]) -> Float[Array, "*axes d"]:
    """x over its root mean square along the last axis; zero stays zero.

    Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019), without gain.
    """
    mean_square = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(mean_square + 1e-6)


def init_weight(
    key: PRNGKeyArray, shape: tuple[int, ...], fan_in: int
) -> Float[Array, "..."]:
    """A weight drawn from N(0, 1/fan_in), cut at two standard deviations."""
    scale = 1 / (0.87962566 * fan_in**0.5)  # the cut shrinks a unit normal to 0.8796

    # Mapped over levels and experts, one loop compiles in half a second; the batched
    # generator takes XLA's CPU backend up to twenty.
    @jax.custom_batching.sequential_vmap
    def draw(key: PRNGKeyArray) -> Array:
        return jax.random.truncated_normal(key, -2.0, 2.0, shape)

    return scale * draw(key)


def concatenate(read: Read) -> Float[Array, "*grid c"]:
    """State and input side by side, or the input alone where there is no state."""
    if read.state is None:
        return read.input
    return jnp.concatenate([read.state, read.input], axis=-1)


def conv(
    x: Float[Array, "h w c"], weight: Float[Array, "k k c f"], form: str
) -> Float[Array, "h w f"]:
    """A convolution with zero padding, the board's size unchanged.

    Args:
        x: one board.
        weight: k×k taps; for an even k the centre is the square before the middle.
        form: "conv" or "patches", see `LevelShape.form`.
    """
    if form == "patches":
        k = weight.shape[0]
        out = patches(x, k) @ weight.reshape(-1, weight.shape[-1])
    else:
        out = jax.lax.conv_general_dilated(
            x[None],
            weight,
            window_strides=(1, 1),
            padding="SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )[0]
    return checkpoint_name(out, SAVED)


def patches(x: Float[Array, "h w c"], k: int) -> Float[Array, "h w kkc"]:
    """The k×k neighbourhood of every position, zeros beyond the board."""
    h, w, _ = x.shape
    around = (k - 1) // 2, k // 2
    padded = jnp.pad(x, (around, around, (0, 0)))
    taps = [padded[i : i + h, j : j + w] for i in range(k) for j in range(k)]
    return jnp.concatenate(taps, axis=-1)


def widen(
    weights: Float[Array, "e k k c gates_d"], n_gates: int, form: str
) -> Float[Array, "..."]:
    """The weights of E convolutions side by side, as `wide_conv` takes them.

    Outputs are in the order gates, experts, channels. For patches it is the transpose,
    (outputs, k·k·c): its gradient is then a product that XLA runs as it stands on CPU.
    """
    n, k, _, c, f = weights.shape
    gates = weights.reshape(n, k, k, c, n_gates, f // n_gates)
    wide = jnp.moveaxis(gates, 0, 4).reshape(k, k, c, n * f)
    return wide.reshape(-1, n * f).T if form == "patches" else wide


def wide_conv(
    x: Float[Array, "h w c"], wide: Float[Array, "..."], kernel: int, form: str
) -> Float[Array, "h w f"]:
    """The convolutions of one board that `widen` put side by side."""
    if form != "patches":
        return conv(x, wide, form)
    contract_last = (((2,), (1,)), ((), ()))
    out = jax.lax.dot_general(patches(x, kernel), wide, contract_last)
    return checkpoint_name(out, SAVED)


def sigmoid(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """1 / (1 + exp(−x)), by the hyperbolic tangent, which is faster on CPU."""
    return 0.5 * jnp.tanh(0.5 * x) + 0.5


def project(
    x: Float[Array, "*grid c"], weight: Float[Array, "c f"]
) -> Float[Array, "*grid f"]:
    """A matrix product over channels, kept by a memory-lean gradient."""
    return checkpoint_name(x @ weight, SAVED)


def wide_project(
    x: Float[Array, "*grid c"], weights: Float[Array, "e c f"]
) -> Float[Array, "*grid e f"]:
    """E matrix products of the same input, as one with E·f outputs."""
    n, c, f = weights.shape
    wide = jnp.moveaxis(weights, 0, 1).reshape(c, n * f)
    return project(x, wide).reshape(*x.shape[:-1], n, f)
