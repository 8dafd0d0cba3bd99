"""Evaluation against episodes played one at a time in Python."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch.allocation import Allocation
from allocsearch.errors import ConfigError
from allocsearch.parsing import parse
from allocsearch.tasks.protocol import build_model
from allocsearch.tasks.sokoban import Sokoban
from allocsearch.tasks.sokoban.config import EvaluationConfig, SokobanConfig
from allocsearch.tasks.sokoban.environment import Environment, Levels
from allocsearch.tasks.sokoban.evaluation import Episodes, play, play_randomly
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


def built(task: Sokoban, key: int, scale: float, recurrent: bool = True):
    allocation = Allocation("conv_lstm", recurrent, 1, 1, 4)
    model = eqx.filter_jit(build_model)(task, allocation, key=jax.random.key(key))
    # Weights of the readout drawn small would make every board's action the same.
    out = scale * model.head.readout.out
    return eqx.tree_at(lambda m: m.head.readout.out, model, out)


@pytest.fixture(scope="module")
def model(task):
    return built(task, key=5, scale=30)


@pytest.fixture(scope="module")
def remembering(task):
    """A network whose actions depend on its carry."""
    return built(task, key=9, scale=30)


@pytest.fixture(scope="module")
def undecided(task):
    """A network with several likely actions."""
    return built(task, key=5, scale=3)


def one_by_one(
    model, environment: Environment, levels: Levels, n_thoughts=0, resets=False
):
    """Returns, lengths and solved of each level, in plain loops."""
    step = eqx.filter_jit(lambda c, s: model.step(c, environment.observe(s), False))
    move = eqx.filter_jit(environment.step)
    for index in range(len(levels)):
        state = environment.reset(levels, index, key=jax.random.key(0))
        carry, total = model.init_carry(), 0.0
        for _ in range(n_thoughts):
            carry, _ = step(carry, state)
        for _ in range(LIMIT):
            carry = model.init_carry() if resets else carry
            carry, outputs = step(carry, state)
            state, transition = move(state, jnp.argmax(outputs.logits))
            total += float(transition.reward)
            if transition.done:
                break
        yield total, int(state.n_steps), bool(transition.solved)


def test_greedy_play_is_play_one_by_one(task, model):
    environment = Environment(task.positions, LIMIT)
    levels = task.levels("valid")
    episodes = play(model, environment, levels)
    expected = list(one_by_one(model, environment, levels))
    np.testing.assert_allclose(episodes.returns, [e[0] for e in expected], rtol=1e-4)
    np.testing.assert_array_equal(episodes.lengths, [e[1] for e in expected])
    np.testing.assert_array_equal(episodes.solved, [e[2] for e in expected])
    metrics = task.score(model, "valid")
    assert metrics["return"] == pytest.approx(np.mean([e[0] for e in expected]), 1e-4)
    solved, lengths = (np.mean([e[i] for e in expected]) for i in (2, 1))
    assert metrics["solved_fraction"] == pytest.approx(solved, 1e-4)
    assert metrics["episode_length"] == pytest.approx(lengths, 1e-4)


def same(a: Episodes, b: Episodes) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


@pytest.mark.parametrize(("n_thoughts", "state"), [(3, "carried"), (0, "reset")])
def test_thinking_and_a_reset_state_are_those_of_plain_loops(
    task, remembering, n_thoughts, state
):
    environment = Environment(task.positions, LIMIT)
    levels = task.levels("valid")
    config = EvaluationConfig(thinking_steps=n_thoughts, state=state)
    episodes = play(remembering, environment, levels, config)
    resets = state == "reset"
    expected = list(one_by_one(remembering, environment, levels, n_thoughts, resets))
    np.testing.assert_allclose(episodes.returns, [e[0] for e in expected], rtol=1e-4)
    np.testing.assert_array_equal(episodes.lengths, [e[1] for e in expected])
    np.testing.assert_array_equal(episodes.solved, [e[2] for e in expected])
    assert not same(episodes, play(remembering, environment, levels))


def test_a_network_without_carry_neither_thinks_nor_forgets(task):
    model = built(task, key=5, scale=30, recurrent=False)
    environment = Environment(task.positions, LIMIT)
    levels = task.levels("test")
    plain = play(model, environment, levels)
    for config in (EvaluationConfig(thinking_steps=2), EvaluationConfig(state="reset")):
        assert same(plain, play(model, environment, levels, config))


def test_actions_are_sampled_with_the_policy_s_probabilities(undecided):
    # In one step, only pushing right solves it.
    text = "#######\n#     #\n# @$. #\n#     #\n#     #\n#     #\n#######\n"
    levels = parse_levels(text, origin="test").interior().subset([0] * 4000)
    environment = Environment(levels.shape, 1)
    device = Levels.from_level_set(levels)
    board = environment.observe(environment.reset(device, 0, key=jax.random.key(0)))
    _, outputs = eqx.filter_jit(undecided.step)(undecided.init_carry(), board, False)
    chance = float(jax.nn.softmax(outputs.logits)[3])
    assert 0.01 < chance < 0.99
    episodes = play(undecided, environment, device, EvaluationConfig(policy="sampled"))
    deviation = (chance * (1 - chance) / len(levels)) ** 0.5
    assert abs(float(episodes.solved.mean()) - chance) < 4 * deviation


def test_samples_depend_on_seed_and_level_alone(task, undecided):
    environment = Environment(task.positions, LIMIT)
    levels = task.levels("valid")
    config = EvaluationConfig(policy="sampled")
    first = play(undecided, environment, levels, config)
    assert same(first, play(undecided, environment, levels, config))
    other = EvaluationConfig(policy="sampled", seed=1)
    assert not same(first, play(undecided, environment, levels, other))
    few = Levels(
        levels.boards[:4], levels.players[:4], levels.n_unplaced[:4], levels.shape
    )
    alone = play(undecided, environment, few, config)
    np.testing.assert_array_equal(alone.lengths, first.lengths[:4])
    np.testing.assert_allclose(alone.returns, first.returns[:4], rtol=1e-4)


def test_thinking_with_a_state_that_is_dropped_is_refused():
    with pytest.raises(ConfigError, match=r"thinking_steps to 0 or state to carried"):
        parse(SokobanConfig, {"evaluation": {"thinking_steps": 1, "state": "reset"}})


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
    first = play(model, environment, levels)
    other = jax.tree.map(lambda x: -x if eqx.is_inexact_array(x) else x, model)
    again = play(other, Environment(task.positions, LIMIT), levels)
    assert not np.array_equal(first.returns, again.returns)
