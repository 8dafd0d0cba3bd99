"""FineWeb as a task: next-token prediction on streams of text."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from allocsearch.allocation import Allocation, Scalar
from allocsearch.config import ExpertConfig, TrainingConfig
from allocsearch.errors import ConfigError, DataError, unknown_name
from allocsearch.model import Model
from allocsearch.parsing import Section
from allocsearch.results import Objective
from allocsearch.scaling import Optimizer
from allocsearch.tasks.fineweb.budgets import BUDGETS
from allocsearch.tasks.fineweb.config import FineWebConfig
from allocsearch.tasks.fineweb.corpus import Corpus, load_corpora
from allocsearch.tasks.fineweb.devices import replicate, slot_mesh, spread
from allocsearch.tasks.fineweb.evaluation import (
    HeldOut,
    Losses,
    score_stream,
    score_windows,
    unigram_losses,
)
from allocsearch.tasks.fineweb.generation import continue_tokens
from allocsearch.tasks.fineweb.inspection import inspect, prepare
from allocsearch.tasks.fineweb.modules import Embedding, EmbeddingHead, Head
from allocsearch.tasks.fineweb.slots import SlotStream
from allocsearch.tasks.fineweb.training import (
    Batch,
    Stream,
    fresh_carries,
    train_chunk,
)
from allocsearch.tasks.records import (
    DataOptions,
    DataReport,
    Generated,
    NamedBudget,
    Prompt,
    Scores,
)
from allocsearch.tasks.trained import Run, TrainedTask

SPLITS = ("valid", "test")

COUNTED = 10_000_000
"""Training tokens, from the first on, that the baseline's frequencies are of."""

_KNOWN_SIZES = {"gpt2": 50_257, "bytes": 257}


class FineWeb(TrainedTask):
    """Predicting the next token of a stream, one token a step."""

    name: ClassVar[str] = "fineweb"
    Config: ClassVar[type[Section]] = FineWebConfig
    budgets: ClassVar[Mapping[str, NamedBudget]] = BUDGETS
    experts: ClassVar[tuple[ExpertConfig, ...]] = (ExpertConfig(name="transformer"),)
    objectives: ClassVar[tuple[Objective, ...]] = (
        Objective("loss", "nats", "minimize"),
    )
    unit: ClassVar[str] = "tokens"

    def __init__(self, config: FineWebConfig):
        """Open the data, if there are files; see `Task.__init__`."""
        self.config = config
        self.mesh = slot_mesh(config.n_slots, config.data_parallel)
        self.held_out = cache(self._read_split)
        # The built-in text is read on first use, so that a space is listed without it.
        if config.data is not None:
            self._open()

    @cached_property
    def corpora(self) -> Mapping[str, Corpus]:
        """Tokens of "train", "valid" and "test"."""
        config = self.config
        n_valid, n_test = config.evaluation.n_valid, config.evaluation.n_test
        return load_corpora(
            config.data, config.tokenizer, n_valid=n_valid, n_test=n_test
        )

    @cached_property
    def slots(self) -> SlotStream:
        """Training text as streams side by side."""
        config = self.config
        return SlotStream(
            self.corpora["train"],
            config.n_slots,
            config.window,
            config.reset_at_documents,
        )

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""
        config = self.config
        if config.data is None and config.tokenizer in _KNOWN_SIZES:
            return _KNOWN_SIZES[config.tokenizer]
        return self.corpora["train"].tokenizer.vocab_size

    @property
    def positions(self) -> tuple[int, ...]:
        """One token has no grid of positions."""
        return ()

    @property
    def observation(self) -> jax.ShapeDtypeStruct:
        """The number of one token."""
        return jax.ShapeDtypeStruct((), jnp.int32)

    @property
    def updates_per_chunk(self) -> int:
        """See `TrainedTask.updates_per_chunk`."""
        return self.config.updates_per_chunk

    @property
    def steps_per_chunk(self) -> int:
        """Tokens that one chunk trains on."""
        config = self.config
        return config.updates_per_chunk * config.n_slots * config.window

    def expert_options(self, name: str) -> Mapping[str, Scalar]:
        """A transformer looks back as far as a window of training is long."""
        return {"window": self.config.window} if name == "transformer" else {}

    def check_training(self, training: TrainingConfig) -> None:
        """See `Task.check_training`: parts of a batch must be of equal size."""
        if self.config.n_slots % training.accumulation:
            raise ConfigError(
                f"training.accumulation = {training.accumulation} does not divide the "
                f"task.n_slots = {self.config.n_slots} streams: give a divisor"
            )

    def encoder(self, width: int, *, key: PRNGKeyArray) -> eqx.Module:
        """A vector for each token."""
        return Embedding(self.vocab_size, width, key=key)

    def head(self, width: int, *, key: PRNGKeyArray) -> eqx.Module:
        """Logits of all tokens."""
        if self.config.tie:
            return EmbeddingHead()
        return Head(width, self.vocab_size, key=key)

    def init(
        self, allocation: Allocation, training: TrainingConfig, seeds: Sequence[int]
    ) -> PyTree:
        """See `Task.init`."""
        self.check_training(training)
        return super().init(allocation, training, seeds)

    def init_stream(self, model: Model, *, key: PRNGKeyArray) -> Stream:
        """See `TrainedTask.init_stream`: the start of the data, whatever the key."""
        del key
        carry = None
        if model.core.allocation.recurrent:
            carry = fresh_carries(model, self.config.n_slots)
        digest = jnp.asarray(self._data_digest, jnp.uint32)
        return Stream(jnp.zeros((), jnp.int32), digest, carry)

    def feed(self, run: Run) -> Run:
        """See `TrainedTask.feed`: the windows at the stream's position.

        Raises:
            DataError: the run was trained on other data.
        """
        stream = run.stream
        if not np.array_equal(stream.data, self._data_digest):
            raise DataError(
                f"{self.config.data or 'the built-in text'}: these are other data than "
                "the run was trained on so far: give the same, or start anew"
            )
        n = self.config.updates_per_chunk
        windows = self.slots.windows(int(stream.position), n)
        on_host = windows.tokens, windows.reset
        batch = jax.tree.map(jnp.asarray, spread(on_host, self.mesh, axis=1))
        stream = Stream(
            replicate(stream.position, self.mesh),
            replicate(stream.data, self.mesh),
            spread(stream.carry, self.mesh, axis=0),
            Batch(*batch),
        )
        model, optimizer = replicate((run.model, run.optimizer), self.mesh)
        return Run(model, optimizer, stream)

    def chunk(self, run: Run, optimizer: Optimizer) -> tuple[Run, dict[str, Any]]:
        """See `TrainedTask.chunk`."""
        return train_chunk(run, optimizer, self.config.loss_chunk)

    def score(self, model: Model, split: str) -> dict[str, float]:
        """See `TrainedTask.score`."""
        return self.score_each(model, split).metrics

    def score_each(self, model: Model, split: str) -> Scores:
        """See `TrainedTask.score_each`; items are pieces of the split's streams."""
        held_out, chunk = self.held_out(split), self.config.loss_chunk
        recurrent = model.core.allocation.recurrent
        score = score_stream if recurrent else score_windows
        losses = score(model, held_out, chunk)
        metrics = losses.metrics()
        details = {"loss_by_position": losses.by_position()}
        if not recurrent and self.config.evaluation.streaming:
            streaming = score_stream(model, held_out, chunk)
            metrics["streaming_loss"] = streaming.metrics()["loss"]
            details["streaming_loss_by_position"] = streaming.by_position()
        return Scores(metrics, losses.items(), Losses.MEANS, details)

    def baseline(self, split: str = "valid") -> dict[str, float]:
        """The metrics of a guess by the frequencies of tokens in training text."""
        return unigram_losses(self._counts, self.held_out(split)).metrics()

    def manifest(self) -> dict[str, Any]:
        """See `Task.manifest`."""
        return {name: _about(corpus) for name, corpus in self.corpora.items()}

    @classmethod
    def inspect_data(cls, path: Path) -> DataReport:
        """See `Task.inspect_data`."""
        return inspect(path)

    @classmethod
    def prepare_data(
        cls,
        path: Path | None,
        options: DataOptions,
        *,
        status: Callable[[str], None],
        note: Callable[[str], None],
    ) -> DataReport:
        """See `Task.prepare_data`."""
        return prepare(path, options, status, note)

    def generate(self, state: PyTree, request: Prompt) -> Generated:
        """See `Task.generate`: text that goes on from the prompt."""
        tokenizer = self.corpora["train"].tokenizer
        prompt = [int(token) for token in tokenizer.encode(request.text)]
        # A stream begins with the token that ends the document before.
        tokens = continue_tokens(
            state[1][0].model, [tokenizer.end_of_text, *prompt], request
        )
        details = {"tokens": tokens, "prompt_tokens": prompt}
        return Generated(tokenizer.decode(tokens), details)

    def _open(self) -> None:
        """Everything that could be wrong with the data is so before training."""
        for split in SPLITS:
            self.held_out(split)
        _ = self.slots

    def _read_split(self, split: str) -> HeldOut:
        if split not in SPLITS:
            raise unknown_name("split", split, SPLITS)
        config, corpus = self.config, self.corpora[split]
        slots = SlotStream(
            corpus,
            config.evaluation.n_slots,
            config.window,
            config.reset_at_documents,
        )
        windows = slots.windows(0, slots.n_windows)
        n_bytes = corpus.tokenizer.n_bytes(windows.tokens[:, :, 1:]).sum()
        return HeldOut(windows.tokens, windows.reset, int(n_bytes))

    @cached_property
    def _counts(self) -> np.ndarray:
        corpus, left = self.corpora["train"], COUNTED
        counts = np.zeros(self.vocab_size, np.int64)
        for shard in corpus.shards:
            read = shard.read(0, min(shard.n_tokens, left))
            counts += np.bincount(read, minlength=len(counts))
            left -= len(read)
        return counts

    @cached_property
    def _data_digest(self) -> np.ndarray:
        about = self.corpora["train"].describe()
        del about["source"]  # data may be moved
        text = json.dumps(about, sort_keys=True)
        digest = hashlib.sha256(text.encode()).digest()
        return np.frombuffer(digest[:8], np.uint32)


def _about(corpus: Corpus) -> dict[str, Any]:
    """A corpus as the manifest of a study has it: what is read first, then the rest."""
    about = corpus.describe()
    tokenizer = about.pop("tokenizer")
    return {
        "source": about.pop("source"),
        "n_tokens": about.pop("n_tokens"),
        "tokenizer": tokenizer["name"],
        "tokenizer_sha256": tokenizer["sha256"],
        **about,
    }
