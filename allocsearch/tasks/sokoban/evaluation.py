"""Playing levels to the end: the scores of a network or of a random policy.

Evaluation has a carry of its own, zero at the start of every level, and changes
nothing of a run.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from allocsearch.model import Model
from allocsearch.tasks.sokoban.config import EvaluationConfig
from allocsearch.tasks.sokoban.environment import Environment, EnvState, Levels

# (memory, boards, time) → (memory, actions), for a batch of boards.
Policy = Callable[[Any, EnvState, Array], tuple[Any, Int[Array, " levels"]]]

GREEDY = EvaluationConfig()


class Episodes(eqx.Module):
    """How each level went.

    Attributes:
        returns: sum of rewards, undiscounted.
        lengths: steps played.
        solved: whether every box came to stand on a goal.

    Class attributes:
        MEANS: which of the columns of `by_level` each metric is the mean of.
    """

    MEANS: ClassVar[Mapping[str, str]] = {
        "return": "return",
        "solved_fraction": "solved",
        "episode_length": "length",
    }

    returns: Float[Array, " levels"]
    lengths: Int[Array, " levels"]
    solved: Bool[Array, " levels"]

    def metrics(self) -> dict[str, Array]:
        """Means over levels, by the names of the task's objectives."""
        return {
            "return": jnp.mean(self.returns),
            "solved_fraction": jnp.mean(self.solved),
            "episode_length": jnp.mean(self.lengths.astype(jnp.float32)),
        }

    def by_level(self) -> dict[str, np.ndarray]:
        """One value for each level: its index in the split, and how it went."""
        return {
            "level": np.arange(len(self.lengths)),
            "return": np.asarray(self.returns),
            "length": np.asarray(self.lengths),
            "solved": np.asarray(self.solved),
        }


def play(
    model: Model,
    environment: Environment,
    levels: Levels,
    config: EvaluationConfig = GREEDY,
) -> Episodes:
    """Every level once.

    What is drawn for a level depends on the seed, the level's index and the time, and
    not on the other levels.

    Args:
        model: reads boards one by one.
        environment: its step limit ends an unsolved level.
        levels: played side by side.
        config: how actions are chosen, and what becomes of the carry; by default the
            likeliest, and it is kept.
    """
    key = policy_key(config)
    n_thoughts, resets = config.thinking_steps, config.state == "reset"
    return _play_network(model, environment, levels, key, n_thoughts, resets)


@eqx.filter_jit
def _play_network(
    model: Model,
    environment: Environment,
    levels: Levels,
    key: PRNGKeyArray | None,
    n_thoughts: int,
    resets: bool,
) -> Episodes:
    """Every level once: greedily without a key."""
    acting = model.widened()
    fresh = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (len(levels), *x.shape)), model.init_carry()
    )
    starts = _starts(environment, levels)

    def step(carry: PyTree, states: EnvState) -> tuple[PyTree, PyTree]:
        observations = jax.vmap(environment.observe)(states)
        return jax.vmap(lambda c, o: acting.step(c, o, False))(carry, observations)

    def act(carry: PyTree, states: EnvState, time: Array) -> tuple[PyTree, Array]:
        carry, outputs = step(fresh if resets else carry, states)
        return carry, choose_actions(key, states.level, time, outputs.logits)

    def think(_: Array, carry: PyTree) -> PyTree:
        return step(carry, starts)[0]

    # A network that carries nothing has nothing to think with.
    n_thoughts = n_thoughts if jax.tree.leaves(fresh) else 0
    carry = jax.lax.fori_loop(0, n_thoughts, think, fresh) if n_thoughts else fresh
    return _play(environment, starts, act, carry)


def policy_key(config: EvaluationConfig) -> PRNGKeyArray | None:
    """What decides sampled actions; None where the likeliest are taken."""
    return jax.random.key(config.seed) if config.policy == "sampled" else None


def choose_actions(
    key: PRNGKeyArray | None,
    levels: Int[Array, " levels"],
    time: Array,
    logits: Float[Array, "levels actions"],
) -> Int[Array, " levels"]:
    """The likeliest actions, or with a key ones drawn with the policy's odds."""
    if key is None:
        return jnp.argmax(logits, axis=-1)
    fold = jax.vmap(jax.random.fold_in, in_axes=(0, None))
    by_level = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, levels)
    return jax.vmap(jax.random.categorical)(fold(by_level, time), logits)


@eqx.filter_jit
def play_randomly(environment: Environment, levels: Levels, seed: int = 0) -> Episodes:
    """Every level once, with uniformly random actions."""

    def act(key: Array, states: EnvState, time: Array) -> tuple[Array, Array]:
        key_now = jax.random.fold_in(key, time)
        shape, n_actions = states.player.shape, environment.n_actions
        return key, jax.random.randint(key_now, shape, 0, n_actions)

    starts = _starts(environment, levels)
    return _play(environment, starts, act, jax.random.key(seed))


def _starts(environment: Environment, levels: Levels) -> EnvState:
    """Every level at its beginning."""
    key = jax.random.key(0)  # evaluation limits are fixed: nothing is drawn
    return jax.vmap(lambda i: environment.reset(levels, i, key=key))(
        jnp.arange(len(levels))
    )


def _play(
    environment: Environment, states: EnvState, policy: Policy, memory: PyTree
) -> Episodes:
    """Plays until every level has ended."""
    n_levels = len(states.level)
    episodes = Episodes(
        returns=jnp.zeros(n_levels),
        lengths=jnp.zeros(n_levels, jnp.int32),
        solved=jnp.zeros(n_levels, bool),
    )

    def goes_on(loop: tuple) -> Array:
        return jnp.any(loop[-1])

    def body(loop: tuple) -> tuple:
        time, memory, states, episodes, playing = loop
        memory, actions = policy(memory, states, time)
        states, transition = jax.vmap(environment.step)(states, actions)
        episodes = Episodes(
            returns=episodes.returns + transition.reward * playing,
            lengths=episodes.lengths + playing,
            solved=episodes.solved | (transition.terminated & playing),
        )
        return time + 1, memory, states, episodes, playing & ~transition.done

    playing = jnp.ones(n_levels, bool)
    time = jnp.zeros((), jnp.int32)
    loop = jax.lax.while_loop(goes_on, body, (time, memory, states, episodes, playing))
    return loop[3]
