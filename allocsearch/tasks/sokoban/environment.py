"""Sokoban as pure functions on one board; put `jax.vmap` outside for many.

A board is one uint8 plane of bit codes, so that a step touches one byte a square and
a reset gathers one row. A time limit truncates an episode and does not terminate it.
"""

from dataclasses import dataclass
from types import MappingProxyType

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Int32, PRNGKeyArray, UInt8, UInt32

from allocsearch.errors import ConfigError
from allocsearch.tasks.sokoban.config import EnvironmentConfig
from allocsearch.tasks.sokoban.levels import BOX, GOAL, PLAYER, WALL, LevelSet
from allocsearch.tasks.sokoban.observations import OBSERVATION_PLANES, OBSERVATIONS

__all__ = [
    "ACTIONS",
    "ACTION_SETS",
    "OBSERVATION_PLANES",
    "EnvState",
    "Environment",
    "Levels",
    "Transition",
]

ACTIONS = ("up", "down", "left", "right")
ACTION_SETS = MappingProxyType(
    {
        4: ACTIONS,
        5: ("no operation", *ACTIONS),
        9: (
            "no operation",
            *(f"push {direction}" for direction in ACTIONS),
            *(f"move {direction}" for direction in ACTIONS),
        ),
    }
)
"""What each action does, by the number of actions.

The four of `ACTIONS` push a box that is in the way, and so do those called "push",
which walk where there is none; those called "move" only walk. The order of the nine is
gym-sokoban's, and the five are its first five.
"""


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
        reward: by the rules of the environment.
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
    """The rules: board size, limit, rewards (gym-sokoban's by default), actions, view.

    Args:
        shape: board height and width; beyond the board counts as wall.
        step_limit: steps to truncation; of a pair ``(low, high)`` each episode
            draws its own limit, both ends included.
        step_reward: for every step.
        on_goal_reward, off_goal_reward: for a box pushed on or off a goal.
        solved_reward: for the step that puts the last box on a goal.
        n_actions: which of `ACTION_SETS` the agent has.
        observation: which of `OBSERVATIONS` the agent sees.

    Raises:
        ConfigError: a size or a limit is out of range, or there is no such set of
            actions or observation.
    """

    shape: tuple[int, int]
    step_limit: int | tuple[int, int] = 120
    step_reward: float = -0.1
    on_goal_reward: float = 1.0
    off_goal_reward: float = -1.0
    solved_reward: float = 10.0
    n_actions: int = len(ACTIONS)
    observation: str = "planes"

    @classmethod
    def from_config(
        cls, config: EnvironmentConfig, shape: tuple[int, int]
    ) -> "Environment":
        """The rules of a config, with its step limit of training.

        Raises:
            ConfigError: a size or a limit is out of range.
        """
        return cls(
            shape,
            step_limit=config.step_limit,
            step_reward=config.step_reward,
            on_goal_reward=config.on_goal_reward,
            off_goal_reward=config.off_goal_reward,
            solved_reward=config.solved_reward,
            n_actions=config.n_actions,
            observation=config.observation,
        )

    def __post_init__(self):
        if min(self.shape) < 1:
            raise ConfigError(f"a board must have squares, got shape {self.shape}")
        low, high = self._limits
        if not 1 <= low <= high:
            raise ConfigError(
                "step_limit must be at least 1, or a pair (low, high) with "
                f"1 <= low <= high, got {self.step_limit}"
            )
        if self.n_actions not in ACTION_SETS:
            known = ", ".join(str(n) for n in ACTION_SETS)
            raise ConfigError(f"n_actions must be one of {known}, got {self.n_actions}")
        if self.observation not in OBSERVATIONS:
            raise ConfigError(
                f"observation must be one of {', '.join(OBSERVATIONS)}, got "
                f"{self.observation!r}"
            )

    @property
    def actions(self) -> tuple[str, ...]:
        """What each action does, in order."""
        return ACTION_SETS[self.n_actions]

    @property
    def observed(self) -> jax.ShapeDtypeStruct:
        """Shape and type of an observation."""
        table = OBSERVATIONS[self.observation]
        return jax.ShapeDtypeStruct((*self.shape, table.shape[1]), table.dtype)

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

    def draw(self, levels: Levels, *, key: PRNGKeyArray) -> EnvState:
        """The start of a uniformly drawn level; `key` draws the step limit as well.

        Raises:
            ConfigError: the levels have another board size.
        """
        index, bits = _drawn(levels, key)
        return self._start(levels, index, bits)

    def step(self, state: EnvState, action: ArrayLike) -> tuple[EnvState, Transition]:
        """Moves the player and never resets; `action` is an index of `actions`."""
        action = jnp.asarray(action)
        # Only the set of four lacks "no operation", which comes first.
        direction = action if self.n_actions == 4 else (action - 1) % 4
        sign = 2 * (direction % 2) - 1
        rows = jnp.where(direction < 2, sign, 0)
        columns = jnp.where(direction < 2, 0, sign)
        near, at_near = self._look(state, rows, columns)
        beyond, at_beyond = self._look(state, 2 * rows, 2 * columns)
        pushed = ((at_near & BOX) != 0) & ((at_beyond & (WALL | BOX)) == 0)
        walked = (at_near & (WALL | BOX)) == 0
        if self.n_actions > 4:
            walked &= action > 0
            pushed &= (action > 0) & (action <= 4)
        moved = walked | pushed
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
        index, bits = _drawn(levels, key)
        # Boards that go on all read level 0, which stays in the cache.
        index = jnp.where(transition.done, index, 0)
        fresh = self._start(levels, index, bits)
        following = jax.tree.map(
            lambda new, old: jnp.where(transition.done, new, old), fresh, final
        )
        return following, transition, final

    def observe(
        self, state: EnvState
    ) -> Float[Array, "height width planes"] | UInt8[Array, "height width 3"]:
        """What the agent sees: one channel vector a square.

        One-hot planes in the order of `OBSERVATION_PLANES`, or with `tiny_rgb` the
        red, green and blue of one pixel a square, 0 to 255.
        """
        squares = jnp.arange(state.board.size, dtype=jnp.int32)
        player = jnp.where(squares == state.player, PLAYER, 0).astype(jnp.uint8)
        table = jnp.asarray(OBSERVATIONS[self.observation])
        seen = table.at[state.board | player].get(mode="promise_in_bounds")
        return seen.reshape(self.observed.shape)

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


def _drawn(
    levels: Levels, key: PRNGKeyArray
) -> tuple[Int32[Array, ""], UInt32[Array, ""]]:
    """The index of a level, and random bits to draw a step limit from."""
    bits = jax.random.bits(key, (2,), jnp.uint32)
    return (bits[0] % len(levels)).astype(jnp.int32), bits[1]
