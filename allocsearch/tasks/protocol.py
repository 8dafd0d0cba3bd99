"""What a task is: data, an encoder and a head, training in fixed chunks, evaluation."""

import abc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray, PyTree

from allocsearch.allocation import Allocation, Scalar
from allocsearch.config import ExpertConfig, TrainingConfig
from allocsearch.errors import ConfigError
from allocsearch.model import Model
from allocsearch.network import ParallelExperts
from allocsearch.parsing import Section
from allocsearch.results import Objective
from allocsearch.tasks.probes import Probed, ProbeRequest
from allocsearch.tasks.records import (
    DataOptions,
    DataReport,
    Generated,
    NamedBudget,
    Prompt,
    Recipe,
    Scores,
    Showing,
)


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

    def expert_options(self, name: str) -> Mapping[str, Scalar]:
        """Options that a kind of expert has on this task, unless a study sets them.

        Such as how far back attention looks. A budget's reference allocation has them
        too.
        """
        del name
        return {}

    def check_training(self, training: TrainingConfig) -> None:
        """Refuse training fields that the task cannot follow.

        Raises:
            ConfigError: says which. The default refuses gradient accumulation.
        """
        if training.accumulation > 1:
            raise ConfigError(
                f"task {self.name!r} does not accumulate gradients: set "
                "training.accumulation=1"
            )

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

    def training_scores(self, means: Mapping[str, float]) -> dict[str, float]:
        """What training says of one run since the last evaluation.

        Args:
            means: the metrics of `train`, averaged over the chunks since then.

        Returns:
            The metrics to keep; an objective's name where training measures the same
            thing on training data, so that trials can be selected by it.
        """
        return dict(means)

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

    @classmethod
    def prepare_data(
        cls,
        path: Path | None,
        options: DataOptions,
        *,
        status: Callable[[str], None],
        note: Callable[[str], None],
    ) -> DataReport:
        """Make the files that training reads, or go on where that was interrupted.

        Tasks that need nothing made need not offer it.

        Args:
            path: what to make them from; None for what the options name.
            options: how.
            status: is told again and again how far it has got, in a line.
            note: is told what a user should know at once, in a sentence.

        Raises:
            ConfigError: the task makes no files, or not with these options.
            DataError: something cannot be read or written.
        """
        del path, options, status, note
        raise ConfigError(
            f"task {cls.name!r} makes no files: give the path of those to check, and "
            "nothing else; see `allocsearch data --help`"
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

    def generate(self, state: PyTree, request: Prompt) -> Generated:
        """What a trained network makes of a prompt, step by step as it is trained.

        Tasks whose networks make nothing need not offer it.

        Args:
            state: from `init_trained`; the first run's network is asked.
            request: the prompt, how much is wanted, and how it is drawn.

        Raises:
            ConfigError: the task's networks make nothing, or the prompt is unfit.
        """
        del state, request
        raise ConfigError(f"networks of task {self.name!r} generate nothing")

    def probe(self, state: PyTree, request: ProbeRequest, *, label: str) -> Probed:
        """Fit linear probes to what a trained network holds, and score them.

        Tasks in whose networks there is nothing to look for need not offer it.

        Args:
            state: from `init_trained`, of which the first run's network is probed.
            request: what to look for, where, and on how much.
            label: names the network.

        Raises:
            ConfigError: there is no such thing to read, or the task fits no probes.
            UnknownNameError: there is no such target.
            DataError: there is no such split, or too little to fit on.
        """
        del state, request, label
        raise ConfigError(f"task {self.name!r} has no probes to fit")


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


def n_chunks(task: Task, training: TrainingConfig) -> int:
    """Chunks that cover the horizon: at least one, rounded up."""
    horizon = training.horizon or task.steps_per_chunk
    return max(1, -(-horizon // task.steps_per_chunk))
