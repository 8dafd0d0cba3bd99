"""A convolutional LSTM cell, after the DRC of Guez et al. (2019)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
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
class ConvLSTM(ExpertSpec):
    """Gates from one k×k convolution over [state, input]; a cell of its own.

    i, f, g, o = conv([Norm(s), z]);  c' = σ(f)·c + σ(i)·tanh(g);  u = σ(o)·tanh(c').
    The recurrent input of an LSTM is the shared state, so the cell is its only memory.

    Attributes:
        kernel: taps per side, odd.
        forget_bias: initial bias of the forget gate.
    """

    kernel: int = 3
    forget_bias: float = 1.0

    grid_ndims: ClassVar = (2,)

    def __post_init__(self) -> None:
        check_odd(kernel=self.kernel)

    def n_gates(self, level: LevelShape) -> int:
        """Four, or three where there is no cell to forget."""
        return 4 if level.has_memory else 3

    def flops(self, level: LevelShape) -> int:
        """2·k²·positions·(2d·4d) in full; see `ExpertSpec.flops`."""
        taps = self.kernel**2 * level.n_positions
        return 2 * taps * level.read_width * self.n_gates(level) * level.width

    def build(self, level: LevelShape, *, key: PRNGKeyArray) -> "ConvLSTMCell":
        """See `ExpertSpec.build`."""
        n_gates, c = self.n_gates(level), level.read_width
        shape = (self.kernel, self.kernel, c, n_gates * level.width)
        bias = jnp.zeros((n_gates, level.width))
        if level.has_memory:
            bias = bias.at[3].set(self.forget_bias)
        return ConvLSTMCell(
            weight=init_weight(key, shape, self.kernel**2 * c),
            bias=bias,
            kernel=self.kernel,
            level=level,
        )


class ConvLSTMCell(FusedExpert):
    """The module of `ConvLSTM`; gates are stored in the order i, g, o, f."""

    weight: Float[Array, "... k k c gates_d"]
    bias: Float[Array, "... gates d"]
    kernel: int = eqx.field(static=True)
    level: LevelShape = eqx.field(static=True)

    def init_memory(self) -> Any:
        """A zero cell, (H, W, d), or nothing in a trimmed network."""
        if not self.level.has_memory:
            return ()
        return jnp.zeros((*self.level.grid, self.level.width))

    def __call__(self, read: Read, memory: Any) -> tuple[Array, Any]:
        """See `Expert.__call__`."""
        flat = conv(concatenate(read), self.weight, self.level.form)
        return _cell(flat, self.bias.reshape(-1), memory, len(self.bias))

    def widened(self) -> "ConvLSTMCell":
        """See `FusedExpert.widened`."""
        n_gates = self.bias.shape[1]
        wide = widen(self.weight, n_gates, self.level.form)
        bias = jnp.moveaxis(self.bias, 0, 1).reshape(n_gates, -1)
        return ConvLSTMCell(wide, bias, self.kernel, self.level)

    def fused(self, read: Read, memories: Any) -> tuple[Array, Any]:
        """See `FusedExpert.fused`."""
        n_gates, width = self.bias.shape[0], self.level.width
        flat = wide_conv(concatenate(read), self.weight, self.kernel, self.level.form)
        beside = jax.tree.map(_beside, memories)
        u, cell = _cell(flat, self.bias.reshape(-1), beside, n_gates)
        return jax.tree.map(lambda x: _apart(x, width), (u, cell))


def _cell(
    flat: Float[Array, "h w gates_d"],
    bias: Float[Array, " gates_d"],
    memory: Any,
    n_gates: int,
) -> tuple[Array, Any]:
    # Slices before anything else: backwards they come last, as one concatenation.
    gates = jnp.split(flat, n_gates, axis=-1)
    i, g, o, *f = (x + b for x, b in zip(gates, jnp.split(bias, n_gates), strict=True))
    cell = sigmoid(i) * jnp.tanh(g)
    if not f:
        return sigmoid(o) * jnp.tanh(cell), ()
    cell = cell + sigmoid(f[0]) * memory
    return sigmoid(o) * jnp.tanh(cell), cell


def _beside(x: Float[Array, "e h w d"]) -> Float[Array, "h w e_d"]:
    return jnp.moveaxis(x, 0, 2).reshape(*x.shape[1:3], -1)


def _apart(x: Float[Array, "h w e_d"], width: int) -> Float[Array, "e h w d"]:
    return jnp.moveaxis(x.reshape(*x.shape[:2], -1, width), 2, 0)
