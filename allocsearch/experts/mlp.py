"""A two-layer perceptron on a vector state."""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from allocsearch.experts.layers import concatenate, init_weight, project, wide_project
from allocsearch.experts.protocol import (
    ExpertSpec,
    FusedExpert,
    LevelShape,
    Read,
    check_positive,
)


@dataclass(frozen=True)
class MLP(ExpertSpec):
    """u = W₂·gelu(W₁·[Norm(s), z]), without memory.

    Attributes:
        ratio: hidden units per channel of width.
    """

    ratio: int = 4

    grid_ndims: ClassVar = (0,)

    def __post_init__(self) -> None:
        check_positive(ratio=self.ratio)

    def flops(self, level: LevelShape) -> int:
        """2·(2d·r·d + r·d·d) in full; see `ExpertSpec.flops`."""
        hidden = self.ratio * level.width
        return 2 * hidden * (level.read_width + level.width)

    def build(self, level: LevelShape, *, key: PRNGKeyArray) -> "MLPBlock":
        """See `ExpertSpec.build`."""
        key_in, key_out = jax.random.split(key)
        hidden, c = self.ratio * level.width, level.read_width
        return MLPBlock(
            weight_in=init_weight(key_in, (c, hidden), c),
            bias=jnp.zeros(hidden),
            weight_out=init_weight(key_out, (hidden, level.width), hidden),
            level=level,
        )


class MLPBlock(FusedExpert):
    """The module of `MLP`."""

    weight_in: Float[Array, "... c hidden"]
    bias: Float[Array, "... hidden"]
    weight_out: Float[Array, "... hidden d"]
    level: LevelShape = eqx.field(static=True)

    def init_memory(self) -> Any:
        """Nothing."""
        return ()

    def __call__(self, read: Read, memory: Any) -> tuple[Array, Any]:
        """See `Expert.__call__`."""
        hidden = jax.nn.gelu(project(concatenate(read), self.weight_in) + self.bias)
        return project(hidden, self.weight_out), memory

    def fused(self, read: Read, memories: Any) -> tuple[Array, Any]:
        """See `FusedExpert.fused`."""
        wide = wide_project(concatenate(read), self.weight_in)
        hidden = jax.nn.gelu(wide + self.bias)
        return jnp.einsum("eh,ehd->ed", hidden, self.weight_out), memories
