"""Text from a trained network, token by token, by the step that it is trained with."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from allocsearch.model import Model
from allocsearch.tasks.records import Prompt


def continue_tokens(model: Model, tokens: list[int], request: Prompt) -> list[int]:
    """Tokens that a network draws after others.

    Args:
        model: read from the start of a stream.
        tokens: what it reads first; at least one.
        request: how many to draw, and how. Its text is not looked at.

    Returns:
        As many tokens as were asked for.
    """
    acting = model.widened()
    carry, key = model.init_carry(), jax.random.key(request.seed)
    for token in tokens[:-1]:
        carry, _ = _read(acting, carry, jnp.asarray(token))
    drawn, last = [], jnp.asarray(tokens[-1])
    for i in range(request.n_steps):
        carry, last = _draw(
            acting,
            carry,
            last,
            jnp.asarray(request.temperature, jnp.float32),
            request.top_k,
            key=jax.random.fold_in(key, i),
        )
        drawn.append(int(last))
    return drawn


@eqx.filter_jit
def _read(model: Model, carry: PyTree, token: Array) -> tuple[PyTree, Any]:
    return model.step(carry, token, False)


@eqx.filter_jit
def _draw(
    model: Model,
    carry: PyTree,
    token: Int[Array, ""],
    temperature: Array,
    top_k: int | None,
    *,
    key: PRNGKeyArray,
) -> tuple[PyTree, Int[Array, ""]]:
    """Read one token and draw the next."""
    carry, logits = model.step(carry, token, False)
    if top_k is not None and top_k < logits.shape[0]:
        least = jax.lax.top_k(logits, top_k)[0][-1]
        logits = jnp.where(logits < least, -jnp.inf, logits)
    warm = jnp.maximum(temperature, 1e-6)
    drawn = jax.random.categorical(key, logits / warm)
    return carry, jnp.where(temperature > 0, drawn, jnp.argmax(logits))
