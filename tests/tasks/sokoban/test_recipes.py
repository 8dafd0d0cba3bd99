"""Recipes: what they set, what is above them, and that a search says so."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch.allocation import Allocation
from allocsearch.config import TrainingConfig, load_config
from allocsearch.errors import UnknownNameError
from allocsearch.parsing import parse
from allocsearch.scaling import Optimizer
from allocsearch.tasks.protocol import build_model
from allocsearch.tasks.resolve import resolve
from allocsearch.tasks.sokoban import Sokoban
from allocsearch.tasks.sokoban.config import SokobanConfig


def setting(*fields: str):
    config = load_config(None, ["task=sokoban", "budgets=small", *fields])
    return resolve(config, "small")


def test_far_sets_task_and_training():
    far, plain = setting("recipe=far"), setting()
    assert far.task_config["loss"]["kind"] == "vtrace"
    assert far.task_config["n_envs"] * far.task_config["unroll"] == 5120
    assert far.training.max_grad_norm == 2.5e-4
    np.testing.assert_allclose(far.training.eps, 1.5625e-7)
    # The budget's own values stand where the recipe has none.
    assert far.training.horizon == plain.training.horizon
    assert far.budget == plain.budget


def test_what_is_given_is_above_the_recipe():
    far = setting("recipe=far", "training.b2=0.95", "task.loss.entropy=0.5")
    assert far.training.b2 == 0.95
    assert far.task_config["loss"]["entropy"] == 0.5
    assert far.task_config["loss"]["value"] == 0.25


def test_only_the_recipe_warns():
    (warning,) = setting("recipe=far").warnings
    assert "not matched across sizes" in warning
    assert setting().warnings == ()


def test_an_unknown_recipe_is_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'far'"):
        setting("recipe=fra")


def test_far_lowers_its_rate_in_a_line_to_a_hundredth():
    optimizer = Optimizer(setting("recipe=far").training)
    updates = np.array([0, 250, 500, 999, 1000])
    expected = 4e-4 + (4e-6 - 4e-4) * updates / 1000
    horizon = jnp.asarray(1000)
    rates = [4e-4 * optimizer.schedule(jnp.asarray(n), horizon) for n in updates]
    np.testing.assert_allclose(rates, expected, rtol=1e-5)


def test_an_unscaled_rate_moves_every_parameter_by_it():
    """Adam's first step is the learning rate itself, whatever the gradient's size."""
    training = TrainingConfig(
        learning_rate=1e-3, scale_learning_rate=False, warmup=0, cooldown=0, eps=1e-12
    )
    task = Sokoban(parse(SokobanConfig, {"levels": {"interior": [5, 5]}}))
    allocation = Allocation("conv_lstm", True, 2, 2, 4)
    model = build_model(task, allocation, key=jax.random.key(0))
    optimizer = Optimizer(training)
    gradients = jax.tree.map(jnp.ones_like, eqx.filter(model, eqx.is_array))
    moved, _ = optimizer.update(gradients, optimizer.init(model, 10), model)
    old, new = (jax.tree.leaves(eqx.filter(m, eqx.is_array)) for m in (model, moved))
    for before, after in zip(old, new, strict=True):
        np.testing.assert_allclose(before - after, 1e-3, rtol=1e-3)
