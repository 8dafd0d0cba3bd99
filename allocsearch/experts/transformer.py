"""A pre-norm transformer block over a sliding window of the stream."""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from allocsearch.allocation import Allocation
from allocsearch.errors import ConfigError
from allocsearch.experts.attention import (
    attention,
    heads_first,
    heads_merged,
    rotate,
)
from allocsearch.experts.layers import init_weight, project, rms_norm
from allocsearch.experts.protocol import (
    ExpertSpec,
    LevelShape,
    Read,
    check_one_of,
    check_positive,
)
from allocsearch.experts.sequence import SequenceExpert


@dataclass(frozen=True)
class Transformer(ExpertSpec):
    """x = Norm(s) + z;  a = Attention(Norm(x));  u = a + MLP(Norm(x + a)).

    Keys and values of the last `window` steps are the context. Recurrent, the carried
    state feeds back into them; non-recurrent, this is a sliding-window decoder, which
    is computed for many steps at once.

    Attributes:
        window: steps that attention looks back on, this one included.
        ratio: hidden units of the MLP per channel of width.
        head_width: least channels per attention head, where the width allows it.
        kv_cache: "shared" adds the keys and values that a level's experts propose,
            over √E, into one cache; "per_expert" keeps one for each.
        reinject_embedding: whether every level reads z; otherwise the first alone.
    """

    window: int = 64
    ratio: int = 4
    head_width: int = 64
    kv_cache: str = "shared"
    reinject_embedding: bool = True

    grid_ndims: ClassVar = (0,)

    def __post_init__(self) -> None:
        check_positive(window=self.window, ratio=self.ratio, head_width=self.head_width)
        check_one_of(("shared", "per_expert"), kv_cache=self.kv_cache)

    @property
    def input_once(self) -> bool:
        """See `ExpertSpec.input_once`."""
        return not self.reinject_embedding

    def check(self, allocation: Allocation) -> None:
        """Refuse odd widths, ticks, and a radius that a shared cache talks around."""
        if allocation.ticks > 1:
            raise ConfigError(
                f"ticks={allocation.ticks} would write a K/V cache more than once a "
                "step: set ticks=1, or choose an expert without a cache"
            )
        if allocation.radius != "full" and self.kv_cache == "shared":
            raise ConfigError(
                "a shared K/V cache lets experts talk beyond a radius: set the option "
                "kv_cache=per_expert, or radius=full"
            )
        if allocation.width % 2:
            raise ConfigError(
                f"width {allocation.width} is odd: rotary positions need pairs"
            )

    def n_heads(self, width: int) -> int:
        """The most heads of even width, none narrower than `head_width`."""
        least = min(self.head_width, width)
        fits = [
            h
            for h in range(1, width + 1)
            if width % h == 0 and width // h >= least and (width // h) % 2 == 0
        ]
        return max(fits, default=1)

    def flops(self, level: LevelShape) -> int:
        """2·(4d² + 2·r·d²) + 4·window·d; see `ExpertSpec.flops`."""
        d = level.width
        return 2 * (4 + 2 * self.ratio) * d * d + 4 * self.window * d

    def build(self, level: LevelShape, *, key: PRNGKeyArray) -> "TransformerBlock":
        """See `ExpertSpec.build`."""
        keys = jax.random.split(key, 5)
        d, hidden = level.width, self.ratio * level.width
        return TransformerBlock(
            weight_query=init_weight(keys[0], (d, d), d),
            weight_key_value=init_weight(keys[1], (d, 2 * d), d),
            weight_out=init_weight(keys[2], (d, d), d),
            weight_mlp_in=init_weight(keys[3], (d, hidden), d),
            weight_mlp_out=init_weight(keys[4], (hidden, d), hidden),
            n_heads=self.n_heads(d),
            window=self.window,
            shares=self.kv_cache == "shared",
            reads_input=level.reads_input,
        )


class Pending(NamedTuple):
    """What a step keeps until the keys and values of its level are known."""

    x: Float[Array, "t d"]
    queries: Float[Array, "t d"]


class TransformerBlock(SequenceExpert):
    """The module of `Transformer`."""

    weight_query: Float[Array, "... d d"] | None
    weight_key_value: Float[Array, "... d two_d"] | None
    weight_out: Float[Array, "... d d"]
    weight_mlp_in: Float[Array, "... d hidden"]
    weight_mlp_out: Float[Array, "... hidden d"]
    n_heads: int = eqx.field(static=True)
    window: int = eqx.field(static=True)
    shares: bool = eqx.field(static=True)
    reads_input: bool = eqx.field(static=True)

    def init_rows(self) -> tuple[Array, Array]:
        """Zero keys and values, (heads, window, d / heads) each."""
        width = self.weight_out.shape[-1] // self.n_heads
        empty = jnp.zeros((self.n_heads, self.window, width))
        return empty, empty

    def offer(self, read: Read) -> tuple[Pending, tuple[Array, Array]]:
        """Queries, and keys and values; see `SequenceExpert.offer`."""
        x = self._input(read)
        normed = rms_norm(x)
        queries, key_value = (project(normed, weight) for weight in self._weights)
        return Pending(x, queries), self._rows(key_value)

    def place(
        self, rows: tuple[Array, Array], position: Int[Array, " t"]
    ) -> tuple[Array, Array]:
        """Keys are rotated to their position."""
        return rotate(rows[0], position), rows[1]

    def attend(
        self,
        pending: Pending,
        rows: tuple[Array, Array],
        position: Int[Array, " t"],
        visible: Bool[Array, "t n"],
    ) -> Float[Array, "t d"]:
        """See `SequenceExpert.attend`."""
        queries = rotate(heads_first(pending.queries, self.n_heads), position)
        return heads_merged(attention(queries, *rows, visible))

    def propose(
        self, pending: Pending, attended: Float[Array, "t d"]
    ) -> Float[Array, "t d"]:
        """Projection and MLP; see `SequenceExpert.propose`."""
        attended = project(attended, self.weight_out)
        hidden = project(rms_norm(pending.x + attended), self.weight_mlp_in)
        return attended + project(jax.nn.gelu(hidden), self.weight_mlp_out)

    def widened(self) -> tuple["TransformerBlock", Float[Array, "d wide"]]:
        """Weights of all queries, keys and values side by side.

        All experts read the same, so the sum of their keys and values is one product
        with the sum of their weights.
        """
        queries, key_value = map(
            jnp.asarray, (self.weight_query, self.weight_key_value)
        )
        if self.shares:
            key_value = key_value.sum(axis=0, keepdims=True) * len(queries) ** -0.5
        d = queries.shape[1]
        wide = [jnp.moveaxis(w, 0, 1).reshape(d, -1) for w in (queries, key_value)]
        rest = replace(self, weight_query=None, weight_key_value=None)
        return rest, jnp.concatenate(wide, axis=1)

    def fused_offer(
        self, wide: Float[Array, "d wide"], read: Read
    ) -> tuple[Pending, tuple[Array, Array]]:
        """See `SequenceExpert.fused_offer`."""
        x = self._input(read)
        n_experts, d, _ = self.weight_out.shape
        both = project(rms_norm(x), wide)
        queries, key_value = jnp.split(both, [n_experts * d], axis=-1)
        queries = jnp.moveaxis(queries.reshape(-1, n_experts, d), 1, 0)
        if not self.shares:
            key_value = key_value.reshape(-1, n_experts, 2 * d)
            key_value = jnp.moveaxis(key_value, 1, 0)
        x = jnp.broadcast_to(x, queries.shape)
        return Pending(x, queries), self._rows(key_value)

    @property
    def _weights(self) -> tuple[Array, Array]:
        """Of queries, and of keys and values; not there once widened."""
        return jnp.asarray(self.weight_query), jnp.asarray(self.weight_key_value)

    def _input(self, read: Read) -> Float[Array, "t d"]:
        if read.state is None:
            return read.input
        return read.state + read.input if self.reads_input else read.state

    def _rows(self, key_value: Float[Array, "*e t two_d"]) -> tuple[Array, Array]:
        keys, values = jnp.split(key_value, 2, axis=-1)
        return heads_first(keys, self.n_heads), heads_first(values, self.n_heads)
