"""What a task is: data, an encoder and a head, training in fixed chunks, evaluation."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree
from rich.text import Text

from allocsearch.allocation import Allocation
from allocsearch.config import ExpertConfig, Section, TrainingConfig
from allocsearch.errors import ConfigError
from allocsearch.network import Model, ParallelExperts
from allocsearch.results import Objective
from allocsearch.scaling import Optimizer, OptimizerState


@dataclass(frozen=True)
class NamedBudget:
    """A budget by name, and the task as it is meant to be run under it.

    Attributes:
        reference: its core work, on the task's own positions, is the budget.
        multiple: times this.
        tolerance: how far below still counts as spending it.
        granule: widths are multiples of this.
        task: the task's own fields under this budget.
        training: training fields under this budget; must give the horizon.
        search: search fields under this budget, such as `n_trials`.
        space: space fields under this budget, such as `n_experts`.
        heavy: whether a run on a CPU should ask first.
    """

    reference: Allocation
    multiple: int = 1
    tolerance: float = 0.10
    granule: int = 1
    task: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)
    space: Mapping[str, Any] = field(default_factory=dict)
    heavy: bool = False


@dataclass(frozen=True)
class DataReport:
    """What files hold that a task could train on, as `Task.inspect_data` found them.

    Attributes:
        parts: by the name of each split or directory, values by the same words:
            numbers, strings or lists of them.
        notes: sentences a user should read, such as what splits share.
        problems: why files cannot be used, each with file, place and rule.
        details: further JSON-ready values.
    """

    parts: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Showing:
    """One item of a task's data to look at, as `Task.show_item` shows it.

    Attributes:
        item: the item as text, alike only where two showings are of the same one.
        texts: what terminals show, step by step.
        frames: pictures, step by step: uint8 `[height, width, 3]`, of one size; none
            where the task draws none.
        details: the same as JSON-ready values.
    """

    item: str
    texts: tuple[Text, ...]
    frames: tuple[np.ndarray, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """Training values that belong together, by name; laid over those of a budget.

    Attributes:
        task: the task's own fields.
        training: training fields.
        warning: what a study that compares allocations with it should know.
    """

    task: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    warning: str | None = None


@dataclass(frozen=True)
class Scores:
    """How one network did on a split.

    Attributes:
        metrics: by name, the objectives among them.
        items: columns by name, other than "seed", with one value for each item of the
            split, such as a level, in the same order for every network; empty where
            a task does not tell.
        means: the metrics that are means of a column, and which.
    """

    metrics: dict[str, float]
    items: Mapping[str, np.ndarray] = field(default_factory=dict)
    means: Mapping[str, str] = field(default_factory=dict)


class Task(abc.ABC):
    """Trains and scores networks; an entry point of `allocsearch.tasks` names one.

    Built as ``cls(config)`` with an instance of its `Config`. Most tasks implement
    `TrainedTask`, which takes care of groups of seeds.

    Class attributes:
        name: as the entry point calls it.
        Config: its own fields, a frozen `Section`.
        budgets: named budgets, the first being the default.
        experts: kinds of experts to search when a study names none.
        objectives: what a study improves, primary first; keys of the metrics.
        unit: what training is measured in, "environment steps" or "tokens".
        final_window: a score is the mean over this many last evaluations.
        recipes: training values with a name, such as those of a paper.
        builds_network: false for a task that replays results, see `ReplayTask`.
    """

    name: ClassVar[str]
    Config: ClassVar[type[Section]]
    budgets: ClassVar[Mapping[str, NamedBudget]]
    experts: ClassVar[tuple[ExpertConfig, ...]]
    objectives: ClassVar[tuple[Objective, ...]]
    unit: ClassVar[str]
    final_window: ClassVar[int] = 1
    recipes: ClassVar[Mapping[str, Recipe]] = {}
    builds_network: ClassVar[bool] = True

    @abc.abstractmethod
    def __init__(self, config: Any):
        """Load or make what training needs.

        Raises:
            DataError: data is missing or broken.
        """

    @property
    @abc.abstractmethod
    def positions(self) -> tuple[int, ...]:
        """The grid of positions: () for a vector, (H, W) for a board."""

    @property
    @abc.abstractmethod
    def observation(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of one observation of one stream."""

    @property
    @abc.abstractmethod
    def steps_per_chunk(self) -> int:
        """Length of one chunk of training, in `unit`."""

    @abc.abstractmethod
    def encoder(self, width: int, *, key: PRNGKeyArray) -> eqx.Module:
        """A module from one observation to z, (*positions, width), of unit scale."""

    @abc.abstractmethod
    def head(self, width: int, *, key: PRNGKeyArray) -> eqx.Module:
        """A module from features, (*positions, width), to the task's outputs."""

    @abc.abstractmethod
    def init(
        self,
        allocation: Allocation,
        training: TrainingConfig,
        seeds: Sequence[int],
    ) -> PyTree:
        """The state of a group of runs before training, one per seed."""

    def init_trained(
        self,
        allocation: Allocation,
        training: TrainingConfig,
        seeds: Sequence[int],
    ) -> PyTree:
        """As much of a state as `evaluate` reads, at the same paths as in `init`'s.

        A checkpoint is read into it, so that networks are scored on other data than
        they were trained on, or where there are no data to train on.
        """
        return self.init(allocation, training, seeds)

    @abc.abstractmethod
    def train(self, state: PyTree, n_chunks: int) -> tuple[PyTree, list[dict]]:
        """Train every run of a group for n chunks.

        Pieces equal the whole, bit for bit: two calls of n/2 chunks give what one of
        n gives.

        Returns:
            The state, and for each seed the metrics of the last chunk.
        """

    @abc.abstractmethod
    def evaluate(self, state: PyTree, split: str = "valid") -> list[dict[str, float]]:
        """Score every run of a group, changing nothing.

        Args:
            state: from `init` or `train`.
            split: "valid" for the objective, "test" for finalists.

        Returns:
            For each seed its metrics by name, the objectives among them.
        """

    def evaluate_each(self, state: PyTree, split: str = "valid") -> list[Scores]:
        """As `evaluate`, and what each item scored, where a task can tell."""
        return [Scores(metrics) for metrics in self.evaluate(state, split)]

    @abc.abstractmethod
    def baseline(self, split: str = "valid") -> dict[str, float]:
        """The same metrics of an untrained reference, such as a random policy."""

    @abc.abstractmethod
    def manifest(self) -> dict[str, Any]:
        """What the data are: sources, sizes and hashes, JSON-ready."""

    @classmethod
    def inspect_data(cls, path: Path) -> DataReport:
        """Check and count the files that a user means to train on.

        Also the place to prepare what makes them load faster next time. Tasks that
        read no files need not offer it.

        Args:
            path: a file or directory.

        Raises:
            ConfigError: the task reads no files.
            DataError: the path is missing or holds nothing for the task.
        """
        del path
        raise ConfigError(
            f"task {cls.name!r} reads no files, so there is none to check"
        )

    def show_item(
        self, index: int, *, label: str, state: PyTree = None, split: str | None = None
    ) -> Showing:
        """One item of the data, and what a trained network does with it.

        Tasks whose items are nothing to look at need not offer it.

        Args:
            index: which item of the split, from 0.
            label: names the network, or the item where there is no network.
            state: from `init_trained`, of which the first run's network is shown;
                None for the item alone.
            split: "train", "valid" or "test"; if left out, "valid" or, where that is
                missing, "test".

        Raises:
            ConfigError: there is no such item, or the task shows none.
            DataError: there is no such split.
        """
        del index, label, state, split
        raise ConfigError(f"task {self.name!r} has no items to look at")


def build_model(
    task: Task, allocation: Allocation, *, key: PRNGKeyArray, canonical: bool = False
) -> Model:
    """A task's encoder and head around the network of an allocation.

    Args:
        task: gives encoder, head and positions.
        allocation: what to build.
        key: the same key gives the same model.
        canonical: the form that work is counted on, see `ParallelExperts`.
    """
    key_encoder, key_core, key_head = jax.random.split(key, 3)
    return Model(
        encoder=task.encoder(allocation.width, key=key_encoder),
        core=ParallelExperts(
            allocation, task.positions, key=key_core, canonical=canonical
        ),
        head=task.head(allocation.width, key=key_head),
    )


class Run(eqx.Module):
    """One training run: a network, its optimiser, and whatever the task streams.

    Attributes:
        model: the network.
        optimizer: moments and place on the schedule.
        stream: the task's own state: environments, data position, carries, keys.
    """

    model: Model
    optimizer: OptimizerState
    stream: PyTree


class TrainedTask(Task):
    """A task that trains a network by gradient, one seed at a time.

    Implementations write `init_stream`, `chunk` and `score`; a group of seeds shares
    one compiled program.
    """

    @abc.abstractmethod
    def init_stream(self, model: Model, *, key: PRNGKeyArray) -> PyTree:
        """What one run streams, before training: a pytree of arrays."""

    @abc.abstractmethod
    def chunk(self, run: Run, optimizer: Optimizer) -> tuple[Run, dict[str, Any]]:
        """One chunk of training; pure and traceable, at most a few seconds of work.

        Returns:
            The run, and scalar metrics.
        """

    @property
    @abc.abstractmethod
    def updates_per_chunk(self) -> int:
        """Optimiser updates in one chunk."""

    @abc.abstractmethod
    def score(self, model: Model, split: str) -> dict[str, float]:
        """Metrics of one network on a split; the same call gives the same numbers."""

    def score_each(self, model: Model, split: str) -> Scores:
        """The metrics of `score`, and what each item scored, where a task can tell."""
        return Scores(self.score(model, split))

    def init(
        self, allocation: Allocation, training: TrainingConfig, seeds: Sequence[int]
    ) -> PyTree:
        """See `Task.init`."""
        optimizer = Optimizer(training)
        runs = tuple(self._init_run(allocation, optimizer, seed) for seed in seeds)
        return optimizer, runs

    def init_trained(
        self, allocation: Allocation, training: TrainingConfig, seeds: Sequence[int]
    ) -> PyTree:
        """See `Task.init_trained`: the networks alone."""
        del training
        models = [_build(self, allocation, jax.random.key(seed)) for seed in seeds]
        absent: Any = None
        return absent, tuple(Run(model, absent, absent) for model in models)

    def train(self, state: PyTree, n_chunks: int) -> tuple[PyTree, list[dict]]:
        """See `Task.train`."""
        optimizer, runs = state
        program = optimizer.program
        if len(runs) > 1 and _together(optimizer.training):
            runs, metrics = _train_together(self, runs, program, n_chunks)
            return (optimizer, runs), metrics
        trained, metrics = [], []
        for run in runs:
            last: dict[str, Any] = {}
            for _ in range(n_chunks):
                run, last = _chunk(self, run, program)
            trained.append(run)
            metrics.append({name: float(value) for name, value in last.items()})
        return (optimizer, tuple(trained)), metrics

    def evaluate(self, state: PyTree, split: str = "valid") -> list[dict[str, float]]:
        """See `Task.evaluate`."""
        return [self.score(run.model, split) for run in state[1]]

    def evaluate_each(self, state: PyTree, split: str = "valid") -> list[Scores]:
        """See `Task.evaluate_each`."""
        return [self.score_each(run.model, split) for run in state[1]]

    def _init_run(self, allocation: Allocation, optimizer: Optimizer, seed: int) -> Run:
        key_model, key_stream = jax.random.split(jax.random.key(seed))
        model = _build(self, allocation, key_model)
        return Run(
            model=model,
            optimizer=optimizer.init(model, self.n_updates(optimizer.training)),
            stream=self.init_stream(model, key=key_stream),
        )

    def n_updates(self, training: TrainingConfig) -> int:
        """Optimiser updates over the whole horizon."""
        return n_chunks(self, training) * self.updates_per_chunk


def n_chunks(task: Task, training: TrainingConfig) -> int:
    """Chunks that cover the horizon: at least one, rounded up."""
    horizon = training.horizon or task.steps_per_chunk
    return max(1, -(-horizon // task.steps_per_chunk))


def _together(training: TrainingConfig) -> bool:
    if training.seeds_together is None:
        return jax.default_backend() != "cpu"
    return training.seeds_together


def _train_together(
    task: TrainedTask, runs: tuple[Run, ...], optimizer: Optimizer, n_chunks: int
) -> tuple[tuple[Run, ...], list[dict]]:
    metrics: dict[str, Any] = {}
    for _ in range(n_chunks):
        runs, metrics = _chunk_together(task, runs, optimizer)
    named = {name: values.tolist() for name, values in metrics.items()}
    return runs, [{k: v[i] for k, v in named.items()} for i in range(len(runs))]


@eqx.filter_jit
def _chunk_together(
    task: TrainedTask, runs: tuple[Run, ...], optimizer: Optimizer
) -> tuple[tuple[Run, ...], dict[str, Any]]:
    """A chunk of every run, mapped over them."""
    arrays, static = zip(*(eqx.partition(r, eqx.is_array) for r in runs), strict=True)

    def one(arrays: Any) -> tuple[Any, dict[str, Any]]:
        run, metrics = task.chunk(eqx.combine(arrays, static[0]), optimizer)
        return eqx.filter(run, eqx.is_array), metrics

    stacked = jax.tree.map(lambda *xs: jnp.stack(xs), *arrays)
    stacked, metrics = jax.vmap(one)(stacked)
    each = [jax.tree.map(lambda x, i=i: x[i], stacked) for i in range(len(runs))]
    trained = tuple(eqx.combine(a, s) for a, s in zip(each, static, strict=True))
    return trained, metrics


@eqx.filter_jit
def _chunk(task: TrainedTask, run: Run, optimizer: Optimizer) -> Any:
    return task.chunk(run, optimizer)


@eqx.filter_jit
def _build(task: Task, allocation: Allocation, key: PRNGKeyArray) -> Model:
    return build_model(task, allocation, key=key)
