"""Sokoban for Gymnasium; to import this module registers ``allocsearch/Sokoban-v0``.

    import gymnasium
    import allocsearch.tasks.sokoban.gym_env

    env = gymnasium.make("allocsearch/Sokoban-v0", n_actions=9)
    boards = gymnasium.make_vec("allocsearch/Sokoban-v0", num_envs=1024)

The second is `SokobanVectorEnv` of `gym_vector`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, PRNGKeyArray

from allocsearch.errors import ConfigError, DataError
from allocsearch.parsing import parse
from allocsearch.tasks.sokoban.board_text import PLAYER, render_codes
from allocsearch.tasks.sokoban.config import (
    EnvironmentConfig,
    LevelsConfig,
    SokobanConfig,
)
from allocsearch.tasks.sokoban.data import load_splits
from allocsearch.tasks.sokoban.drawing import draw_board
from allocsearch.tasks.sokoban.environment import (
    Environment,
    EnvState,
    Levels,
    Transition,
)
from allocsearch.tasks.sokoban.levels import LevelSet

ID = "allocsearch/Sokoban-v0"
STEP_LIMIT = 120
RENDER_MODES = ("rgb_array", "ansi")
_PIXELS_PER_SQUARE = 16

gymnasium.register(
    ID,
    entry_point=f"{__name__}:SokobanEnv",
    vector_entry_point="allocsearch.tasks.sokoban.gym_vector:SokobanVectorEnv",
)


class Board(NamedTuple):
    """A board being played.

    Attributes:
        state: how it stands.
        key: what its next level is drawn from.
    """

    state: EnvState
    key: PRNGKeyArray


class Game(NamedTuple):
    """What a Gymnasium environment plays.

    Attributes:
        rules: actions, rewards, limits and what is seen.
        levels: to begin from.
        render_mode: one of `RENDER_MODES`, or None.
    """

    rules: Environment
    levels: Levels
    render_mode: str | None

    @classmethod
    def of(
        cls,
        levels: LevelSet | Mapping[str, Any] | None = None,
        *,
        data: str | None = None,
        split: str = "train",
        render_mode: str | None = None,
        **environment: Any,
    ) -> "Game":
        """A game from the arguments of `gymnasium.make`, see `SokobanEnv`.

        Raises:
            ConfigError: a field is unknown or out of range.
            DataError: levels are missing or broken.
        """
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise ConfigError(
                f"render_mode must be one of {', '.join(RENDER_MODES)}, got "
                f"{render_mode!r}"
            )
        fields = parse(EnvironmentConfig, {"step_limit": STEP_LIMIT, **environment})
        if isinstance(levels, LevelSet):
            if data is not None:
                raise ConfigError("give levels or data, not both")
            chosen = levels if fields.keep_border else levels.interior()
        else:
            section = parse(LevelsConfig, levels or {}, "levels")
            chosen = _split(
                SokobanConfig(data=data, levels=section, environment=fields), split
            )
        rules = Environment.from_config(fields, chosen.shape)
        return cls(rules, Levels.from_level_set(chosen), render_mode)

    @property
    def action_space(self) -> spaces.Discrete:
        """Indices of the actions."""
        return spaces.Discrete(self.rules.n_actions)

    @property
    def observation_space(self) -> spaces.Box:
        """Planes of zeros and ones, or bytes of colour."""
        seen = self.rules.observed
        high = np.iinfo(seen.dtype).max if np.issubdtype(seen.dtype, np.integer) else 1
        return spaces.Box(0, high, seen.shape, seen.dtype)

    def frame(self, state: EnvState) -> np.ndarray | str:
        """A picture of 16 pixels a square, or text, by the render mode."""
        codes = np.array(state.board)
        codes[int(state.player)] |= PLAYER
        codes = codes.reshape(self.rules.shape)
        if self.render_mode == "ansi":
            return render_codes(codes)
        return draw_board(codes, _PIXELS_PER_SQUARE)


class SokobanEnv(gymnasium.Env[np.ndarray, np.int64]):
    """One board.

    Args:
        levels: the levels to play, or fields of the task's `levels` section, by which
            they are generated or read as they are for the task.
        data: directory of Boxoban levels, instead of generated ones.
        split: ``train``, ``valid`` or ``test``; plays no part where `levels` is a
            `LevelSet`.
        render_mode: ``rgb_array``, ``ansi`` or None.
        environment: fields of the task's `environment` section. `step_limit` is 120
            unless given; `evaluation_step_limit` plays no part.

    Raises:
        ConfigError: a field is unknown or out of range.
        DataError: levels are missing or broken.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 8}  # noqa: RUF012

    def __init__(
        self, levels: LevelSet | Mapping[str, Any] | None = None, **arguments: Any
    ):
        self._game = Game.of(levels, **arguments)
        self.render_mode = self._game.render_mode
        self.action_space = self._game.action_space
        self.observation_space = self._game.observation_space
        self._key: PRNGKeyArray | None = None
        self._board: Board | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins a drawn level, or the one at index ``options["level"]``.

        Raises:
            ConfigError: there is no such option or no such level.
        """
        super().reset(seed=seed)
        game, level = self._game, _chosen_level(options, len(self._game.levels))
        if seed is not None or self._key is None:
            self._key = jax.random.key(key_seed(self.np_random))
        board = _begin(game.rules, game.levels, self._key, level)
        self._board, self._key = board, board.key
        return np.array(_observe(game.rules, board.state)), _info(board.state, None)

    def step(
        self, action: np.int64
    ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes one action.

        Raises:
            ConfigError: there is no such action.
        """
        rules, board = self._game.rules, self._begun()
        if not self.action_space.contains(action):
            raise ConfigError(
                f"action must be an integer from 0 to {rules.n_actions - 1}, got "
                f"{action!r}"
            )
        state, transition, observation = _step(rules, board.state, action)
        self._board = Board(state, board.key)
        return (
            np.array(observation),
            float(transition.reward),
            bool(transition.terminated),
            bool(transition.truncated),
            _info(state, transition),
        )

    def render(self) -> Any:
        """The board as bytes `[16 H, 16 W, 3]` or as text in XSB characters."""
        if self.render_mode is None:
            gymnasium.logger.warn(f"to render, make({ID!r}, render_mode=...)")
            return None
        return self._game.frame(self._begun().state)

    def _begun(self) -> Board:
        if self._board is None:
            raise gymnasium.error.ResetNeeded("call reset first")
        return self._board


def begin(
    rules: Environment, levels: Levels, key: PRNGKeyArray, level: Array | None = None
) -> Board:
    """A board at the start of a level, drawn unless given."""
    now, later = jax.random.split(key)
    if level is None:
        return Board(rules.draw(levels, key=now), later)
    return Board(rules.reset(levels, level, key=now), later)


def key_seed(generator: np.random.Generator) -> int:
    """The seed of a board's key."""
    return int(generator.integers(2**31))


_begin = jax.jit(begin, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def _observe(rules: Environment, state: EnvState) -> Array:
    return rules.observe(state)


@partial(jax.jit, static_argnums=0)
def _step(
    rules: Environment, state: EnvState, action: Array
) -> tuple[EnvState, Transition, Array]:
    state, transition = rules.step(state, action)
    return state, transition, rules.observe(state)


def _info(state: EnvState, transition: Transition | None) -> dict[str, Any]:
    return {
        "level": int(state.level),
        "moved": transition is not None and bool(transition.moved),
        "pushed": transition is not None and bool(transition.pushed),
    }


def _chosen_level(options: Mapping[str, Any] | None, n_levels: int) -> int | None:
    options = options or {}
    if set(options) - {"level"}:
        raise ConfigError(
            f"the one option of reset is 'level', got {', '.join(map(repr, options))}"
        )
    level = options.get("level")
    if level is not None and not (isinstance(level, int) and 0 <= level < n_levels):
        raise ConfigError(
            f"option 'level' must be an integer from 0 to {n_levels - 1}, got {level!r}"
        )
    return level


def _split(config: SokobanConfig, name: str) -> LevelSet:
    splits = load_splits(config)
    if name not in splits:
        raise DataError(f"there is no {name!r} split, only {', '.join(splits)}")
    return splits[name]
