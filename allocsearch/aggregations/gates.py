"""Learned gates: one logit per sender and position, softmax over the members."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_EPSILON = 1e-6


class Gates(eqx.Module):
    """Logits that are a function of the sender's proposal alone; equal at first.

    The logit is a mean over channels, not a sum, so that one step of the optimiser
    moves it equally far at every width.
    """

    weight: Float[Array, "e d"]
    bias: Float[Array, " e"]

    def __init__(self, n_experts: int, width: int):
        self.weight = jnp.zeros((n_experts, width))
        self.bias = jnp.zeros(n_experts)

    def __call__(
        self, u: Float[Array, "e *grid d"], members: np.ndarray
    ) -> Float[Array, "r n *grid 1"]:
        """The members' weights, non-negative, summing to one over n."""
        mean_square = jnp.mean(jnp.square(u), axis=-1, keepdims=True)
        normed = u * jax.lax.rsqrt(mean_square + _EPSILON)
        shape = (u.shape[0], *(1,) * (u.ndim - 2), u.shape[-1])
        logits = jnp.mean(normed * self.weight.reshape(shape), axis=-1, keepdims=True)
        logits = logits + self.bias.reshape(u.shape[0], *(1,) * (u.ndim - 1))
        return jax.nn.softmax(logits[members], axis=1)
