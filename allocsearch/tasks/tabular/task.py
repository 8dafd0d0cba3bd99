"""The task that replays a table, to try searchers without training anything."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from allocsearch.allocation import ARMS, Allocation
from allocsearch.config import ExpertConfig, TrainingConfig
from allocsearch.errors import ConfigError, DataError
from allocsearch.results import Objective
from allocsearch.tasks.records import DataReport, NamedBudget
from allocsearch.tasks.replay import ReplayTask
from allocsearch.tasks.tabular.config import TabularConfig
from allocsearch.tasks.tabular.table import TEST, Curve, Table, read_table

_MOST_CHUNKS = 100


class Replay(eqx.Module):
    """A group of runs, as far as they were replayed.

    Attributes:
        n_chunks: chunks so far.
        allocation: whose runs these are.
        seeds: one training seed each.
    """

    n_chunks: Int[Array, ""]
    allocation: Allocation = eqx.field(static=True)
    seeds: tuple[int, ...] = eqx.field(static=True)


class Tabular(ReplayTask):
    """Results of a table, as if each allocation in it were trained.

    The feasible set is the table's rows within the budget. A group of training seeds
    gets that many of a row's runs, one after the other from a place that its first
    seed decides; where there are fewer runs than seeds they come again.
    """

    name: ClassVar = "tabular"
    Config: ClassVar = TabularConfig
    unit: ClassVar[str] = "steps"
    experts: ClassVar[tuple[ExpertConfig, ...]] = ()
    objectives: ClassVar[tuple[Objective, ...]] = ()
    budgets: ClassVar[Mapping[str, NamedBudget]] = {
        # All of the table: `costs` gives the limit, and no row is too cheap.
        "table": NamedBudget(
            Allocation("table", True, 1, 1, 1),
            tolerance=0.999_999_999_999,
            training={"n_seeds": 1},
            search={"confirm_seeds": 0},
        )
    }

    def __init__(self, config: TabularConfig):
        """Read the table.

        Raises:
            DataError: see `read_table`.
            ConfigError: no table was named, or an objective is not in it.
        """
        if not config.data:
            raise ConfigError("task 'tabular' replays a table: give it with --data")
        self.config = config
        self.table = read_table(Path(config.data), config.cost)
        # What is fixed for other tasks depends on the table here.
        set_ = object.__setattr__
        set_(self, "unit", config.unit)
        set_(self, "objectives", _objectives(config, self.table))
        set_(self, "experts", _experts(self.table))

    @property
    def costs(self) -> Mapping[Allocation, int]:
        """See `ReplayTask.costs`."""
        return self.table.costs

    @property
    def horizon(self) -> int:
        """See `ReplayTask.horizon`: the largest number of steps in the table."""
        return int(self.table.steps[-1])

    @property
    def steps_per_chunk(self) -> int:
        """The steps that all curves have in common, or a hundredth of the longest."""
        common = int(np.gcd.reduce(self.table.steps))
        return max(common, -(-self.horizon // _MOST_CHUNKS))

    def init(
        self, allocation: Allocation, training: TrainingConfig, seeds: Sequence[int]
    ) -> Replay:
        """See `Task.init`."""
        del training
        return Replay(jnp.zeros((), jnp.int32), allocation, tuple(seeds))

    def train(
        self, state: Replay, n_chunks: int
    ) -> tuple[Replay, list[dict[str, float]]]:
        """See `Task.train`; there are no metrics but those of evaluations."""
        done = state.n_chunks + jnp.asarray(n_chunks, jnp.int32)
        return Replay(done, state.allocation, state.seeds), [{} for _ in state.seeds]

    def evaluate(self, state: Replay, split: str = "valid") -> list[dict[str, float]]:
        """See `Task.evaluate`: the table's last row up to where the state is.

        Raises:
            DataError: the table has no test results.
        """
        steps = int(state.n_chunks) * self.steps_per_chunk
        return [self._metrics(c.at(steps), split) for c in self._runs(state)]

    def _runs(self, state: Replay) -> list[Curve]:
        known = self.table.curves[state.allocation]
        first = state.seeds[0]
        return [known[(first + i) % len(known)] for i in range(len(state.seeds))]

    def _metrics(self, values: dict[str, float], split: str) -> dict[str, float]:
        if split != "test":
            return {k: v for k, v in values.items() if not k.startswith(TEST)}
        tested = {
            name.removeprefix(TEST): value
            for name, value in values.items()
            if name.startswith(TEST)
        }
        absent = [o.name for o in self.objectives if o.name not in tested]
        if absent:
            raise DataError(
                f"table {self.config.data} has no column {TEST + absent[0]!r}"
            )
        return tested

    def baseline(self, split: str = "valid") -> dict[str, float]:
        """There is none."""
        del split
        return {}

    def manifest(self) -> dict[str, Any]:
        """See `Task.manifest`."""
        source = {"table": Path(self.config.data).name, "sha256": self.table.digest}
        size = {"allocations": len(self.costs)}
        wanted = {TEST + objective.name for objective in self.objectives}
        tested = {"test": size} if wanted <= set(self.table.columns) else {}
        return {"source": source, "valid": size, **tested}

    @classmethod
    def inspect_data(cls, path: Path) -> DataReport:
        """Check and count the rows of a table.

        Raises:
            DataError: see `read_table`.
        """
        table = read_table(path)
        runs = sum(len(curves) for curves in table.curves.values())
        part = {
            "allocations": len(table.costs),
            "runs": runs,
            "steps": len(table.steps),
            "metrics": list(table.columns),
        }
        notes = () if table.has_costs else ("no column 'flops': every row costs 1",)
        return DataReport({path.name: part}, notes)


def _objectives(config: TabularConfig, table: Table) -> tuple[Objective, ...]:
    found = tuple(objective.build() for objective in config.objectives)
    if not found and "score" in table.columns:
        found = (Objective("score", "", "maximize"),)
    names = ", ".join(table.columns) or "none"
    if not found:
        raise ConfigError(
            f"table {config.data} has no column 'score'; say what is improved, as in "
            f"--set task.objectives=loss:minimize. Its metrics are: {names}"
        )
    for objective in found:
        if objective.name not in table.columns:
            raise ConfigError(
                f"table {config.data} has no metric {objective.name!r}; it has: {names}"
            )
    return found


def _experts(table: Table) -> tuple[ExpertConfig, ...]:
    arms: dict[str, set[str]] = {}
    for allocation in table.costs:
        arms.setdefault(allocation.expert, set()).add(allocation.arm)
    return tuple(
        ExpertConfig(name=name, arms=tuple(arm for arm in ARMS if arm in present))
        for name, present in arms.items()
    )
