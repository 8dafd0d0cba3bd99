"""What a study will cost, before it starts."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from allocsearch.analysis.formats import format_seconds
from allocsearch.cli.machine import matmul_flops_per_second
from allocsearch.errors import ConfigError
from allocsearch.work import format_flops

if TYPE_CHECKING:
    from allocsearch.plan import Cell

EFFICIENCY = 0.3
"""Share of the matmul peak that training is taken to reach."""


@dataclass(frozen=True)
class Forecast:
    """Training work of a study and how long it takes here.

    Attributes:
        training_flops: over all trials, seeds and steps.
        peak: measured FLOPs per second of a matrix product.
    """

    training_flops: int
    peak: float

    @property
    def seconds(self) -> float:
        """Wall time; compilation and evaluation come on top."""
        return self.training_flops / (EFFICIENCY * self.peak)

    def __str__(self) -> str:
        return (
            f"about {_long(self.seconds)} here: "
            f"{format_flops(self.training_flops)} of training at {EFFICIENCY:.0%} of "
            f"the measured {format_flops(self.peak)}/s"
        )


def _long(seconds: float) -> str:
    years = seconds / (365.25 * 86400)
    return (
        f"{years:,.0f} years" if years >= 2 else format_seconds(max(1, round(seconds)))
    )


def training_flops(cell: "Cell") -> int:
    """Training work of all trials of a cell, as if all were like its middle one."""
    from allocsearch.trial import audit_candidate

    allocation = cell.allocations[len(cell.allocations) // 2]
    training = cell.setting.training
    audit = audit_candidate(cell.setting.task, allocation, None)
    if audit is None:
        return 0
    horizon = training.horizon or cell.setting.task.steps_per_chunk
    return audit.training * horizon * training.n_seeds * cell.n_trials


def forecast(cells: Sequence["Cell"]) -> Forecast:
    """What the cells cost on this machine; measures it."""
    return Forecast(sum(map(training_flops, cells)), matmul_flops_per_second())


def ask_if_heavy(cells: Sequence["Cell"], yes: bool) -> bool:
    """Whether to go on; asks where a CPU would be busy for long.

    Args:
        cells: of the study.
        yes: the user has agreed already.

    Raises:
        ConfigError: there is nobody to ask.
    """
    import jax

    heavy = [cell.budget for cell in cells if cell.setting.heavy]
    if yes or not heavy or jax.default_backend() != "cpu":
        return True
    names = ", ".join(dict.fromkeys(heavy))
    text = f"budget {names} is meant for an accelerator; {forecast(cells)}"
    if not sys.stdin.isatty():
        raise ConfigError(f"{text}: give --yes to run it all the same")
    import typer

    return typer.confirm(f"{text}. Go on?", default=False, err=True)
