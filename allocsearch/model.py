"""A whole network: a task's encoder, the parallel experts and the task's head."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from allocsearch.network import Carry, Inside, ParallelExperts
from allocsearch.stack import cast


class TiedHead(eqx.Module):
    """A head that reads with parameters of the encoder."""

    @abc.abstractmethod
    def tied(self, encoder: Any) -> Callable[[Array], PyTree]:
        """What to call on features: a module that holds what it takes from both."""


def readout(encoder: Any, head: Any) -> Any:
    """A head as it is called on features."""
    return head.tied(encoder) if isinstance(head, TiedHead) else head


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
        z = self.encode(observation)
        carry, features = self.core.step(carry, z, reset)
        return carry, self._read(features)

    def step_inside(
        self, carry: Carry, observation: PyTree, reset: Bool[Array, ""] | bool
    ) -> tuple[Carry, PyTree, Inside]:
        """As `step`, and what it leaves within the core."""
        z = self.encode(observation)
        carry, features, inside = self.core.step_inside(carry, z, reset)
        return carry, self._read(features), inside

    def unroll(
        self, carry: Carry, observations: PyTree, reset: Bool[Array, " t"]
    ) -> tuple[Carry, PyTree]:
        """Successive steps; encoder and head run outside the scan over time."""
        z = jax.vmap(self.encode)(observations)
        carry, features = self.core.unroll(carry, z, reset)
        return carry, jax.vmap(self._read)(features)

    @property
    def readout(self) -> Any:
        """The head as it is called on features, with what the encoder lends it."""
        return readout(self.encoder, self.head)

    def encode(self, observation: PyTree) -> Array:
        """The core's input z, in the precision that it computes in."""
        return self.encoder(observation).astype(self.core.dtype)

    def _read(self, features: Array) -> PyTree:
        return cast(self.readout(features), jnp.float32)
