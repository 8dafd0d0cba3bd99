"""A gated recurrent unit on a vector state."""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from allocsearch.experts.layers import concatenate, init_weight, project, wide_project
from allocsearch.experts.protocol import ExpertSpec, FusedExpert, LevelShape, Read


@dataclass(frozen=True)
class GRU(ExpertSpec):
    """Gates from [Norm(s), z] and a hidden memory h; the update is W·h'.

    Cho et al. (2014), with the reset gate applied after the product, as cuDNN does.
    """

    grid_ndims: ClassVar = (0,)

    def flops(self, level: LevelShape) -> int:
        """2·(2d·3d + d·3d + d·d) in full; see `ExpertSpec.flops`."""
        d = level.width
        if not level.has_memory:
            return 2 * (level.read_width * 2 * d + d * d)
        return 2 * (level.read_width * 3 * d + 3 * d * d + d * d)

    def build(self, level: LevelShape, *, key: PRNGKeyArray) -> "GRUCell":
        """See `ExpertSpec.build`."""
        key_in, key_hidden, key_out = jax.random.split(key, 3)
        d, c = level.width, level.read_width
        n_gates = 3 if level.has_memory else 2
        hidden = init_weight(key_hidden, (d, 3 * d), d) if level.has_memory else None
        return GRUCell(
            weight_in=init_weight(key_in, (c, n_gates * d), c),
            bias=jnp.zeros((n_gates, d)),
            weight_hidden=hidden,
            bias_hidden=jnp.zeros(d) if level.has_memory else None,
            weight_out=init_weight(key_out, (d, d), d),
            level=level,
        )


class GRUCell(FusedExpert):
    """The module of `GRU`; gates are stored in the order update, candidate, reset."""

    weight_in: Float[Array, "... c gates_d"]
    bias: Float[Array, "... gates d"]
    weight_hidden: Float[Array, "... d three_d"] | None
    bias_hidden: Float[Array, "... d"] | None
    weight_out: Float[Array, "... d d"]
    level: LevelShape = eqx.field(static=True)

    def init_memory(self) -> Any:
        """A zero hidden vector, (d,), or nothing in a trimmed network."""
        return jnp.zeros(self.level.width) if self.level.has_memory else ()

    def __call__(self, read: Read, memory: Any) -> tuple[Array, Any]:
        """See `Expert.__call__`."""
        gates = project(concatenate(read), self.weight_in)
        hidden = self._hidden(memory)
        h = self._cell(gates.reshape(self.bias.shape) + self.bias, hidden, memory)
        return project(h, self.weight_out), h if self.level.has_memory else ()

    def fused(self, read: Read, memories: Any) -> tuple[Array, Any]:
        """See `FusedExpert.fused`."""
        gates = wide_project(concatenate(read), self.weight_in)
        hidden = jax.vmap(type(self)._hidden)(self, memories)
        gates = gates.reshape(self.bias.shape) + self.bias
        h = jax.vmap(type(self)._cell)(self, gates, hidden, memories)
        out = jnp.einsum("ed,edf->ef", h, self.weight_out)
        return out, h if self.level.has_memory else ()

    def _hidden(self, memory: Any) -> Any:
        if self.weight_hidden is None:
            return ()
        return project(memory, self.weight_hidden).reshape(3, -1)

    def _cell(self, gates: Array, hidden: Any, memory: Any) -> Float[Array, " d"]:
        if self.bias_hidden is None:
            return (1 - jax.nn.sigmoid(gates[0])) * jnp.tanh(gates[1])
        update = jax.nn.sigmoid(gates[0] + hidden[0])
        reset = jax.nn.sigmoid(gates[2] + hidden[2])
        candidate = jnp.tanh(gates[1] + reset * (hidden[1] + self.bias_hidden))
        return (1 - update) * candidate + update * memory
