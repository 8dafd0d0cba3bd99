"""Episodes of a network against episodes played step by step in Python."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from allocsearch.allocation import Allocation
from allocsearch.errors import ConfigError, DataError
from allocsearch.parsing import parse
from allocsearch.tasks import pictures
from allocsearch.tasks.protocol import build_model
from allocsearch.tasks.sokoban import Sokoban
from allocsearch.tasks.sokoban.config import EvaluationConfig, SokobanConfig
from allocsearch.tasks.sokoban.environment import ACTIONS
from allocsearch.tasks.sokoban.evaluation import play
from allocsearch.tasks.sokoban.playback import play_level
from allocsearch.tasks.trained import Run

LIMIT = 12


@pytest.fixture(scope="module")
def task() -> Sokoban:
    config = {
        "levels": {
            "interior": [4, 4],
            "n_boxes": 1,
            "n_train": 20,
            "n_valid": 30,
            "n_test": 5,
        },
        "environment": {"keep_border": False, "evaluation_step_limit": LIMIT},
    }
    return Sokoban(parse(SokobanConfig, config))


@pytest.fixture(scope="module")
def model(task):
    allocation = Allocation("conv_lstm", True, 1, 1, 4)
    model = build_model(task, allocation, key=jax.random.key(16))
    # Weights of the readout drawn small would make every board's action the same.
    return eqx.tree_at(lambda m: m.head.readout.out, model, 30 * model.head.readout.out)


@pytest.fixture(scope="module")
def rules(task):
    return task._evaluation


@pytest.fixture(scope="module")
def scores(task, model, rules):
    """What evaluation says of every level."""
    return jax.device_get(play(model, rules, task.levels("valid")))


@pytest.fixture(scope="module")
def solved_and_not(scores):
    """A level that the network solves, and one that it does not."""
    assert 0 < scores.solved.sum() < len(scores.solved)
    return int(np.argmax(scores.solved)), int(np.argmin(scores.solved))


def test_an_episode_is_one_played_step_by_step(
    task, model, rules, scores, solved_and_not, reference
):
    step = eqx.filter_jit(lambda c, o: model.step(c, o, False))
    levels = task.levels("valid")
    for index in solved_and_not:
        shown = task.show_item(index, label="", state=_state(model))
        episode = play_level(model, rules, levels, index)
        assert episode.solved == scores.solved[index]
        assert len(episode) == scores.lengths[index]
        assert episode.rewards.sum() == pytest.approx(scores.returns[index], 1e-4)
        assert len(episode.boards) == len(episode) + 1
        # The board by rules written apart, the policy by the network a step at a time.
        board = reference(task._splits["valid"].text(index).split("\n"))
        state = rules.reset(levels, index, key=jax.random.key(0))
        carry = model.init_carry()
        for t in range(len(episode)):
            carry, outputs = step(carry, rules.observe(state))
            np.testing.assert_allclose(
                episode.probabilities[t], jax.nn.softmax(outputs.logits), atol=1e-4
            )
            assert episode.values[t] == pytest.approx(float(outputs.value), abs=1e-3)
            action = int(jnp.argmax(outputs.logits))
            assert episode.actions[t] == action
            state, _ = rules.step(state, action)
            reward, _, _ = board.act(ACTIONS[action])
            assert episode.rewards[t] == pytest.approx(reward)
            rows = ["#" + row + "#" for row in board.rows()]
            assert shown.details["boards"][t + 1][1:-1] == rows
        assert board.solved == episode.solved


def _state(model):
    return None, (Run(model, None, None),)


def test_sampled_play_is_that_of_evaluation(task, model, rules):
    """Level by level, though here alone and there among others."""
    sampled = EvaluationConfig(policy="sampled", seed=5)
    levels = task.levels("valid")
    scores = jax.device_get(play(model, rules, levels, sampled))
    greedy = jax.device_get(play(model, rules, levels))
    assert np.any(scores.lengths != greedy.lengths)
    for index in range(8):
        episode = play_level(model, rules, levels, index, sampled)
        assert (len(episode), episode.solved) == (
            scores.lengths[index],
            scores.solved[index],
        )
        assert episode.rewards.sum() == pytest.approx(scores.returns[index], 1e-4)


def test_what_is_drawn_is_captioned_with_its_probability(task, model):
    sampled = replace_config(task, {"policy": "sampled", "seed": 3})
    shown = sampled.show_item(0, label="", state=_state(model))
    likeliest = 0
    for step, text in zip(shown.details["steps"], shown.texts, strict=False):
        p = step["probabilities"][step["action"]]
        assert text.plain.endswith(f"next: {step['action']} {p:.0%}")
        likeliest += p == max(step["probabilities"].values())
    assert likeliest < len(shown.details["steps"])


def replace_config(task: Sokoban, evaluation: dict) -> Sokoban:
    """The same task, played otherwise."""
    section = EvaluationConfig(**evaluation)
    return Sokoban(task.config.model_copy(update={"evaluation": section}))


def test_thinking_steps_come_first_and_move_only_the_carry(task, model, rules):
    thinking = replace_config(task, {"thinking_steps": 3})
    levels = task.levels("valid")
    scores = jax.device_get(play(model, rules, levels, thinking.config.evaluation))
    step = eqx.filter_jit(lambda c, o: model.step(c, o, False))
    board = rules.observe(rules.reset(levels, 2, key=jax.random.key(0)))
    carry = model.init_carry()
    episode = play_level(model, rules, levels, 2, thinking.config.evaluation)
    assert len(episode) == scores.lengths[2]
    seen = np.concatenate([episode.thoughts[0], episode.probabilities[:1]])
    values = np.concatenate([episode.thoughts[1], episode.values[:1]])
    for k in range(4):
        carry, outputs = step(carry, board)
        np.testing.assert_allclose(seen[k], jax.nn.softmax(outputs.logits), atol=1e-4)
        assert values[k] == pytest.approx(float(outputs.value), abs=1e-3)
    shown = thinking.show_item(2, label="", state=_state(model))
    assert len(shown.frames) == len(shown.texts) == 3 + len(episode) + 1
    assert len(shown.details["boards"]) == len(episode) + 1
    assert len(shown.details["thoughts"]) == 3
    assert "thinking 2" in shown.texts[2].plain
    assert "step 0" in shown.texts[3].plain
    first = shown.item
    assert all(first in text.plain for text in shown.texts[:4])


def test_a_carry_that_is_reset_changes_play_as_in_evaluation(task, model, rules):
    resets = EvaluationConfig(state="reset")
    levels = task.levels("valid")
    scores = jax.device_get(play(model, rules, levels, resets))
    kept = jax.device_get(play(model, rules, levels))
    index = int(np.argmax(scores.lengths != kept.lengths))
    assert scores.lengths[index] != kept.lengths[index]
    assert len(play_level(model, rules, levels, index, resets)) == scores.lengths[index]


def test_to_show_a_level_only_its_split_is_made(task):
    for split in ("valid", "test"):
        fresh = Sokoban(task.config)
        fresh.show_item(3, label="", split=split)
        assert set(fresh._splits._made) == {split}


def test_a_film_has_a_picture_for_every_board(
    task, model, scores, solved_and_not, tmp_path
):
    solved, unsolved = solved_and_not
    for index in (solved, unsolved):
        shown = task.show_item(index, label="a network", state=_state(model))
        n_boards = int(scores.lengths[index]) + 1
        assert len(shown.frames) == len(shown.texts) == n_boards
        assert len(shown.details["steps"]) == n_boards - 1
        pictures.save(tmp_path / "film.gif", shown.frames)
        with Image.open(tmp_path / "film.gif") as image:
            assert image.n_frames == n_boards
            height, width = shown.frames[0].shape[:2]
            assert image.size == (width, height)
        # Six squares of 24 pixels, the border drawn though the network lacks it.
        assert height > 6 * 24
    assert shown.texts[-1].plain.endswith("not solved in time")
    shown = task.show_item(solved, label="", state=_state(model))
    assert shown.texts[-1].plain.endswith("\nsolved")


def test_values_are_in_units_of_reward(task, model, rules, solved_and_not):
    index = solved_and_not[0]
    episode = play_level(model, rules, task.levels("valid"), index)
    shown = task.show_item(index, label="", state=_state(model))
    scale = task.config.loss.reward_scale
    values = [step["value"] for step in shown.details["steps"]]
    np.testing.assert_allclose(values, episode.values / scale, rtol=1e-5)
    assert f"value {values[0]:.2f}" in shown.texts[0].plain


def test_a_level_alone(task):
    shown = task.show_item(3, label="level 3", split="test")
    assert len(shown.frames) == len(shown.texts) == 1
    inside = task._splits["test"].text(3).split("\n")
    assert [row[1:-1] for row in shown.item.split("\n")[1:-1]] == inside
    assert shown.item in shown.texts[0].plain
    again = task.show_item(3, label="", split="test").item
    assert again == shown.item != task.show_item(4, label="", split="test").item


def test_what_is_not_there(task):
    for index in (5, -1):
        with pytest.raises(ConfigError, match=r"in split 'test', only 0 to 4"):
            task.show_item(index, label="", split="test")
    with pytest.raises(DataError, match="no 'hard' split"):
        task.show_item(0, label="", split="hard")
