"""Work: floating-point operations of one external step, and the budget that binds it.

One multiply-add counts as 2. Every count is for one stream (batch 1), forward.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

from allocsearch.errors import BudgetError

Scope = Literal["core", "total"]

_SUFFIX = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


@dataclass(frozen=True)
class Work:
    """FLOPs of the contractions in one external step, by part of the network.

    Attributes:
        core: the experts; what the budget binds by default.
        encoder: from an observation to the experts' input.
        head: from the final state to the task's outputs.
    """

    core: int
    encoder: int = 0
    head: int = 0

    @property
    def total(self) -> int:
        """Core, encoder and head together."""
        return self.core + self.encoder + self.head

    def within(self, scope: Scope) -> int:
        """The part that a budget of this scope binds."""
        return self.core if scope == "core" else self.total


@dataclass(frozen=True)
class Audit:
    """Everything measured on a built network by tracing it, never by formula.

    Attributes:
        work: contractions of one forward step.
        live_core: core FLOPs that can influence a non-recurrent model's output;
            equals `work.core` for recurrent models.
        training: contractions of the gradient of one step, forward included.
        elementwise: element-wise operations of one forward step, shown apart.
        parameters: trainable numbers in the whole network.
        core_parameters: those in the experts and their aggregation.
        state_bytes: state and expert memories carried from step to step, one stream.
        context_bytes: caches that both arms keep (K/V), one stream.
    """

    work: Work
    live_core: int
    training: int
    elementwise: int
    parameters: int
    core_parameters: int
    state_bytes: int
    context_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values; `from_dict` reads it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Audit":
        """The inverse of `to_dict`."""
        return cls(**{**values, "work": Work(**values["work"])})


@dataclass(frozen=True)
class Budget:
    """A hard limit on the work of one external step.

    An allocation is feasible when its work lies in
    [(1 − tolerance)·flops, flops], both ends included.

    Attributes:
        flops: the limit, in FLOPs.
        name: how results call it ("tiny", "250M").
        tolerance: how far below the limit still counts as spending it, in [0, 1).
        scope: "core" binds the experts; "total" adds encoder and head.
        granule: widths are multiples of this.
    """

    flops: int
    name: str
    tolerance: float = 0.10
    scope: Scope = "core"
    granule: int = 1

    def __post_init__(self) -> None:
        if self.flops <= 0:
            raise BudgetError(
                f"budget {self.name!r} is {self.flops} FLOPs: give a positive number"
            )
        if not 0 <= self.tolerance < 1:
            raise BudgetError(
                f"budget tolerance is {self.tolerance}: give a number from 0 up to, "
                "but not including, 1"
            )
        if self.granule < 1:
            raise BudgetError(
                f"width granule is {self.granule}: give an integer of at least 1"
            )

    @property
    def least(self) -> int:
        """The smallest work that counts as spending the budget, in FLOPs."""
        return math.ceil((1 - Fraction(str(self.tolerance))) * self.flops)

    def admits(self, flops: int) -> bool:
        """Whether an allocation of this work is in the feasible set."""
        return self.least <= flops <= self.flops


def parse_flops(text: str | int | float) -> int:
    """FLOPs from a number or text such as ``"250M"`` or ``"1.5 GFLOP"``.

    Raises:
        BudgetError: not a number, not positive, or not a whole number of FLOPs.
    """
    number = r"([+-]?\d[\d_]*(?:\.\d+)?(?:e[+-]?\d{1,3})?)"
    pattern = rf"\s*{number}\s*([kmgt]?)(?:flops?)?\s*"
    match = re.fullmatch(pattern, str(text), re.IGNORECASE)
    if match is None:
        raise BudgetError(
            f"budget {text!r} is neither a named budget nor a number of FLOPs "
            "such as 250M or 1.2G"
        )
    scale = _SUFFIX[match.group(2).lower()]
    try:
        flops = Fraction(match.group(1).replace("_", "")) * scale
    except (ValueError, OverflowError) as error:
        raise BudgetError(f"budget {text!r} is not a number") from error
    if flops <= 0:
        raise BudgetError(f"budget {text!r} is not positive: give FLOPs such as 250M")
    if flops > 10**21:
        raise BudgetError(f"budget {text!r} is above 10^21 FLOPs a step")
    return math.floor(flops)


def format_flops(flops: float) -> str:
    """A short form with three significant digits: ``"2.07 MFLOP"``."""
    units = {"E": 1e18, "P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3}
    for unit, scale in units.items():
        if abs(flops) >= scale:
            return f"{flops / scale:.3g} {unit}FLOP"
    return f"{flops:.3g} FLOP"
