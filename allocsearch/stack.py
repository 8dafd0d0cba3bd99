"""The levels of a network one after the other: stepwise, over time and backwards."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from allocsearch.allocation import Allocation
from allocsearch.experts.layers import SAVED
from allocsearch.experts.sequence import SequenceExpert, at, put_in_place, set_at
from allocsearch.level import Level, normed

_Visit = Callable[[Level, Array | None, PyTree], tuple[Array, PyTree]]


class LevelStack(eqx.Module):
    """L levels, of which the first may differ; what `ParallelExperts` is built upon.

    Attributes:
        first: the first level, where it differs from the others: in a trimmed network,
            or where it alone reads the input.
        levels: the other levels, stacked on a leading axis.
        carry_scale: gain of the norm on the state that goes from the top to the first
            level, at the next step or tick; None where none goes, or without norm.
        lean: keep little for the backward pass.
    """

    first: Level | None
    levels: Level | None
    carry_scale: Float[Array, " d"] | None
    allocation: Allocation = eqx.field(static=True)
    lean: bool = eqx.field(static=True)

    @property
    def dtype(self) -> Any:
        """What the network computes in: the dtype of its parameters."""
        parameters = eqx.filter((self.first, self.levels), eqx.is_inexact_array)
        return jax.tree.leaves(parameters)[0].dtype

    @property
    def has_sequences(self) -> bool:
        """Whether the experts are `SequenceExpert`s."""
        return isinstance(self._experts, SequenceExpert)

    @property
    def window(self) -> int:
        """Rows that `SequenceExpert`s look back on."""
        return self._experts.window

    @property
    def _experts(self) -> Any:
        """The experts of a level; of what kind they are is the same at all."""
        level = self.first if self.levels is None else self.levels
        assert level is not None
        return level.experts

    def ring_step(
        self, state: Array, z: Array, rings: PyTree, slot: Array, position: Array
    ) -> tuple[Array, PyTree, PyTree]:
        """One step of a network of `SequenceExpert`s.

        Args:
            state: the top state of the last step, (R, d).
            z: the encoded input, (d,).
            rings: the last rows of all levels, as rings.
            slot: the place in the rings that this step replaces.
            position: of the step in its stream.

        Returns:
            The top state; the rings; and the states that entered the levels, with the
            rows put into the rings.
        """

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
        """One step of a network of `SequenceExpert`s, backwards.

        Args:
            before: the top state of the last step, (R, d).
            entered: the states that entered the levels.
            z, slot, position: as for `ring_step`.
            rings: with the rows of this step.
            gradients: by the top state, and by the rings as later steps read them.

        Returns:
            Gradients by `before`, and by the rings without the rows of this step.
        """

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
            past = past[0], as_stacked(past[1])
        state, (first, rest) = self._through(
            normed(state, self.carry_scale), past, visit
        )
        return state, (first, of_single(rest) if self._is_single else rest)

    def _reads_nothing(self, level: Level) -> bool:
        return self.allocation.trimmed and level is self.first

    @property
    def _is_single(self) -> bool:
        return self.levels is not None and self.allocation.depth == 1 + (
            self.first is not None
        )

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

    def _per_level(self, make: Any) -> PyTree:
        first = () if self.first is None else make(self.first)
        rest = () if self.levels is None else eqx.filter_vmap(make)(self.levels)
        return cast((first, rest), self.dtype)


def cast(tree: PyTree, dtype: Any) -> PyTree:
    """A tree with its floating-point arrays in one precision."""
    return jax.tree.map(
        lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree
    )


def of_single(tree: PyTree) -> PyTree:
    """What a single level has, without the axis of levels."""
    return jax.tree.map(lambda x: x[0], tree)


def as_stacked(tree: PyTree) -> PyTree:
    """What a single level has, with the axis of levels."""
    return jax.tree.map(lambda x: x[None], tree)
