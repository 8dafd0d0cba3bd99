"""Scores on held-out text: cross-entropy of every token, with carries of their own.

A recurrent network reads each slot of the split as one stream. A non-recurrent one is
scored as it is trained, on independent windows, and with its cache rolling over the
same stream as well. Changes nothing of a run, and draws nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from allocsearch.model import Model
from allocsearch.tasks.fineweb.cross_entropy import token_losses
from allocsearch.tasks.fineweb.training import features_of, fresh_carries

PIECES = 8
"""Most pieces of a window that `Losses.items` tells apart."""


@dataclass(frozen=True)
class HeldOut:
    """A split as streams side by side, cut into windows.

    Attributes:
        tokens: (n, slots, window + 1): the last target is the next window's input.
        reset: (n, slots, window): where a stream begins.
        n_bytes: bytes of text that the targets stand for.
    """

    tokens: Int[np.ndarray, "n s t1"]
    reset: Bool[np.ndarray, "n s t"]
    n_bytes: int


@dataclass(frozen=True)
class Losses:
    """Cross-entropy of every target of a split, in nats.

    Attributes:
        values: in the order of `HeldOut.tokens`.
        positions: of every target, how many tokens its stream has had before it.
        n_bytes: bytes of text that the targets stand for.

    Class attributes:
        MEANS: which of the columns of `items` each metric is the mean of.
    """

    MEANS: ClassVar[Mapping[str, str]] = {"loss": "loss"}

    values: Float[np.ndarray, "n s t"]
    positions: Int[np.ndarray, "n s t"]
    n_bytes: int

    def metrics(self) -> dict[str, float]:
        """Nats per token, and the same as bits per byte and perplexity."""
        loss = float(self.values.mean(dtype=np.float64))
        bits = loss * self.values.size / math.log(2)
        return {
            "loss": loss,
            "bits_per_byte": bits / max(self.n_bytes, 1),
            # Capped: a diverged network's would not be finite.
            "perplexity": math.exp(min(loss, 700.0)),
        }

    def items(self) -> dict[str, np.ndarray]:
        """Mean loss of each piece of each stream, and where in the stream it begins."""
        n, slots, window = self.values.shape
        n_pieces = max(k for k in range(1, PIECES + 1) if window % k == 0)
        shape = (n, slots, n_pieces, window // n_pieces)
        begins = self.positions.reshape(shape)[..., 0]
        index = np.broadcast_to(np.arange(slots)[:, None], begins.shape)
        return {
            "slot": index.reshape(-1),
            "position": begins.reshape(-1),
            "loss": self.values.reshape(shape).mean(axis=-1).reshape(-1),
        }

    def by_position(self) -> dict[str, list[float]]:
        """Mean loss of positions 0, 1, 2 to 3, 4 to 7 and so on in the stream."""
        # Of position p, the bucket's number is the length of p in binary.
        bucket = np.frexp(self.positions.reshape(-1).astype(np.float64))[1]
        counts = np.bincount(bucket)
        sums = np.bincount(bucket, weights=self.values.reshape(-1))
        kept = [k for k, count in enumerate(counts) if count]
        return {
            "position": [0 if k == 0 else 2 ** (k - 1) for k in kept],
            "tokens": [int(counts[k]) for k in kept],
            "loss": [float(sums[k] / counts[k]) for k in kept],
        }


def score_stream(model: Model, held_out: HeldOut, loss_chunk: int) -> Losses:
    """Every slot as one stream, the carry kept from window to window."""
    carry = _fresh(model, held_out.tokens.shape[1])
    losses = []
    for tokens, reset in zip(held_out.tokens, held_out.reset, strict=True):
        carry, values = _window(model, carry, tokens, reset, loss_chunk)
        losses.append(values)
    positions = positions_of(held_out.reset)
    return Losses(np.stack(losses), positions, held_out.n_bytes)


def score_windows(model: Model, held_out: HeldOut, loss_chunk: int) -> Losses:
    """Every window as a sequence of its own."""
    begins = held_out.reset.copy()
    begins[:, :, 0] = True
    losses = [
        _window(model, None, tokens, reset, loss_chunk)[1]
        for tokens, reset in zip(held_out.tokens, held_out.reset, strict=True)
    ]
    return Losses(np.stack(losses), positions_of(begins), held_out.n_bytes)


def positions_of(reset: Bool[np.ndarray, "n s t"]) -> Int[np.ndarray, "n s t"]:
    """Steps since the last one that started a stream anew, or since the first."""
    n, slots, window = reset.shape
    by_slot = np.moveaxis(reset, 1, 0).reshape(slots, n * window)
    time = np.arange(n * window)
    start = np.maximum.accumulate(np.where(by_slot, time, 0), axis=1)
    return np.moveaxis((time - start).reshape(slots, n, window), 0, 1)


@eqx.filter_jit
def _fresh(model: Model, n_slots: int) -> PyTree:
    return fresh_carries(model, n_slots)


@eqx.filter_jit
def _window(
    model: Model, carry: PyTree, tokens: Any, reset: Any, loss_chunk: int
) -> tuple[PyTree, Float[Array, "s t"]]:
    carry, features = features_of(model, carry, tokens[:, :-1], reset)
    losses = token_losses(model.readout, features, tokens[:, 1:], loss_chunk)
    return carry, losses


def unigram_losses(counts: Int[np.ndarray, " vocab"], held_out: HeldOut) -> Losses:
    """What a guess by frequency loses, every token counted once more than seen."""
    smoothed = counts.astype(np.float64) + 1.0
    surprise = np.log(smoothed.sum()) - np.log(smoothed)
    values = surprise[held_out.tokens[:, :, 1:]]
    return Losses(values, positions_of(held_out.reset), held_out.n_bytes)
