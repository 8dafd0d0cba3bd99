"""Encoders and heads: from board to the core's input, and from its output to actions.

All see one board. The heads are linear in what they read from the board unless given
hidden units, so that thinking is left to the core, which the budget binds.
"""

from types import MappingProxyType
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from allocsearch.experts.layers import conv, init_weight
from allocsearch.tasks.sokoban.environment import ACTIONS, OBSERVATION_PLANES

_WALL_PLANE = OBSERVATION_PLANES.index("wall")
_N_QUERIES = 4


class Outputs(NamedTuple):
    """What the head says of one board.

    Attributes:
        logits: unnormalised log-probabilities of the actions.
        value: expected discounted return, in scaled reward.
    """

    logits: Float[Array, "*axes actions"]
    value: Float[Array, "*axes"]


class Encoder(eqx.Module):
    """One convolution of the planes, of unit scale; off the board counts as wall."""

    weight: Float[Array, "k k planes d"]
    bias: Float[Array, " d"]

    def __init__(self, width: int, kernel: int, *, key: PRNGKeyArray):
        shape = (kernel, kernel, len(OBSERVATION_PLANES), width)
        # Every square has one plane set, so that a sum has as many terms as taps.
        self.weight = init_weight(key, shape, kernel**2)
        self.bias = jnp.zeros(width)

    def __call__(
        self, planes: Float[Array, "height width planes"]
    ) -> Float[Array, "height width d"]:
        """The core's input z."""
        wall = jnp.zeros(planes.shape[-1]).at[_WALL_PLANE].set(1.0)
        form = "patches" if jax.default_backend() == "cpu" else "conv"
        # Zero padding of the difference is padding with walls.
        everywhere_wall = self.weight[:, :, _WALL_PLANE].sum(axis=(0, 1))
        return conv(planes - wall, self.weight, form) + everywhere_wall + self.bias


class ColorEncoder(eqx.Module):
    """One convolution of the colours, scaled to [0, 1]; walls, being black, are zero.

    Zero padding is thus padding with walls, as with `Encoder`.
    """

    weight: Float[Array, "k k 3 d"]
    bias: Float[Array, " d"]

    def __init__(self, width: int, kernel: int, *, key: PRNGKeyArray):
        # Most of a board is floor, whose colour is nearly white.
        shape = (kernel, kernel, 3, width)
        self.weight = init_weight(key, shape, 3 * kernel**2)
        self.bias = jnp.zeros(width)

    def __call__(
        self, pixels: UInt8[Array, "height width 3"]
    ) -> Float[Array, "height width d"]:
        """The core's input z."""
        form = "patches" if jax.default_backend() == "cpu" else "conv"
        channels = pixels.astype(self.weight.dtype) / 255
        return conv(channels, self.weight, form) + self.bias


ENCODERS = MappingProxyType({"planes": Encoder, "tiny_rgb": ColorEncoder})
"""By observation, what reads it."""


class PoolHead(eqx.Module):
    """Policy and value from learned weighted means over the board, and its maximum.

    Each query puts a softmax over the squares, so that it can learn to look at the
    player, say; parameters do not depend on the board's size.
    """

    queries: Float[Array, "d queries"]
    readout: "Readout"

    def __init__(
        self,
        width: int,
        hidden: int,
        n_actions: int = len(ACTIONS),
        *,
        key: PRNGKeyArray,
    ):
        query_key, readout_key = jax.random.split(key)
        self.queries = init_weight(query_key, (width, _N_QUERIES), width)
        self.readout = Readout(
            (_N_QUERIES + 1) * width, hidden, n_actions, key=readout_key
        )

    def __call__(self, features: Float[Array, "height width d"]) -> Outputs:
        """Policy and value of one board."""
        squares = features.reshape(-1, features.shape[-1])
        weights = jax.nn.softmax(squares @ self.queries, axis=0)
        pooled = weights.T @ squares
        most = squares.max(axis=0)
        return self.readout(jnp.concatenate([pooled.reshape(-1), most]))


class FlattenHead(eqx.Module):
    """Policy and value from every square, as the DRC of Guez et al. (2019)."""

    readout: "Readout"

    def __init__(
        self,
        width: int,
        n_positions: int,
        hidden: int,
        n_actions: int = len(ACTIONS),
        *,
        key: PRNGKeyArray,
    ):
        self.readout = Readout(n_positions * width, hidden, n_actions, key=key)

    def __call__(self, features: Float[Array, "height width d"]) -> Outputs:
        """Policy and value of one board."""
        return self.readout(features.reshape(-1))


class Readout(eqx.Module):
    """From a vector to policy and value, directly or through hidden units."""

    hidden: Float[Array, "inputs hidden"] | None
    hidden_bias: Float[Array, " hidden"] | None
    out: Float[Array, "features outputs"]
    bias: Float[Array, " outputs"]

    def __init__(
        self, n_inputs: int, hidden: int, n_actions: int, *, key: PRNGKeyArray
    ):
        hidden_key, out_key = jax.random.split(key)
        self.hidden = self.hidden_bias = None
        if hidden:
            self.hidden = init_weight(hidden_key, (n_inputs, hidden), n_inputs)
            self.hidden_bias = jnp.zeros(hidden)
        n_features, n_outputs = hidden or n_inputs, n_actions + 1
        # A nearly uniform first policy, whatever the size.
        self.out = 0.1 * init_weight(out_key, (n_features, n_outputs), n_features)
        self.bias = jnp.zeros(n_outputs)

    def __call__(self, x: Float[Array, " inputs"]) -> Outputs:
        """Policy and value."""
        if self.hidden is not None and self.hidden_bias is not None:
            x = jax.nn.relu(x @ self.hidden + self.hidden_bias)
        out = x @ self.out + self.bias
        return Outputs(out[:-1], out[-1])
