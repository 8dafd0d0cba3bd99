"""What an aggregation is: a module that merges the proposals of a level's experts."""

import abc
from typing import Protocol

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray


class Aggregation(eqx.Module):
    """Merges E proposals into one for each group of members.

    An entry point names a concrete subclass, which is built as
    ``cls(n_experts, width, key=key)`` once for each level.
    """

    @abc.abstractmethod
    def __call__(
        self, u: Float[Array, "e *grid d"], members: np.ndarray
    ) -> Float[Array, "r *grid d"]:
        """Merge proposals.

        Args:
            u: one proposal from each expert, (E, *grid, d).
            members: indices into the experts, (R, n): R is 1 when all share one
                state, E when each expert keeps its own. The merged scale may depend
                on n, never on E.

        Returns:
            One merged update per group, (R, *grid, d).
        """


def heard(
    u: Float[Array, "e *grid d"], members: np.ndarray
) -> Float[Array, "r n *grid d"]:
    """The proposals that each group hears; a view where one group hears everyone."""
    if np.array_equal(members, np.arange(len(u))[None]):
        return u[None]
    return u[members]


class AggregationFactory(Protocol):
    """The constructor that an entry point of `allocsearch.aggregations` names."""

    def __call__(self, n_experts: int, width: int, *, key: PRNGKeyArray) -> Aggregation:
        """A freshly initialised aggregation of one level."""
        ...
