"""Returns while training, against episodes put together by hand."""

import equinox as eqx
import numpy as np
import pytest

from allocsearch.allocation import Allocation
from allocsearch.config import TrainingConfig
from allocsearch.parsing import parse
from allocsearch.tasks.sokoban import Sokoban
from allocsearch.tasks.sokoban.config import SokobanConfig
from allocsearch.tasks.sokoban.rollout import unroll

ALLOCATION = Allocation("conv_lstm", True, 1, 1, 4)
TRAINING = TrainingConfig(horizon=4000, learning_rate=1e-3)
FIELDS = {
    "levels": {
        "interior": [4, 4],
        "n_boxes": 1,
        "n_train": 40,
        "n_valid": 8,
        "n_test": 8,
    },
    "environment": {"keep_border": False, "step_limit": [3, 6]},
    "n_envs": 6,
    "unroll": 40,
    "n_minibatches": 2,
    "unrolls_per_chunk": 1,
}


@pytest.fixture(scope="module")
def task() -> Sokoban:
    return Sokoban(parse(SokobanConfig, FIELDS))


def test_return_per_episode(task):
    state = task.init(ALLOCATION, TRAINING, (0,))
    before = state[1][0]
    _, (metrics,) = task.train(state, 1)
    act = eqx.filter_jit(
        lambda run: unroll(
            task.environment, task.levels("train"), run.model, run.stream, 40
        )
    )
    after, seen = act(before)
    rewards, solved = np.asarray(seen.rewards), np.asarray(seen.terminated)
    begins = np.concatenate([seen.begins, after.begins[None]])
    n_episodes, n_solved, total = 0, 0, 0.0
    for env in range(6):
        for t in range(40):
            total += rewards[t, env]
            n_episodes += begins[t + 1, env]  # the next step begins another
            n_solved += solved[t, env]
    scores = task.training_scores(metrics)
    assert n_episodes > 20
    assert scores["return"] == pytest.approx(total / n_episodes, rel=1e-4)
    assert scores["solved_fraction"] == pytest.approx(n_solved / n_episodes, rel=1e-4)


def test_without_an_ended_episode_there_is_no_return(task):
    means = {"reward": -0.1, "solves_per_step": 0.0, "episodes_per_step": 0.0}
    assert "return" not in task.training_scores(means)


def test_steps_that_cost_a_tenth_for_sixty_steps_return_minus_six(task):
    means = {"reward": -0.1, "solves_per_step": 0.0, "episodes_per_step": 1 / 60}
    scores = task.training_scores(means)
    assert scores["return"] == pytest.approx(-6.0)
    assert scores["solved_fraction"] == 0.0


def test_the_objectives_are_measured_in_training_too(task):
    means = {"reward": 0.1, "solves_per_step": 0.1, "episodes_per_step": 0.2}
    names = {objective.name for objective in task.objectives}
    assert names <= set(task.training_scores(means))
