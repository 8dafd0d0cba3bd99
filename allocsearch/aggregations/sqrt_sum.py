"""The sum of the members' proposals over the root of their number."""

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from allocsearch.aggregations.protocol import Aggregation, heard


class SqrtSum(Aggregation):
    """(1/√n)·Σ u: the scale stays when proposals are independent. The default."""

    def __init__(self, n_experts: int, width: int, *, key: PRNGKeyArray):
        del n_experts, width, key

    def __call__(
        self, u: Float[Array, "e *grid d"], members: np.ndarray
    ) -> Float[Array, "r *grid d"]:
        """See `Aggregation.__call__`."""
        return heard(u, members).sum(axis=1) * float(members.shape[1]) ** -0.5
