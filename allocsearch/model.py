"""A whole network: a task's encoder, the parallel experts and the task's head."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from allocsearch.network import Carry, ParallelExperts, cast


class Model(eqx.Module):
    """A task's encoder, the core network and the task's head, for one stream."""

    encoder: Any
    core: ParallelExperts
    head: Any

    def init_carry(self) -> Carry:
        """The carry at the start of a stream."""
        return self.core.init_carry()

    def astype(self, dtype: Any) -> "Model":
        """The same model computing in another precision; its outputs stay float32.

        It has the gradients, but not the parameters, of this.
        """
        return cast(self, dtype)

    def carried(self, carry: Carry) -> Carry:
        """A carry in the precision that this model computes in."""
        return cast(carry, self.core.dtype)

    def widened(self) -> "Model":
        """The same model, its core ready for many steps."""
        return Model(self.encoder, self.core.widened(), self.head)

    def step(
        self, carry: Carry, observation: PyTree, reset: Bool[Array, ""] | bool
    ) -> tuple[Carry, PyTree]:
        """One external step: an observation in, the head's outputs out."""
        z = self._encode(observation)
        carry, features = self.core.step(carry, z, reset)
        return carry, self._read(features)

    def unroll(
        self, carry: Carry, observations: PyTree, reset: Bool[Array, " t"]
    ) -> tuple[Carry, PyTree]:
        """Successive steps; encoder and head run outside the scan over time."""
        z = jax.vmap(self._encode)(observations)
        carry, features = self.core.unroll(carry, z, reset)
        return carry, jax.vmap(self._read)(features)

    def _encode(self, observation: PyTree) -> Array:
        return self.encoder(observation).astype(self.core.dtype)

    def _read(self, features: Array) -> PyTree:
        return cast(self.head(features), jnp.float32)
