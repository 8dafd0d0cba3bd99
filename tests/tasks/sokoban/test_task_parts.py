"""Encoder, heads, levels and fields of the task, without training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch.allocation import Allocation
from allocsearch.errors import ConfigError, DataError
from allocsearch.parsing import parse
from allocsearch.tasks.protocol import build_model
from allocsearch.tasks.sokoban import Sokoban
from allocsearch.tasks.sokoban.config import SokobanConfig


@pytest.fixture(scope="module")
def task(small) -> Sokoban:
    return Sokoban(parse(SokobanConfig, small))


@pytest.mark.parametrize("head", ["pool", "flatten"])
def test_heads_start_nearly_uniform(small, head):
    config = {**small, "network": {"head": head, "head_hidden": 8}}
    task = Sokoban(parse(SokobanConfig, config))
    model = build_model(
        task, Allocation("conv_lstm", True, 1, 2, 4), key=jax.random.key(0)
    )
    features = jax.random.normal(jax.random.key(1), (*task.positions, 4))
    outputs = model.head(features)
    assert outputs.logits.shape == (4,)
    assert outputs.value.shape == ()
    assert np.ptp(np.asarray(outputs.logits)) < 1.0


def test_off_the_board_looks_like_wall(small, task):
    encoder = task.encoder(4, key=jax.random.key(0))
    bordered = Sokoban(
        parse(SokobanConfig, {**small, "environment": {"keep_border": True}})
    )
    inner, outer = task.environment, bordered.environment
    state = inner.reset(task.levels("valid"), 3, key=jax.random.key(0))
    state_bordered = outer.reset(bordered.levels("valid"), 3, key=jax.random.key(0))
    seen = encoder(inner.observe(state))
    seen_bordered = encoder(outer.observe(state_bordered))
    np.testing.assert_allclose(seen, seen_bordered[1:-1, 1:-1], rtol=1e-4, atol=1e-5)


def test_the_encoder_has_unit_scale(task):
    encoder = task.encoder(64, key=jax.random.key(0))
    state = task.environment.reset(task.levels("valid"), 0, key=jax.random.key(0))
    z = encoder(task.environment.observe(state))
    assert 0.5 < float(jnp.sqrt(jnp.mean(z**2))) < 2.0


def test_manifest_names_every_split(task):
    manifest = task.manifest()
    assert list(manifest) == ["train", "valid", "test"]
    assert [entry["n_levels"] for entry in manifest.values()] == [40, 8, 8]
    assert len({entry["sha256"] for entry in manifest.values()}) == 3


@pytest.mark.real_data
def test_boxoban_directories(boxoban):
    config = {
        "data": str(boxoban / "unfiltered"),
        "levels": {"n_train": 1500, "n_valid": 20, "n_test": 30},
        "environment": {"keep_border": False},
    }
    task = Sokoban(parse(SokobanConfig, config))
    assert task.positions == (8, 8)
    manifest = task.manifest()
    assert [entry["n_levels"] for entry in manifest.values()] == [1500, 20, 30]
    assert manifest["valid"]["n_boxes"] == [4]
    assert "valid" in manifest["valid"]["source"]
    bordered = {**config, "environment": {}}
    assert Sokoban(parse(SokobanConfig, bordered)).positions == (10, 10)


@pytest.mark.real_data
def test_a_missing_test_split_is_an_error_only_when_asked_for(boxoban):
    config = {"data": str(boxoban / "medium"), "levels": {"n_train": 10, "n_valid": 10}}
    task = Sokoban(parse(SokobanConfig, config))
    assert list(task.manifest()) == ["train", "valid"]
    with pytest.raises(DataError, match="no 'test' split"):
        task.baseline("test")


def test_a_missing_directory_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match="no such file or directory"):
        Sokoban(parse(SokobanConfig, {"data": str(tmp_path / "nowhere")}))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_envs": 10, "n_minibatches": 3}, "multiple of n_minibatches"),
        ({"environment": {"step_limit": [60, 30]}}, "step_limit"),
        ({"network": {"encoder_kernel": 0}}, "encoder_kernel"),
        ({"levels": {"n_boxs": 1}}, "did you mean 'n_boxes'"),
    ],
)
def test_wrong_fields_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        Sokoban(parse(SokobanConfig, wrong))


def test_named_budgets_configure_the_task():
    for name, budget in Sokoban.budgets.items():
        config = parse(SokobanConfig, budget.task)
        assert budget.training["horizon"] > 0, name
        side = 5 if name == "tiny" else 10
        border = 2 * config.environment.keep_border
        assert config.levels.interior[0] + border == side
