"""From an allocation to the network: L levels of E parallel experts, in Equinox.

At each level every expert reads the normalised state and the encoded input; their
proposals are aggregated and move the state. All levels run once in an external step, or
as often as there are ticks. Recurrent networks carry the top state and the experts'
memories to the next external step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from allocsearch.allocation import Allocation
from allocsearch.errors import ConfigError
from allocsearch.experts.layers import SAVED
from allocsearch.experts.protocol import (
    ContextExpert,
    Expert,
    FusedExpert,
    LevelShape,
    spec_of,
)
from allocsearch.experts.sequence import (
    Rolling,
    SequenceExpert,
    as_ring,
    at,
    in_order,
    put_in_place,
    set_at,
)
from allocsearch.level import Level, normed
from allocsearch.recurrence import Steps, unroll_recurrent, unroll_stateless
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


class Inside(NamedTuple):
    """What a step leaves within the core, to look at; the same in both arms.

    Attributes:
        state: the top state s^L, (R, *grid, d) as in `Carry`, before the norm through
            which the head reads it.
        memories: the experts' own memories after the step, axes (L, E, …); () where
            they have none.
    """

    state: Float[Array, "r *grid d"]
    memories: PyTree


_Kept = tuple[Array, PyTree, PyTree]  # state, memories, context
_Visit = Callable[[Level, Array | None, PyTree], tuple[Array, PyTree]]


class ParallelExperts(eqx.Module):
    """The core network of an allocation, for one stream; `vmap` it over streams.

    Attributes:
        first: the first level, where it differs from the others: in a trimmed network,
            or where it alone reads the input.
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
            lean: keep little for the backward pass: products alone in each step, and
                over time no caches where the experts are `SequenceExpert`s.

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

        once = spec_of(allocation).input_once

        def build(level_key: PRNGKeyArray, is_first: bool) -> Level:
            shape = LevelShape(
                width=allocation.width,
                grid=grid,
                reads_state=not (is_first and allocation.trimmed),
                has_memory=not allocation.trimmed,
                reads_input=is_first or not once,
                form=form,
            )
            return _build_level(allocation, shape, not canonical, level_key)

        n_first = 1 if allocation.trimmed or once else 0
        self.first = build(keys[0], True) if n_first else None
        rest = keys[n_first:]
        stack = eqx.filter_vmap(lambda k: build(k, False))
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
        carry, out, _ = self.step_inside(carry, z, reset)
        return carry, out

    def step_inside(
        self, carry: Carry, z: Float[Array, "*grid d"], reset: Bool[Array, ""] | bool
    ) -> tuple[Carry, Float[Array, "*grid d"], Inside]:
        """As `step`, and what it leaves within."""
        carry = _reset(carry, self.init_carry(), reset)
        recurrent = self.allocation.recurrent
        memories = carry.memories if recurrent else self._init_memories()
        state = self._zero_state() if carry.state is None else carry.state
        kept = state, memories, carry.context
        state, memories, context = self._all_ticks(kept, z)
        out = self._for_head(state, z)
        inside = Inside(state, memories)
        if not recurrent:
            return Carry(None, (), context), out, inside
        return Carry(state, memories, context), out, inside

    def memory_at(self, memories: PyTree, level: int) -> PyTree:
        """Of the memories of all levels those of one, 1 at the bottom; axes (E, …)."""
        first, rest = memories
        if self.first is None:
            return jax.tree.map(lambda x: x[level - 1], rest)
        return first if level == 1 else jax.tree.map(lambda x: x[level - 2], rest)

    def unroll(
        self,
        carry: Carry,
        z: Float[Array, "t *grid d"],
        reset: Bool[Array, " t"],
    ) -> tuple[Carry, Float[Array, "t *grid d"]]:
        """Successive steps of one stream.

        A network without recurrence is computed for all steps at once, if it has no
        context or its experts are `SequenceExpert`s. Of a recurrent network of these
        the gradient is computed without keeping a cache for every step.

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
        if self.lean and self.has_sequences:
            return wide._unroll_sequences(carry, z, reset)
        return jax.lax.scan(lambda c, x: wide.step(c, x[0], x[1]), carry, (z, reset))

    def widened(self) -> "ParallelExperts":
        """The same network with what depends on parameters alone done beforehand.

        For a loop over steps; it has the gradients, but not the parameters, of this.
        """
        if self.fresh is not None:
            return self
        fresh = self._init_memories(), self._init_context()
        first = self.first
        if first is not None and self.n_states == 1:
            first = first.widened()
        levels = self.levels
        if levels is not None and self.n_states == 1:
            levels = eqx.filter_vmap(Level.widened)(levels)
        return eqx.tree_at(
            lambda s: (s.first, s.levels, s.fresh),
            self,
            (first, levels, fresh),
            is_leaf=lambda x: x is None,
        )

    def ring_step(
        self, state: Array, z: Array, rings: PyTree, slot: Array, position: Array
    ) -> tuple[Array, PyTree, PyTree]:
        """One step of a network of `SequenceExpert`s; see `SequenceNetwork`."""

        def body(level: Level, state: Array, ring: PyTree, _: None) -> PyTree:
            read = None if self._reads_nothing(level) else state
            pending, new = level.offers(read, z, position)
            ring = put_in_place(ring, new, slot)
            update = level.merged(pending, ring, slot, position)
            after = self._moved(state, update).astype(self.dtype)
            return after, ring, (state, new)

        state = normed(state, self.carry_scale)
        first, rest = rings
        entered_first = new_first = entered = new = ()
        if self.first is not None:
            state, first, kept = body(self.first, state, first, None)
            entered_first, new_first = kept
        if self.levels is not None:
            state, rest, kept = self._each_level(body, state, rest, None)
            entered, new = kept
        kept = (entered_first, entered), (new_first, new)
        return state, (first, rest), kept

    def pulled_back(
        self,
        before: Array,
        entered: PyTree,
        z: Array,
        rings: PyTree,
        slot: Array,
        position: Array,
        gradients: tuple[Array, PyTree],
    ) -> tuple[Array, PyTree]:
        """One step backwards; see `SequenceNetwork`."""

        def body(level: Level, g_state: Array, g_ring: PyTree, given: PyTree) -> PyTree:
            entered, ring = given
            read = None if self._reads_nothing(level) else entered
            g_read, g_ring = level.pulled_back(
                read, z, ring, slot, position, (g_state, g_ring)
            )
            if g_read is None:
                g_read = jnp.zeros_like(g_state)
            if self.allocation.update == "residual":
                g_read = g_state + g_read
            return g_read, g_ring, ()

        g_state, (g_first, g_rest) = gradients
        (entered_first, entered), (first, rest) = entered, rings
        if self.levels is not None:
            g_state, g_rest, _ = self._each_level(
                body, g_state, g_rest, (entered, rest), reverse=True
            )
        if self.first is not None:
            given = entered_first, first
            g_state, g_first, _ = body(self.first, g_state, g_first, given)
        _, pull = jax.vjp(lambda s: normed(s, self.carry_scale), before)
        return pull(g_state)[0], (g_first, g_rest)

    def _reads_nothing(self, level: Level) -> bool:
        return self.allocation.trimmed and level is self.first

    def _each_level(
        self,
        body: Callable[[Level, Array, PyTree, PyTree], tuple[Array, PyTree, PyTree]],
        state: Array,
        rings: PyTree,
        given: PyTree,
        *,
        reverse: bool = False,
    ) -> tuple[Array, PyTree, PyTree]:
        """Stacked levels one after the other, each with its own ring.

        The rings of all levels are carried, so that they are updated in place. A single
        level has no axis of levels, which would cost XLA copies of its ring.
        """
        arrays, static = eqx.partition(self.levels, eqx.is_array)
        if self._is_single:
            level = eqx.combine(jax.tree.map(lambda x: x[0], arrays), static)
            return body(level, state, rings, given)

        def one(carry: PyTree, xs: PyTree) -> tuple[PyTree, PyTree]:
            (state, rings), (arrays, given, index) = carry, xs
            level, ring = eqx.combine(arrays, static), at(rings, index)
            state, ring, out = body(level, state, ring, given)
            return (state, set_at(rings, ring, index)), out

        n_levels = self.allocation.depth - (self.first is not None)
        xs = arrays, given, jnp.arange(n_levels)
        carry, out = jax.lax.scan(one, (state, rings), xs, reverse=reverse)
        return *carry, out

    def at_once(
        self, state: Array, z: Array, past: PyTree, position: Array
    ) -> tuple[Array, PyTree]:
        """T steps of a network of `SequenceExpert`s; see `Level.at_once`.

        Args:
            state: the top state of the step before each, (R, T, d).
            z: encoded inputs, (T, d).
            past: rows of all levels before the first step, oldest first.
            position: of each step in its stream.

        Returns:
            The top states, (R, T, d), and the rows that the steps add.
        """

        def visit(level: Level, state: Array | None, past: PyTree) -> Any:
            return level.at_once(state, z, past, position)

        if self._is_single:
            past = past[0], _stacked(past[1])
        state, (first, rest) = self._through(
            normed(state, self.carry_scale), past, visit
        )
        return state, (first, _first(rest) if self._is_single else rest)

    @property
    def _is_single(self) -> bool:
        return self.levels is not None and self.allocation.depth == 1 + (
            self.first is not None
        )

    @property
    def has_sequences(self) -> bool:
        """Whether the experts are `SequenceExpert`s."""
        level = self.first if self.levels is None else self.levels
        return level is not None and isinstance(level.experts, SequenceExpert)

    def _unroll_sequences(
        self, carry: Carry, z: Array, reset: Array
    ) -> tuple[Carry, Array]:
        rings = jax.tree.leaves(carry.context, is_leaf=_is_rolling)
        start = rings[0].position.reshape(-1)[0]  # the same at every level
        steps = Steps.of(z, reset, start)
        past = jax.tree.map(
            lambda ring: in_order(ring.rows, start), carry.context, is_leaf=_is_rolling
        )
        if self._is_single:
            past = past[0], _first(past[1])
        if carry.state is None:
            states, rows = unroll_stateless(self, self._zero_state(), past, steps)
            state = None
        else:
            states, rows = unroll_recurrent(self, carry.state, past, steps)
            state = states[:, -1]
        if self._is_single:
            rows = rows[0], _stacked(rows[1])
        end = steps.position[-1] + 1
        context = jax.tree.map(
            lambda ring, rows: Rolling(
                as_ring(rows, end), jnp.full_like(ring.position, end)
            ),
            carry.context,
            rows,
            is_leaf=_is_rolling,
        )
        return Carry(state, carry.memories, context), self._for_head(states, z)

    def _for_head(self, state: Array, z: Array) -> Array:
        out = state.mean(axis=0)
        if self.allocation.skip == "encoder":
            out = out + z
        return normed(out, self.head_scale)

    def _all_ticks(self, kept: _Kept, z: Array) -> _Kept:
        def visit(level: Level, state: Array | None, kept: PyTree) -> Any:
            update, *kept = level(state, z, *kept)
            return update, tuple(kept)

        def tick(kept: _Kept, _: None) -> tuple[_Kept, None]:
            state, memories, context = kept
            state = normed(state, self.carry_scale)
            # Of all levels at once: within a level it would slow down what it does.
            memories = self._laid(Level.gathered, memories)
            by_level = tuple(zip(memories, context, strict=True))
            state, by_level = self._through(state, by_level, visit)
            memories, context = zip(*by_level, strict=True)
            return (state, self._laid(Level.spread, memories), context), None

        if self.allocation.ticks == 1:
            return tick(kept, None)[0]
        return jax.lax.scan(tick, kept, None, length=self.allocation.ticks)[0]

    def _laid(self, how: Callable[[Level, PyTree], PyTree], memories: PyTree) -> PyTree:
        first, rest = memories
        if self.first is not None:
            first = how(self.first, first)
        if self.levels is not None:
            rest = eqx.filter_vmap(how)(self.levels, rest)
        return first, rest

    def _through(
        self, state: Array, kept: PyTree, visit: _Visit
    ) -> tuple[Array, PyTree]:
        """All levels one after the other; `kept` and its successor are by level."""
        first_kept, rest_kept = kept
        if self.first is not None:
            read = None if self.allocation.trimmed else state
            update, first_kept = visit(self.first, read, first_kept)
            first_kept = cast(first_kept, self.dtype)
            state = self._moved(state, update) if read is not None else update
            state = state.astype(self.dtype)
        if self.levels is not None:
            state, rest_kept = self._scan_levels(state, rest_kept, visit)
        return state, (first_kept, rest_kept)

    def _scan_levels(
        self, state: Array, kept: PyTree, visit: _Visit
    ) -> tuple[Array, PyTree]:
        arrays, static = eqx.partition(self.levels, eqx.is_array)

        def body(state: Array, level_and_kept: PyTree) -> tuple[Array, PyTree]:
            arrays, kept = level_and_kept
            update, kept = visit(eqx.combine(arrays, static), state, kept)
            # Experts may compute parts in another precision; what is kept has one.
            kept = cast(kept, self.dtype)
            return self._moved(state, update).astype(state.dtype), kept

        if self.lean:
            keep = jax.checkpoint_policies.save_only_these_names(SAVED)
            body = jax.checkpoint(body, policy=keep, prevent_cse=False)
        return jax.lax.scan(body, state, (arrays, kept))

    def _moved(self, state: Array, update: Array) -> Array:
        return state + update if self.allocation.update == "residual" else update

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
        return cast((first, rest), self.dtype)


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
        fused=fast and isinstance(experts, FusedExpert | SequenceExpert),
    )


def _reset(carry: Carry, initial: Carry, reset: Bool[Array, ""] | bool) -> Carry:
    if reset is False:
        return carry
    return jax.tree.map(lambda i, c: jnp.where(reset, i, c), initial, carry)


def cast(tree: PyTree, dtype: Any) -> PyTree:
    """A tree with its floating-point arrays in one precision."""
    return jax.tree.map(
        lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree
    )


def _is_rolling(x: Any) -> bool:
    return isinstance(x, Rolling)


def _first(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: x[0], tree)


def _stacked(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: x[None], tree)
