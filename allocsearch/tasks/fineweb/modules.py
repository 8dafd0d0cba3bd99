"""Encoder and heads: from a token to the core's input, from its output to logits."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from allocsearch.experts.layers import init_weight
from allocsearch.model import TiedHead

FIRST_LOGITS = 0.1
"""Scale of logits at initialisation: nearly uniform, whatever the width."""


class Embedding(eqx.Module):
    """A vector of unit scale for every token."""

    weight: Float[Array, "vocab d"]

    def __init__(self, vocab_size: int, width: int, *, key: PRNGKeyArray):
        self.weight = init_weight(key, (vocab_size, width), 1)

    def __call__(self, token: Int[Array, ""]) -> Float[Array, " d"]:
        """The core's input z."""
        return self.weight[token]


class Head(eqx.Module):
    """Logits in float32, linear in the features."""

    weight: Float[Array, "d vocab"]

    def __init__(self, width: int, vocab_size: int, *, key: PRNGKeyArray):
        self.weight = FIRST_LOGITS * init_weight(key, (width, vocab_size), width)

    def __call__(self, features: Float[Array, " d"]) -> Float[Array, " vocab"]:
        """Unnormalised log-probabilities of the next token."""
        return jnp.dot(features, self.weight, preferred_element_type=jnp.float32)


class EmbeddingHead(TiedHead):
    """Logits that are products with the embedding: no parameters of its own."""

    def tied(self, encoder: Embedding) -> "Unembedding":
        """See `TiedHead.tied`."""
        return Unembedding(encoder.weight)


class Unembedding(eqx.Module):
    """An embedding that is read from the other side."""

    weight: Float[Array, "vocab d"]

    def __call__(self, features: Float[Array, " d"]) -> Float[Array, " vocab"]:
        """Unnormalised log-probabilities of the next token."""
        scale = FIRST_LOGITS * features.shape[-1] ** -0.5
        products = jnp.dot(self.weight, features, preferred_element_type=jnp.float32)
        return scale * products
