"""Sokoban as pure functions on one board; put `jax.vmap` outside for many.

A board is one uint8 plane of bit codes, so that a step touches one byte a square and
a reset gathers one row. A time limit truncates an episode and does not terminate it.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Int32, PRNGKeyArray, UInt8, UInt32

from allocsearch.errors import ConfigError
from allocsearch.tasks.sokoban.levels import BOX, GOAL, PLAYER, WALL, LevelSet

ACTIONS = ("up", "down", "left", "right")
OBSERVATION_PLANES = (
    "wall",
    "empty",
    "box",
    "box on goal",
    "player",
    "player on goal",
    "goal",
)

_CODE_OF_PLANE = (WALL, 0, BOX, BOX | GOAL, PLAYER, PLAYER | GOAL, GOAL)
# On CPU, reading a table row a square is several times faster than comparing codes.
_PLANES_OF_CODE = np.zeros((16, len(OBSERVATION_PLANES)), np.float32)
_PLANES_OF_CODE[_CODE_OF_PLANE, range(len(OBSERVATION_PLANES))] = 1.0


class Levels(eqx.Module):
    """A level set on the device.

    Args:
        boards: bit codes, one row a level.
        players: flat index of the player's square.
        n_unplaced: number of boxes off goals.
        shape: board height and width.
    """

    boards: UInt8[Array, "levels squares"]
    players: Int32[Array, " levels"]
    n_unplaced: Int32[Array, " levels"]
    shape: tuple[int, int] = eqx.field(static=True)

    @classmethod
    def from_level_set(cls, levels: LevelSet) -> "Levels":
        """Copies a level set to the default device."""
        codes = levels.boards.reshape(len(levels), -1)
        n_unplaced = ((codes & (BOX | GOAL)) == BOX).sum(axis=1)
        return cls(
            boards=jnp.asarray(codes),
            players=jnp.asarray(levels.players, jnp.int32),
            n_unplaced=jnp.asarray(n_unplaced, jnp.int32),
            shape=levels.shape,
        )

    def __len__(self) -> int:
        return self.boards.shape[0]


class EnvState(eqx.Module):
    """One board in the middle of an episode.

    Args:
        board: bit codes of walls, goals and boxes.
        player: flat index of the player's square.
        n_unplaced: number of boxes off goals.
        n_steps: steps taken in this episode.
        step_limit: the step at which the episode is truncated.
        level: index of the level that the episode began from.
    """

    board: UInt8[Array, " squares"]
    player: Int32[Array, ""]
    n_unplaced: Int32[Array, ""]
    n_steps: Int32[Array, ""]
    step_limit: Int32[Array, ""]
    level: Int32[Array, ""]

    @property
    def walls(self) -> Bool[Array, "... squares"]:
        return (self.board & WALL) != 0

    @property
    def goals(self) -> Bool[Array, "... squares"]:
        return (self.board & GOAL) != 0

    @property
    def boxes(self) -> Bool[Array, "... squares"]:
        return (self.board & BOX) != 0


class Transition(eqx.Module):
    """What one step brought.

    Args:
        reward: gym-sokoban's reward.
        terminated: the level is solved; no value follows.
        truncated: the step limit was met unsolved; a value would follow.
        moved: the player changed squares.
        pushed: a box changed squares.
    """

    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    moved: Bool[Array, ""]
    pushed: Bool[Array, ""]

    @property
    def solved(self) -> Bool[Array, "..."]:
        """Every box is on a goal; the one way to terminate."""
        return self.terminated

    @property
    def done(self) -> Bool[Array, "..."]:
        """The episode is over, for either reason."""
        return self.terminated | self.truncated


@dataclass(frozen=True)
class Environment:
    """The rules: board size, step limit and rewards (gym-sokoban's by default).

    Args:
        shape: board height and width; beyond the board counts as wall.
        step_limit: steps to truncation; of a pair ``(low, high)`` each episode
            draws its own limit, both ends included.
        step_reward: for every step.
        on_goal_reward, off_goal_reward: for a box pushed on or off a goal.
        solved_reward: for the step that puts the last box on a goal.

    Raises:
        ConfigError: a size or a limit is out of range.
    """

    shape: tuple[int, int]
    step_limit: int | tuple[int, int] = 120
    step_reward: float = -0.1
    on_goal_reward: float = 1.0
    off_goal_reward: float = -1.0
    solved_reward: float = 10.0

    def __post_init__(self):
        if min(self.shape) < 1:
            raise ConfigError(f"a board must have squares, got shape {self.shape}")
        low, high = self._limits
        if not 1 <= low <= high:
            raise ConfigError(
                "step_limit must be at least 1, or a pair (low, high) with "
                f"1 <= low <= high, got {self.step_limit}"
            )

    @property
    def _limits(self) -> tuple[int, int]:
        limit = self.step_limit
        return (limit, limit) if isinstance(limit, int) else limit

    def reset(self, levels: Levels, index: ArrayLike, *, key: PRNGKeyArray) -> EnvState:
        """The start of level `index`; `key` draws the step limit.

        Raises:
            ConfigError: the levels have another board size.
        """
        return self._start(levels, index, jax.random.bits(key, dtype=jnp.uint32))

    def step(self, state: EnvState, action: ArrayLike) -> tuple[EnvState, Transition]:
        """Moves the player and never resets; `action` is an index of `ACTIONS`."""
        action = jnp.asarray(action)
        sign = 2 * (action % 2) - 1
        rows, columns = jnp.where(action < 2, sign, 0), jnp.where(action < 2, 0, sign)
        near, at_near = self._look(state, rows, columns)
        beyond, at_beyond = self._look(state, 2 * rows, 2 * columns)
        pushed = ((at_near & BOX) != 0) & ((at_beyond & (WALL | BOX)) == 0)
        moved = ((at_near & (WALL | BOX)) == 0) | pushed
        squares = jnp.arange(state.board.size, dtype=jnp.int32)
        changed = pushed & ((squares == near) | (squares == beyond))
        left_goal = (pushed & ((at_near & GOAL) != 0)).astype(jnp.int32)
        met_goal = (pushed & ((at_beyond & GOAL) != 0)).astype(jnp.int32)
        state = EnvState(
            board=state.board ^ jnp.where(changed, BOX, 0).astype(jnp.uint8),
            player=jnp.where(moved, near, state.player),
            n_unplaced=state.n_unplaced + left_goal - met_goal,
            n_steps=state.n_steps + 1,
            step_limit=state.step_limit,
            level=state.level,
        )
        solved = state.n_unplaced == 0
        reward = (
            self.step_reward
            + self.on_goal_reward * (met_goal & ~left_goal)
            + self.off_goal_reward * (left_goal & ~met_goal)
            + self.solved_reward * solved
        )
        transition = Transition(
            reward=reward.astype(jnp.float32),
            terminated=solved,
            truncated=~solved & (state.n_steps >= state.step_limit),
            moved=moved,
            pushed=pushed,
        )
        return state, transition

    def step_autoreset(
        self,
        levels: Levels,
        state: EnvState,
        action: ArrayLike,
        *,
        key: PRNGKeyArray,
    ) -> tuple[EnvState, Transition, EnvState]:
        """As `step`, and a uniformly drawn level begins where an episode ends.

        Returns:
            The state to go on from, the transition, and the state that the step led
            to before any reset, from which to bootstrap on truncation.

        Raises:
            ConfigError: the levels have another board size.
        """
        final, transition = self.step(state, action)
        bits = jax.random.bits(key, (2,), jnp.uint32)
        index = (bits[0] % len(levels)).astype(jnp.int32)
        # Boards that go on all read level 0, which stays in the cache.
        index = jnp.where(transition.done, index, 0)
        fresh = self._start(levels, index, bits[1])
        following = jax.tree.map(
            lambda new, old: jnp.where(transition.done, new, old), fresh, final
        )
        return following, transition, final

    def observe(self, state: EnvState) -> Float[Array, "height width planes"]:
        """One-hot planes in the order of `OBSERVATION_PLANES`."""
        squares = jnp.arange(state.board.size, dtype=jnp.int32)
        player = jnp.where(squares == state.player, PLAYER, 0).astype(jnp.uint8)
        table = jnp.asarray(_PLANES_OF_CODE)
        planes = table.at[state.board | player].get(mode="promise_in_bounds")
        return planes.reshape(*self.shape, len(OBSERVATION_PLANES))

    def _start(
        self, levels: Levels, index: ArrayLike, bits: UInt32[Array, ""]
    ) -> EnvState:
        if levels.shape != tuple(self.shape):
            raise ConfigError(
                f"the environment's boards are {self.shape}, but the levels' are "
                f"{levels.shape}"
            )
        low, high = self._limits
        drawn = (bits % (high - low + 1)).astype(jnp.int32)
        index = jnp.asarray(index, jnp.int32)
        return EnvState(
            board=levels.boards[index],
            player=levels.players[index],
            n_unplaced=levels.n_unplaced[index],
            n_steps=jnp.zeros((), jnp.int32),
            step_limit=low + drawn,
            level=index,
        )

    def _look(
        self, state: EnvState, rows: Int[Array, ""], columns: Int[Array, ""]
    ) -> tuple[Int32[Array, ""], UInt8[Array, ""]]:
        """The square so far from the player, and its code."""
        height, width = self.shape
        row = state.player // width + rows
        column = state.player % width + columns
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        square = jnp.where(inside, row * width + column, 0).astype(jnp.int32)
        code = state.board.at[square].get(mode="promise_in_bounds")
        return square, jnp.where(inside, code, WALL).astype(jnp.uint8)
