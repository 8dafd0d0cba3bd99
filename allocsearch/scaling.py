"""One rule for initialisation and learning rate over width d, experts E and depth L.

Initialisation: every weight is drawn with variance 1 / fan-in, proposals merge with
unit scale, and every read is normalised, so activations keep their scale at any shape.

Learning rate, quoted at d = 64, E = 1, L = 1 and scaled for Adam:

- matrices of the experts: × (64/d) / √(E·L);
- vectors of the experts: × 1 / √(E·L);
- matrices of the head: × (64/d), its input being d wide;
- everything else (encoder, gains, gates): × 1.

The factor 64/d is the width rule of Yang et al., "Tensor Programs V" (2022). The
factor 1/√(E·L) is there because the experts' gradients correlate: their L·E changes add
up coherently, while the state that they move has the scale of an incoherent sum.

With `optimizer: muon` the matrices of the experts take orthogonal steps instead,
× 0.2·√64 × √(outputs/inputs) / √(E·L). An orthogonal step already moves features
equally far at any d, so there is no 64/d; 0.2·√64 gives steps of a square matrix at
d = 64 the rms of 0.2 that Adam's have (Liu et al., "Muon is Scalable for LLM Training",
2025), so that both optimisers are quoted on one scale. Everything else has AdamW's
rule, at `adam_learning_rate`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from allocsearch import muon
from allocsearch.config import TrainingConfig
from allocsearch.level import Level
from allocsearch.model import Model

BASE_WIDTH = 64
MUON_RMS = 0.2
"""Root mean square of the steps of Muon at the base width, as Adam's have it."""


def learning_rate_multipliers(model: Model) -> PyTree:
    """The factor on the learning rate of every parameter.

    Args:
        model: a network, or the shapes of one.

    Returns:
        A pytree like the parameters of `model`, with a float for each array.
    """
    allocation = model.core.allocation
    width = BASE_WIDTH / allocation.width
    joint = (allocation.n_experts * allocation.depth) ** -0.5
    ones = jax.tree.map(lambda _: 1.0, eqx.filter(model, eqx.is_array))

    def experts(level: Level | None, n_stacked: int) -> Any:
        if level is None:
            return None
        return jax.tree.map(
            lambda x: joint * (width if x.ndim - n_stacked >= 2 else 1.0),
            eqx.filter(level.experts, eqx.is_array),
        )

    head = jax.tree.map(
        lambda x: width if x.ndim >= 2 else 1.0, eqx.filter(model.head, eqx.is_array)
    )
    ones = eqx.tree_at(lambda m: m.head, ones, head)
    if model.core.first is not None:
        scaled = experts(model.core.first, 1)
        ones = eqx.tree_at(lambda m: m.core.first.experts, ones, scaled)
    if model.core.levels is not None:
        scaled = experts(model.core.levels, 2)
        ones = eqx.tree_at(lambda m: m.core.levels.experts, ones, scaled)
    return ones


class OptimizerState(eqx.Module):
    """Moments and the place on the schedule.

    Learning rate and horizon are data, so that other values compile nothing anew.
    """

    moments: PyTree
    n_updates: Int[Array, ""]
    horizon: Int[Array, ""]
    learning_rate: Float[Array, ""]


class Optimizer(eqx.Module):
    """AdamW, or Muon beside it, by the scaling rule, with clipping and a schedule.

    The rate warms up, stays and cools down.

    Attributes:
        training: decay rates, clipping and schedule.
    """

    training: TrainingConfig = eqx.field(static=True)

    def init(self, model: Model, horizon: int) -> OptimizerState:
        """The state before the first update.

        Args:
            model: the network to train.
            horizon: how many updates there will be.
        """
        return OptimizerState(
            moments=self._transform(model).init(eqx.filter(model, eqx.is_array)),
            n_updates=jnp.zeros((), jnp.int32),
            horizon=jnp.asarray(horizon, jnp.int32),
            learning_rate=jnp.asarray(self.training.learning_rate, jnp.float32),
        )

    def update(
        self, gradients: PyTree, state: OptimizerState, model: Model
    ) -> tuple[Model, OptimizerState]:
        """One step against the gradients.

        Returns:
            The moved network and the next state.
        """
        steps, moments = self._transform(model).update(gradients, state.moments)
        schedule = self.schedule(state.n_updates, state.horizon)
        rate = state.learning_rate * schedule
        others = (self.training.adam_learning_rate or state.learning_rate) * schedule
        arrays, static = eqx.partition(model, eqx.is_array)
        decay = self.training.weight_decay

        def move(x: Array, step: Array, factor: float, first: bool) -> Array:
            own = rate if first else others
            shrink = own * decay * x if x.ndim >= 2 else 0.0
            return x - own * factor * step - shrink

        arrays = jax.tree.map(
            move, arrays, steps, self._multipliers(model), self._has_first_rate(model)
        )
        moved = eqx.combine(arrays, static)
        return moved, OptimizerState(
            moments, state.n_updates + 1, state.horizon, state.learning_rate
        )

    def computing(self, model: Model) -> Model:
        """The network in the precision that training computes in."""
        return model.astype(self.training.precision)

    def schedule(self, n_updates: Array, horizon: Array) -> Float[Array, ""]:
        """The fraction of the learning rate at an update, in (0, 1]."""
        done = n_updates.astype(jnp.float32)
        left = horizon.astype(jnp.float32) - done
        rise = (done + 1) / max(self.training.warmup, 1)
        length = self.training.cooldown * horizon.astype(jnp.float32)
        final = self.training.final_rate
        fall = final + (1 - final) * left / jnp.maximum(length, 1.0)
        return jnp.clip(jnp.minimum(rise, fall), 0.0, 1.0)

    @property
    def program(self) -> "Optimizer":
        """The same without what is data: equal for all learning rates and horizons."""
        data = {
            "learning_rate": 1.0,
            "horizon": None,
            "n_seeds": 1,
            "n_evaluations": 1,
            "seeds_together": None,
        }
        return Optimizer(self.training.model_copy(update=data))

    def _multipliers(self, model: Model) -> PyTree:
        training = self.training
        factors = jax.tree.map(lambda _: 1.0, eqx.filter(model, eqx.is_array))
        if training.scale_learning_rate:
            factors = learning_rate_multipliers(model)
        if training.optimizer != "muon":
            return factors
        allocation = model.core.allocation
        joint = (allocation.n_experts * allocation.depth) ** -0.5
        scale = MUON_RMS * BASE_WIDTH**0.5
        scale *= joint if training.scale_learning_rate else 1.0
        return jax.tree.map(
            lambda factor, gain, own: scale * gain if own else factor,
            factors,
            muon.gains(model),
            muon.is_matrix(model),
        )

    def _has_first_rate(self, model: Model) -> PyTree:
        """For every parameter whether `learning_rate` is its rate."""
        if self.training.optimizer == "muon":
            return muon.is_matrix(model)
        return jax.tree.map(lambda _: True, eqx.filter(model, eqx.is_array))

    def _transform(self, model: Model) -> optax.GradientTransformation:
        training = self.training
        adam = optax.scale_by_adam(b1=training.b1, b2=training.b2, eps=training.eps)
        clip = optax.clip_by_global_norm(training.max_grad_norm)
        if training.optimizer == "muon":
            return optax.chain(clip, muon.by_part(model, training.momentum, adam))
        return optax.chain(clip, adam)
