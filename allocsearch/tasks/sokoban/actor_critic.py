"""Actor–critic losses over unrolled experience: V-trace, and PPO on the same estimate.

V-trace: Espeholt et al., "IMPALA" (2018), eq. 1, with λ on the traces. With all ratios
one it is the generalised advantage estimate of Schulman et al. (2016). PPO: Schulman
et al. (2017), eq. 7.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from allocsearch.tasks.sokoban.config import LossConfig
from allocsearch.tasks.sokoban.modules import Outputs
from allocsearch.tasks.sokoban.rollout import Experience, log_prob


class Estimate(NamedTuple):
    """What one stream's experience says of its values and actions.

    Attributes:
        targets: what the value at each step should have been.
        advantages: how much better the action was than the value said.
    """

    targets: Float[Array, " t"]
    advantages: Float[Array, " t"]


def vtrace(
    values: Float[Array, " t1"],
    rewards: Float[Array, " t"],
    discounts: Float[Array, " t"],
    ratios: Float[Array, " t"],
    counts: Bool[Array, " t"],
    trace_decay: float,
) -> Estimate:
    """V-trace targets and advantages of one stream, ρ̄ = c̄ = 1.

    Args:
        values: of every step's board, and of the board after the last step.
        rewards: of every step.
        discounts: γ, or 0 where the step ended the episode for good.
        ratios: π/μ of the actions taken; ones when on policy.
        counts: False on a step that only values the last board of a truncated
            episode: it bootstraps the step before, and nothing flows through it.
        trace_decay: λ in [0, 1].
    """
    weights = jnp.minimum(ratios, 1.0) * counts
    errors = rewards + discounts * values[1:] - values[:-1]
    decays = discounts * trace_decay

    def back(later: Array, step: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        weight, error, decay = step
        correction = weight * (error + decay * later)
        return correction, correction

    zero = jnp.zeros_like(values[-1])
    steps = (weights, errors, decays)
    _, corrections = jax.lax.scan(back, zero, steps, reverse=True)
    # The advantage bootstraps from the next target, mixed by λ with the next value;
    # weight × (error + decay × next correction) is the correction itself.
    return Estimate(values[:-1] + corrections, corrections)


def actor_critic_loss(
    outputs: Outputs, experience: Experience, config: LossConfig
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The loss of T steps of B environments, a mean over steps that count.

    Args:
        outputs: of the network being trained, [T, B].
        experience: what the policy of the time did.
        config: weights and kind.

    Returns:
        The loss and its parts.
    """
    log_probs = log_prob(outputs.logits, experience.actions)
    ratios = jnp.exp(log_probs - experience.log_probs)
    estimate = _ESTIMATES[config.kind](outputs, ratios, experience, config)
    counts = experience.counts

    def mean(x: Array) -> Array:
        return jnp.sum(x * counts) / jnp.maximum(jnp.sum(counts), 1)

    advantages = estimate.advantages
    if config.normalise:
        advantages /= jnp.sqrt(mean(jnp.square(advantages)) + 1e-6)
    gain = _GAINS[config.kind](log_probs, ratios, advantages, config.clip)
    p = jax.nn.log_softmax(outputs.logits)
    parts = {
        "policy_loss": -mean(gain),
        "value_loss": mean(jnp.square(estimate.targets - outputs.value)) / 2,
        "entropy": mean(-jnp.sum(jnp.exp(p) * p, axis=-1)),
        "divergence": mean(ratios - 1 - jnp.log(ratios)),
    }
    loss = (
        parts["policy_loss"]
        + config.value * parts["value_loss"]
        - config.entropy * parts["entropy"]
    )
    if config.logit_penalty:
        squares = jnp.sum(jnp.square(outputs.logits), axis=-1)
        loss += config.logit_penalty * mean(squares)
    return loss, parts


def _estimate(
    values: Array, ratios: Array, experience: Experience, config: LossConfig
) -> Estimate:
    discounts = config.discount * ~experience.terminated
    estimate = jax.vmap(vtrace, in_axes=(1, 1, 1, 1, 1, None), out_axes=1)
    return jax.lax.stop_gradient(
        estimate(
            values,
            config.reward_scale * experience.rewards,
            discounts,
            ratios,
            experience.counts,
            config.trace_decay,
        )
    )


def _vtrace_estimate(
    outputs: Outputs, ratios: Array, experience: Experience, config: LossConfig
) -> Estimate:
    values = jnp.concatenate([outputs.value, experience.values[-1:]])
    return _estimate(values, ratios, experience, config)


def _behaviour_estimate(
    outputs: Outputs, ratios: Array, experience: Experience, config: LossConfig
) -> Estimate:
    del outputs
    return _estimate(experience.values, jnp.ones_like(ratios), experience, config)


def _log_gain(log_probs: Array, ratios: Array, advantages: Array, clip: float) -> Array:
    del ratios, clip
    return log_probs * advantages


def _clipped_gain(
    log_probs: Array, ratios: Array, advantages: Array, clip: float
) -> Array:
    del log_probs
    clipped = jnp.clip(ratios, 1 - clip, 1 + clip)
    return jnp.minimum(ratios * advantages, clipped * advantages)


_ESTIMATES = {"vtrace": _vtrace_estimate, "ppo": _behaviour_estimate}
_GAINS = {"vtrace": _log_gain, "ppo": _clipped_gain}
