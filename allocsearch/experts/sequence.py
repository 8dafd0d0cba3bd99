"""Experts that look back on a rolling window of rows, such as keys and values.

The network decides how the window is kept: as a ring from step to step, or in the order
of time when it computes many steps at once. An expert only says what it adds to the
window and what it does with the rows it may see, so one implementation serves both.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Int, PyTree

from allocsearch.experts.layers import SAVED
from allocsearch.experts.protocol import Read


class SequenceExpert(eqx.Module):
    """An expert whose only memory is the last `window` rows of its level.

    Without recurrence, such a level is computed for many steps at once; with it, the
    gradient over time need not keep the window of every step. Rows are kept in both
    arms and forgotten at the start of a stream. Where `shares` is true, the rows that
    the E experts of a level offer are added, over √E, into one window for all of them.

    Steps are on an axis of their own: T first in reads, positions and proposals, and
    the last but one in every array of rows.
    """

    shares: eqx.AbstractVar[bool]
    window: eqx.AbstractVar[int]

    @abc.abstractmethod
    def init_rows(self) -> Any:
        """The window's rows before anything was offered: zeros, (…, window, c) each."""

    @abc.abstractmethod
    def offer(self, read: Read) -> tuple[Any, Any]:
        """What one expert does before the rows of its level are known.

        Args:
            read: state and input of T steps, (T, d) each.

        Returns:
            What `attend` and `propose` need of it, arrays with T first; and the rows
            that it adds, (…, T, c) each, one for every step.
        """

    @abc.abstractmethod
    def place(self, rows: Any, position: Int[Array, " t"]) -> Any:
        """Rows marked with their position in the stream; reads no parameters.

        `rows` may have a leading axis E, or be the sum over experts, so this must be
        linear in them.
        """

    @abc.abstractmethod
    def attend(
        self,
        pending: Any,
        rows: Any,
        position: Int[Array, " t"],
        visible: Bool[Array, "t n"],
    ) -> Array:
        """What one expert reads from the rows, once they are known.

        Of many steps this is done in blocks, so what needs no rows is for `propose`.

        Args:
            pending: from `offer`.
            rows: (…, n, c) each, in any order, those of these steps among them.
            position: of each step in its stream, from 0.
            visible: the rows that each step may use; no other may matter.

        Returns:
            An array for `propose`, T first.
        """

    @abc.abstractmethod
    def propose(self, pending: Any, attended: Array) -> Array:
        """What one expert proposes: u, (T, d).

        Args:
            pending: from `offer`.
            attended: from `attend`.
        """

    @abc.abstractmethod
    def widened(self) -> tuple["SequenceExpert", Any]:
        """What `fused_offer` needs of the parameters of a level, laid side by side.

        `self` has a leading axis E on every array. This is done once for many steps.

        Returns:
            The experts, which may now lack what only `offer` needs; and arrays for
            `fused_offer`.
        """

    @abc.abstractmethod
    def fused_offer(self, wide: Any, read: Read) -> tuple[Any, Any]:
        """`offer` for all experts of a level that read the same state.

        Args:
            wide: from `widened`.
            read: one for all experts.

        Returns:
            What `attend` and `propose` need, with a leading axis E; and the rows,
            with a leading axis E or, where the experts share a window, already added
            and over √E.
        """


class Rolling(NamedTuple):
    """The last rows of a stream, as a ring.

    Attributes:
        rows: (…, window, c) each.
        position: how many rows the stream has seen; the next one goes to the place of
            this number modulo the window.
    """

    rows: PyTree
    position: Int[Array, ""]


def window_of(rows: PyTree) -> int:
    """How many rows there are."""
    return jax.tree.leaves(rows)[0].shape[-2]


def put(rows: PyTree, new: PyTree, slot: Array) -> PyTree:
    """The rows with one replaced."""
    return jax.tree.map(
        lambda r, n: jax.lax.dynamic_update_slice_in_dim(
            r, n.astype(r.dtype), slot, r.ndim - 2
        ),
        rows,
        new,
    )


def put_in_place(rows: PyTree, new: PyTree, slot: Array) -> PyTree:
    """`put`, without gradients, so that a batch of streams is updated in place.

    All streams have the same slot. JAX maps an update of a slice to a scatter, which
    XLA's CPU backend does on a copy of all rows.
    """
    return jax.tree.map(lambda r, n: _put(r, n.astype(r.dtype), slot), rows, new)


@jax.custom_batching.custom_vmap
def _put(rows: Array, new: Array, slot: Array) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(rows, new, slot, rows.ndim - 2)


@_put.def_vmap
def _put_batch(
    size: int, batched: list[bool], rows: Array, new: Array, slot: Array
) -> tuple[Array, bool]:
    if batched[2]:
        each = [0 if b else None for b in batched]
        return jax.vmap(_put.fun, each)(rows, new, slot), True
    rows, new = (
        x if b else jnp.broadcast_to(x, (size, *x.shape))
        for x, b in ((rows, batched[0]), (new, batched[1]))
    )
    return _put(rows, new, slot), True


def take(rows: PyTree, start: Array, length: int) -> PyTree:
    """Rows that follow each other."""
    return jax.tree.map(
        lambda r: jax.lax.dynamic_slice_in_dim(r, start, length, r.ndim - 2),
        rows,
    )


def at(rows: PyTree, level: Array) -> PyTree:
    """The rows of one level, from those of all."""
    return jax.tree.map(
        lambda r: jax.lax.dynamic_index_in_dim(r, level, keepdims=False), rows
    )


def set_at(rows: PyTree, new: PyTree, level: Array) -> PyTree:
    """The rows of all levels with those of one replaced."""
    return jax.tree.map(
        lambda r, n: jax.lax.dynamic_update_index_in_dim(r, n, level, 0), rows, new
    )


def turn(rows: PyTree, by: Array | int) -> PyTree:
    """The rows of a ring, each moved up by as many places."""
    return jax.tree.map(lambda r: jnp.roll(r, by, axis=-2), rows)


def visible_in_ring(
    window: int, slot: Array | int, position: Int[Array, ""]
) -> Bool[Array, " w"]:
    """Which rows of a ring a step may use, the one it has just written included.

    Args:
        window: places in the ring.
        slot: where the step wrote.
        position: of the step in its stream, from 0.
    """
    age = (slot - jnp.arange(window)) % window
    return age <= position


def in_order(ring: PyTree, position: Int[Array, ""]) -> PyTree:
    """The rows of a ring, oldest first; `position` is that of `Rolling`."""
    return turn(ring, -(position % window_of(ring)))


def as_ring(rows: PyTree, position: Int[Array, ""]) -> PyTree:
    """The inverse of `in_order`."""
    return turn(rows, position % window_of(rows))


def followed_by(past: PyTree, new: PyTree) -> PyTree:
    """Rows in the order of time and those that come after them."""
    return jax.tree.map(
        lambda p, n: jnp.concatenate([p, n.astype(p.dtype)], axis=-2), past, new
    )


def attend_in_blocks(
    attend: Any, pending: PyTree, rows: PyTree, position: Int[Array, " t"]
) -> Array:
    """Attention of T steps to the rows in order, at a cost of O(T·window).

    Steps are cut into blocks, each of which sees its own rows and those of the window
    before it; what lies beyond a step's own window or stream is masked.

    Args:
        attend: `SequenceExpert.attend` of one expert.
        pending: of T steps.
        rows: window + T rows in the order of time, those of the T steps last; or T
            where nothing is past and no step is beyond another's window.
        position: of each step in its stream.

    Returns:
        What `attend` gives, (T, …).
    """
    n_steps = position.shape[0]
    window = window_of(rows) - n_steps
    if window == 0:
        return _attend_from_start(attend, pending, rows, position)
    block, n_before = _block(window, n_steps)
    n_blocks = -(-n_steps // block)
    padding = n_blocks * block - n_steps

    def per_block(x: Array) -> Array:
        x = jnp.pad(x, [(0, padding)] + [(0, 0)] * (x.ndim - 1))
        return x.reshape(n_blocks, block, *x.shape[1:])

    def neighbours(r: Array) -> Array:
        *lead, _, c = r.shape
        r = jnp.pad(r, [(0, 0)] * len(lead) + [(0, padding), (0, 0)])
        r = r.reshape(*lead, -1, block, c) if n_blocks > 1 else r[..., None, :, :]
        if n_blocks > 1:
            parts = [r[..., i : i + n_blocks, :, :] for i in range(n_before + 1)]
            r = jnp.concatenate(parts, axis=-2)
        return jnp.moveaxis(r, -3, 0)

    # Row j of a block is `window` steps before the block's step j.
    age = window + jnp.arange(block)[:, None] - jnp.arange(window + block)[None]
    in_window = (age >= 0) & (age < window)

    def one(pending: PyTree, rows: PyTree, position: Int[Array, " b"]) -> Array:
        return attend(pending, rows, position, in_window & (age <= position[:, None]))

    parts = jax.tree.map(per_block, pending), jax.tree.map(neighbours, rows)
    one = jax.checkpoint(one, prevent_cse=False)
    u = jax.lax.map(lambda xs: one(*xs), (*parts, per_block(position)))
    u = u.reshape(n_blocks * block, *u.shape[2:])[:n_steps]
    return checkpoint_name(u, SAVED)


_MOST_PARTS = 4
_LEAST_STEPS = 32


def _attend_from_start(
    attend: Any, pending: PyTree, rows: PyTree, position: Int[Array, " t"]
) -> Array:
    """Attention of T steps to no more than the rows up to the last of each part."""
    n_steps = position.shape[0]
    length = max(-(-n_steps // _MOST_PARTS), min(_LEAST_STEPS, n_steps))
    attend = jax.checkpoint(lambda *given, read=attend: read(*given), prevent_cse=False)
    parts = []
    for start in range(0, n_steps, length):
        end = min(start + length, n_steps)
        age = jnp.arange(start, end)[:, None] - jnp.arange(end)[None]
        own = position[start:end]
        visible = (age >= 0) & (age <= own[:, None])
        mine = jax.tree.map(lambda x, a=start, b=end: x[a:b], pending)
        seen = jax.tree.map(lambda r, b=end: r[..., :b, :], rows)
        parts.append(attend(mine, seen, own, visible))
    return checkpoint_name(jnp.concatenate(parts), SAVED)


def _block(window: int, n_steps: int) -> tuple[int, int]:
    """How many steps a block has, and how many blocks a window."""
    if n_steps > window // 2 and window % 2 == 0:
        return window // 2, 2
    return (window, 1) if n_steps > window else (n_steps, 1)
