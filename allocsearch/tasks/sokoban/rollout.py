"""Stepping environments with the network: what training learns from.

A truncated episode is not over for the agent: its last board is shown once more, on a
step that takes no action and counts in no loss, only so that the value of that board
is known; then a new level begins. A solved episode has no value to come, and the next
level begins at once. Either way the carry is reset on the first step of the new level.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from allocsearch.network import Carry, Model
from allocsearch.tasks.sokoban.environment import (
    ACTIONS,
    Environment,
    EnvState,
    Levels,
    Transition,
)
from allocsearch.tasks.sokoban.modules import Outputs


class Stream(eqx.Module):
    """Environments in the middle of training; every leaf has a leading axis B.

    Attributes:
        states: boards.
        carry: the network's carry before the next step.
        begins: whether the next step is the first of a level, so that the carry is
            reset.
        halted: whether the board is the last of a truncated episode, to be valued.
        key: of everything random to come (no leading axis).
    """

    states: EnvState
    carry: Carry
    begins: Bool[Array, " b"]
    halted: Bool[Array, " b"]
    key: PRNGKeyArray


class Experience(eqx.Module):
    """T steps of B environments.

    Attributes:
        observations: what the network read.
        begins: the reset mask of the carry.
        actions: what was done.
        log_probs: of those actions, when they were taken.
        values: as the network gave them then; one more than steps.
        rewards: of the environment.
        terminated: whether the step solved the level: no value follows.
        counts: whether the step was one of an episode; else it only valued the last
            board of a truncated one.
        carry: before the first step.
    """

    observations: Float[Array, "t b height width planes"]
    begins: Bool[Array, "t b"]
    actions: Int[Array, "t b"]
    log_probs: Float[Array, "t b"]
    values: Float[Array, "t1 b"]
    rewards: Float[Array, "t b"]
    terminated: Bool[Array, "t b"]
    counts: Bool[Array, "t b"]
    carry: Carry


def start(
    environment: Environment,
    levels: Levels,
    model: Model,
    n_envs: int,
    *,
    key: PRNGKeyArray,
) -> Stream:
    """Environments at the start of randomly drawn levels."""
    level_key, key = jax.random.split(key)
    states = _new_episodes(environment, levels, n_envs, key=level_key)
    carry = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (n_envs, *x.shape)), model.init_carry()
    )
    return Stream(
        states=states,
        carry=carry,
        begins=jnp.ones(n_envs, bool),
        halted=jnp.zeros(n_envs, bool),
        key=key,
    )


def unroll(
    environment: Environment,
    levels: Levels,
    model: Model,
    stream: Stream,
    n_steps: int,
) -> tuple[Stream, Experience]:
    """Acts for a number of steps by sampling from the policy.

    Returns:
        The stream after the last step, and what happened.
    """
    key, following = jax.random.split(stream.key)

    def body(stream: Stream, key: PRNGKeyArray) -> tuple[Stream, tuple]:
        return _step(environment, levels, model, stream, key)

    last, steps = jax.lax.scan(body, stream, jax.random.split(key, n_steps))
    observations, begins, actions, log_probs, values, transitions, counts = steps
    _, outputs = _act(environment, model, last)
    experience = Experience(
        observations=observations,
        begins=begins,
        actions=actions,
        log_probs=log_probs,
        values=jnp.concatenate([values, outputs.value[None]]),
        rewards=transitions.reward,
        terminated=transitions.terminated,
        counts=counts,
        carry=stream.carry,
    )
    return eqx.tree_at(lambda s: s.key, last, following), experience


def _act(
    environment: Environment, model: Model, stream: Stream
) -> tuple[Carry, Outputs]:
    observations = jax.vmap(environment.observe)(stream.states)
    return jax.vmap(model.step)(stream.carry, observations, stream.begins)


def _step(
    environment: Environment,
    levels: Levels,
    model: Model,
    stream: Stream,
    key: PRNGKeyArray,
) -> tuple[Stream, tuple]:
    action_key, level_key = jax.random.split(key)
    observations = jax.vmap(environment.observe)(stream.states)
    carry, outputs = jax.vmap(model.step)(stream.carry, observations, stream.begins)
    actions = jax.random.categorical(action_key, outputs.logits)
    log_probs = log_prob(outputs.logits, actions)
    states, transition, halted = advance(
        environment, levels, stream.states, actions, stream.halted, key=level_key
    )
    begins = transition.terminated | stream.halted
    after = Stream(states, carry, begins, halted, stream.key)
    record = (
        observations,
        stream.begins,
        actions,
        log_probs,
        outputs.value,
        transition,
        ~stream.halted,
    )
    return after, record


def advance(
    environment: Environment,
    levels: Levels,
    states: EnvState,
    actions: Int[Array, " b"],
    halted: Bool[Array, " b"],
    *,
    key: PRNGKeyArray,
) -> tuple[EnvState, Transition, Bool[Array, " b"]]:
    """Steps boards; a solved or a halted one is replaced by a new level.

    Args:
        environment, levels: the rules, and what new episodes draw from.
        states: boards.
        actions: indices of `ACTIONS`, ignored where halted.
        halted: whether the board is the last of a truncated episode.
        key: draws levels and step limits.

    Returns:
        Boards to go on from, what the step brought (all zero where halted), and
        whether each board is now the last of a truncated episode.
    """
    fresh = _new_episodes(environment, levels, len(halted), key=key)
    moved, transition = jax.vmap(environment.step)(states, actions)
    transition = jax.tree.map(
        lambda x: jnp.where(halted, jnp.zeros_like(x), x), transition
    )
    over = transition.terminated | halted

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(over.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(choose, fresh, moved), transition, transition.truncated


def _new_episodes(
    environment: Environment, levels: Levels, n: int, *, key: PRNGKeyArray
) -> EnvState:
    level_key, limit_key = jax.random.split(key)
    index = jax.random.randint(level_key, (n,), 0, len(levels))
    keys = jax.random.split(limit_key, n)
    return jax.vmap(lambda i, k: environment.reset(levels, i, key=k))(index, keys)


def log_prob(
    logits: Float[Array, "*axes actions"], actions: Int[Array, "*axes"]
) -> Float[Array, "*axes"]:
    """Log-probability of actions under a policy's logits."""
    chosen = jax.nn.one_hot(actions, len(ACTIONS))
    return jnp.sum(jax.nn.log_softmax(logits) * chosen, axis=-1)
