"""Playing levels to the end: the scores of a network or of a random policy.

Evaluation has a carry of its own, zero at the start of every level, and changes
nothing of a run.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from allocsearch.network import Model
from allocsearch.tasks.sokoban.environment import Environment, EnvState, Levels

# (memory, boards, time) → (memory, actions), for a batch of boards.
Policy = Callable[[Any, EnvState, Array], tuple[Any, Int[Array, " levels"]]]


class Episodes(eqx.Module):
    """How each level went.

    Attributes:
        returns: sum of rewards, undiscounted.
        lengths: steps played.
        solved: whether every box came to stand on a goal.
    """

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


@eqx.filter_jit
def play_greedily(model: Model, environment: Environment, levels: Levels) -> Episodes:
    """Every level once, always with the likeliest action.

    Args:
        model: reads boards one by one.
        environment: its step limit ends an unsolved level.
        levels: played side by side.
    """
    acting = model.widened()
    carry = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (len(levels), *x.shape)), model.init_carry()
    )

    def act(carry: PyTree, states: EnvState, time: Array) -> tuple[PyTree, Array]:
        del time
        observations = jax.vmap(environment.observe)(states)
        step = jax.vmap(lambda c, o: acting.step(c, o, False))
        carry, outputs = step(carry, observations)
        return carry, jnp.argmax(outputs.logits, axis=-1)

    return _play(environment, levels, act, carry)


@eqx.filter_jit
def play_randomly(environment: Environment, levels: Levels, seed: int = 0) -> Episodes:
    """Every level once, with uniformly random actions."""

    def act(key: Array, states: EnvState, time: Array) -> tuple[Array, Array]:
        key_now = jax.random.fold_in(key, time)
        shape, n_actions = states.player.shape, environment.n_actions
        return key, jax.random.randint(key_now, shape, 0, n_actions)

    return _play(environment, levels, act, jax.random.key(seed))


def _play(
    environment: Environment, levels: Levels, policy: Policy, memory: PyTree
) -> Episodes:
    """Plays until every level has ended."""
    n_levels = len(levels)
    key = jax.random.key(0)  # evaluation limits are fixed: nothing is drawn
    states = jax.vmap(lambda i: environment.reset(levels, i, key=key))(
        jnp.arange(n_levels)
    )
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
