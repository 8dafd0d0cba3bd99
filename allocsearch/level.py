"""One level of the network: E experts side by side, and what merges their proposals."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from allocsearch.allocation import Allocation
from allocsearch.errors import ConfigError
from allocsearch.experts.layers import rms_norm
from allocsearch.experts.protocol import (
    ContextExpert,
    Expert,
    FusedExpert,
    LevelShape,
    Read,
    spec_of,
)
from allocsearch.experts.sequence import (
    Rolling,
    SequenceExpert,
    attend_in_blocks,
    followed_by,
    put,
    take,
    visible_in_ring,
    window_of,
)
from allocsearch.registry import load


class Level(eqx.Module):
    """E experts side by side and the aggregation that merges them."""

    experts: Any  # one module of a kind of expert, its arrays with a leading axis E
    aggregation: Any
    read_scale: Float[Array, "... d"] | None
    n_experts: int = eqx.field(static=True)
    n_members: int = eqx.field(static=True)
    fused: bool = eqx.field(static=True)
    is_wide: bool = eqx.field(static=True, default=False)
    wide: Any = None  # parameters of `SequenceExpert`s laid side by side

    def __call__(
        self, state: Array | None, z: Array, memories: PyTree, context: PyTree
    ) -> tuple[Array, PyTree, PyTree]:
        """One level of one step.

        Args:
            state: (R, *grid, d), or None where it is always zero.
            z: the encoded input, (*grid, d).
            memories: of this level, leading axis E, or `gathered` where it is wide.
            context: of this level.

        Returns:
            The aggregated update, (R, *grid, d), memories and context.
        """
        if isinstance(self.experts, SequenceExpert):
            position = context.position
            slot = position % window_of(context.rows)
            pending, new = self.offers(state, z, position)
            rows = put(context.rows, new, slot)
            update = self.merged(pending, rows, slot, position)
            return update, memories, Rolling(rows, position + 1)
        read = self._read(state, z)
        if isinstance(self.experts, ContextExpert):
            u, memories, context = self._with_context(read, memories, context)
        elif self.fused and self._is_shared(read):
            u, memories = self._fused(_first(read), memories)
        else:
            each = jax.vmap(lambda e, r, m: e(r, m), in_axes=(0, self._axis(read), 0))
            u, memories = each(self.experts, self._spread(read), memories)
        return self.aggregation(u, self.members), memories, context

    def _fused(self, read: Read, memories: PyTree) -> tuple[Array, PyTree]:
        if self.is_wide:
            return self.experts.fused(read, memories)
        experts = self.experts.widened()
        u, memories = experts.fused(read, experts.gathered(memories))
        return u, experts.spread(memories)

    def gathered(self, memories: PyTree) -> PyTree:
        """Memories with a leading axis E as this level takes and gives them."""
        return self.experts.gathered(memories) if self._lays_out else memories

    def spread(self, memories: PyTree) -> PyTree:
        """The inverse of `gathered`."""
        return self.experts.spread(memories) if self._lays_out else memories

    @property
    def _lays_out(self) -> bool:
        return self.is_wide and isinstance(self.experts, FusedExpert)

    def offers(
        self, state: Array | None, z: Array, position: Int[Array, ""]
    ) -> tuple[PyTree, PyTree]:
        """The first half of a step of a level of `SequenceExpert`s.

        Args:
            state: (R, d), or None where it is always zero.
            z: the encoded input, (d,).
            position: of the step in its stream.

        Returns:
            What `merged` needs, and the row that the step adds.
        """
        read = self._read(None if state is None else state[:, None], z[None])
        return self._offers(read, position[None])

    def merged(
        self,
        pending: PyTree,
        rows: PyTree,
        slot: Int[Array, ""],
        position: Int[Array, ""],
    ) -> Float[Array, "r d"]:
        """The second half: the aggregated update.

        Args:
            pending: from `offers`.
            rows: the last rows as a ring, that of the step among them.
            slot: the place in the ring of the step's own row.
            position: of the step in its stream.
        """
        visible = visible_in_ring(window_of(rows), slot, position)[None]

        def one(expert: Any, pending: PyTree, rows: PyTree) -> Array:
            attended = expert.attend(pending, rows, position[None], visible)
            return expert.propose(pending, attended)[0]

        u = jax.vmap(one, (0, 0, self._rows_axis))(self.experts, pending, rows)
        return self.aggregation(u, self.members)

    def pulled_back(
        self,
        state: Array | None,
        z: Array,
        rows: PyTree,
        slot: Int[Array, ""],
        position: Int[Array, ""],
        gradients: tuple[Array, PyTree],
    ) -> tuple[Array, PyTree]:
        """What the loss loses by the state and the rows that a step read.

        Args:
            state, z, rows, slot, position: as for `offers` and `merged`.
            gradients: by the aggregated update, and by the rows as later steps read
                them.

        Returns:
            Gradients by the state, and by the rows before this step: zero in the
            place of its own.
        """
        g_update, g_rows = gradients
        (pending, _), pull_offers = jax.vjp(
            lambda s: self.offers(s, z, position), state
        )
        merge = lambda p, r: self.merged(p, r, slot, position)  # noqa: E731
        _, pull_merged = jax.vjp(merge, pending, rows)
        g_pending, g_read = pull_merged(g_update)
        g_rows = jax.tree.map(jnp.add, g_rows, g_read)
        (g_state,) = pull_offers((g_pending, take(g_rows, slot, 1)))
        others = jnp.arange(window_of(rows))[:, None] != slot
        return g_state, jax.tree.map(lambda g: jnp.where(others, g, 0), g_rows)

    def at_once(
        self, state: Array | None, z: Array, past: PyTree, position: Int[Array, " t"]
    ) -> tuple[Array, PyTree]:
        """T steps of a level of `SequenceExpert`s, their states known beforehand.

        Args:
            state: (R, T, d), or None where it is always zero.
            z: encoded inputs, (T, d).
            past: the window's rows before the first step, oldest first.
            position: of each step in its stream.

        Returns:
            The aggregated updates, (R, T, d), and the rows that the steps add.
        """
        read = self._read(state, z)
        pending, new = self._offers(read, position)
        rows = followed_by(past, new)

        def one(expert: Any, pending: PyTree, rows: PyTree) -> Array:
            attended = attend_in_blocks(expert.attend, pending, rows, position)
            return expert.propose(pending, attended)

        u = jax.vmap(one, (0, 0, self._rows_axis))(self.experts, pending, rows)
        merge = jax.vmap(lambda u: self.aggregation(u, self.members), 1, 1)
        return merge(u), new

    def widened(self) -> "Level":
        """The same level, its experts laid side by side once for many steps.

        For a level whose experts all read the same state.
        """
        if not self.fused or self.is_wide:
            return self
        experts, wide = self.experts.widened(), None
        if isinstance(self.experts, SequenceExpert):
            experts, wide = experts
        return replace(self, experts=experts, wide=wide, is_wide=True)

    @property
    def members(self) -> np.ndarray:
        """Indices (R, n) of the experts that each state hears, itself first."""
        if self.n_members == self.n_experts:
            return np.arange(self.n_experts)[None]
        back = np.arange(self.n_members)[None]
        return (np.arange(self.n_experts)[:, None] - back) % self.n_experts

    def _read(self, state: Array | None, z: Array) -> Read:
        if state is None:
            return Read(None, z[None])
        return Read(normed(state, self.read_scale), z[None])

    def _is_shared(self, read: Read) -> bool:
        return read.state is None or read.state.shape[0] == 1

    def _axis(self, read: Read) -> Any:
        """Where the experts' own axis is in a read, for `vmap`."""
        axes: tuple[Any, Any] = (None if self._is_shared(read) else 0, None)
        return Read(*axes)

    def _spread(self, read: Read) -> Read:
        first = _first(read)
        return first if self._is_shared(read) else Read(read.state, first.input)

    @property
    def _rows_axis(self) -> int | None:
        """Where the experts' own axis is in rows."""
        return None if self.experts.shares else 0

    def _offers(self, read: Read, position: Int[Array, " t"]) -> tuple[PyTree, PyTree]:
        """What all experts offer at T steps: pending, leading axis E, and rows."""
        if self.fused and self._is_shared(read):
            level = self.widened()
            pending, rows = level.experts.fused_offer(level.wide, _first(read))
        else:
            each = jax.vmap(lambda e, r: e.offer(r), in_axes=(0, self._axis(read)))
            pending, rows = each(self.experts, self._spread(read))
            if self.experts.shares:
                scale = self.n_experts**-0.5
                rows = jax.tree.map(lambda r: r.sum(axis=0) * scale, rows)
        return pending, self.experts.place(rows, position)

    def _with_context(
        self, read: Read, memories: PyTree, context: PyTree
    ) -> tuple[Array, PyTree, PyTree]:
        experts, axis, spread = self.experts, self._axis(read), self._spread(read)
        propose = jax.vmap(lambda e, r, m: e.propose(r, m), in_axes=(0, axis, 0))
        proposals = propose(experts, spread, memories)
        if experts.shares:
            scale = self.n_experts**-0.5
            merged = jax.tree.map(lambda p: p.sum(axis=0) * scale, proposals)
            context, context_axis = experts.write(context, merged), None
        else:
            context = jax.vmap(experts.write)(context, proposals)
            context_axis = 0
        each = jax.vmap(lambda e, r, m, c: e(r, m, c), (0, axis, 0, context_axis))
        u, memories = each(experts, spread, memories, context)
        return u, memories, context

    def init_memories(self) -> PyTree:
        """Zero memories, leading axis E."""
        if isinstance(self.experts, SequenceExpert):
            return ()
        return eqx.filter_vmap(lambda e: e.init_memory(), axis_size=self.n_experts)(
            self.experts
        )

    def init_context(self) -> PyTree:
        """An empty context: one, or one per expert, or ()."""
        if isinstance(self.experts, SequenceExpert):
            rows = eqx.filter_vmap(lambda e: e.init_rows(), axis_size=self.n_experts)(
                self.experts
            )
            rows = _first(rows) if self.experts.shares else rows
            return Rolling(rows, jnp.zeros((), jnp.int32))
        if not isinstance(self.experts, ContextExpert):
            return ()
        each = eqx.filter_vmap(lambda e: e.init_context(), axis_size=self.n_experts)(
            self.experts
        )
        return _first(each) if self.experts.shares else each


def normed(state: Array, scale: Array | None) -> Array:
    """The state over its rms, times a gain; as it is where there is no gain."""
    return state if scale is None else rms_norm(state) * scale


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[0], tree)


def check_grid(allocation: Allocation, grid: tuple[int, ...]) -> None:
    """Refuse an expert that cannot work on a task's positions.

    Raises:
        ConfigError: names the expert and the kinds of grid it takes.
    """
    spec = spec_of(allocation)
    if len(grid) not in spec.grid_ndims:
        takes = " or ".join(
            "a vector" if n == 0 else f"a {n}-D board" for n in spec.grid_ndims
        )
        given = "a vector" if not grid else f"a {len(grid)}-D board {grid}"
        raise ConfigError(
            f"expert {allocation.expert!r} works on {takes}, but this task gives "
            f"{given}: choose another expert"
        )


def build_level(
    allocation: Allocation, shape: LevelShape, fast: bool, key: PRNGKeyArray
) -> Level:
    """A level with fresh parameters.

    Args:
        allocation: of the network.
        shape: of this level.
        fast: compute experts side by side where their kind can.
        key: the same key gives the same level.

    Raises:
        ConfigError: the expert is of no known kind, or cannot have ticks.
    """
    key_experts, key_aggregation = jax.random.split(key)
    spec = spec_of(allocation)
    keys = jax.random.split(key_experts, allocation.n_experts)
    experts = eqx.filter_vmap(lambda k: spec.build(shape, key=k))(keys)
    if not isinstance(experts, Expert | ContextExpert | SequenceExpert):
        raise ConfigError(
            f"expert {allocation.expert!r} builds a {type(experts).__name__}, which "
            "is neither an Expert nor a ContextExpert nor a SequenceExpert"
        )
    if allocation.ticks > 1 and isinstance(experts, ContextExpert | SequenceExpert):
        raise ConfigError(
            f"expert {allocation.expert!r} keeps a context that is written once a "
            f"step, but ticks={allocation.ticks}: set ticks=1"
        )
    is_normed = shape.reads_state and allocation.norm == "rms"
    aggregation = load("aggregation", allocation.aggregation)
    return Level(
        experts=experts,
        aggregation=aggregation(
            allocation.n_experts, allocation.width, key=key_aggregation
        ),
        read_scale=jnp.ones(allocation.width) if is_normed else None,
        n_experts=allocation.n_experts,
        n_members=allocation.n_members,
        fused=fast and isinstance(experts, FusedExpert | SequenceExpert),
    )
