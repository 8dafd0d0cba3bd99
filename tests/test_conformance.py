"""The suites that plug-in authors use, run over everything that is installed."""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import pytest

from allocsearch import registry, testing
from allocsearch.errors import ConfigError
from allocsearch.experts import Expert, ExpertSpec

DRC = {
    "output_gate": "tanh",
    "own_state": True,
    "pool": "channel",
    "boundary": "beyond",
    "update": "replace",
    "norm": "none",
    "skip": "encoder",
    "ticks": 2,
}
OPTIONS = {
    "conv_lstm": [{}, {"kernel": 1, "forget_bias": 0.0}, DRC],
    "conv_glu": [{"kernel": 5}],
    "mlp": [{}, {"ratio": 2}],
    "transformer": [
        {"window": 3},
        {"kv_cache": "per_expert", "window": 3},
        {"reinject_embedding": False, "window": 3},
    ],
}
CASES = [
    (name, options)
    for name in registry.names("expert")
    for options in OPTIONS.get(name, [{}])
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_every_expert_conforms(name, options):
    n_steps = 10_000 if name in ("gru", "mlp") else 1_000
    testing.check_expert(name, options, n_steps=n_steps, widths=(4, 6))


@pytest.mark.parametrize("name", registry.names("aggregation"))
def test_every_aggregation_conforms(name):
    testing.check_aggregation(name)


class Broken(Expert):
    """Breaks one law, chosen by name."""

    weight: jnp.ndarray
    unused: jnp.ndarray
    law: str = eqx.field(static=True)

    def init_memory(self):
        return jnp.zeros(()) if self.law == "bounded" else ()

    def __call__(self, read, memory):
        u = read.input @ self.weight + (0 if self.law == "gradient" else self.unused)
        u = u + (0.0 if read.state is None else read.state)
        if self.law == "shape":
            return u[:-1], memory
        if self.law == "bounded":
            return u + memory, memory * 1.5 + 1.0
        return u, memory


def broken_spec(law):
    class BrokenSpec(ExpertSpec):
        grid_ndims = (0,)

        def flops(self, level):
            return 2 * level.width**2 + (law == "work")

        def build(self, level, *, key):
            del key
            d = level.width
            return Broken(jnp.eye(d), jnp.zeros(d), law)

    return BrokenSpec


def test_an_option_that_is_the_networks_is_refused():
    @dataclass(frozen=True)
    class Ticking(broken_spec("none")):
        ticks: int = 2

    registry.register("expert", "ticking", Ticking)
    try:
        with pytest.raises(ConfigError, match="'ticking' has an option 'ticks'"):
            testing.check_expert("ticking", n_steps=200, widths=(4,))
    finally:
        registry.unregister("expert", "ticking")


@pytest.mark.parametrize(
    ("law", "message"),
    [
        ("work", "`flops` says"),
        ("shape", "must be like the input"),
        ("gradient", "is zero over two steps"),
        ("bounded", "the carry reaches"),
    ],
)
def test_a_broken_expert_is_caught(law, message):
    registry.register("expert", "broken", broken_spec(law))
    try:
        with pytest.raises(testing.ConformanceError, match=message):
            testing.check_expert("broken", n_steps=200, widths=(4,))
    finally:
        registry.unregister("expert", "broken")
