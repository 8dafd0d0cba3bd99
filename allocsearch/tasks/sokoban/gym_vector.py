"""Many boards for Gymnasium, stepped by one compiled call.

The board of index i in a vector seeded with s plays just as `SokobanEnv` seeded with
s + i, in every autoreset mode.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from allocsearch.errors import ConfigError
from allocsearch.tasks.sokoban.environment import (
    Environment,
    EnvState,
    Levels,
    Transition,
)
from allocsearch.tasks.sokoban.gym_env import (
    ID,
    Board,
    Game,
    SokobanEnv,
    begin,
    key_seed,
)
from allocsearch.tasks.sokoban.levels import LevelSet


class Stepped(NamedTuple):
    """What a step brought; every leaf has a leading axis of boards.

    Attributes:
        boards: to go on from.
        observations: of those.
        transitions: nothing where the step only began a level.
        final_states: as the actions left them.
        final_observations: of those, where levels begin at once.
    """

    boards: Board
    observations: Array
    transitions: Transition
    final_states: EnvState
    final_observations: Array | None


class SokobanVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Many boards.

    Args:
        num_envs: number of boards.
        levels: see `SokobanEnv`.
        autoreset_mode: what follows the end of an episode, by the names of
            `gymnasium.vector.AutoresetMode`. ``NextStep``, Gymnasium's default: the
            next step takes no action and begins a level. ``SameStep``: a level begins
            at once, and infos hold the board that ended as ``final_obs``.
            ``Disabled``: it is for ``reset(options={"reset_mask": ...})``.
        arguments: see `SokobanEnv`.

    Raises:
        ConfigError: a field is unknown or out of range.
        DataError: levels are missing or broken.
    """

    def __init__(
        self,
        num_envs: int = 1,
        levels: LevelSet | Mapping[str, Any] | None = None,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **arguments: Any,
    ):
        if num_envs < 1:
            raise ConfigError(f"num_envs must be at least 1, got {num_envs}")
        self.num_envs = num_envs
        self._mode = _mode(autoreset_mode)
        self._game = Game.of(levels, **arguments)
        self.render_mode = self._game.render_mode
        self.metadata = {**SokobanEnv.metadata, "autoreset_mode": self._mode}
        self.single_action_space = self._game.action_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.single_observation_space = self._game.observation_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._boards: Board | None = None
        self._over = np.zeros(num_envs, bool)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins a drawn level on every board, or on those of a mask.

        Args:
            seed: of the first board, where the next ones have the next seeds; or one
                for each board. Without, boards go on drawing as they did.
            options: ``{"reset_mask": mask}``, bool `[num_envs]`.

        Raises:
            ConfigError: seeds, a mask or an option that does not fit.
        """
        super().reset(seed=seed if isinstance(seed, int) else None)
        game, mask = self._game, self._mask(options)
        boards = _begin_all(game.rules, game.levels, self._keys(self._seeds(seed)))
        if self._boards is not None:
            boards = _merge(mask, boards, self._boards)
        self._boards = boards
        self._over = self._over & ~mask
        observations = _observe_all(game.rules, boards.state)
        return np.array(observations), _infos(boards.state, None, mask)

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Takes an action on every board.

        Args:
            actions: integers `[num_envs]`.

        Returns:
            Observations, rewards, whether each board was solved, whether it met its
            limit, and infos; all with a leading axis of boards.

        Raises:
            ConfigError: actions do not fit, or a board that is over waits for a reset.
        """
        boards, actions = self._begun(), self._fitting(actions)
        if self._mode is AutoresetMode.DISABLED and self._over.any():
            raise ConfigError(
                f"{self._over.sum()} boards are over: reset them first, with "
                "options={'reset_mask': terminations | truncations}"
            )
        game, at_once = self._game, self._mode is AutoresetMode.SAME_STEP
        stepped = _step_all(
            game.rules, at_once, game.levels, boards, self._over, actions
        )
        self._boards = stepped.boards
        transitions = jax.tree.map(np.array, stepped.transitions)
        ended, everywhere = transitions.done, np.ones(self.num_envs, bool)
        infos: dict[str, Any] = {}
        if at_once and ended.any():
            infos = _final(stepped, transitions, ended)
            now = replace(
                transitions,
                moved=transitions.moved & ~ended,
                pushed=transitions.pushed & ~ended,
            )
        else:
            now = transitions
        if not at_once:
            self._over = ended
        infos |= _infos(stepped.boards.state, now, everywhere)
        return (
            np.array(stepped.observations),
            transitions.reward.astype(np.float64),
            transitions.terminated,
            transitions.truncated,
            infos,
        )

    def render(self) -> tuple[Any, ...] | None:
        """Every board as `SokobanEnv.render` gives it."""
        if self.render_mode is None:
            gymnasium.logger.warn(f"to render, make_vec({ID!r}, render_mode=...)")
            return None
        states = jax.tree.map(np.asarray, self._begun().state)
        return tuple(
            self._game.frame(jax.tree.map(lambda x, i=i: x[i], states))
            for i in range(self.num_envs)
        )

    def _begun(self) -> Board:
        if self._boards is None:
            raise gymnasium.error.ResetNeeded("call reset first")
        return self._boards

    def _fitting(self, actions: np.ndarray) -> Int[np.ndarray, " boards"]:
        actions, n_actions = np.asarray(actions), self._game.rules.n_actions
        fit = actions.shape == (self.num_envs,) and actions.dtype.kind in "iu"
        if not fit or actions.min() < 0 or actions.max() >= n_actions:
            raise ConfigError(
                f"actions must be {self.num_envs} integers from 0 to {n_actions - 1}, "
                f"got {actions!r}"
            )
        return actions

    def _mask(self, options: Mapping[str, Any] | None) -> Bool[np.ndarray, " boards"]:
        options = options or {}
        if set(options) - {"reset_mask"}:
            raise ConfigError(
                "the one option of reset is 'reset_mask', got "
                f"{', '.join(map(repr, options))}"
            )
        mask = np.asarray(options.get("reset_mask", np.ones(self.num_envs, bool)))
        if mask.shape != (self.num_envs,) or mask.dtype != bool or not mask.any():
            raise ConfigError(
                f"reset_mask must be {self.num_envs} booleans, not all False, got "
                f"{mask!r}"
            )
        if self._boards is None and not mask.all():
            raise ConfigError("the first reset must be of all boards")
        return mask

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int):
            return [seed + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ConfigError(f"give {self.num_envs} seeds, got {len(seed)}")
        return list(seed)

    def _keys(self, seeds: list[int | None]) -> PRNGKeyArray:
        """A key for each board: of its seed, or the one it has."""
        drawn = [
            key_seed(self.np_random if seed is None else seeding.np_random(seed)[0])
            for seed in seeds
        ]
        keys = jax.vmap(jax.random.key)(np.array(drawn, np.int32))
        if self._boards is None:
            return keys
        given = np.array([seed is not None for seed in seeds])
        return jnp.where(given, keys, self._boards.key)


def _mode(mode: AutoresetMode | str) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError as error:
        known = ", ".join(mode.value for mode in AutoresetMode)
        raise ConfigError(
            f"autoreset_mode must be one of {known}, got {mode!r}"
        ) from error


def _choose(where: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(where, x, y), new, old)


_merge = jax.jit(jax.vmap(_choose))


@partial(jax.jit, static_argnums=0)
def _begin_all(rules: Environment, levels: Levels, keys: PRNGKeyArray) -> Board:
    return jax.vmap(partial(begin, rules, levels))(keys)


@partial(jax.jit, static_argnums=0)
def _observe_all(rules: Environment, states: EnvState) -> Array:
    return jax.vmap(rules.observe)(states)


@partial(jax.jit, static_argnums=(0, 1))
def _step_all(
    rules: Environment,
    at_once: bool,
    levels: Levels,
    boards: Board,
    over: Bool[Array, " boards"],
    actions: Int[Array, " boards"],
) -> Stepped:
    """Steps boards, except that those `over` take no action and begin a level.

    With `at_once`, those that end begin one instead.
    """

    def step(board: Board, over: Array, action: Array) -> Stepped:
        final, transition = rules.step(board.state, action)
        if at_once:
            over = transition.done
        else:
            nothing = jax.tree.map(jnp.zeros_like, transition)
            transition = _choose(over, nothing, transition)
        fresh = begin(rules, levels, board.key)
        following = _choose(over, fresh, Board(final, board.key))
        return Stepped(
            following,
            rules.observe(following.state),
            transition,
            final,
            rules.observe(final) if at_once else None,
        )

    return jax.vmap(step)(boards, over, actions)


def _infos(
    states: EnvState, transitions: Transition | None, mask: np.ndarray
) -> dict[str, Any]:
    """Arrays as `SokobanEnv` has them one by one, and which boards have them."""
    nothing = np.zeros_like(mask)
    infos = {
        "level": np.where(mask, states.level, 0).astype(np.int64),
        "moved": nothing if transitions is None else transitions.moved & mask,
        "pushed": nothing if transitions is None else transitions.pushed & mask,
    }
    return _masked({name: np.array(values) for name, values in infos.items()}, mask)


def _final(
    stepped: Stepped, transitions: Transition, ended: np.ndarray
) -> dict[str, Any]:
    """The boards that ended: None for the others."""
    observations = np.full(len(ended), None, object)
    final = np.array(stepped.final_observations)
    for index in np.flatnonzero(ended):
        observations[index] = final[index]
    infos = {
        "final_obs": observations,
        "final_info": _infos(stepped.final_states, transitions, ended),
    }
    return _masked(infos, ended)


def _masked(infos: Mapping[str, Any], mask: np.ndarray) -> dict[str, Any]:
    return {**infos, **{f"_{name}": mask.copy() for name in infos}}
