"""Evaluation against episodes played one at a time in Python."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch.allocation import Allocation
from allocsearch.config import parse
from allocsearch.tasks.protocol import build_model
from allocsearch.tasks.sokoban import Sokoban
from allocsearch.tasks.sokoban.config import SokobanConfig
from allocsearch.tasks.sokoban.environment import Environment, Levels
from allocsearch.tasks.sokoban.evaluation import play_greedily, play_randomly
from allocsearch.tasks.sokoban.levels import parse_levels

LIMIT = 15


@pytest.fixture(scope="module")
def task() -> Sokoban:
    config = {
        "levels": {
            "interior": [5, 5],
            "n_boxes": 1,
            "n_train": 20,
            "n_valid": 12,
            "n_test": 5,
        },
        "environment": {"keep_border": False, "evaluation_step_limit": LIMIT},
    }
    return Sokoban(parse(SokobanConfig, config))


@pytest.fixture(scope="module")
def model(task):
    allocation = Allocation("conv_lstm", True, 1, 1, 4)
    model = build_model(task, allocation, key=jax.random.key(5))
    # Weights of the readout drawn small would make every board's action the same.
    return eqx.tree_at(lambda m: m.head.readout.out, model, 30 * model.head.readout.out)


def one_by_one(model, environment: Environment, levels: Levels):
    """Returns, lengths and solved of each level, in plain loops."""
    step = eqx.filter_jit(lambda c, o: model.step(c, o, False))
    for index in range(len(levels)):
        state = environment.reset(levels, index, key=jax.random.key(0))
        carry, total = model.init_carry(), 0.0
        for _ in range(LIMIT):
            carry, outputs = step(carry, environment.observe(state))
            state, transition = environment.step(state, jnp.argmax(outputs.logits))
            total += float(transition.reward)
            if transition.done:
                break
        yield total, int(state.n_steps), bool(transition.solved)


def test_greedy_play_is_play_one_by_one(task, model):
    environment = Environment(task.positions, LIMIT)
    levels = task.levels("valid")
    episodes = play_greedily(model, environment, levels)
    expected = list(one_by_one(model, environment, levels))
    np.testing.assert_allclose(episodes.returns, [e[0] for e in expected], rtol=1e-4)
    np.testing.assert_array_equal(episodes.lengths, [e[1] for e in expected])
    np.testing.assert_array_equal(episodes.solved, [e[2] for e in expected])
    metrics = task.score(model, "valid")
    assert metrics["return"] == pytest.approx(np.mean([e[0] for e in expected]), 1e-4)
    solved, lengths = (np.mean([e[i] for e in expected]) for i in (2, 1))
    assert metrics["solved_fraction"] == pytest.approx(solved, 1e-4)
    assert metrics["episode_length"] == pytest.approx(lengths, 1e-4)


def test_rewards_after_the_end_do_not_count():
    levels = parse_levels("#####\n#@$.#\n#####\n", origin="test")
    device = Levels.from_level_set(levels)
    episodes = play_randomly(Environment(levels.shape, 200), device)
    # Only pushing right solves it; walking left and right costs a tenth a step.
    assert bool(episodes.solved[0])
    n_steps = int(episodes.lengths[0])
    np.testing.assert_allclose(episodes.returns[0], 11.0 - 0.1 * n_steps, rtol=1e-4)


def test_random_play_is_the_baseline(task):
    first = task.baseline("valid")
    assert first == task.baseline("valid")
    assert 0 <= first["solved_fraction"] < 0.5
    assert first["episode_length"] <= LIMIT
    episodes = play_randomly(Environment(task.positions, LIMIT), task.levels("valid"))
    assert first["return"] == pytest.approx(float(episodes.returns.mean()))
    other = play_randomly(
        Environment(task.positions, LIMIT), task.levels("valid"), seed=1
    )
    assert not np.array_equal(other.returns, episodes.returns)


def test_one_compilation_serves_every_network_of_a_shape(task, model):
    environment = Environment(task.positions, LIMIT)
    levels = task.levels("valid")
    first = play_greedily(model, environment, levels)
    other = jax.tree.map(lambda x: -x if eqx.is_inexact_array(x) else x, model)
    again = play_greedily(other, Environment(task.positions, LIMIT), levels)
    assert not np.array_equal(first.returns, again.returns)
