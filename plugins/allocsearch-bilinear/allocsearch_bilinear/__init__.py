"""A bilinear MLP: two projections of the input, multiplied, projected back."""

from dataclasses import dataclass
from typing import ClassVar

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from allocsearch.experts import Expert, ExpertSpec, LevelShape, Read
from allocsearch.experts.layers import concatenate, init_weight, project
from allocsearch.experts.protocol import check_positive


@dataclass(frozen=True)
class Bilinear(ExpertSpec):
    """u = W₃(W₁r ⊙ W₂r) with r = [Norm(s), z]; no activation function, no memory.

    Shazeer, "GLU Variants Improve Transformer" (2020), equation 5. A product of state
    and input is what following a product of permutations asks for.

    Attributes:
        ratio: hidden units per channel of width.
    """

    ratio: int = 4

    grid_ndims: ClassVar = (0,)

    def __post_init__(self) -> None:
        check_positive(ratio=self.ratio)

    def flops(self, level: LevelShape) -> int:
        """2·(c·h + c·h + h·d), where c channels are read and h = ratio·d."""
        hidden = self.ratio * level.width
        return 2 * hidden * (2 * level.read_width + level.width)

    def build(self, level: LevelShape, *, key: PRNGKeyArray) -> "BilinearBlock":
        """See `ExpertSpec.build`."""
        key_left, key_right, key_out = jax.random.split(key, 3)
        c, hidden = level.read_width, self.ratio * level.width
        return BilinearBlock(
            left=init_weight(key_left, (c, hidden), c),
            right=init_weight(key_right, (c, hidden), c),
            out=init_weight(key_out, (hidden, level.width), hidden),
        )


class BilinearBlock(Expert):
    """The module of `Bilinear`."""

    left: Float[Array, "c hidden"]
    right: Float[Array, "c hidden"]
    out: Float[Array, "hidden d"]

    def init_memory(self) -> tuple[()]:
        """Nothing is kept between steps."""
        return ()

    def __call__(self, read: Read, memory: tuple[()]) -> tuple[Array, tuple[()]]:
        """See `Expert.__call__`."""
        r = concatenate(read)
        hidden = project(r, self.left) * project(r, self.right)
        return project(hidden, self.out), memory
