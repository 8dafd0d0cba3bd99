"""From an allocation to the network: L levels of E parallel experts, in Equinox.

At each level every expert reads the normalised state and the encoded input; their
proposals are aggregated and move the state. All levels run once in an external step, or
as often as there are ticks. Recurrent networks carry the top state and the experts'
memories to the next external step.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from allocsearch.allocation import Allocation
from allocsearch.errors import ConfigError
from allocsearch.experts.layers import SAVED, rms_norm
from allocsearch.experts.protocol import (
    ContextExpert,
    Expert,
    FusedExpert,
    LevelShape,
    Read,
    spec_of,
)
from allocsearch.registry import load


class Carry(eqx.Module):
    """What one stream keeps between external steps.

    Attributes:
        state: the top state, (R, *grid, d) with R = 1 or, under a radius, E; None when
            the network is not recurrent.
        memories: the experts' own memories, each with axes (L, E, …); () likewise.
        context: caches that both arms keep, each with a leading axis per level.
    """

    state: Float[Array, "r *grid d"] | None
    memories: PyTree
    context: PyTree


_Kept = tuple[Array, PyTree, PyTree]  # state, memories, context


class Level(eqx.Module):
    """E experts side by side and the aggregation that merges them."""

    experts: Any  # one Expert or ContextExpert whose arrays have a leading axis E
    aggregation: Any
    read_scale: Float[Array, "... d"] | None
    n_experts: int = eqx.field(static=True)
    n_members: int = eqx.field(static=True)
    fused: bool = eqx.field(static=True)
    wide: bool = eqx.field(static=True, default=False)

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
        if self.wide:
            return self.experts.fused(read, memories)
        experts = self.experts.widened()
        u, memories = experts.fused(read, experts.gathered(memories))
        return u, experts.spread(memories)

    def gathered(self, memories: PyTree) -> PyTree:
        """Memories with a leading axis E as this level takes and gives them."""
        return self.experts.gathered(memories) if self.wide else memories

    def spread(self, memories: PyTree) -> PyTree:
        """The inverse of `gathered`."""
        return self.experts.spread(memories) if self.wide else memories

    def widened(self) -> "Level":
        """The same level, its experts laid side by side once for many steps.

        For a level whose experts all read the same state.
        """
        if not self.fused or self.wide:
            return self
        return replace(self, experts=self.experts.widened(), wide=True)

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
        return Read(_normed(state, self.read_scale), z[None])

    def _is_shared(self, read: Read) -> bool:
        return read.state is None or read.state.shape[0] == 1

    def _axis(self, read: Read) -> Any:
        """Where the experts' own axis is in a read, for `vmap`."""
        axes: tuple[Any, Any] = (None if self._is_shared(read) else 0, None)
        return Read(*axes)

    def _spread(self, read: Read) -> Read:
        first = _first(read)
        return first if self._is_shared(read) else Read(read.state, first.input)

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
        return eqx.filter_vmap(lambda e: e.init_memory(), axis_size=self.n_experts)(
            self.experts
        )

    def init_context(self) -> PyTree:
        """An empty context: one, or one per expert, or ()."""
        if not isinstance(self.experts, ContextExpert):
            return ()
        each = eqx.filter_vmap(lambda e: e.init_context(), axis_size=self.n_experts)(
            self.experts
        )
        return _first(each) if self.experts.shares else each


class ParallelExperts(eqx.Module):
    """The core network of an allocation, for one stream; `vmap` it over streams.

    Attributes:
        first: the first level, where it differs from the others (trimmed networks).
        levels: the other levels, stacked on a leading axis.
        carry_scale: gain of the norm on the state that goes from the top to the first
            level, at the next step or tick; None where none goes, or without norm.
        head_scale: gain of the norm that the head reads through; None without norm.
        fresh: memories and context at the start of a stream, in a `widened` network.
    """

    first: Level | None
    levels: Level | None
    carry_scale: Float[Array, " d"] | None
    head_scale: Float[Array, " d"] | None
    fresh: tuple[PyTree, PyTree] | None
    allocation: Allocation = eqx.field(static=True)
    grid: tuple[int, ...] = eqx.field(static=True)
    lean: bool = eqx.field(static=True)

    def __init__(
        self,
        allocation: Allocation,
        grid: tuple[int, ...],
        *,
        key: PRNGKeyArray,
        canonical: bool = False,
        lean: bool = True,
    ):
        """Build with fresh parameters.

        Args:
            allocation: what to build.
            grid: positions of one step: () for a vector, (H, W) for a board.
            key: the same key gives the same network.
            canonical: the plain program that work is counted on, instead of the form
                that is fastest on this backend. Parameters are the same.
            lean: recompute all but the products in the backward pass.

        Raises:
            ConfigError: the expert cannot work on this grid or with these options.
        """
        check_grid(allocation, grid)
        patches = jax.default_backend() == "cpu" and not canonical
        self.allocation = allocation
        self.grid = grid
        self.lean = lean and not canonical
        keys = jax.random.split(key, allocation.depth)
        form = "patches" if patches else "conv"

        def build(level_key: PRNGKeyArray, reads_state: bool) -> Level:
            shape = LevelShape(
                width=allocation.width,
                grid=grid,
                reads_state=reads_state,
                has_memory=not allocation.trimmed,
                form=form,
            )
            return _build_level(allocation, shape, not canonical, level_key)

        n_first = 1 if allocation.trimmed else 0
        self.first = build(keys[0], False) if n_first else None
        rest = keys[n_first:]
        stack = eqx.filter_vmap(lambda k: build(k, True))
        self.levels = stack(rest) if len(rest) else None
        ones = jnp.ones(allocation.width) if allocation.norm == "rms" else None
        returns = allocation.recurrent or allocation.ticks > 1
        self.carry_scale = ones if returns else None
        self.head_scale = ones
        self.fresh = None

    @property
    def n_states(self) -> int:
        """How many states a stream carries: 1, or E under a communication radius."""
        return 1 if self.allocation.radius == "full" else self.allocation.n_experts

    def init_carry(self) -> Carry:
        """The carry at the start of a stream."""
        state = self._zero_state() if self.allocation.recurrent else None
        memories = self._init_memories() if self.allocation.recurrent else ()
        return Carry(state, memories, self._init_context())

    @property
    def dtype(self) -> Any:
        """What the network computes in: the dtype of its parameters."""
        parameters = eqx.filter((self.first, self.levels), eqx.is_inexact_array)
        return jax.tree.leaves(parameters)[0].dtype

    def step(
        self, carry: Carry, z: Float[Array, "*grid d"], reset: Bool[Array, ""] | bool
    ) -> tuple[Carry, Float[Array, "*grid d"]]:
        """One external step of one stream.

        Args:
            carry: from `init_carry` or the last step.
            z: the encoded observation.
            reset: whether this step starts a new stream; the carry is then ignored.

        Returns:
            The carry, and the top state as the head reads it.
        """
        carry = _reset(carry, self.init_carry(), reset)
        recurrent = self.allocation.recurrent
        memories = carry.memories if recurrent else self._init_memories()
        state = self._zero_state() if carry.state is None else carry.state
        kept = state, memories, carry.context
        state, memories, context = self._all_ticks(kept, z)
        out = state.mean(axis=0)
        if self.allocation.skip == "encoder":
            out = out + z
        out = _normed(out, self.head_scale)
        if not recurrent:
            return Carry(None, (), context), out
        return Carry(state, memories, context), out

    def unroll(
        self,
        carry: Carry,
        z: Float[Array, "t *grid d"],
        reset: Bool[Array, " t"],
    ) -> tuple[Carry, Float[Array, "t *grid d"]]:
        """Successive steps of one stream.

        A network without recurrence or context is computed for all steps at once.

        Args:
            carry: before the first step.
            z: encoded observations.
            reset: for each step, whether it starts a new stream.

        Returns:
            The carry after the last step, and what the head reads at each.
        """
        wide = self.widened()
        if not self.allocation.recurrent and not jax.tree.leaves(carry):
            return carry, jax.vmap(lambda x: wide.step(carry, x, False)[1])(z)
        return jax.lax.scan(lambda c, x: wide.step(c, x[0], x[1]), carry, (z, reset))

    def widened(self) -> "ParallelExperts":
        """The same network with what depends on parameters alone done beforehand.

        For a loop over steps; it has the gradients, but not the parameters, of this.
        """
        if self.fresh is not None:
            return self
        fresh = self._init_memories(), self._init_context()
        first = None if self.first is None else self.first.widened()
        levels = self.levels
        if levels is not None and self.n_states == 1:
            levels = eqx.filter_vmap(Level.widened)(levels)
        return eqx.tree_at(
            lambda s: (s.first, s.levels, s.fresh),
            self,
            (first, levels, fresh),
            is_leaf=lambda x: x is None,
        )

    def _all_ticks(self, kept: _Kept, z: Array) -> _Kept:
        def tick(kept: _Kept, _: None) -> tuple[_Kept, None]:
            state, memories, context = kept
            state = _normed(state, self.carry_scale)
            return self._through(state, z, memories, context), None

        if self.allocation.ticks == 1:
            return tick(kept, None)[0]
        return jax.lax.scan(tick, kept, None, length=self.allocation.ticks)[0]

    def _through(
        self, state: Array, z: Array, memories: PyTree, context: PyTree
    ) -> _Kept:
        first_memories, rest_memories = memories
        first_context, rest_context = context
        if self.first is not None:
            first_memories = self.first.gathered(first_memories)
            update, *kept = self.first(None, z, first_memories, first_context)
            first_memories, first_context = _cast(tuple(kept), self.dtype)
            first_memories = self.first.spread(first_memories)
            state = jnp.broadcast_to(update, state.shape).astype(state.dtype)
        if self.levels is not None:
            state, (rest_memories, rest_context) = self._scan_levels(
                state, z, (rest_memories, rest_context)
            )
        return (
            state,
            (first_memories, rest_memories),
            (first_context, rest_context),
        )

    def _scan_levels(
        self, state: Array, z: Array, kept: PyTree
    ) -> tuple[Array, PyTree]:
        arrays, static = eqx.partition(self.levels, eqx.is_array)
        # Of all levels at once: within a level it would slow down what it does.
        memories, context = kept
        kept = eqx.filter_vmap(Level.gathered)(self.levels, memories), context

        def body(state: Array, level_and_kept: PyTree) -> tuple[Array, PyTree]:
            arrays, (memories, context) = level_and_kept
            level = eqx.combine(arrays, static)
            update, *kept = level(state, z, memories, context)
            if self.allocation.update == "residual":
                update = state + update
            # Experts may compute parts in another precision; what is kept has one.
            kept = _cast(tuple(kept), self.dtype)
            return update.astype(state.dtype), kept

        if self.lean:
            keep = jax.checkpoint_policies.save_only_these_names(SAVED)
            body = jax.checkpoint(body, policy=keep, prevent_cse=False)
        state, (memories, context) = jax.lax.scan(body, state, (arrays, kept))
        memories = eqx.filter_vmap(Level.spread)(self.levels, memories)
        return state, (memories, context)

    def _zero_state(self) -> Array:
        shape = (self.n_states, *self.grid, self.allocation.width)
        return jnp.zeros(shape, self.dtype)

    def _init_memories(self) -> PyTree:
        if self.fresh is not None:
            return self.fresh[0]
        return self._per_level(Level.init_memories)

    def _init_context(self) -> PyTree:
        if self.fresh is not None:
            return self.fresh[1]
        return self._per_level(Level.init_context)

    def _per_level(self, make: Any) -> PyTree:
        first = () if self.first is None else make(self.first)
        rest = () if self.levels is None else eqx.filter_vmap(make)(self.levels)
        return _cast((first, rest), self.dtype)


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


def _build_level(
    allocation: Allocation, shape: LevelShape, fast: bool, key: PRNGKeyArray
) -> Level:
    key_experts, key_aggregation = jax.random.split(key)
    spec = spec_of(allocation)
    keys = jax.random.split(key_experts, allocation.n_experts)
    experts = eqx.filter_vmap(lambda k: spec.build(shape, key=k))(keys)
    if not isinstance(experts, Expert | ContextExpert):
        raise ConfigError(
            f"expert {allocation.expert!r} builds a {type(experts).__name__}, which "
            "is neither an Expert nor a ContextExpert"
        )
    if allocation.ticks > 1 and isinstance(experts, ContextExpert):
        raise ConfigError(
            f"expert {allocation.expert!r} keeps a context that is written once a "
            f"step, but ticks={allocation.ticks}: set ticks=1"
        )
    normed = shape.reads_state and allocation.norm == "rms"
    aggregation = load("aggregation", allocation.aggregation)
    return Level(
        experts=experts,
        aggregation=aggregation(
            allocation.n_experts, allocation.width, key=key_aggregation
        ),
        read_scale=jnp.ones(allocation.width) if normed else None,
        n_experts=allocation.n_experts,
        n_members=allocation.n_members,
        fused=fast and isinstance(experts, FusedExpert),
    )


def _normed(state: Array, scale: Array | None) -> Array:
    """The state over its rms, times a gain; as it is where there is no gain."""
    return state if scale is None else rms_norm(state) * scale


def _reset(carry: Carry, initial: Carry, reset: Bool[Array, ""] | bool) -> Carry:
    if reset is False:
        return carry
    return jax.tree.map(lambda i, c: jnp.where(reset, i, c), initial, carry)


def _cast(tree: PyTree, dtype: Any) -> PyTree:
    """A tree with its floating-point arrays in one precision."""
    return jax.tree.map(
        lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree
    )


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[0], tree)


class Model(eqx.Module):
    """A task's encoder, the core network and the task's head, for one stream."""

    encoder: Any
    core: ParallelExperts
    head: Any

    def init_carry(self) -> Carry:
        """The carry at the start of a stream."""
        return self.core.init_carry()

    def astype(self, dtype: Any) -> "Model":
        """The same model computing in another precision; its outputs stay float32.

        It has the gradients, but not the parameters, of this.
        """
        return _cast(self, dtype)

    def carried(self, carry: Carry) -> Carry:
        """A carry in the precision that this model computes in."""
        return _cast(carry, self.core.dtype)

    def widened(self) -> "Model":
        """The same model, its core ready for many steps."""
        return Model(self.encoder, self.core.widened(), self.head)

    def step(
        self, carry: Carry, observation: PyTree, reset: Bool[Array, ""] | bool
    ) -> tuple[Carry, PyTree]:
        """One external step: an observation in, the head's outputs out."""
        z = self._encode(observation)
        carry, features = self.core.step(carry, z, reset)
        return carry, self._read(features)

    def unroll(
        self, carry: Carry, observations: PyTree, reset: Bool[Array, " t"]
    ) -> tuple[Carry, PyTree]:
        """Successive steps; encoder and head run outside the scan over time."""
        z = jax.vmap(self._encode)(observations)
        carry, features = self.core.unroll(carry, z, reset)
        return carry, jax.vmap(self._read)(features)

    def _encode(self, observation: PyTree) -> Array:
        return self.encoder(observation).astype(self.core.dtype)

    def _read(self, features: Array) -> PyTree:
        return _cast(self.head(features), jnp.float32)
