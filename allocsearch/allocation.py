"""One way of spending the budget: which experts, how many, how deep, how wide."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from allocsearch.errors import ConfigError

Scalar = bool | int | float | str
Radius = int | Literal["full"]

DEFAULT_AGGREGATION = "sqrt_sum"

# Options of the network rather than of one expert; the first value is the default.
NETWORK_OPTIONS: dict[str, tuple[str, ...]] = {
    "update": ("residual", "replace"),
    "nonrecurrent_form": ("source", "trimmed"),
    "norm": ("rms", "none"),
    "skip": ("none", "encoder"),
}
TICKS = "ticks"
NETWORK_OPTION_NAMES = (*NETWORK_OPTIONS, TICKS)

ARMS = ("recurrent", "nonrecurrent")


@dataclass(frozen=True)
class Allocation:
    """A hashable description from which one network is built.

    Values that could not change the network are stored in one canonical form, so that
    equal networks compare equal: a radius of E − 1 or more is ``"full"``, a single
    communicating expert has the default aggregation, and options at their network
    default are dropped.

    Attributes:
        expert: name of an installed expert.
        recurrent: whether state and memories are carried across external steps.
        depth: levels L, one after the other, in each external step.
        n_experts: experts E in parallel at each level.
        width: channels d of every expert.
        radius: how many preceding experts on a ring each one hears; ``"full"`` shares
            one state among all.
        aggregation: name of an installed aggregation.
        options: (name, value) pairs for the expert, and the network options ``update``,
            ``nonrecurrent_form``, ``norm``, ``skip`` and ``ticks``; a mapping is
            accepted.

    Raises:
        ConfigError: a count below 1, a negative radius, an option that is no scalar,
            or a trimmed network of several ticks.
    """

    expert: str
    recurrent: bool
    depth: int
    n_experts: int
    width: int
    radius: Radius = "full"
    aggregation: str = DEFAULT_AGGREGATION
    options: tuple[tuple[str, Scalar], ...] = field(default=())

    def __post_init__(self) -> None:
        for name in ("depth", "n_experts", "width"):
            _check_count(name, getattr(self, name))
        _check_radius(self.radius)
        set_ = object.__setattr__
        set_(self, "options", _canonical_options(self.options, self.recurrent))
        if self.radius != "full" and self.radius >= self.n_experts - 1:
            set_(self, "radius", "full")
        if self.n_experts == 1 or self.radius == 0:
            set_(self, "aggregation", DEFAULT_AGGREGATION)

    @property
    def arm(self) -> str:
        """``"recurrent"`` or ``"nonrecurrent"``."""
        return "recurrent" if self.recurrent else "nonrecurrent"

    @property
    def n_members(self) -> int:
        """How many experts each expert hears, itself included."""
        return self.n_experts if self.radius == "full" else self.radius + 1

    @property
    def update(self) -> str:
        """``"residual"`` (s + Aggregate) or ``"replace"`` (Aggregate)."""
        return str(self.option("update", "residual"))

    @property
    def norm(self) -> str:
        """``"rms"``: what reads the state reads Norm(s); ``"none"``: s itself."""
        return str(self.option("norm", "rms"))

    @property
    def skip(self) -> str:
        """What is added to the top state for the head: ``"none"`` or ``"encoder"``."""
        return str(self.option("skip", "none"))

    @property
    def ticks(self) -> int:
        """How often all levels are run in one external step."""
        return int(self.option(TICKS, 1))

    @property
    def trimmed(self) -> bool:
        """Whether paths that can never influence the output are left out."""
        form = self.option("nonrecurrent_form", "source")
        return not self.recurrent and form == "trimmed"

    @property
    def expert_options(self) -> dict[str, Scalar]:
        """The options that the expert itself reads."""
        return {k: v for k, v in self.options if k not in NETWORK_OPTION_NAMES}

    def option(self, name: str, default: Scalar) -> Scalar:
        """The value of one option, or `default` where it is not set."""
        return dict(self.options).get(name, default)

    def with_width(self, width: int) -> "Allocation":
        """The same allocation at another width."""
        return replace(self, width=width)

    @property
    def label(self) -> str:
        """A short name for tables: ``"conv_lstm L4 E2 d12"`` and what is unusual."""
        parts = [self.expert, f"L{self.depth}", f"E{self.n_experts}", f"d{self.width}"]
        if self.radius != "full":
            parts.append(f"r{self.radius}")
        if self.aggregation != DEFAULT_AGGREGATION:
            parts.append(self.aggregation)
        parts += [f"{name}={value}" for name, value in self.options]
        return " ".join(parts)

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that name this allocation for good."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values, options as a mapping."""
        return {
            "expert": self.expert,
            "recurrent": self.recurrent,
            "depth": self.depth,
            "n_experts": self.n_experts,
            "width": self.width,
            "radius": self.radius,
            "aggregation": self.aggregation,
            "options": dict(self.options),
        }

    def to_json(self) -> str:
        """One line of JSON with sorted keys."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Allocation":
        """The inverse of `to_dict`.

        Raises:
            ConfigError: an unknown or missing key.
        """
        try:
            return cls(**values)
        except TypeError as error:
            raise ConfigError(f"not an allocation: {error}") from error

    @classmethod
    def from_json(cls, text: str) -> "Allocation":
        """The inverse of `to_json`."""
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"an allocation is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise ConfigError("an allocation must be a JSON object")
        return cls.from_dict(values)


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name} is {value!r}: give an integer of at least 1")


def _check_radius(radius: Any) -> None:
    if radius == "full":
        return
    if not isinstance(radius, int) or isinstance(radius, bool) or radius < 0:
        raise ConfigError(f"radius is {radius!r}: give an integer from 0, or 'full'")


def _canonical_options(options: Any, recurrent: bool) -> tuple[tuple[str, Scalar], ...]:
    pairs = dict(options.items() if isinstance(options, Mapping) else options)
    for name, value in pairs.items():
        if not isinstance(value, bool | int | float | str):
            raise ConfigError(
                f"option {name!r} is {value!r}: options are numbers, text or booleans"
            )
    for name, allowed in NETWORK_OPTIONS.items():
        if name in pairs and pairs[name] not in allowed:
            raise ConfigError(
                f"option {name!r} is {pairs[name]!r}: use one of {', '.join(allowed)}"
            )
        if pairs.get(name) == allowed[0]:
            del pairs[name]
    if recurrent:
        pairs.pop("nonrecurrent_form", None)
    _check_count(f"option {TICKS!r}", pairs.get(TICKS, 1))
    if pairs.get(TICKS) == 1:
        del pairs[TICKS]
    if TICKS in pairs and "nonrecurrent_form" in pairs:
        raise ConfigError(
            f"nonrecurrent_form=trimmed leaves out what is zero at the first tick, but "
            f"ticks={pairs[TICKS]} uses it at the next: set nonrecurrent_form=source"
        )
    return tuple(sorted(pairs.items()))
