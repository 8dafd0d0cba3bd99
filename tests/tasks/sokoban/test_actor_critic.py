"""V-trace and the losses, against returns worked out step by step in Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from allocsearch.tasks.sokoban.actor_critic import actor_critic_loss, vtrace
from allocsearch.tasks.sokoban.config import LossConfig
from allocsearch.tasks.sokoban.modules import Outputs
from allocsearch.tasks.sokoban.rollout import Experience

DISCOUNT = 0.9


def streams(seed: int, n_steps: int = 40) -> dict[str, np.ndarray]:
    """One stream with solved and truncated episodes; a truncated one is followed by
    the step that values its last board."""
    rng = np.random.default_rng(seed)
    terminated, counts = rng.random(n_steps) < 0.1, np.ones(n_steps, bool)
    for t in range(1, n_steps):
        goes_on = counts[t - 1] and not terminated[t - 1]
        counts[t] = not (goes_on and rng.random() < 0.15)
    terminated &= counts
    return {
        "values": rng.normal(size=n_steps + 1),
        "rewards": rng.normal(size=n_steps) * counts,
        "terminated": terminated,
        "counts": counts,
        "ratios": np.exp(rng.normal(size=n_steps)),
    }


def by_hand(stream: dict[str, np.ndarray], trace_decay: float) -> np.ndarray:
    """Targets as the double sum of the paper, one episode at a time."""
    n_steps = len(stream["rewards"])
    targets = stream["values"][:-1].copy()
    for start in range(n_steps):
        if not stream["counts"][start]:
            continue
        weight, t = 1.0, start
        while t < n_steps and stream["counts"][t]:
            rho = min(1.0, stream["ratios"][t])
            ends = stream["terminated"][t]
            following = 0.0 if ends else stream["values"][t + 1]
            error = stream["rewards"][t] + DISCOUNT * following - stream["values"][t]
            targets[start] += weight * rho * error
            if ends:
                break
            weight *= DISCOUNT * trace_decay * rho
            t += 1
    return targets


def estimate(stream: dict[str, np.ndarray], trace_decay: float):
    return vtrace(
        jnp.asarray(stream["values"]),
        jnp.asarray(stream["rewards"]),
        jnp.asarray(DISCOUNT * ~stream["terminated"]),
        jnp.asarray(stream["ratios"]),
        jnp.asarray(stream["counts"]),
        trace_decay,
    )


@pytest.mark.parametrize("trace_decay", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_targets_are_the_double_sum(seed, trace_decay):
    stream = streams(seed)
    assert stream["terminated"].any()
    assert not stream["counts"].all()
    targets, advantages = estimate(stream, trace_decay)
    expected = by_hand(stream, trace_decay)
    np.testing.assert_allclose(targets, expected, rtol=1e-4, atol=1e-5)
    # The advantage bootstraps from the λ-mixture of the next target and value.
    for t in np.flatnonzero(stream["counts"]):
        following = 0.0
        if not stream["terminated"][t]:
            last = t + 1 == len(expected)
            ahead = stream["values"][t + 1] if last else expected[t + 1]
            following = trace_decay * ahead
            following += (1 - trace_decay) * stream["values"][t + 1]
        gain = stream["rewards"][t] + DISCOUNT * following - stream["values"][t]
        rho = min(1.0, stream["ratios"][t])
        np.testing.assert_allclose(advantages[t], rho * gain, rtol=1e-3, atol=1e-4)


def test_targets_on_policy_are_discounted_returns():
    stream = streams(5)
    stream["ratios"] = np.ones_like(stream["ratios"])
    targets, _ = estimate(stream, 1.0)
    n_steps = len(stream["rewards"])
    expected = stream["values"][:-1].copy()
    ahead = stream["values"][-1]
    for t in reversed(range(n_steps)):
        if not stream["counts"][t]:
            ahead = stream["values"][t]  # the board that was cut short is worth this
            continue
        if stream["terminated"][t]:
            ahead = 0.0
        ahead = expected[t] = stream["rewards"][t] + DISCOUNT * ahead
    np.testing.assert_allclose(targets, expected, rtol=1e-4, atol=1e-5)


def test_truncation_bootstraps_and_termination_does_not():
    values = jnp.asarray([0.0, 5.0, 7.0])
    rewards, ratios = jnp.asarray([1.0, 0.0]), jnp.ones(2)
    cut = vtrace(
        values, rewards, jnp.full(2, 0.5), ratios, jnp.asarray([True, False]), 0.9
    )
    np.testing.assert_allclose(cut.targets, [1.0 + 0.5 * 5.0, 5.0])
    np.testing.assert_allclose(cut.advantages[1], 0.0)
    solved = vtrace(
        values, rewards, jnp.asarray([0.0, 0.5]), ratios, jnp.asarray([True, True]), 0.9
    )
    np.testing.assert_allclose(solved.targets, [1.0, 3.5])


def experience(seed: int, n_envs: int = 3) -> tuple[Outputs, Experience]:
    per_env = [streams(seed + i, 12) for i in range(n_envs)]
    rng = np.random.default_rng(seed)

    def stacked(name):
        return jnp.asarray(np.stack([s[name] for s in per_env], axis=1), jnp.float32)

    logits = jnp.asarray(rng.normal(size=(12, n_envs, 4)), jnp.float32)
    actions = jnp.asarray(rng.integers(0, 4, size=(12, n_envs)))
    made = Experience(
        observations=jnp.zeros((12, n_envs, 1, 1, 7)),
        begins=jnp.zeros((12, n_envs), bool),
        actions=actions,
        log_probs=jnp.log(jnp.asarray(rng.uniform(0.1, 0.9, (12, n_envs)))),
        values=stacked("values"),
        rewards=stacked("rewards"),
        terminated=stacked("terminated") > 0,
        counts=stacked("counts") > 0,
        carry=None,
    )
    return Outputs(logits, stacked("values")[:-1] + 0.3), made


@pytest.mark.parametrize("kind", ["vtrace", "ppo"])
def test_loss_parts_by_hand(kind):
    outputs, made = experience(3)
    config = LossConfig(
        kind=kind,
        discount=DISCOUNT,
        trace_decay=0.8,
        reward_scale=1.0,
        normalise=False,
        clip=0.2,
    )
    loss, parts = actor_critic_loss(outputs, made, config)
    policy, value, entropy, n = 0.0, 0.0, 0.0, 0
    for env in range(made.actions.shape[1]):
        logits = np.asarray(outputs.logits[:, env], np.float64)
        p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        taken = p[np.arange(12), np.asarray(made.actions[:, env])]
        ratio = taken / np.exp(np.asarray(made.log_probs[:, env], np.float64))
        old = np.asarray(made.values[:, env], np.float64)
        new = np.asarray(outputs.value[:, env], np.float64)
        stream = {
            "values": old if kind == "ppo" else np.append(new, old[-1]),
            "rewards": np.asarray(made.rewards[:, env], np.float64),
            "terminated": np.asarray(made.terminated[:, env]),
            "counts": np.asarray(made.counts[:, env]),
            "ratios": np.ones(12) if kind == "ppo" else ratio,
        }
        targets = by_hand(stream, 0.8)
        advantage = targets - stream["values"][:-1]
        for t in np.flatnonzero(stream["counts"]):
            if kind == "ppo":
                bounded = np.clip(ratio[t], 0.8, 1.2)
                policy -= min(ratio[t] * advantage[t], bounded * advantage[t])
            else:
                policy -= np.log(taken[t]) * advantage[t]
            value += (targets[t] - new[t]) ** 2 / 2
            entropy -= np.sum(p[t] * np.log(p[t]))
            n += 1
    np.testing.assert_allclose(parts["policy_loss"], policy / n, rtol=1e-4)
    np.testing.assert_allclose(parts["value_loss"], value / n, rtol=1e-4)
    np.testing.assert_allclose(parts["entropy"], entropy / n, rtol=1e-4)
    total = (policy + config.value * value - config.entropy * entropy) / n
    np.testing.assert_allclose(loss, total, rtol=1e-4)


def test_gradient_flows_through_neither_targets_nor_uncounted_steps():
    outputs, made = experience(4)
    config = LossConfig(trace_decay=0.8)

    def value_part(value):
        return actor_critic_loss(Outputs(outputs.logits, value), made, config)[1][
            "value_loss"
        ]

    gradient = jax.grad(value_part)(outputs.value)
    assert np.all(np.asarray(gradient)[~np.asarray(made.counts)] == 0)
    # d/dv of the mean of (target − v)²/2 with the target held fixed
    base = value_part(outputs.value)
    n = made.counts.sum()
    np.testing.assert_allclose(jnp.sum(gradient**2) * n / 2, base, rtol=1e-4)


def test_rescaled_rewards_leave_normalised_policy_loss():
    outputs, made = experience(6)
    made_zero = jax.tree.map(lambda x: x, made)
    zero = Outputs(outputs.logits, jnp.zeros_like(outputs.value))
    made_zero = Experience(**{**vars(made_zero), "values": jnp.zeros_like(made.values)})
    losses = [
        actor_critic_loss(zero, made_zero, LossConfig(reward_scale=scale))[1]
        for scale in (1.0, 10.0)
    ]
    np.testing.assert_allclose(
        losses[0]["policy_loss"], losses[1]["policy_loss"], rtol=1e-3
    )


def test_logit_penalty_is_a_mean_of_sums_over_steps_that_count():
    outputs, made = experience(4)
    plain, _ = actor_critic_loss(outputs, made, LossConfig())
    penalised, _ = actor_critic_loss(outputs, made, LossConfig(logit_penalty=0.5))
    counts, logits = np.asarray(made.counts), np.asarray(outputs.logits)
    expected = 0.5 * np.mean([np.sum(row**2) for row in logits[counts]])
    np.testing.assert_allclose(penalised - plain, expected, rtol=1e-3)


@pytest.mark.parametrize("trace_decay", [0.0, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_vtrace_is_that_of_rlax(seed, trace_decay):
    """A step that counts in no loss has ratio zero there, and so cuts every trace."""
    stream = streams(seed)
    theirs = rlax.vtrace_td_error_and_advantage(
        jnp.asarray(stream["values"][:-1]),
        jnp.asarray(stream["values"][1:]),
        jnp.asarray(stream["rewards"]),
        jnp.asarray(DISCOUNT * ~stream["terminated"]),
        jnp.asarray(stream["ratios"] * stream["counts"]),
        lambda_=trace_decay,
    )
    targets, advantages = estimate(stream, trace_decay)
    errors = targets - stream["values"][:-1]
    np.testing.assert_allclose(errors, theirs.errors, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(advantages, theirs.pg_advantage, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trace_decay", [0.0, 0.8, 1.0])
def test_on_policy_advantages_are_the_generalised_estimate_of_rlax(trace_decay):
    stream = streams(7)
    stream["ratios"] = np.ones_like(stream["ratios"])
    stream["counts"] = np.ones_like(stream["counts"])
    theirs = rlax.truncated_generalized_advantage_estimation(
        jnp.asarray(stream["rewards"]),
        jnp.asarray(DISCOUNT * ~stream["terminated"]),
        trace_decay,
        jnp.asarray(stream["values"]),
    )
    _, advantages = estimate(stream, trace_decay)
    np.testing.assert_allclose(advantages, theirs, rtol=1e-4, atol=1e-5)
