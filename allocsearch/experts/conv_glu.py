"""A gated convolution on the residual stream, without memory."""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from allocsearch.experts.layers import (
    concatenate,
    conv,
    init_weight,
    sigmoid,
    wide_conv,
    widen,
)
from allocsearch.experts.protocol import (
    ExpertSpec,
    FusedExpert,
    LevelShape,
    Read,
    check_odd,
)


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
        check_odd(kernel=self.kernel)

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
            kernel=self.kernel,
            level=level,
        )


class ConvGLUBlock(FusedExpert):
    """The module of `ConvGLU`; the value comes before the gate."""

    weight: Float[Array, "... k k c two_d"]
    bias: Float[Array, "... 2 d"]
    kernel: int = eqx.field(static=True)
    level: LevelShape = eqx.field(static=True)

    def init_memory(self) -> Any:
        """Nothing."""
        return ()

    def __call__(self, read: Read, memory: Any) -> tuple[Array, Any]:
        """See `Expert.__call__`."""
        flat = conv(concatenate(read), self.weight, self.level.form)
        return _gate(flat, self.bias.reshape(-1)), memory

    def widened(self) -> "ConvGLUBlock":
        """See `FusedExpert.widened`."""
        wide = widen(self.weight, 2, self.level.form)
        bias = jnp.moveaxis(self.bias, 0, 1).reshape(2, -1)
        return ConvGLUBlock(wide, bias, self.kernel, self.level)

    def fused(self, read: Read, memories: Any) -> tuple[Array, Any]:
        """See `FusedExpert.fused`."""
        flat = wide_conv(concatenate(read), self.weight, self.kernel, self.level.form)
        u = _gate(flat, self.bias.reshape(-1))
        u = u.reshape(*u.shape[:2], -1, self.level.width)
        return jnp.moveaxis(u, 2, 0), memories


def _gate(
    flat: Float[Array, "h w two_d"], bias: Float[Array, " two_d"]
) -> Float[Array, "h w d"]:
    value, gate = jnp.split(flat, 2, axis=-1)
    value_bias, gate_bias = jnp.split(bias, 2)
    return (value + value_bias) * sigmoid(gate + gate_bias)
