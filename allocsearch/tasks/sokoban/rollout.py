"""Stepping environments with the network: what training learns from.

A truncated episode is not over for the agent: its last board is shown once more, on a
step that takes no action and counts in no loss, only so that the value of that board
is known; then a new level begins. A solved episode has no value to come, and the next
level begins at once. Either way the carry is reset on the first step of the new level.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray

from allocsearch.model import Model
from allocsearch.network import Carry
from allocsearch.tasks.sokoban.environment import (
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

    observations: Num[Array, "t b height width channels"]
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
    states = _new_episodes(environment, levels, (n_envs,), key=level_key)
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
    noise_key, level_key, key = jax.random.split(stream.key, 3)
    n_envs = len(stream.halted)
    # All that is random is drawn before the loop: the loop compiles and runs faster.
    noise = jax.random.gumbel(noise_key, (n_steps, n_envs, environment.n_actions))
    fresh = _new_episodes(environment, levels, (n_steps, n_envs), key=level_key)

    acting = model.widened()
    kept = stream.carry
    stream = eqx.tree_at(lambda s: s.carry, stream, model.carried(kept))

    def body(stream: Stream, drawn: tuple[Array, EnvState]) -> tuple[Stream, tuple]:
        return _step(environment, acting, stream, *drawn)

    last, steps = jax.lax.scan(body, stream, (noise, fresh))
    observations, begins, actions, log_probs, values, transitions, counts = steps
    _, _, outputs = _act(environment, acting, last)
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
    carry = jax.tree.map(lambda new, old: new.astype(old.dtype), last.carry, kept)
    return eqx.tree_at(lambda s: (s.carry, s.key), last, (carry, key)), experience


def _act(
    environment: Environment, model: Model, stream: Stream
) -> tuple[Array, Carry, Outputs]:
    observations = jax.vmap(environment.observe)(stream.states)
    carry, outputs = jax.vmap(model.step)(stream.carry, observations, stream.begins)
    return observations, carry, outputs


def _step(
    environment: Environment,
    model: Model,
    stream: Stream,
    noise: Float[Array, "b actions"],
    fresh: EnvState,
) -> tuple[Stream, tuple]:
    observations, carry, outputs = _act(environment, model, stream)
    actions = jnp.argmax(outputs.logits + noise, axis=-1)
    states, transition = advance(
        environment, stream.states, actions, stream.halted, fresh
    )
    after = Stream(
        states=states,
        carry=carry,
        begins=transition.terminated | stream.halted,
        halted=transition.truncated,
        key=stream.key,
    )
    record = (
        observations,
        stream.begins,
        actions,
        log_prob(outputs.logits, actions),
        outputs.value,
        transition,
        ~stream.halted,
    )
    return after, record


def advance(
    environment: Environment,
    states: EnvState,
    actions: Int[Array, " b"],
    halted: Bool[Array, " b"],
    fresh: EnvState,
) -> tuple[EnvState, Transition]:
    """Steps boards; a solved or a halted one is replaced by a new level.

    Args:
        environment: the rules.
        states: boards.
        actions: indices of the environment's actions, ignored where halted.
        halted: whether the board is the last of a truncated episode.
        fresh: the level that each board is replaced by, if it is.

    Returns:
        Boards to go on from, and what the step brought: nothing where halted.
    """
    moved, transition = jax.vmap(environment.step)(states, actions)
    transition = jax.tree.map(
        lambda x: jnp.where(halted, jnp.zeros_like(x), x), transition
    )
    over = transition.terminated | halted

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(over.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(choose, fresh, moved), transition


def _new_episodes(
    environment: Environment,
    levels: Levels,
    shape: tuple[int, ...],
    *,
    key: PRNGKeyArray,
) -> EnvState:
    level_key, limit_key = jax.random.split(key)
    index = jax.random.randint(level_key, shape, 0, len(levels)).reshape(-1)
    keys = jax.random.split(limit_key, index.size)
    states = jax.vmap(lambda i, k: environment.reset(levels, i, key=k))(index, keys)
    return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), states)


def log_prob(
    logits: Float[Array, "*axes actions"], actions: Int[Array, "*axes"]
) -> Float[Array, "*axes"]:
    """Log-probability of actions under a policy's logits."""
    chosen = jax.nn.one_hot(actions, logits.shape[-1])
    return jnp.sum(jax.nn.log_softmax(logits) * chosen, axis=-1)
