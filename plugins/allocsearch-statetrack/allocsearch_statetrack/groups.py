"""Permutation groups as multiplication tables."""

import itertools
from dataclasses import dataclass

import numpy as np

Permutation = tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """A symmetric group and the generators that streams are made of.

    Attributes:
        degree: how many things are permuted.
        generators: permutations that together reach every element. They are even
            and odd, so that a product of t of them can have either parity, and each
            has its inverse among them.
    """

    degree: int
    generators: tuple[Permutation, ...]

    @property
    def elements(self) -> list[Permutation]:
        """All permutations in lexicographic order; the identity is number 0."""
        return list(itertools.permutations(range(self.degree)))

    @property
    def table(self) -> np.ndarray:
        """Numbers of products, int32 (generators, elements).

        Entry (g, e) is generator g applied after element e: i ↦ g[e[i]].
        """
        number = {element: n for n, element in enumerate(self.elements)}
        rows = [
            [number[tuple(g[i] for i in element)] for element in self.elements]
            for g in self.generators
        ]
        return np.array(rows, dtype=np.int32)


GROUPS = {
    "s3": Group(3, ((1, 0, 2), (1, 2, 0), (2, 0, 1))),
    "s5": Group(
        5, ((1, 0, 2, 3, 4), (0, 1, 2, 4, 3), (1, 2, 3, 4, 0), (4, 0, 1, 2, 3))
    ),
}
"""By name: one swap and both rotations of three; two swaps and a five-cycle each way.

S3 is solvable, S5 is not; after 32 random generators of S5 no element is more than 2 %
likelier than 1/120.
"""
