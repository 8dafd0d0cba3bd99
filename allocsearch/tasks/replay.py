"""What a task is that trains nothing: it replays results that are known already."""

import abc
from collections.abc import Mapping
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from allocsearch.allocation import Allocation
from allocsearch.errors import ConfigError
from allocsearch.tasks.protocol import Task


class ReplayTask(Task):
    """A task without networks: its own allocations are the feasible set.

    There is nothing to build, so nothing to audit: a budget binds what the task says
    that an allocation costs.
    """

    builds_network: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def costs(self) -> Mapping[Allocation, int]:
        """What can be replayed, in canonical order, and the FLOPs of each."""

    @property
    @abc.abstractmethod
    def horizon(self) -> int:
        """The longest training that can be replayed, in `unit`; the default one."""

    @property
    def positions(self) -> tuple[int, ...]:
        """See `Task.positions`."""
        return ()

    @property
    def observation(self) -> jax.ShapeDtypeStruct:
        """See `Task.observation`."""
        return jax.ShapeDtypeStruct((), jnp.float32)

    def encoder(self, width: int, *, key: PRNGKeyArray) -> eqx.Module:
        """Refused: there is no network.

        Raises:
            ConfigError: always.
        """
        del width, key
        raise self._no_network()

    def head(self, width: int, *, key: PRNGKeyArray) -> eqx.Module:
        """Refused: there is no network.

        Raises:
            ConfigError: always.
        """
        del width, key
        raise self._no_network()

    def _no_network(self) -> ConfigError:
        return ConfigError(
            f"task {self.name!r} builds no network, it replays results: search it "
            f"with `allocsearch run --task {self.name}`"
        )
