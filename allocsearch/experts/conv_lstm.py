"""A convolutional LSTM cell, after the DRC of Guez et al. (2019)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from allocsearch.allocation import Scalar
from allocsearch.errors import ConfigError
from allocsearch.experts.layers import (
    concatenate,
    conv,
    init_weight,
    project,
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
    check_one_of,
)

_OUTPUT_GATES = {"sigmoid": sigmoid, "tanh": jnp.tanh}
_POOLS = ("none", "channel", "linear")
_BOUNDARIES = ("none", "edge", "beyond")


@dataclass(frozen=True)
class ConvLSTM(ExpertSpec):
    """Gates from one k×k convolution over [state, input]; a cell of its own.

    i, f, g, o = conv([Norm(s), z]);  c' = σ(f)·c + σ(i)·tanh(g);  u = σ(o)·tanh(c').
    The recurrent input of an LSTM is the shared state, so the cell is its only memory.

    The other options add what the cells of Guez et al. (2019), and of Taufeeque et al.
    (2024) after them, have besides; see docs/drc.md.

    Attributes:
        kernel: taps per side, odd.
        forget_bias: initial bias of the forget gate.
        output_gate: "sigmoid", or "tanh" for u = tanh(o)·tanh(c').
        own_state: whether the cell also reads h, its own last u, through the gates'
            convolution, and so keeps it.
        pool: what the gates read of the whole board: "none"; or the mean and maximum
            over the positions of h (of the state that is read, without `own_state`),
            weighted by "channel" or mixed by a "linear" map, at every position.
        boundary: "none", or a convolution, added to the gates, of a plane that is 1 on
            the outermost squares of the board ("edge") or on all squares off it
            ("beyond"), and 0 elsewhere.
    """

    kernel: int = 3
    forget_bias: float = 1.0
    output_gate: str = "sigmoid"
    own_state: bool = False
    pool: str = "none"
    boundary: str = "none"

    grid_ndims: ClassVar = (2,)
    bounded_update: ClassVar = True
    searchable: ClassVar[dict[str, tuple[Scalar, ...]]] = {
        "kernel": (3, 5),
        "forget_bias": (0.0, 1.0),
        "output_gate": tuple(_OUTPUT_GATES),
        "own_state": (False, True),
        "pool": _POOLS,
        "boundary": _BOUNDARIES,
    }

    def __post_init__(self) -> None:
        check_odd(kernel=self.kernel)
        check_one_of(_OUTPUT_GATES, output_gate=self.output_gate)
        check_one_of(_POOLS, pool=self.pool)
        check_one_of(_BOUNDARIES, boundary=self.boundary)
        if self.boundary == "beyond" and self.kernel == 1:
            raise ConfigError(
                "boundary=beyond is out of reach of kernel=1: use boundary=edge, or a "
                "kernel of 3 or more"
            )

    def n_gates(self, level: LevelShape) -> int:
        """Four, or three where there is no cell to forget."""
        return 4 if level.has_memory else 3

    def keeps_state(self, level: LevelShape) -> bool:
        """Whether h is read and kept; where there is no memory it is always zero."""
        return self.own_state and level.has_memory

    def pools(self, level: LevelShape) -> bool:
        """Whether there is something to pool that is not always zero."""
        source = level.has_memory if self.own_state else level.reads_state
        return self.pool != "none" and source

    def own_width(self, level: LevelShape) -> int:
        """Channels that an expert reads and the others of its level do not."""
        return level.width * (self.keeps_state(level) + self.pools(level))

    def flops(self, level: LevelShape) -> int:
        """2·k²·positions·(2d·4d) by default; see `ExpertSpec.flops`."""
        taps = self.kernel**2 * level.n_positions
        channels = level.read_width + self.own_width(level)
        channels += self.boundary != "none"
        gates = 2 * taps * channels * self.n_gates(level) * level.width
        if self.pool == "linear" and self.pools(level):
            gates += 2 * 2 * level.width * level.width
        return gates

    def build(self, level: LevelShape, *, key: PRNGKeyArray) -> "ConvLSTMCell":
        """See `ExpertSpec.build`."""
        n_gates, k = self.n_gates(level), self.kernel
        n_out, c = n_gates * level.width, level.read_width
        fan_in = k**2 * (c + self.own_width(level))
        bias = jnp.zeros((n_gates, level.width))
        if level.has_memory:
            bias = bias.at[3].set(self.forget_bias)
        # Folded in, so that `weight` is the same whatever else there is.
        boundary_key, own_key = (jax.random.fold_in(key, i) for i in (1, 2))
        boundary = own = None
        if self.boundary != "none":
            boundary = init_weight(boundary_key, (k, k, 1, n_out), k**2)
        if self.own_width(level):
            own = OwnInput.build(self, level, n_out, fan_in, key=own_key)
        return ConvLSTMCell(
            weight=init_weight(key, (k, k, c, n_out), fan_in),
            bias=bias,
            own=own,
            boundary=boundary,
            spec=self,
            level=level,
        )


class CellState(NamedTuple):
    """The memory of a cell that also reads its own last proposal h."""

    cell: Float[Array, "... h w d"]
    hidden: Float[Array, "... h w d"]


class OwnInput(eqx.Module):
    """The part of the gates that an expert computes from what it alone reads."""

    weight: Float[Array, "... k k c gates_d"]
    pool: Float[Array, "... n d"] | None
    spec: ConvLSTM = eqx.field(static=True)
    level: LevelShape = eqx.field(static=True)

    @classmethod
    def build(
        cls,
        spec: ConvLSTM,
        level: LevelShape,
        n_out: int,
        fan_in: int,
        *,
        key: PRNGKeyArray,
    ) -> "OwnInput":
        """Fresh weights, for `n_out` gate channels that sum `fan_in` terms in all."""
        pool_key, weight_key = jax.random.split(key)
        k, d = spec.kernel, level.width
        pool = None
        if spec.pools(level):
            n_in = 2 if spec.pool == "channel" else 2 * d
            pool = init_weight(pool_key, (n_in, d), n_in)
        shape = (k, k, spec.own_width(level), n_out)
        return cls(init_weight(weight_key, shape, fan_in), pool, spec, level)

    def __call__(self, read: Read, memory: Any) -> Float[Array, "h w gates_d"]:
        """What is added to the gates."""
        maps = []
        source = read.state
        if self.spec.keeps_state(self.level):
            source = memory.hidden
            maps.append(source)
        if self.pool is not None and source is not None:
            maps.append(jnp.broadcast_to(self._pooled(source, self.pool), source.shape))
        return conv(jnp.concatenate(maps, axis=-1), self.weight, self.level.form)

    def _pooled(
        self, x: Float[Array, "h w d"], weight: Float[Array, "n d"]
    ) -> Float[Array, " d"]:
        most, mean = x.max(axis=(0, 1)), x.mean(axis=(0, 1))
        if self.spec.pool == "channel":
            return weight[0] * most + weight[1] * mean
        return project(jnp.concatenate([most, mean]), weight)


class ConvLSTMCell(FusedExpert):
    """The module of `ConvLSTM`; gates are stored in the order i, g, o, f.

    Attributes:
        weight: of what all experts of a level read.
        bias: of the gates.
        own: of what this expert alone reads, if anything.
        boundary: taps on the boundary plane, (k, k, 1, gates·d); once `widened`, what
            they add to the gates, (h, w, gates·e·d).
        spec: the options.
        level: what it was built for.
    """

    weight: Float[Array, "... k k c gates_d"]
    bias: Float[Array, "... gates d"]
    own: OwnInput | None
    boundary: Float[Array, "..."] | None
    spec: ConvLSTM = eqx.field(static=True)
    level: LevelShape = eqx.field(static=True)

    def init_memory(self) -> Any:
        """A zero cell, (H, W, d), and h beside it if kept; nothing if trimmed."""
        if not self.level.has_memory:
            return ()
        zero = jnp.zeros((*self.level.grid, self.level.width))
        return CellState(zero, zero) if self.spec.own_state else zero

    def __call__(self, read: Read, memory: Any) -> tuple[Array, Any]:
        """See `Expert.__call__`."""
        flat = conv(concatenate(read), self.weight, self.level.form)
        if self.own is not None:
            flat = flat + self.own(read, memory)
        if self.boundary is not None:
            flat = flat + self._at_boundary(self.boundary)
        return self._step(flat, memory)

    def widened(self) -> "ConvLSTMCell":
        """See `FusedExpert.widened`."""
        n_gates = self.bias.shape[1]
        boundary = self.boundary
        if boundary is not None:
            boundary = _gates_beside(jax.vmap(self._at_boundary)(boundary), n_gates)
        return replace(
            self,
            weight=widen(self.weight, n_gates, self.level.form),
            bias=jnp.moveaxis(self.bias, 0, 1).reshape(n_gates, -1),
            boundary=boundary,
        )

    def gathered(self, memories: Any) -> Any:
        """See `FusedExpert.gathered`: (h, w, e·d), as the gates are.

        Transposed within the loop over gates, XLA does not vectorise that on CPU.
        """
        return jax.tree.map(_beside, memories)

    def spread(self, memories: Any) -> Any:
        """See `FusedExpert.spread`."""
        return jax.tree.map(lambda x: _apart(x, self.level.width), memories)

    def fused(self, read: Read, memories: Any) -> tuple[Array, Any]:
        """See `FusedExpert.fused`."""
        kernel, form = self.spec.kernel, self.level.form
        flat = wide_conv(concatenate(read), self.weight, kernel, form)
        if self.own is not None:
            apart = self.spread(memories)
            own = jax.vmap(lambda own, m: own(read, m))(self.own, apart)
            flat = flat + _gates_beside(own, len(self.bias))
        if self.boundary is not None:
            flat = flat + self.boundary
        u, memories = self._step(flat, memories)
        return _apart(u, self.level.width), memories

    def _step(self, flat: Float[Array, "h w gates_d"], memory: Any) -> Any:
        kept = isinstance(memory, CellState)
        cell = memory.cell if kept else memory
        output_gate = _OUTPUT_GATES[self.spec.output_gate]
        u, cell = _cell(flat, self.bias.reshape(-1), cell, len(self.bias), output_gate)
        return u, CellState(cell, u) if kept else cell

    def _at_boundary(
        self, weight: Float[Array, "k k 1 gates_d"]
    ) -> Float[Array, "h w gates_d"]:
        k = self.spec.kernel
        plane = boundary_patches(self.level.grid, k, self.spec.boundary)
        return project(jnp.asarray(plane, weight.dtype), weight.reshape(k * k, -1))


def boundary_patches(
    grid: tuple[int, ...], kernel: int, where: str
) -> Float[np.ndarray, "h w kk"]:
    """The k×k neighbourhood of every position on the boundary plane.

    Args:
        grid: height and width of the board.
        kernel: taps per side, odd.
        where: the plane is 1 on the board's outermost squares ("edge") or on all that
            are not on the board ("beyond").
    """
    h, w = grid
    half = kernel // 2
    plane = np.pad(np.zeros((h, w)), half, constant_values=float(where == "beyond"))
    if where == "edge":
        rows, columns = np.indices((h, w))
        outermost = np.isin(rows, (0, h - 1)) | np.isin(columns, (0, w - 1))
        plane[half : half + h, half : half + w] = outermost
    taps = [plane[i : i + h, j : j + w] for i in range(kernel) for j in range(kernel)]
    return np.stack(taps, axis=-1)


def _cell(
    flat: Float[Array, "h w gates_d"],
    bias: Float[Array, " gates_d"],
    cell: Any,
    n_gates: int,
    output_gate: Callable[[Array], Array],
) -> tuple[Array, Any]:
    # Slices before anything else: backwards they come last, as one concatenation.
    gates = jnp.split(flat, n_gates, axis=-1)
    i, g, o, *f = (x + b for x, b in zip(gates, jnp.split(bias, n_gates), strict=True))
    new = sigmoid(i) * jnp.tanh(g)
    if not f:
        return output_gate(o) * jnp.tanh(new), ()
    new = new + sigmoid(f[0]) * cell
    return output_gate(o) * jnp.tanh(new), new


def _gates_beside(
    x: Float[Array, "e h w gates_d"], n_gates: int
) -> Float[Array, "h w gates_e_d"]:
    n_experts, h, w, _ = x.shape
    split = x.reshape(n_experts, h, w, n_gates, -1)
    return jnp.moveaxis(split, 0, 3).reshape(h, w, -1)


def _beside(x: Float[Array, "e h w d"]) -> Float[Array, "h w e_d"]:
    return jnp.moveaxis(x, 0, 2).reshape(*x.shape[1:3], -1)


def _apart(x: Float[Array, "h w e_d"], width: int) -> Float[Array, "e h w d"]:
    return jnp.moveaxis(x.reshape(*x.shape[:2], -1, width), 2, 0)
