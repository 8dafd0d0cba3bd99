"""One level played by a network, with what it saw coming at every step."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from allocsearch.model import Model
from allocsearch.tasks.sokoban.environment import (
    Environment,
    EnvState,
    Levels,
    Transition,
)
from allocsearch.tasks.sokoban.levels import PLAYER


@dataclass(frozen=True)
class Episode:
    """An episode of T steps.

    Attributes:
        boards: uint8 `[T + 1, H, W]` bit codes, the player's among them: before every
            step, and after the last.
        actions: int32 `[T]`, indices of the environment's actions.
        rewards: float32 `[T]`.
        probabilities: float32 `[T, actions]` of the policy before each step.
        values: float32 `[T]` before each step, in scaled reward as the head has them.
        solved: whether the last step solved the level; if not, time was up.
    """

    boards: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    probabilities: np.ndarray
    values: np.ndarray
    solved: bool

    def __len__(self) -> int:
        return len(self.actions)


def play_level(
    model: Model, environment: Environment, levels: Levels, index: int
) -> Episode:
    """One level from its start to its end, always with the likeliest action.

    Args:
        model: begins with a carry of zeros, as in evaluation.
        environment: its step limit ends an unsolved level.
        levels: of the environment's board size.
        index: which of them.

    Raises:
        ConfigError: the levels have another board size.
    """
    index_ = jnp.asarray(index, jnp.int32)
    states, (actions, transitions, probabilities, values) = jax.device_get(
        _play(model, environment, levels, index_)
    )
    n_steps = int(np.argmax(transitions.done)) + 1
    return Episode(
        boards=_codes(states, environment.shape)[: n_steps + 1],
        actions=actions[:n_steps],
        rewards=transitions.reward[:n_steps],
        probabilities=probabilities[:n_steps],
        values=values[:n_steps],
        solved=bool(transitions.terminated[n_steps - 1]),
    )


@eqx.filter_jit
def _play(
    model: Model, environment: Environment, levels: Levels, index: Array
) -> tuple[EnvState, tuple[Array, Transition, Array, Array]]:
    """As many steps as an episode may have: T + 1 states, and T of the rest."""
    acting = model.widened()
    # Evaluation limits are fixed: nothing is drawn.
    start = environment.reset(levels, index, key=jax.random.key(0))

    def body(loop: tuple[PyTree, EnvState], _: None) -> tuple[tuple, tuple]:
        carry, state = loop
        carry, outputs = acting.step(carry, environment.observe(state), False)
        action = jnp.argmax(outputs.logits).astype(jnp.int32)
        state, transition = environment.step(state, action)
        probabilities = jax.nn.softmax(outputs.logits)
        seen = (state, (action, transition, probabilities, outputs.value))
        return (carry, state), seen

    length = int(np.max(environment.step_limit))
    _, (later, rest) = jax.lax.scan(
        body, (acting.init_carry(), start), None, length=length
    )
    states = jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), start, later)
    return states, rest


def _codes(states: EnvState, shape: tuple[int, int]) -> np.ndarray:
    """Bit codes `[N, H, W]`, the players' among them."""
    codes = np.array(states.board)
    codes[np.arange(len(codes)), states.player] |= PLAYER
    return codes.reshape(-1, *shape)
