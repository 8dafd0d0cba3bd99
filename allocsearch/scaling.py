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
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from allocsearch.config import TrainingConfig
from allocsearch.level import Level
from allocsearch.model import Model

BASE_WIDTH = 64


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
    """Adam's moments and the place on the schedule.

    Learning rate and horizon are data, so that other values compile nothing anew.
    """

    moments: PyTree
    n_updates: Int[Array, ""]
    horizon: Int[Array, ""]
    learning_rate: Float[Array, ""]


class Optimizer(eqx.Module):
    """AdamW with clipping, the scaling rule, and a warm-up–stable–cool-down schedule.

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
            moments=self._transform().init(eqx.filter(model, eqx.is_array)),
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
        steps, moments = self._transform().update(gradients, state.moments)
        rate = state.learning_rate * self.schedule(state.n_updates, state.horizon)
        arrays, static = eqx.partition(model, eqx.is_array)
        decay = self.training.weight_decay

        def move(x: Array, step: Array, factor: float) -> Array:
            shrink = rate * decay * x if x.ndim >= 2 else 0.0
            return x - rate * factor * step - shrink

        arrays = jax.tree.map(move, arrays, steps, self._multipliers(model))
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
        if self.training.scale_learning_rate:
            return learning_rate_multipliers(model)
        return jax.tree.map(lambda _: 1.0, eqx.filter(model, eqx.is_array))

    def _transform(self) -> optax.GradientTransformation:
        training = self.training
        return optax.chain(
            optax.clip_by_global_norm(training.max_grad_norm),
            optax.scale_by_adam(b1=training.b1, b2=training.b2, eps=training.eps),
        )
