"""Streams of generators, and what is to be said at every step of them."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray


def sample_tokens(
    n_tokens: int, shape: tuple[int, int], *, key: PRNGKeyArray
) -> Int[Array, "b t"]:
    """Independent uniform tokens, (streams, steps)."""
    return jax.random.randint(key, shape, 0, n_tokens)


def reset_mask(n_steps: int, length: Int[Array, ""] | int) -> Bool[Array, " t"]:
    """True at the steps where a new stream of `length` steps begins.

    The length is data: one compiled unroll holds eight streams of 4 steps as well as
    one of 32.
    """
    return jnp.arange(n_steps) % length == 0


def running_products(
    table: np.ndarray, tokens: Int[Array, "b t"], reset: Bool[Array, " t"]
) -> Int[Array, "b t"]:
    """The product of the generators since the last reset, at every step.

    Args:
        table: from `Group.table`.
        tokens: generators by number.
        reset: where the product starts again from the identity.
    """
    products = jnp.asarray(table)

    def step(before: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        token, starts = now
        after = products[token, jnp.where(starts, 0, before)]
        return after, after

    first = jnp.zeros(tokens.shape[0], products.dtype)
    _, labels = jax.lax.scan(step, first, (tokens.T, reset))
    return labels.T


def held_out_tokens(
    n_tokens: int, shape: tuple[int, int], seeds: tuple[int, ...]
) -> Int[np.ndarray, "b t"]:
    """Tokens of an evaluation set, the same on every machine and backend."""
    return np.random.default_rng(seeds).integers(0, n_tokens, shape, dtype=np.int32)
