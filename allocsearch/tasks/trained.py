"""A task that trains by gradient: runs of a network, its optimiser and its stream."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from allocsearch.allocation import Allocation
from allocsearch.config import TrainingConfig
from allocsearch.model import Model
from allocsearch.scaling import Optimizer, OptimizerState
from allocsearch.tasks.protocol import Task, build_model, n_chunks
from allocsearch.tasks.records import Scores


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

    def feed(self, run: Run) -> Run:
        """The run with what the host has ready for its next chunk of training.

        Called before each chunk, outside the compiled program. What it puts in must
        follow from the run alone, as the data at a position that the stream counts,
        and `chunk` takes it out again: a checkpoint holds the run as `chunk` left it.
        """
        return run

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
                run, last = _chunk(self, self.feed(run), program)
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


def mean_gradient(
    loss: Callable[[Model, PyTree], tuple[Array, PyTree]],
    model: Model,
    parts: PyTree,
) -> tuple[Array, PyTree, PyTree]:
    """Loss and gradient of a batch that is worked through part by part.

    Args:
        loss: from the model and one part to a mean over the part, and further arrays.
        model: what is differentiated.
        parts: the batch in equal parts, on a leading axis.

    Returns:
        The mean loss and the mean gradient, those of the whole batch to rounding; and
        the further arrays of every part, on a leading axis.
    """
    gradient = eqx.filter_value_and_grad(loss, has_aux=True)
    n_parts = jax.tree.leaves(parts)[0].shape[0]
    if n_parts == 1:
        (value, further), gradients = gradient(
            model, jax.tree.map(lambda x: x[0], parts)
        )
        return value, gradients, jax.tree.map(lambda x: x[None], further)

    def add(total: PyTree, part: PyTree) -> tuple[PyTree, PyTree]:
        (value, further), gradients = gradient(model, part)
        return jax.tree.map(jnp.add, total, (value, gradients)), further

    zeros = jax.tree.map(jnp.zeros_like, eqx.filter(model, eqx.is_inexact_array))
    total, further = jax.lax.scan(add, (jnp.zeros(()), zeros), parts)
    value, gradients = jax.tree.map(lambda x: x / n_parts, total)
    return value, gradients, further


def _together(training: TrainingConfig) -> bool:
    if training.seeds_together is None:
        return jax.default_backend() != "cpu"
    return training.seeds_together


def _train_together(
    task: TrainedTask, runs: tuple[Run, ...], optimizer: Optimizer, n_chunks: int
) -> tuple[tuple[Run, ...], list[dict]]:
    metrics: dict[str, Any] = {}
    for _ in range(n_chunks):
        runs, metrics = _chunk_together(task, tuple(map(task.feed, runs)), optimizer)
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
