"""Greedy episodes of many levels, with what the network held at every step."""

from collections.abc import Iterator
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from allocsearch.errors import ConfigError, unknown_name
from allocsearch.experts.layers import rms_norm
from allocsearch.model import Model
from allocsearch.network import Inside
from allocsearch.tasks.sokoban.environment import Environment, Levels

READINGS = ("network", "observation")
_MOST_BYTES = 2**28  # of what is read, in one batch
_MOST_LEVELS = 128


@dataclass(frozen=True)
class Trajectories:
    """Greedy episodes of B levels, over as many steps T as one may have.

    What comes after the end of an episode is of no meaning.

    Attributes:
        players: int32 `[B, T + 1]`, flat index before every step and after the last.
        boards: uint8 `[B, T + 1, squares]` bit codes at the same times.
        lengths: int `[B]`, steps until the level was solved or time was up.
        solved: bool `[B]`.
        read: by the names of `READINGS`, float32 `[B, T, H, W, channels]`: what a probe
            may read at each step, before the step's action is taken.
    """

    players: np.ndarray
    boards: np.ndarray
    lengths: np.ndarray
    solved: np.ndarray
    read: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.lengths)


def read_inside(
    model: Model, inside: Inside, what: str
) -> Float[Array, "h w channels"]:
    """The channels of each square that a probe of the network reads.

    Args:
        model: the network.
        inside: what a step of it left.
        what: "raw" for the final state s^L (their mean where a communication radius
            keeps several); "state" for the same over its root mean square, where the
            network has that norm: all its parts read it so, but for gains; or the
            number of a level, 1 at the bottom, for its memories, those of all its
            experts side by side.

    Raises:
        UnknownNameError: it is neither a name nor a number.
        ConfigError: there is no such level, or it keeps no memory on the board.
    """
    core = model.core
    if what in ("state", "raw"):
        state = inside.state.mean(axis=0).astype(jnp.float32)
        normed = what == "state" and core.allocation.norm == "rms"
        return rms_norm(state) if normed else state
    if not what.isdecimal():
        names = ("state", "raw", "the number of a level")
        raise unknown_name("part of a network to read", what, names)
    level, depth = int(what), core.allocation.depth
    if not 1 <= level <= depth:
        raise ConfigError(f"there is no level {level}, only 1 to {depth}")
    leaves = jax.tree.leaves(core.memory_at(inside.memories, level))
    on_board = [x for x in leaves if x.ndim == 4 and x.shape[1:3] == core.grid]
    if not on_board:
        raise ConfigError(
            f"level {level} of {core.allocation.label} keeps no memory to read on the "
            "board: read its state instead"
        )
    beside = [jnp.moveaxis(x, 0, 2).reshape(*core.grid, -1) for x in on_board]
    return jnp.concatenate(beside, axis=-1).astype(jnp.float32)


def batch_size(model: Model, environment: Environment, what: str, most: int) -> int:
    """Levels to play side by side, so that what is read of them fits into memory.

    Args:
        model: the network.
        environment: its rules and step limit.
        what: as `read_inside` takes it.
        most: no more than these.

    Raises:
        ConfigError: see `read_inside`.
    """
    n_squares = environment.shape[0] * environment.shape[1]
    one = Levels(
        jnp.zeros((1, n_squares), jnp.uint8),
        *(jnp.zeros(1, jnp.int32) for _ in range(2)),
        shape=environment.shape,
    )
    read = eqx.filter_eval_shape(_play, model, environment, one, what)[-1]
    n_bytes = 4 * sum(x.size for x in read.values())
    return int(np.clip(_MOST_BYTES // n_bytes, 1, min(_MOST_LEVELS, most)))


def play_greedily(
    model: Model,
    environment: Environment,
    levels: Levels,
    indices: np.ndarray,
    *,
    what: str,
    n_at_once: int,
) -> Iterator[Trajectories]:
    """Levels from start to end, always with the likeliest action.

    Args:
        model: begins each level with a carry of zeros, and keeps it to the end.
        environment: its step limit, a fixed number, ends an unsolved level.
        levels: of the environment's board size.
        indices: which of them to play, in order.
        what: is read, see `read_inside`.
        n_at_once: levels of a batch; one number compiles once.

    Raises:
        ConfigError: the levels have another board size, or see `read_inside`.
    """
    for start in range(0, len(indices), n_at_once):
        batch = np.asarray(indices[start : start + n_at_once])
        # The last batch is filled up with levels that are played again.
        chosen = np.resize(batch, n_at_once)
        some = Levels(
            levels.boards[chosen],
            levels.players[chosen],
            levels.n_unplaced[chosen],
            levels.shape,
        )
        played = _play(model, environment, some, what)
        boards, players, done, terminated, read = jax.device_get(played)
        lengths = np.argmax(done, axis=1) + 1
        solved = terminated[np.arange(n_at_once), lengths - 1]
        n = len(batch)
        yield Trajectories(
            players=players[:n],
            boards=boards[:n],
            lengths=lengths[:n],
            solved=solved[:n],
            read={name: values[:n] for name, values in read.items()},
        )


@eqx.filter_jit
def _play(
    model: Model, environment: Environment, levels: Levels, what: str
) -> tuple[Array, Array, Array, Array, dict[str, Array]]:
    """Boards, players, done, terminated and what is read, axes levels and time."""
    acting = model.widened()
    key = jax.random.key(0)  # evaluation limits are fixed: nothing is drawn
    start = jax.vmap(lambda i: environment.reset(levels, i, key=key))
    states = start(jnp.arange(len(levels)))
    carry = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (len(levels), *x.shape)), model.init_carry()
    )

    def one(carry, state):
        observation = environment.observe(state)
        carry, outputs, inside = acting.step_inside(carry, observation, False)
        state, transition = environment.step(state, jnp.argmax(outputs.logits))
        values = (read_inside(model, inside, what), observation.astype(jnp.float32))
        read = dict(zip(READINGS, values, strict=True))
        return (carry, state), (state, transition, read)

    def body(loop, _):
        return jax.vmap(one)(*loop)

    length = int(np.max(environment.step_limit))
    _, out = jax.lax.scan(body, (carry, states), None, length=length)
    later, transitions, read = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), out)

    def whole(first: Array, rest: Array) -> Array:
        return jnp.concatenate([first[:, None], rest], axis=1)

    boards = whole(states.board, later.board)
    players = whole(states.player, later.player)
    return boards, players, transitions.done, transitions.terminated, read
