"""Softmax gates whose weights are scaled to unit Euclidean length."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from allocsearch.aggregations.gates import Gates
from allocsearch.aggregations.protocol import Aggregation, heard


class L2SoftmaxGated(Aggregation):
    """Σ αᵢ·uᵢ / ‖α‖₂; with equal gates it is `sqrt_sum`."""

    gates: Gates

    def __init__(self, n_experts: int, width: int, *, key: PRNGKeyArray):
        del key
        self.gates = Gates(n_experts, width)

    def __call__(
        self, u: Float[Array, "e *grid d"], members: np.ndarray
    ) -> Float[Array, "r *grid d"]:
        """See `Aggregation.__call__`."""
        alpha = self.gates(u, members)
        length = jnp.sqrt(jnp.square(alpha).sum(axis=1))
        return (alpha * heard(u, members)).sum(axis=1) / length
