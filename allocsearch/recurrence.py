"""Successive steps of a network of `SequenceExpert`s, and their gradient over time.

Once the state before every step is known, all steps can be computed at once, level by
level, as without recurrence. So the states come from a scan that keeps nothing, and
gradients from the computation at once, which needs to know two things: the states, and
how the loss depends on each of them through all later steps. The latter comes from a
scan backwards that computes each step again and leaves the parameters' gradients alone.
Parameters, inputs and the carry get their gradients from the computation at once, in
large matrix products. The rows of every step lie in one array that both scans read; no
window is kept twice.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from allocsearch.experts.sequence import (
    followed_by,
    put_in_place,
    take,
    turn,
    window_of,
)
from allocsearch.stack import LevelStack


class Steps(NamedTuple):
    """What is given of T steps.

    Attributes:
        z: encoded inputs.
        reset: whether each step starts a new stream.
        position: of each step in its stream, from 0.
    """

    z: Float[Array, "t d"]
    reset: Bool[Array, " t"]
    position: Int[Array, " t"]

    @classmethod
    def of(
        cls, z: Float[Array, "t d"], reset: Bool[Array, " t"], start: Int[Array, ""]
    ) -> "Steps":
        """Steps of a stream of which `start` are past."""
        index = jnp.arange(len(z))
        first = jax.lax.cummax(jnp.where(reset, index, -1))
        position = jnp.where(first < 0, start + index, index - first)
        return cls(z, reset, position.astype(jnp.int32))


def unroll_stateless(
    network: LevelStack, zero: Float[Array, "r d"], past: PyTree, steps: Steps
) -> tuple[Float[Array, "r t d"], PyTree]:
    """Steps that each start from a zero state.

    Args:
        network: what is unrolled.
        zero: the state that each step starts from.
        past: the window's rows before the first step, oldest first.
        steps: what is given of the steps.

    Returns:
        The top states and the window's rows after the last step.
    """
    shape = (len(zero), *steps.z.shape)
    # Behind a barrier, so that XLA does not spend seconds on folding norms of zeros.
    states = jax.lax.optimization_barrier(jnp.broadcast_to(zero[:, None], shape))
    states, rows = network.at_once(states, steps.z, past, steps.position)
    return states, _last(past, rows)


def unroll_recurrent(
    network: LevelStack, state: Float[Array, "r d"], past: PyTree, steps: Steps
) -> tuple[Float[Array, "r t d"], PyTree]:
    """Steps that each start from the top state of the last.

    Args:
        network: what is unrolled.
        state: the top state before the first step.
        past: the window's rows before the first step, oldest first.
        steps: what is given of the steps.

    Returns:
        As `unroll_stateless`.
    """
    # Values come from the scan and gradients through the computation at once, which
    # is not run where there are none.
    fixed = jax.lax.stop_gradient((network, state, past, steps))
    tops, entered, rows = _scan(*fixed)
    before = jnp.concatenate([state[:, None], tops[:, :-1]], axis=1)
    before = jnp.where(steps.reset[:, None], 0, before)
    at_once, new = network.at_once(before, steps.z, past, steps.position)
    values = tops, _last(fixed[2], rows)
    given = fixed[0], jax.lax.stop_gradient(before), entered, fixed[3]
    return _with_later_steps(
        (at_once, _last(past, new)), values, *given, followed_by(fixed[2], rows)
    )


def _scan(
    network: LevelStack, state: Array, past: PyTree, steps: Steps
) -> tuple[Array, PyTree, PyTree]:
    """One step after the other: top states (R, T, d), those that entered, and rows."""
    window = window_of(past)

    def body(carry: PyTree, xs: PyTree) -> PyTree:
        state, rings = carry
        (z, reset, position), index = xs
        state = jnp.where(reset, 0, state)
        slot = index % window
        state, rings, kept = network.ring_step(state, z, rings, slot, position)
        entered, new = kept
        new = jax.tree.map(lambda x: x[..., 0, :], new)
        return (state, rings), (state, entered, new)

    xs = steps, jnp.arange(len(steps.z))
    _, (tops, entered, rows) = jax.lax.scan(body, (state, past), xs)
    rows = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -2), rows)
    return jnp.moveaxis(tops, 0, 1), entered, rows


def _last(past: PyTree, rows: PyTree) -> PyTree:
    n_steps = window_of(rows)
    return jax.tree.map(lambda r: r[..., n_steps:, :], followed_by(past, rows))


@eqx.filter_custom_vjp
def _with_later_steps(
    at_once: PyTree,
    values: PyTree,
    network: LevelStack,
    before: Array,
    entered: PyTree,
    steps: Steps,
    rows: PyTree,
) -> PyTree:
    """The values, whose gradient goes to `at_once` with that of all later steps.

    Args:
        at_once: top states (R, T, d) and last rows, as computed at once.
        values: the same, as computed one after the other.
        network: what was unrolled.
        before: the state before every step, (R, T, d).
        entered: the states that entered the levels, T first.
        steps: what was given of the steps.
        rows: the window's rows before the first step, then those of the steps.
    """
    del at_once, network, before, entered, steps, rows
    return values


@_with_later_steps.def_fwd
def _forward(perturbed: PyTree, at_once: PyTree, values: PyTree, *given: PyTree):
    del perturbed, at_once, given
    return values, None


@_with_later_steps.def_bwd
def _backward(
    residuals: None,
    gradients: PyTree,
    perturbed: PyTree,
    at_once: PyTree,
    values: PyTree,
    network: LevelStack,
    before: Array,
    entered: PyTree,
    steps: Steps,
    rows: PyTree,
) -> PyTree:
    del residuals, perturbed, values
    g_tops, g_last = _filled(gradients, at_once)
    n_steps = len(steps.z)
    window = window_of(rows) - n_steps
    last = jax.tree.map(lambda r: r[..., n_steps:, :], rows)
    rings = turn(last, n_steps % window)
    g_rings = turn(g_last, n_steps % window)

    def body(carry: PyTree, xs: PyTree) -> PyTree:
        g_state, rings, g_rings = carry
        g_top, before, entered, (z, reset, position), index = xs
        slot = index % window
        g_top = g_top + g_state
        g_state, g_rings = network.pulled_back(
            before, entered, z, rings, slot, position, (g_top, g_rings)
        )
        g_state = jnp.where(reset, 0, g_state)
        # The row of this step gives its place back to the one that it replaced, once
        # it has been read: otherwise XLA would copy the rings.
        rings, g_state = jax.lax.optimization_barrier((rings, g_state))
        rings = put_in_place(rings, take(rows, index, 1), slot)
        return (g_state, rings, g_rings), g_top

    xs = (
        jnp.moveaxis(g_tops, 1, 0),
        jnp.moveaxis(before, 1, 0),
        entered,
        steps,
        jnp.arange(n_steps),
    )
    start = jnp.zeros_like(before[:, 0]), rings, g_rings
    _, g_tops = jax.lax.scan(body, start, xs, reverse=True)
    return jnp.moveaxis(g_tops, 0, 1), g_last


def _filled(gradients: PyTree, like: PyTree) -> PyTree:
    """Zeros where nothing depends on a value."""
    return jax.tree.map(
        lambda g, x: jnp.zeros_like(x) if g is None else g,
        gradients,
        like,
        is_leaf=lambda x: x is None,
    )
