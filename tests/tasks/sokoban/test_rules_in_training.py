"""Every set of actions and observation, through encoder, head, training and scores."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch.allocation import Allocation
from allocsearch.config import TrainingConfig
from allocsearch.parsing import parse
from allocsearch.tasks.protocol import build_model
from allocsearch.tasks.sokoban import Sokoban
from allocsearch.tasks.sokoban.config import SokobanConfig
from allocsearch.tasks.sokoban.environment import Environment, Levels
from allocsearch.tasks.sokoban.evaluation import play_randomly
from allocsearch.tasks.sokoban.levels import parse_levels
from allocsearch.tasks.sokoban.rollout import unroll

ALLOCATION = Allocation("conv_lstm", True, 1, 1, 4)
TRAINING = TrainingConfig(horizon=4000, learning_rate=3e-3)


def make(head: str = "pool", **environment) -> Sokoban:
    rules = {"keep_border": False, "step_limit": [3, 6], "evaluation_step_limit": 10}
    fields = {
        "levels": {
            "interior": [4, 4],
            "n_boxes": 1,
            "n_train": 30,
            "n_valid": 6,
            "n_test": 6,
        },
        "environment": {**rules, **environment},
        "network": {"head": head},
        "n_envs": 6,
        "unroll": 12,
        "n_minibatches": 2,
    }
    task = Sokoban(parse(SokobanConfig, fields))
    task.levels("train")  # kept on first use, which must not be while tracing
    return task


@eqx.filter_jit
def acted(task: Sokoban, key: jax.Array):
    model = build_model(task, ALLOCATION, key=key)
    stream = task.init_stream(model, key=key)
    return unroll(task.environment, task.levels("train"), model, stream, 60)[1]


def weights(part) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(eqx.filter(part, eqx.is_array))]


@pytest.mark.parametrize(
    ("n_actions", "observation", "head"),
    [(5, "planes", "flatten"), (9, "tiny_rgb", "pool")],
)
def test_what_is_seen_and_done(n_actions, observation, head):
    task = make(head, n_actions=n_actions, observation=observation)
    experience = acted(task, jax.random.key(1))
    n_channels, dtype = {"planes": (7, np.float32), "tiny_rgb": (3, np.uint8)}[
        observation
    ]
    assert experience.observations.shape == (60, 6, 4, 4, n_channels)
    assert experience.observations.dtype == task.observation.dtype == dtype
    assert set(np.unique(experience.actions)) == set(range(n_actions))
    # The first policy is nearly uniform, whatever the number of actions.
    log_probs = np.asarray(experience.log_probs)
    np.testing.assert_allclose(log_probs, -np.log(n_actions), atol=0.5)


def test_training_and_scores():
    task = make(n_actions=9, observation="tiny_rgb")
    start = task.init(ALLOCATION, TRAINING, [0])
    trained, (metrics,) = task.train(start, 1)
    before, after = start[1][0].model, trained[1][0].model
    for part in ("encoder", "core", "head"):
        old, new = weights(getattr(before, part)), weights(getattr(after, part))
        assert all(np.isfinite(x).all() for x in new)
        assert any(np.any(x != y) for x, y in zip(old, new, strict=True))
    (scores,) = task.evaluate(trained)
    assert all(np.isfinite(list({**metrics, **scores}.values())))


def test_the_rewards_of_the_config_are_those_of_training_and_scores():
    task = make(step_reward=-0.5, on_goal_reward=0.0, solved_reward=0.0)
    experience = acted(task, jax.random.key(0))
    counted = np.asarray(experience.rewards)[np.asarray(experience.counts)]
    np.testing.assert_allclose(counted, -0.5)
    scores = task.baseline()
    assert scores["return"] == pytest.approx(-0.5 * scores["episode_length"], rel=1e-5)


@pytest.mark.parametrize("n_actions", [4, 5, 9])
def test_the_random_policy_takes_every_action_alike(n_actions):
    n_levels = 3000
    one = parse_levels("#####\n#@$.#\n#####\n", origin="drawn in the test")
    levels = Levels.from_level_set(one.subset([0] * n_levels))
    environment = Environment(one.shape, 1000, n_actions=n_actions)
    episodes = play_randomly(environment, levels)
    # One action solves it and no other does anything: the length is geometric, of
    # mean n and of a standard deviation just below n.
    assert bool(episodes.solved.all())
    error = abs(float(episodes.lengths.mean()) - n_actions)
    assert error < 5 * n_actions / n_levels**0.5


def boards(observation: str):
    """Encoder, and the same level's observation without and with its border."""
    inner = make(observation=observation)
    outer = make(observation=observation, keep_border=True)
    seen = []
    for task in (inner, outer):
        start = task.environment.reset(task.levels("valid"), 3, key=jax.random.key(0))
        seen.append(task.environment.observe(start))
    return inner.encoder(64, key=jax.random.key(0)), *seen


@pytest.mark.parametrize("observation", ["planes", "tiny_rgb"])
def test_encoders_see_wall_off_the_board_and_have_unit_scale(observation):
    encoder, seen, seen_bordered = boards(observation)
    z, z_bordered = encoder(seen), encoder(seen_bordered)
    np.testing.assert_allclose(z, z_bordered[1:-1, 1:-1], rtol=1e-4, atol=1e-5)
    assert 0.5 < float(jnp.sqrt(jnp.mean(z**2))) < 2.0


def test_the_encoder_of_colors_is_a_convolution_of_fractions():
    encoder, seen, _ = boards("tiny_rgb")
    weight = np.asarray(encoder.weight, np.float64)
    channels = np.pad(np.asarray(seen) / 255.0, ((1, 1), (1, 1), (0, 0)))
    z = np.asarray(encoder(seen))
    for row, column in np.ndindex(*z.shape[:2]):
        near = channels[row : row + 3, column : column + 3]
        expected = np.einsum("ijc,ijcd->d", near, weight)
        np.testing.assert_allclose(z[row, column], expected, rtol=1e-4, atol=1e-5)
