"""The task: name the running product of a stream of permutations at every step."""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from pydantic import Field

from allocsearch.allocation import Allocation
from allocsearch.config import ExpertConfig
from allocsearch.errors import unknown_name
from allocsearch.model import Model
from allocsearch.parsing import Count, Section
from allocsearch.results import Objective
from allocsearch.scaling import Optimizer
from allocsearch.tasks.records import NamedBudget
from allocsearch.tasks.trained import Run, TrainedTask
from allocsearch_statetrack.groups import GROUPS
from allocsearch_statetrack.streams import (
    held_out_tokens,
    reset_mask,
    running_products,
    sample_tokens,
)

LONG = 128
"""Every evaluation also scores streams of this many steps."""

SPLITS = ("valid", "test")


class StateTrackConfig(Section):
    """The task's own fields."""

    group: Literal["s3", "s5"] = "s5"
    """Whose elements are tracked: 6 or 120 classes."""
    length: Count = 32
    """Steps of a stream at the end of the curriculum, and of the score."""
    first_length: Count = 4
    """Steps of a stream at the start of the curriculum."""
    advance_below: Annotated[float, Field(ge=0)] = 0.15
    """Streams double in length when the loss, in nats, is under this."""
    batch: Count = 64
    """Streams trained on at once."""
    updates_per_chunk: Count = 20
    """Optimiser updates in one compiled chunk."""
    n_held_out: Count = 1024
    """Streams of each evaluation."""
    data_seed: Annotated[int, Field(ge=0)] = 0
    """Decides the streams of evaluations; those of training follow the run's seed."""
    negative_control: bool = False
    """Ask for the step's own generator instead: nothing to remember."""


class Stream(eqx.Module):
    """What one run streams: the key of its next batch, and how long its streams are."""

    key: PRNGKeyArray
    length: Int[Array, ""]


class Batch(eqx.Module):
    """Streams side by side, all starting anew at the same steps."""

    tokens: Int[Array, "b t"]
    labels: Int[Array, "b t"]
    reset: Bool[Array, " t"]


class StateTrack(TrainedTask):
    """State tracking in a symmetric group, after Merrill et al. (2024).

    A stream of generators comes in; at each step the network names the product so
    far. One recurrent level can do so at any length. Without recurrence the depth that
    is needed grows with the length, see "The Illusion of State in State-Space Models".
    """

    name: ClassVar = "statetrack"
    Config: ClassVar = StateTrackConfig
    unit: ClassVar = "tokens"
    objectives: ClassVar = (Objective("accuracy", "fraction", "maximize"),)
    experts: ClassVar = (
        ExpertConfig(name="mlp", arms=("recurrent",)),
        ExpertConfig(
            name="transformer", options={"window": 32}, arms=("nonrecurrent",)
        ),
    )
    budgets: ClassVar[Mapping[str, NamedBudget]] = {
        "tiny": NamedBudget(
            reference=Allocation("mlp", True, depth=1, n_experts=1, width=64),
            tolerance=0.20,
            granule=2,
            training={"horizon": 2_457_600, "learning_rate": 2e-3, "warmup": 100},
            space={"depths": (1, 2, 4, 8), "n_experts": (1, 2, 4, 8, 16)},
        ),
        # Seconds a candidate, most of them compilation: for trying things out.
        "micro": NamedBudget(
            reference=Allocation("mlp", True, depth=1, n_experts=1, width=32),
            tolerance=0.25,
            granule=2,
            task={"length": 8, "batch": 32, "updates_per_chunk": 50, "n_held_out": 256},
            training={
                "horizon": 51_200,
                "learning_rate": 4e-3,
                "warmup": 20,
                "n_seeds": 1,
                "n_evaluations": 4,
            },
            search={"n_trials": 4, "confirm_seeds": 0},
            space={
                "depths": (1, 2, 4, 8),
                "n_experts": (1, 2, 4),
                "radii": ("full",),
                "aggregations": ("sqrt_sum",),
            },
        ),
    }

    def __init__(self, config: StateTrackConfig):
        """Tabulate the group; there is nothing to load.

        Args:
            config: the task's own fields.
        """
        self.config = config
        self.group = GROUPS[config.group]
        self._table = self.group.table

    # Compiled programs are kept by task, so that equal tasks share them.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, StateTrack) and self.config == other.config

    def __hash__(self) -> int:
        return hash(self.config)

    @property
    def n_tokens(self) -> int:
        """How many generators there are."""
        return len(self.group.generators)

    @property
    def n_classes(self) -> int:
        """How many elements the group has."""
        return self._table.shape[1]

    @property
    def positions(self) -> tuple[int, ...]:
        """See `Task.positions`."""
        return ()

    @property
    def observation(self) -> jax.ShapeDtypeStruct:
        """The number of one generator."""
        return jax.ShapeDtypeStruct((), jnp.int32)

    @property
    def updates_per_chunk(self) -> int:
        """See `TrainedTask.updates_per_chunk`."""
        return self.config.updates_per_chunk

    @property
    def steps_per_chunk(self) -> int:
        """Tokens that one chunk trains on."""
        return self.updates_per_chunk * self.config.batch * self.config.length

    def encoder(self, width: int, *, key: PRNGKeyArray) -> eqx.Module:
        """A vector for each generator."""
        return eqx.nn.Embedding(self.n_tokens, width, key=key)

    def head(self, width: int, *, key: PRNGKeyArray) -> eqx.Module:
        """Logits of all elements."""
        return eqx.nn.Linear(width, self.n_classes, key=key)

    def init_stream(self, model: Model, *, key: PRNGKeyArray) -> Stream:
        """See `TrainedTask.init_stream`."""
        del model
        first = min(self.config.first_length, self.config.length)
        return Stream(key, jnp.asarray(first, jnp.int32))

    def chunk(self, run: Run, optimizer: Optimizer) -> tuple[Run, dict[str, Any]]:
        """See `TrainedTask.chunk`."""
        arrays, static = eqx.partition(run, eqx.is_array)

        def body(arrays: Any, _: None) -> tuple[Any, Array]:
            run, loss = self._update(eqx.combine(arrays, static), optimizer)
            return eqx.filter(run, eqx.is_array), loss

        arrays, losses = jax.lax.scan(body, arrays, length=self.updates_per_chunk)
        run = eqx.combine(arrays, static)
        return run, {"loss": losses.mean(), "stream_length": run.stream.length}

    def _update(self, run: Run, optimizer: Optimizer) -> tuple[Run, Array]:
        key, key_tokens = jax.random.split(run.stream.key)
        batch = self._draw(run.stream.length, key=key_tokens)
        gradient = eqx.filter_value_and_grad(
            lambda model: _mean_loss(optimizer.computing(model), batch)
        )
        loss, gradients = gradient(run.model)
        model, state = optimizer.update(gradients, run.optimizer, run.model)
        stream = Stream(key, self.next_length(run.stream.length, loss))
        return Run(model, state, stream), loss

    def next_length(self, length: Array, loss: Array) -> Int[Array, ""]:
        """How long streams are after an update: doubled once they are solved."""
        solved = loss < self.config.advance_below
        return jnp.minimum(length * jnp.where(solved, 2, 1), self.config.length)

    def _draw(self, length: Array, *, key: PRNGKeyArray) -> Batch:
        shape = (self.config.batch, self.config.length)
        tokens = sample_tokens(self.n_tokens, shape, key=key)
        return self._batch(tokens, reset_mask(self.config.length, length))

    def _batch(self, tokens: Array, reset: Array) -> Batch:
        forgets = jnp.ones_like(reset) if self.config.negative_control else reset
        return Batch(tokens, running_products(self._table, tokens, forgets), reset)

    def held_out(self, split: str) -> Int[np.ndarray, "b t"]:
        """Tokens of a split, long enough for every metric.

        Raises:
            UnknownNameError: neither "valid" nor "test".
        """
        if split not in SPLITS:
            raise unknown_name("split", split, SPLITS)
        shape = (self.config.n_held_out, max(self.config.length, LONG))
        seeds = (self.config.data_seed, SPLITS.index(split))
        return held_out_tokens(self.n_tokens, shape, seeds)

    def score(self, model: Model, split: str) -> dict[str, float]:
        """See `TrainedTask.score`."""
        return self._metrics(model, split)

    def baseline(self, split: str = "valid") -> dict[str, float]:
        """The metrics of a guess that finds every element equally likely."""
        guess = UniformGuess(jnp.zeros(self.n_classes))
        return self._metrics(guess, split)

    def judge(
        self, model: "Model | UniformGuess", tokens: Int[Array, "b t"]
    ) -> tuple[Float[Array, " t"], Float[Array, " t"]]:
        """Loss in nats and accuracy at each step of whole streams, means over them.

        Classes that tie for the largest logit share the hit, as if one were picked at
        random; so a uniform guess scores one in the number of classes.

        Args:
            model: a network, or what stands in for one.
            tokens: streams that start at the first step.
        """
        batch = self._batch(tokens, jnp.arange(tokens.shape[1]) == 0)
        logits = _logits(model, batch)
        losses = _cross_entropy(logits, batch.labels)
        best = logits == logits.max(axis=-1, keepdims=True)
        hits = _pick(best, batch.labels) / best.sum(axis=-1)
        return losses.mean(axis=0), hits.mean(axis=0)

    def _metrics(self, model: "Model | UniformGuess", split: str) -> dict[str, float]:
        judged = _judge(self, model, jnp.asarray(self.held_out(split)))
        losses, hits = (np.asarray(values) for values in judged)
        n = self.config.length
        return {
            "accuracy": float(hits[n - 1]),
            f"accuracy_{LONG}": float(hits[LONG - 1]),
            "mean_accuracy": float(hits[:n].mean()),
            "loss": float(losses[:n].mean()),
        }

    def manifest(self) -> dict[str, Any]:
        """See `Task.manifest`."""
        return {
            "source": "generated",
            "group": self.config.group,
            "generators": [list(generator) for generator in self.group.generators],
            "train": "drawn while training, from the seed of the run",
            **{split: self._fingerprint(split) for split in SPLITS},
        }

    def _fingerprint(self, split: str) -> dict[str, Any]:
        tokens = self.held_out(split)
        digest = hashlib.sha256(tokens.astype("<i4").tobytes()).hexdigest()
        return {"streams": tokens.shape[0], "steps": tokens.shape[1], "sha256": digest}


class UniformGuess(eqx.Module):
    """Stands where a network would, and finds every element equally likely."""

    logits: Float[Array, " classes"]

    def init_carry(self) -> Any:
        """Nothing."""
        return ()

    def unroll(
        self, carry: Any, observations: Int[Array, " t"], reset: Bool[Array, " t"]
    ) -> tuple[Any, Float[Array, "t classes"]]:
        """See `Model.unroll`."""
        del reset
        shape = (*observations.shape, *self.logits.shape)
        return carry, jnp.broadcast_to(self.logits, shape)


@eqx.filter_jit
def _judge(task: StateTrack, model: Model | UniformGuess, tokens: Array) -> Any:
    return task.judge(model, tokens)


def _logits(model: Model | UniformGuess, batch: Batch) -> Float[Array, "b t classes"]:
    def unroll(tokens: Array) -> Array:
        return model.unroll(model.init_carry(), tokens, batch.reset)[1]

    return jax.vmap(unroll)(batch.tokens)


def _mean_loss(model: Model, batch: Batch) -> Float[Array, ""]:
    return _cross_entropy(_logits(model, batch), batch.labels).mean()


def _cross_entropy(
    logits: Float[Array, "b t classes"], labels: Int[Array, "b t"]
) -> Float[Array, "b t"]:
    return jax.nn.logsumexp(logits, axis=-1) - _pick(logits, labels)


def _pick(values: Array, labels: Int[Array, "b t"]) -> Array:
    return jnp.take_along_axis(values, labels[..., None], axis=-1)[..., 0]
