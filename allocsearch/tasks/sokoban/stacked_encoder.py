"""An encoder of several convolutions."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from allocsearch.experts.layers import conv, init_weight


class StackedEncoder(eqx.Module):
    """More convolutions on top of an encoder, padded with zeros.

    There is no non-linearity between them, as in the DRC of Taufeeque et al. (2024).
    """

    first: Callable[[Any], Array]
    weights: Float[Array, "n k k d d"]
    biases: Float[Array, "n d"]

    def __init__(
        self,
        first: Callable[[Any], Array],
        n: int,
        width: int,
        kernel: int,
        *,
        key: PRNGKeyArray,
    ):
        shape = (n, kernel, kernel, width, width)
        self.first = first
        self.weights = init_weight(key, shape, kernel**2 * width)
        self.biases = jnp.zeros((n, width))

    def __call__(self, observation: Any) -> Float[Array, "height width d"]:
        """The core's input z."""
        form = "patches" if jax.default_backend() == "cpu" else "conv"
        z = self.first(observation)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            z = conv(z, weight, form) + bias
        return z
