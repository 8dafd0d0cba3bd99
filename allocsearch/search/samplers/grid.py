"""The full sweep."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allocsearch.search.points import Points, Row
from allocsearch.search.samplers.base import Request


@dataclass(frozen=True)
class GridSampler:
    """Every point once, in canonical order."""

    def check(self, points: Points) -> None:
        """Fits every space."""

    def ended(
        self,
        points: Points,
        taken: Sequence[int],
        left: np.ndarray,
    ) -> None:
        """Goes on to the last point."""

    def propose(self, request: Request) -> Row:
        """See `Sampler.propose`."""
        return request.points.rows[request.open[0]]
