"""What an expert is: a frozen specification, and an Equinox module built from it.

An expert sees one example and one level. The network stacks E of them on a leading
axis, and L levels on another; batching and time are `vmap` and `scan` outside.
"""

import abc
import functools
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from allocsearch.allocation import NETWORK_OPTION_NAMES, Allocation, Scalar
from allocsearch.errors import ConfigError, unknown_name
from allocsearch.registry import load


@dataclass(frozen=True)
class LevelShape:
    """What one expert needs to know of the level it is built for.

    Attributes:
        width: channels d of state, input and output.
        grid: positions: ``()`` for one, ``(H, W)`` for a board.
        reads_state: False at the first level of a trimmed non-recurrent network,
            where the state is always zero.
        has_memory: False in a trimmed non-recurrent network, where every memory is
            always zero when it is read.
        reads_input: False beyond the first level where the expert's
            `ExpertSpec.input_once` is true.
        form: "conv" is the plain program that work is counted on; "patches" computes
            the same convolutions as matrix products, which XLA runs faster on CPUs.
    """

    width: int
    grid: tuple[int, ...] = ()
    reads_state: bool = True
    has_memory: bool = True
    reads_input: bool = True
    form: str = "conv"

    @property
    def n_positions(self) -> int:
        """How many positions the grid has."""
        n = 1
        for size in self.grid:
            n *= size
        return n

    @property
    def read_width(self) -> int:
        """Channels of state and input side by side: 2d, or d without state."""
        return self.width * (2 if self.reads_state else 1)


class Read(NamedTuple):
    """What an expert reads at one level of one step.

    Attributes:
        state: the normalised state, (*grid, d); None where it is always zero.
        input: the encoded observation z_t, (*grid, d).
    """

    state: Float[Array, "*grid d"] | None
    input: Float[Array, "*grid d"]


class Expert(eqx.Module):
    """A module that proposes an update to the state.

    Implementations that can compute a whole level at once, when all its experts read
    the same state, are `FusedExpert`; those that keep a cache are `ContextExpert`, or
    `SequenceExpert` where the cache is the last rows of the stream.
    """

    @abc.abstractmethod
    def init_memory(self) -> Any:
        """The memory before the first step: a pytree of arrays, or ()."""

    @abc.abstractmethod
    def __call__(self, read: Read, memory: Any) -> tuple[Array, Any]:
        """One step of one expert on one example.

        Args:
            read: what it reads.
            memory: what `init_memory` returned, or the last step's.

        Returns:
            The proposal u, (*grid, d), and the memory for the next step, of the same
            structure, shapes and dtypes.
        """


class FusedExpert(Expert):
    """An expert whose level is cheaper as one wide operation than as E small ones."""

    def widened(self) -> "FusedExpert":
        """The form of a level that `fused` is called on.

        `self` has a leading axis E on every array. An implementation may lay weights
        side by side here, which is then done once for many steps; as it stands,
        nothing changes.
        """
        return self

    def gathered(self, memories: Any) -> Any:
        """The memories of a level, leading axis E, as `fused` takes and gives them.

        As it stands, the same. An implementation may lay them side by side.
        """
        return memories

    def spread(self, memories: Any) -> Any:
        """The inverse of `gathered`."""
        return memories

    @abc.abstractmethod
    def fused(self, read: Read, memories: Any) -> tuple[Array, Any]:
        """All experts of a level on one example and one shared read.

        `self` is what `widened` gave; `memories` are `gathered`.

        Returns:
            The proposals, (E, *grid, d), and the memories, still gathered; once spread,
            equal to `__call__` mapped over the experts, to rounding.
        """


class ContextExpert(eqx.Module):
    """An expert that also attends to a cache of what its level has seen.

    Context is kept in both arms and reset at the start of a stream. Where `shares` is
    true the E proposals of a level are aggregated into one context for all of them.
    """

    shares: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def init_memory(self) -> Any:
        """As `Expert.init_memory`."""

    @abc.abstractmethod
    def init_context(self) -> Any:
        """The context at the start of a stream: a pytree of arrays."""

    @abc.abstractmethod
    def propose(self, read: Read, memory: Any) -> Any:
        """What this expert offers to the context at this step: a pytree of arrays."""

    @abc.abstractmethod
    def write(self, context: Any, proposal: Any) -> Any:
        """The context with one more proposal in it; must not read parameters."""

    @abc.abstractmethod
    def __call__(self, read: Read, memory: Any, context: Any) -> tuple[Array, Any]:
        """As `Expert.__call__`, with the context that holds this step's proposal."""


@dataclass(frozen=True)
class ExpertSpec(abc.ABC):
    """A kind of expert and its options: what the entry point names.

    Fields are the options, with defaults: numbers, text or booleans. Names of options
    of the network (`allocsearch.allocation.NETWORK_OPTION_NAMES`) are taken.
    """

    grid_ndims: ClassVar[tuple[int, ...]]
    """How many axes of positions it can work on: 0 for a vector, 2 for a board."""

    searchable: ClassVar[dict[str, tuple[Scalar, ...]]] = {}
    """Options that a study may search, with the values worth trying."""

    bounded_update: ClassVar[bool] = False
    """Whether proposals are bounded whatever is read; the option norm=none asks it."""

    @property
    def input_once(self) -> bool:
        """Whether the encoded input is read by the first level alone."""
        return False

    @abc.abstractmethod
    def flops(self, level: LevelShape) -> int:
        """FLOPs of the contractions of one expert at one level of one step.

        Must equal the traced count exactly, for every width and grid.
        """

    @abc.abstractmethod
    def build(self, level: LevelShape, *, key: PRNGKeyArray) -> eqx.Module:
        """A freshly initialised expert; the same key gives the same module.

        It is an `Expert`, a `ContextExpert` or a `SequenceExpert`.
        """

    def check(self, allocation: Allocation) -> None:  # noqa: B027  (optional)
        """Refuse an allocation that this kind of expert cannot realise.

        Raises:
            ConfigError: says what does not go together. The default refuses nothing.
        """

    @classmethod
    def from_options(cls, name: str, options: dict[str, Scalar]) -> Self:
        """The specification with these options set.

        Raises:
            UnknownNameError: an option that this expert does not have.
            ConfigError: an option of the wrong type.
        """
        defaults = {f.name: f.default for f in fields(cls)}
        for option, value in options.items():
            if option not in defaults:
                raise unknown_name(f"option of expert {name!r}", option, defaults)
            wanted = type(defaults[option])
            if wanted is float and type(value) is int:
                continue
            if type(value) is not wanted:
                raise ConfigError(
                    f"option {option!r} of expert {name!r} is {value!r}: "
                    f"give a value of type {wanted.__name__}"
                )
        return cls(**options)


def spec_of(allocation: Allocation) -> ExpertSpec:
    """The specification of the expert that an allocation names.

    Raises:
        UnknownNameError, PluginError, ConfigError: the name or an option is wrong.
    """
    kind = load("expert", allocation.expert)
    options = tuple(allocation.expert_options.items())
    spec = _spec(kind, allocation.expert, options)
    _check_norm(allocation, spec)
    spec.check(allocation)
    return spec


def _check_norm(allocation: Allocation, spec: ExpertSpec) -> None:
    bounded = allocation.update == "replace" and spec.bounded_update
    if allocation.norm == "none" and not bounded:
        raise ConfigError(
            "norm=none lets the state grow without limit unless update=replace and the "
            "expert's proposals are bounded, as those of conv_lstm are: set norm=rms"
        )


@functools.lru_cache(maxsize=256)
def _spec(
    kind: type[ExpertSpec], name: str, options: tuple[tuple[str, Scalar], ...]
) -> ExpertSpec:
    for own in fields(kind):
        if own.name in NETWORK_OPTION_NAMES:
            raise ConfigError(
                f"expert {name!r} has an option {own.name!r}, which is one of the "
                "network's: give it another name"
            )
    return kind.from_options(name, dict(options))


def check_positive(**values: float) -> None:
    """Refuse options that are not positive, by name.

    Raises:
        ConfigError: the first one that is not.
    """
    for name, value in values.items():
        if value <= 0:
            raise ConfigError(f"option {name!r} is {value!r}: give a positive number")


def check_one_of(allowed: Iterable[str], **values: str) -> None:
    """Refuse options that are not among these texts, by name.

    Raises:
        ConfigError: the first one that is not.
    """
    for name, value in values.items():
        if value not in allowed:
            raise ConfigError(
                f"option {name!r} is {value!r}: use one of {', '.join(allowed)}"
            )


def check_odd(**values: int) -> None:
    """Refuse options that are not odd and at least 1, by name.

    Raises:
        ConfigError: the first one that is not.
    """
    for name, value in values.items():
        if value < 1 or value % 2 == 0:
            raise ConfigError(
                f"option {name!r} is {value}: give an odd number, 1 or more"
            )
