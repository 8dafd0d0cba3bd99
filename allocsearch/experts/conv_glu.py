"""A gated convolution on the residual stream, without memory."""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from allocsearch.errors import ConfigError
from allocsearch.experts.layers import concatenate, conv, init_weight, wide_conv
from allocsearch.experts.protocol import ExpertSpec, FusedExpert, LevelShape, Read


@dataclass(frozen=True)
class ConvGLU(ExpertSpec):
    """u = a · σ(b), where a, b = conv([Norm(s), z]).

    The gated linear unit of Dauphin et al. (2017). Recurrence is the carried state
    alone.

    Attributes:
        kernel: taps per side, odd.
    """

    kernel: int = 3

    grid_ndims: ClassVar = (2,)

    def __post_init__(self) -> None:
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise ConfigError(
                f"option 'kernel' is {self.kernel}: give an odd number, 1 or more"
            )

    def flops(self, level: LevelShape) -> int:
        """2·k²·positions·(2d·2d) in full; see `ExpertSpec.flops`."""
        taps = self.kernel**2 * level.n_positions
        return 2 * taps * level.read_width * 2 * level.width

    def build(self, level: LevelShape, *, key: PRNGKeyArray) -> "ConvGLUBlock":
        """See `ExpertSpec.build`."""
        c = level.read_width
        shape = (self.kernel, self.kernel, c, 2 * level.width)
        return ConvGLUBlock(
            weight=init_weight(key, shape, self.kernel**2 * c),
            bias=jnp.zeros((2, level.width)),
            level=level,
        )


class ConvGLUBlock(FusedExpert):
    """The module of `ConvGLU`; the value comes before the gate."""

    weight: Float[Array, "... k k c two_d"]
    bias: Float[Array, "... 2 d"]
    level: LevelShape = eqx.field(static=True)

    def init_memory(self) -> Any:
        """Nothing."""
        return ()

    def __call__(self, read: Read, memory: Any) -> tuple[Array, Any]:
        """See `Expert.__call__`."""
        flat = conv(concatenate(read), self.weight, self.level.form)
        return _gate(
            flat.reshape(*flat.shape[:2], *self.bias.shape) + self.bias
        ), memory

    def fused(self, read: Read, memories: Any) -> tuple[Array, Any]:
        """See `FusedExpert.fused`."""
        wide = wide_conv(concatenate(read), self.weight, self.level.form)
        both = wide.reshape(*wide.shape[:2], *self.bias.shape) + self.bias
        return _gate(jnp.moveaxis(both, 2, 0)), memories


def _gate(both: Float[Array, "*grid 2 d"]) -> Float[Array, "*grid d"]:
    return both[..., 0, :] * jax.nn.sigmoid(both[..., 1, :])
