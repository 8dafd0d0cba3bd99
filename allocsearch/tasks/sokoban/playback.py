"""One level played by a network, with what it saw coming at every step."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from allocsearch.model import Model
from allocsearch.tasks.sokoban.config import EvaluationConfig
from allocsearch.tasks.sokoban.environment import (
    Environment,
    EnvState,
    Levels,
    Transition,
)
from allocsearch.tasks.sokoban.evaluation import GREEDY, choose_actions, policy_key
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
        thoughts: float32 `[K, actions]` and `[K]`, probabilities and values at the
            steps on the first board before the first action.
    """

    boards: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    probabilities: np.ndarray
    values: np.ndarray
    solved: bool
    thoughts: tuple[np.ndarray, np.ndarray]

    def __len__(self) -> int:
        return len(self.actions)


def play_level(
    model: Model,
    environment: Environment,
    levels: Levels,
    index: int,
    config: EvaluationConfig = GREEDY,
) -> Episode:
    """One level from its start to its end, as evaluation plays it.

    Args:
        model: begins with a carry of zeros, as in evaluation.
        environment: its step limit ends an unsolved level.
        levels: of the environment's board size.
        index: which of them.
        config: how actions are chosen, and what becomes of the carry.

    Raises:
        ConfigError: the levels have another board size.
    """
    index_ = jnp.asarray(index, jnp.int32)
    resets = config.state == "reset"
    states, (actions, transitions, probabilities, values), thoughts = jax.device_get(
        _play(
            model,
            environment,
            levels,
            index_,
            policy_key(config),
            config.thinking_steps,
            resets,
        )
    )
    n_steps = int(np.argmax(transitions.done)) + 1
    return Episode(
        boards=_codes(states, environment.shape)[: n_steps + 1],
        actions=actions[:n_steps],
        rewards=transitions.reward[:n_steps],
        probabilities=probabilities[:n_steps],
        values=values[:n_steps],
        solved=bool(transitions.terminated[n_steps - 1]),
        thoughts=thoughts,
    )


@eqx.filter_jit
def _play(
    model: Model,
    environment: Environment,
    levels: Levels,
    index: Array,
    key: PRNGKeyArray | None,
    n_thoughts: int,
    resets: bool,
) -> tuple[EnvState, tuple[Array, Transition, Array, Array], tuple[Array, Array]]:
    """As many steps as an episode may have: T + 1 states, T of the rest; thoughts."""
    acting = model.widened()
    # Evaluation limits are fixed: nothing is drawn.
    start = environment.reset(levels, index, key=jax.random.key(0))
    fresh = acting.init_carry()

    def read(carry: PyTree, state: EnvState) -> tuple[PyTree, Array, Array]:
        carry, outputs = acting.step(carry, environment.observe(state), False)
        return carry, outputs.logits, outputs.value

    def think(carry: PyTree, _: None) -> tuple[PyTree, tuple[Array, Array]]:
        carry, logits, value = read(carry, start)
        return carry, (jax.nn.softmax(logits), value)

    def body(loop: tuple[PyTree, EnvState], time: Array) -> tuple[tuple, tuple]:
        carry, state = loop
        carry, logits, value = read(fresh if resets else carry, state)
        action = choose_actions(key, state.level[None], time, logits[None])[0]
        action = action.astype(jnp.int32)
        state, transition = environment.step(state, action)
        seen = (state, (action, transition, jax.nn.softmax(logits), value))
        return (carry, state), seen

    carry, thoughts = jax.lax.scan(think, fresh, length=n_thoughts)
    length = int(np.max(environment.step_limit))
    _, (later, rest) = jax.lax.scan(body, (carry, start), jnp.arange(length))
    states = jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), start, later)
    return states, rest, thoughts


def _codes(states: EnvState, shape: tuple[int, int]) -> np.ndarray:
    """Bit codes `[N, H, W]`, the players' among them."""
    codes = np.array(states.board)
    codes[np.arange(len(codes)), states.player] |= PLAYER
    return codes.reshape(-1, *shape)
