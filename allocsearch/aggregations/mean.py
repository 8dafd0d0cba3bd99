"""The arithmetic mean of the members' proposals."""

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from allocsearch.aggregations.protocol import Aggregation, heard


class Mean(Aggregation):
    """(1/n)·Σ u: the scale shrinks as 1/√n when proposals are independent."""

    def __init__(self, n_experts: int, width: int, *, key: PRNGKeyArray):
        del n_experts, width, key

    def __call__(
        self, u: Float[Array, "e *grid d"], members: np.ndarray
    ) -> Float[Array, "r *grid d"]:
        """See `Aggregation.__call__`."""
        return heard(u, members).mean(axis=1)
