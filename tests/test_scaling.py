"""The coordinate test: updates move what the head reads equally far at any shape."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from allocsearch import scaling
from allocsearch.allocation import Allocation
from allocsearch.config import TrainingConfig
from allocsearch.model import Model
from allocsearch.network import ParallelExperts


class Linear(eqx.Module):
    weight: jax.Array

    def __call__(self, x):
        return x @ self.weight


def movement(width=16, n_experts=2, depth=2, n_updates=4, optimizer="adamw"):
    """rms change of the head's input after a few updates on random data."""
    keys = jax.random.split(jax.random.key(0), 5)
    allocation = Allocation("mlp", True, depth, n_experts, width)
    build = eqx.filter_jit(lambda: ParallelExperts(allocation, (), key=keys[0]))
    model = Model(
        Linear(jax.random.normal(keys[1], (6, width)) * 6**-0.5),
        build(),
        Linear(jax.random.normal(keys[2], (width, 3)) * width**-0.5),
    )
    x, y = (
        jax.random.normal(k, (16, 8, n)) for k, n in zip(keys[3:], (6, 3), strict=True)
    )
    reset = jnp.zeros((16, 8), bool)

    @eqx.filter_jit
    def features(model):
        def one(x, reset):
            z = jax.vmap(model.encoder)(x)
            return model.core.unroll(model.init_carry(), z, reset)[1]

        return jax.vmap(one)(x, reset)

    def loss(model):
        return jnp.mean((jax.vmap(jax.vmap(model.head))(features(model)) - y) ** 2)

    training = TrainingConfig(
        learning_rate=1e-4, warmup=0, cooldown=0, optimizer=optimizer
    )
    optimizer = scaling.Optimizer(training)
    state = optimizer.init(model, 1000)
    before = features(model)

    @eqx.filter_jit
    def update(model, state):
        return optimizer.update(eqx.filter_grad(loss)(model), state, model)

    for _ in range(n_updates):
        model, state = update(model, state)
    return float(jnp.sqrt(jnp.mean((features(model) - before) ** 2)))


def spread(values):
    return max(values) / min(values)


def moved(axis, values):
    return [movement(**{axis: value}) for value in values]


@pytest.mark.parametrize(
    ("axis", "values"),
    [("width", (16, 64, 256)), ("n_experts", (4, 16)), ("depth", (1, 4, 16))],
)
def test_updates_move_features_equally_far(axis, values, monkeypatch):
    with_rule = spread(moved(axis, values))
    monkeypatch.setattr(
        scaling,
        "learning_rate_multipliers",
        lambda model: jax.tree.map(lambda _: 1.0, eqx.filter(model, eqx.is_array)),
    )
    without = spread(moved(axis, values))
    assert with_rule < 2.5
    assert without > 1.5 * with_rule


@pytest.mark.parametrize(
    ("axis", "values"),
    [
        ("width", (16, 128)),
        pytest.param("n_experts", (4, 16), marks=pytest.mark.long),
        pytest.param("depth", (1, 8), marks=pytest.mark.long),
    ],
)
def test_updates_of_muon_move_features_equally_far(axis, values):
    distances = [movement(**{axis: value}, optimizer="muon") for value in values]
    assert spread(distances) < 2.5, distances


def test_schedule_rises_stays_and_falls():
    optimizer = scaling.Optimizer(TrainingConfig(warmup=10, cooldown=0.25))
    horizon = jnp.asarray(100)
    rates = [float(optimizer.schedule(jnp.asarray(n), horizon)) for n in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9:76] == [1.0] * 67
    assert rates[99] == pytest.approx(1 / 25)
    assert all(a >= b for a, b in itertools.pairwise(rates[75:]))
