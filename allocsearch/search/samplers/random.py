"""Uniform choice: the control that every other sampler has to beat."""

from dataclasses import dataclass

import numpy as np

from allocsearch.search.points import Points, Row
from allocsearch.search.samplers.base import Request, ToTheLast


@dataclass(frozen=True)
class RandomSampler(ToTheLast):
    """Any point not yet proposed, all equally likely."""

    def check(self, points: Points) -> None:
        """Fits every space."""

    def propose(self, request: Request) -> Row:
        """See `Sampler.propose`."""
        position = np.random.default_rng(request.seed).choice(request.open)
        return request.points.rows[position]
