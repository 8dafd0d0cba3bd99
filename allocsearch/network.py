"""From an allocation to the network: L levels of E parallel experts, in Equinox.

At each level every expert reads the normalised state and the encoded input; their
proposals are aggregated and move the state. All levels run once in an external step, or
as often as there are ticks. Recurrent networks carry the top state and the experts'
memories to the next external step.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from allocsearch.allocation import Allocation
from allocsearch.experts.protocol import (
    LevelShape,
    spec_of,
)
from allocsearch.experts.sequence import (
    Rolling,
    as_ring,
    in_order,
)
from allocsearch.level import Level, build_level, check_grid, normed
from allocsearch.recurrence import Steps, unroll_recurrent, unroll_stateless
from allocsearch.stack import LevelStack, as_stacked, of_single


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


class ParallelExperts(LevelStack):
    """The core network of an allocation, for one stream; `vmap` it over streams.

    Attributes:
        head_scale: gain of the norm that the head reads through; None without norm.
        fresh: memories and context at the start of a stream, in a `widened` network.
    """

    head_scale: Float[Array, " d"] | None
    fresh: tuple[PyTree, PyTree] | None
    grid: tuple[int, ...] = eqx.field(static=True)

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
            return build_level(allocation, shape, not canonical, level_key)

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

    def unroll_from_start(
        self, z: Float[Array, "t *grid d"], reset: Bool[Array, " t"]
    ) -> Float[Array, "t *grid d"]:
        """What the head reads at each step of a new stream; see `unroll`.

        `SequenceExpert`s without recurrence do not look for what is not past, where a
        window is as long as the stream.
        """
        sees_all = self.has_sequences and len(z) <= self.window
        if self.allocation.recurrent or not (self.lean and sees_all):
            return self.unroll(self.init_carry(), z, reset)[1]
        wide = self.widened()
        past = jax.tree.map(lambda r: r[..., :0, :], wide._rows(wide._init_context()))
        steps = Steps.of(z, reset, jnp.zeros((), jnp.int32))
        states, _ = unroll_stateless(wide, self._zero_state(), past, steps)
        return wide._for_head(states, z)

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

    def _unroll_sequences(
        self, carry: Carry, z: Array, reset: Array
    ) -> tuple[Carry, Array]:
        rings = jax.tree.leaves(carry.context, is_leaf=_is_rolling)
        start = rings[0].position.reshape(-1)[0]  # the same at every level
        steps = Steps.of(z, reset, start)
        past = in_order(self._rows(carry.context), start)
        if carry.state is None:
            states, rows = unroll_stateless(self, self._zero_state(), past, steps)
            state = None
        else:
            states, rows = unroll_recurrent(self, carry.state, past, steps)
            state = states[:, -1]
        if self._is_single:
            rows = rows[0], as_stacked(rows[1])
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

    def _rows(self, context: PyTree) -> PyTree:
        """The rows of all levels, as rings; a single level has no axis of levels."""
        first, rest = jax.tree.map(lambda x: x.rows, context, is_leaf=_is_rolling)
        return first, of_single(rest) if self._is_single else rest

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


def _reset(carry: Carry, initial: Carry, reset: Bool[Array, ""] | bool) -> Carry:
    if reset is False:
        return carry
    return jax.tree.map(lambda i, c: jnp.where(reset, i, c), initial, carry)


def _is_rolling(x: Any) -> bool:
    return isinstance(x, Rolling)
