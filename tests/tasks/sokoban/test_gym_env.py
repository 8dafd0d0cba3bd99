"""The Gymnasium environments, by Gymnasium's own checker and its own vector loop."""

import subprocess
import sys

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from allocsearch.errors import ConfigError, DataError
from allocsearch.parsing import parse
from allocsearch.tasks.sokoban.config import SokobanConfig
from allocsearch.tasks.sokoban.data import load_splits
from allocsearch.tasks.sokoban.environment import Environment, Levels
from allocsearch.tasks.sokoban.generator import generate_levels
from allocsearch.tasks.sokoban.gym_env import ID, SokobanEnv
from allocsearch.tasks.sokoban.gym_vector import SokobanVectorEnv
from allocsearch.tasks.sokoban.levels import parse_levels

SMALL = {"interior": [4, 4], "n_boxes": 1, "n_train": 40, "n_valid": 5, "n_test": 5}
LEVELS = generate_levels(
    30, interior=(3, 4), n_boxes=1, seed=4, min_pushes=1, max_pulls=2
)
ONE = parse_levels("######\n#@$. #\n######\n", origin="drawn in the test")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_actions": 5, "observation": "tiny_rgb"},
        {"n_actions": 9, "keep_border": False, "step_limit": [5, 9]},
    ],
)
def test_gymnasium_finds_nothing_to_complain_of(options):
    env = gymnasium.make(ID, levels=SMALL, **options)
    check_env(env.unwrapped)
    assert env.action_space == gymnasium.spaces.Discrete(options.get("n_actions", 4))
    assert env.spec.to_json()


def test_importing_the_package_imports_no_gymnasium():
    code = (
        "import sys, allocsearch, allocsearch.tasks.sokoban\n"
        "assert 'gymnasium' not in sys.modules\n"
        "import gymnasium\n"
        f"id = 'allocsearch.tasks.sokoban.gym_env:{ID}'\n"
        f"env = gymnasium.make(id, levels={SMALL})\n"
        f"assert env.spec.id == gymnasium.spec({ID!r}).id\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_levels_and_boards_are_those_of_the_task():
    env = gymnasium.make(ID, levels=SMALL, split="valid", render_mode="ansi")
    levels = load_splits(parse(SokobanConfig, {"levels": SMALL}))["valid"]
    rules = Environment(levels.shape, 120)
    for level in range(len(levels)):
        observation, info = env.reset(options={"level": level})
        assert info == {"level": level, "moved": False, "pushed": False}
        state = rules.reset(Levels.from_level_set(levels), level, key=jax.random.key(0))
        np.testing.assert_array_equal(observation, rules.observe(state))
    drawn = {env.reset(seed=seed)[1]["level"] for seed in range(40)}
    assert drawn == set(range(len(levels)))


def test_an_episode_by_hand():
    env = SokobanEnv(ONE, step_limit=3, render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == "######\n#@$. #\n######"
    steps = [env.step(action) for action in (2, 0, 2)]
    assert [step[1] for step in steps] == pytest.approx([-0.1] * 3)
    assert [step[2:4] for step in steps] == [(False, False)] * 2 + [(False, True)]
    env.reset()
    _, reward, terminated, truncated, info = env.step(3)
    assert env.render() == "######\n# @* #\n######"
    assert reward == pytest.approx(10.9)
    assert (terminated, truncated) == (True, False)
    assert info == {"level": 0, "moved": True, "pushed": True}


def test_pictures_are_of_the_board_as_it_stands():
    env = SokobanEnv(ONE, render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    assert before.shape == (48, 96, 3)
    assert before.dtype == np.uint8
    env.step(3)
    after = env.render()
    changed = (before != after).reshape(3, 16, 6, 16, 3).any(axis=(1, 3, 4))
    assert np.argwhere(changed).tolist() == [[1, 1], [1, 2], [1, 3]]
    boards = SokobanVectorEnv(2, ONE, render_mode="rgb_array")
    boards.reset(seed=0)
    for picture in boards.render():
        np.testing.assert_array_equal(picture, before)


def assert_same(ours, theirs):
    """Equal values in equal structures, of equal types."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            assert_same(ours[key], theirs[key])
    elif theirs.dtype == object:
        for one, other in zip(ours, theirs, strict=True):
            assert (one is None) == (other is None)
            np.testing.assert_array_equal(one, other)
    else:
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_vector_steps_as_gymnasiums_loop_over_single_boards(mode):
    n_envs, options = 6, {"step_limit": [4, 12], "n_actions": 9}
    ours = gymnasium.make_vec(
        ID, num_envs=n_envs, autoreset_mode=mode, levels=LEVELS, **options
    )
    assert isinstance(ours, SokobanVectorEnv)
    assert ours.metadata["autoreset_mode"] is mode
    theirs = SyncVectorEnv(
        [lambda: SokobanEnv(LEVELS, **options)] * n_envs, autoreset_mode=mode
    )
    for space in ("observation_space", "action_space", "single_action_space"):
        assert getattr(ours, space) == getattr(theirs, space)
    generator = np.random.default_rng(0)
    n_ended, n_solved = 0, 0
    for seed in (3, None, [5, 8, 1, 0, 2, 9]):
        both = [envs.reset(seed=seed) for envs in (ours, theirs)]
        for pair in zip(*both, strict=True):
            assert_same(*pair)
        for _ in range(40):
            actions = generator.integers(0, 9, n_envs)
            both = [envs.step(actions) for envs in (ours, theirs)]
            for pair in zip(*both, strict=True):
                assert_same(*pair)
            over = both[0][2] | both[0][3]
            n_ended, n_solved = n_ended + over.sum(), n_solved + both[0][2].sum()
            if mode is AutoresetMode.DISABLED and over.any():
                both = [
                    envs.reset(options={"reset_mask": over.copy()})
                    for envs in (ours, theirs)
                ]
                for pair in zip(*both, strict=True):
                    assert_same(*pair)
    assert n_ended > 50
    assert n_solved > 3


def test_seeds_decide_levels_and_limits():
    boards = SokobanVectorEnv(50, LEVELS, step_limit=[3, 40])

    def lengths(seed):
        """Levels begun, and when each board first ended, standing still."""
        _, infos = boards.reset(seed=seed)
        ended = np.zeros(50, int)
        for step in range(1, 41):
            over = boards.step(np.zeros(50, int))[3]
            ended = np.where((ended == 0) & over, step, ended)
        return infos["level"].tolist(), ended.tolist()

    first = lengths(0)
    assert first == lengths(0)
    assert first[0] != lengths(1000)[0]
    assert first[1] != lengths(1000)[1]
    assert len(set(first[0])) > 15
    later = lengths(1)
    assert later[0][:-1] == first[0][1:]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_actions": 3}, ConfigError, "field 'n_actions': .*4, 5 or 9"),
        ({"action": 4}, ConfigError, "unknown field 'action': did you mean"),
        ({"levels": {"interiors": 3}}, ConfigError, "levels: unknown field"),
        ({"render_mode": "human"}, ConfigError, "render_mode must be one of rgb_array"),
        ({"levels": SMALL, "split": "hard"}, DataError, "no 'hard' split, only train"),
        ({"data": "nowhere"}, DataError, "nowhere"),
        ({"levels": ONE, "data": "here"}, ConfigError, "levels or data, not both"),
    ],
)
def test_what_making_one_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        SokobanEnv(**arguments)


def test_what_playing_one_refuses():
    env = SokobanEnv(ONE)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    with pytest.raises(ConfigError, match="the one option of reset is 'level'"):
        env.reset(options={"levels": 1})
    with pytest.raises(ConfigError, match="from 0 to 0, got 1"):
        env.reset(options={"level": 1})
    env.reset()
    for action in (4, -1, 1.0):
        with pytest.raises(ConfigError, match="action must be an integer from 0 to 3"):
            env.step(action)


def test_what_many_refuse():
    with pytest.raises(ConfigError, match="num_envs must be at least 1, got 0"):
        SokobanVectorEnv(0, ONE)
    with pytest.raises(ConfigError, match="NextStep, SameStep, Disabled, got 'never'"):
        SokobanVectorEnv(1, ONE, autoreset_mode="never")
    boards = SokobanVectorEnv(3, ONE, autoreset_mode="Disabled", step_limit=1)
    with pytest.raises(gymnasium.error.ResetNeeded):
        boards.step(np.zeros(3, int))
    with pytest.raises(ConfigError, match="first reset must be of all"):
        boards.reset(options={"reset_mask": np.array([True, False, True])})
    with pytest.raises(ConfigError, match="give 3 seeds, got 2"):
        boards.reset(seed=[1, 2])
    with pytest.raises(ConfigError, match="the one option of reset is 'reset_mask'"):
        boards.reset(options={"level": 1})
    boards.reset()
    for mask in (np.array([True]), np.zeros(3, bool), np.ones(3)):
        with pytest.raises(ConfigError, match="reset_mask must be 3 booleans"):
            boards.reset(options={"reset_mask": mask})
    for actions in (np.zeros(2, int), np.array([0, 1, 4]), np.zeros(3)):
        with pytest.raises(ConfigError, match="actions must be 3 integers from 0 to 3"):
            boards.step(actions)
    boards.step(np.zeros(3, int))
    with pytest.raises(ConfigError, match="3 boards are over: reset them first"):
        boards.step(np.zeros(3, int))
