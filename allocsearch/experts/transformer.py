"""A pre-norm transformer block over a sliding window of the stream."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from allocsearch.allocation import Allocation
from allocsearch.errors import ConfigError
from allocsearch.experts.layers import init_weight, project, rms_norm
from allocsearch.experts.protocol import (
    ContextExpert,
    ExpertSpec,
    LevelShape,
    Read,
    check_positive,
)


@dataclass(frozen=True)
class Transformer(ExpertSpec):
    """x = Norm(s) + z;  a = Attention(Norm(x));  u = a + MLP(Norm(x + a)).

    Keys and values of the last `window` steps are the context. Recurrent, the carried
    state feeds back into them; non-recurrent, this is a sliding-window decoder.

    Attributes:
        window: steps that attention looks back on, this one included.
        ratio: hidden units of the MLP per channel of width.
        head_width: least channels per attention head, where the width allows it.
        kv_cache: "shared" aggregates the proposals of a level's experts into one
            cache; "per_expert" keeps one for each.
    """

    window: int = 64
    ratio: int = 4
    head_width: int = 64
    kv_cache: str = "shared"

    grid_ndims: ClassVar = (0,)

    def __post_init__(self) -> None:
        check_positive(window=self.window, ratio=self.ratio, head_width=self.head_width)
        if self.kv_cache not in ("shared", "per_expert"):
            raise ConfigError(
                f"option 'kv_cache' is {self.kv_cache!r}: use shared or per_expert"
            )

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
        )


class Cache(NamedTuple):
    """A ring of the last keys and values, and how many were ever written."""

    keys: Float[Array, "window d"]
    values: Float[Array, "window d"]
    n_written: Int[Array, ""]


class TransformerBlock(ContextExpert):
    """The module of `Transformer`."""

    weight_query: Float[Array, "... d d"]
    weight_key_value: Float[Array, "... d two_d"]
    weight_out: Float[Array, "... d d"]
    weight_mlp_in: Float[Array, "... d hidden"]
    weight_mlp_out: Float[Array, "... hidden d"]
    n_heads: int = eqx.field(static=True)
    window: int = eqx.field(static=True)
    shares: bool = eqx.field(static=True)

    def init_memory(self) -> tuple[()]:
        """Nothing."""
        return ()

    def init_context(self) -> Cache:
        """An empty ring."""
        d = self.weight_query.shape[-1]
        empty = jnp.zeros((self.window, d))
        return Cache(empty, empty, jnp.zeros((), jnp.int32))

    def propose(self, read: Read, memory: tuple[()]) -> tuple[Array, Array]:
        """A key and a value, (d,) each, the key not yet rotated."""
        del memory
        both = project(rms_norm(_input(read)), self.weight_key_value)
        key, value = jnp.split(both, 2)
        return key, value

    def write(self, context: Cache, proposal: tuple[Array, Array]) -> Cache:
        """The ring with the oldest entry replaced; keys are rotated to their step."""
        slot = context.n_written % self.window
        key = rotate(proposal[0], context.n_written, self.n_heads)
        key = key.astype(context.keys.dtype)
        return Cache(
            context.keys.at[slot].set(key),
            context.values.at[slot].set(proposal[1]),
            context.n_written + 1,
        )

    def __call__(
        self, read: Read, memory: tuple[()], context: Cache
    ) -> tuple[Array, tuple[()]]:
        """See `ContextExpert.__call__`."""
        x = _input(read)
        attended = project(self._attend(rms_norm(x), context), self.weight_out)
        hidden = project(rms_norm(x + attended), self.weight_mlp_in)
        return attended + project(jax.nn.gelu(hidden), self.weight_mlp_out), memory

    def _attend(self, x: Float[Array, " d"], context: Cache) -> Float[Array, " d"]:
        query = rotate(
            project(x, self.weight_query), context.n_written - 1, self.n_heads
        )
        heads = query.reshape(self.n_heads, -1)
        keys = context.keys.reshape(self.window, self.n_heads, -1)
        values = context.values.reshape(self.window, self.n_heads, -1)
        scores = jnp.einsum("hc,whc->hw", heads, keys) * heads.shape[-1] ** -0.5
        filled = jnp.arange(self.window) < context.n_written
        weights = jax.nn.softmax(jnp.where(filled, scores, -jnp.inf), axis=-1)
        return jnp.einsum("hw,whc->hc", weights, values).reshape(-1)


def _input(read: Read) -> Float[Array, " d"]:
    return read.input if read.state is None else read.state + read.input


def rotate(
    x: Float[Array, " d"], position: Int[Array, ""], n_heads: int
) -> Float[Array, " d"]:
    """Rotary positions (Su et al., 2021), exact at any distance from the start.

    Angles are whole numbers of 2⁻³² turns, multiplied by the position in wrapping
    integers, so they lose no precision on streams of billions of steps.
    """
    pairs = x.shape[0] // n_heads // 2
    radians = 10_000.0 ** -(np.arange(pairs) / pairs)
    turns = jnp.asarray(np.round(radians / (2 * np.pi) * 2**32).astype(np.uint32))
    phase = (position.astype(jnp.uint32) * turns).astype(jnp.float32)
    angle = phase * np.float32(2 * np.pi / 2**32)
    a, b = jnp.split(x.reshape(n_heads, 2 * pairs), 2, axis=-1)
    cos, sin = jnp.cos(angle)[None], jnp.sin(angle)[None]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1).reshape(-1)
