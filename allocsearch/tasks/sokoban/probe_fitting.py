"""Linear probes of boards: one small convolution, fitted by softmax cross-entropy."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, UInt8

from allocsearch.experts.layers import conv
from allocsearch.tasks.sokoban.probe_labels import CLASSES

N_UPDATES = 2000
LEARNING_RATE = 1e-2
BATCH = 256


class Probe(eqx.Module):
    """A convolution without bias, zeros beyond the board.

    Attributes:
        weight: k×k taps.
    """

    weight: Float[Array, "k k channels classes"]

    def __call__(
        self, read: Float[Array, "h w channels"]
    ) -> Float[Array, "h w classes"]:
        """Unnormalised log-probabilities of the classes on each square."""
        form = "patches" if jax.default_backend() == "cpu" else "conv"
        return conv(read, self.weight, form)


def fit_probe(
    read: Float[np.ndarray, "n h w channels"],
    labels: UInt8[np.ndarray, "n h w"],
    *,
    kernel: int,
    seed: int = 0,
    n_updates: int = N_UPDATES,
) -> Probe:
    """Fit a probe to boards by Adam, from zero weights.

    Channels are divided by their root mean square for the fit, and the weights by the
    same afterwards: that makes it faster and leaves what can be told as it is.

    Args:
        read: what the probe reads of n boards.
        labels: indices of `CLASSES`, on every square.
        kernel: taps per side.
        seed: draws the boards of each update, with replacement.
        n_updates: of `BATCH` boards each; the learning rate falls to 0 as a cosine.
    """
    key = jax.random.key(seed)
    return _fit(jnp.asarray(read), jnp.asarray(labels), kernel, key, n_updates)


@eqx.filter_jit
def _fit(
    read: Float[Array, "n h w channels"],
    labels: UInt8[Array, "n h w"],
    kernel: int,
    key: Array,
    n_updates: int,
) -> Probe:
    rms = jnp.sqrt(jnp.mean(jnp.square(read), axis=(0, 1, 2)))
    scale = jnp.where(rms > 0, rms, 1.0)
    optimizer = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, n_updates))
    weight = jnp.zeros((kernel, kernel, read.shape[-1], len(CLASSES)))

    def loss(weight: Array, indices: Int[Array, " batch"]) -> Array:
        logits = jax.vmap(Probe(weight))(read[indices] / scale)
        losses = optax.softmax_cross_entropy_with_integer_labels(
            logits, labels[indices].astype(jnp.int32)
        )
        return losses.mean()

    def update(fitted: tuple[Array, Any], key: Array) -> tuple[tuple[Any, Any], None]:
        weight, state = fitted
        n = min(BATCH, len(read))
        indices = jax.random.randint(key, (n,), 0, len(read))
        updates, state = optimizer.update(jax.grad(loss)(weight, indices), state)
        return (optax.apply_updates(weight, updates), state), None

    start: tuple[Any, Any] = weight, optimizer.init(weight)
    (fitted, _), _ = jax.lax.scan(update, start, jax.random.split(key, n_updates))
    return Probe(fitted / scale[:, None])


@eqx.filter_jit
def probabilities(
    probe: Probe, read: Float[Array, "b t h w channels"]
) -> Float[Array, "b t h w classes"]:
    """Of each class on each square, at each step of each episode."""
    return jax.nn.softmax(jax.vmap(jax.vmap(probe))(read), axis=-1)


def calibrate(
    scores: Float[np.ndarray, " n"], right: np.ndarray, precision: float
) -> tuple[float | None, float]:
    """The least threshold on scores that gives a precision.

    Least, because of all that are precise enough it finds the most.

    Args:
        scores: one for each place where something may be emitted, at least one.
        right: bool `[n]`, whether what would be emitted is right.
        precision: least share of right ones among those at or above the threshold.

    Returns:
        The threshold and its precision; None and the best that any threshold has
        where none is precise enough.
    """
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    reached = np.cumsum(right[order]) / np.arange(1, len(scores) + 1)
    # Equal scores are emitted together, so only the last of them may end the list.
    ends = np.append(ordered[1:] < ordered[:-1], True)
    enough = np.flatnonzero(ends & (reached >= precision))
    if len(enough) == 0:
        return None, float(reached[ends].max())
    return float(ordered[enough[-1]]), float(reached[enough[-1]])
