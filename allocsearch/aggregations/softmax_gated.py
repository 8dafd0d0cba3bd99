"""A weighted average of the members' proposals, with learned softmax gates."""

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from allocsearch.aggregations.gates import Gates
from allocsearch.aggregations.protocol import Aggregation, heard


class SoftmaxGated(Aggregation):
    """Σ αᵢ·uᵢ; with equal gates it is `mean`."""

    gates: Gates

    def __init__(self, n_experts: int, width: int, *, key: PRNGKeyArray):
        del key
        self.gates = Gates(n_experts, width)

    def __call__(
        self, u: Float[Array, "e *grid d"], members: np.ndarray
    ) -> Float[Array, "r *grid d"]:
        """See `Aggregation.__call__`."""
        return (self.gates(u, members) * heard(u, members)).sum(axis=1)
