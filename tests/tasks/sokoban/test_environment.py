"""The environment against plain Python, step for step, and its laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch.errors import ConfigError
from allocsearch.parsing import parse
from allocsearch.tasks.sokoban.config import SokobanConfig
from allocsearch.tasks.sokoban.environment import (
    ACTION_SETS,
    OBSERVATION_PLANES,
    Environment,
    EnvState,
    Levels,
    Transition,
)
from allocsearch.tasks.sokoban.generator import generate_levels
from allocsearch.tasks.sokoban.level_files import read_levels
from allocsearch.tasks.sokoban.levels import (
    LevelSet,
    parse_levels,
    render_text,
)

PLANE_OF_CHARACTER = {
    "#": "wall",
    " ": "empty",
    "$": "box",
    "*": "box on goal",
    "@": "player",
    "+": "player on goal",
    ".": "goal",
}


def drawn(levels: LevelSet, index: int) -> list[str]:
    return render_text(
        levels.walls[index],
        levels.goals[index],
        levels.boxes[index],
        levels.players[index],
    ).split("\n")


def level(*rows: str) -> LevelSet:
    return parse_levels("\n".join(rows), origin="drawn in the test")


def begin(environment: Environment, levels: LevelSet) -> EnvState:
    on_device = Levels.from_level_set(levels)
    return environment.reset(on_device, 0, key=jax.random.key(0))


def play(levels: LevelSet, moves: str, step_limit: int = 120) -> list[Transition]:
    environment = Environment(levels.shape, step_limit)
    state = environment.reset(Levels.from_level_set(levels), 0, key=jax.random.key(0))
    transitions = []
    for letter in moves:
        state, transition = environment.step(state, "udlr".index(letter))
        transitions.append(transition)
    return transitions


def random_rollout(
    environment: Environment, levels: LevelSet, n_envs: int, n_steps: int, seed: int = 0
):
    """Starts, and per step: action, state before, after, transition, final, planes."""
    on_device = Levels.from_level_set(levels)
    start_key, scan_key = jax.random.split(jax.random.key(seed))
    index = jnp.arange(n_envs) % len(levels)
    start = jax.vmap(lambda i, key: environment.reset(on_device, i, key=key))(
        index, jax.random.split(start_key, n_envs)
    )

    def advance(state, key):
        action_key, reset_key = jax.random.split(key)
        action = jax.random.randint(action_key, (n_envs,), 0, environment.n_actions)
        keys = jax.random.split(reset_key, n_envs)
        after, transition, final = jax.vmap(
            lambda s, a, k: environment.step_autoreset(on_device, s, a, key=k)
        )(state, action, keys)
        planes = jax.vmap(environment.observe)(final)
        return after, (action, state, after, transition, final, planes)

    keys = jax.random.split(scan_key, n_steps)
    _, trace = jax.jit(lambda s, k: jax.lax.scan(advance, s, k))(start, keys)
    return jax.tree.map(np.asarray, trace)


def at(tree, step: int, env: int):
    return jax.tree.map(lambda leaf: leaf[step, env], tree)


def characters_of(planes: np.ndarray) -> np.ndarray:
    """Characters `[..., H, W]` from one-hot planes `[..., H, W, 7]`."""
    assert set(np.unique(planes)) == {0.0, 1.0}
    assert (planes.sum(axis=-1) == 1).all()
    char_of_plane = {plane: char for char, plane in PLANE_OF_CHARACTER.items()}
    chars = np.array([char_of_plane[plane] for plane in OBSERVATION_PLANES])
    return chars[planes.argmax(axis=-1)]


def assert_parity(reference, environment: Environment, levels: LevelSet, n_steps: int):
    """Every transition of a random rollout equals the plain simulator's."""
    n_envs = 16
    trace = random_rollout(environment, levels, n_envs, n_steps)
    action, before, after, transition, final, planes = trace
    seen = characters_of(planes).reshape(n_steps, n_envs, -1)
    n_done = 0
    for env in range(n_envs):
        board = reference(drawn(levels, env % len(levels)))
        n_taken = 0
        for step in range(n_steps):
            reward, moved, pushed = board.act(environment.actions[action[step, env]])
            n_taken += 1
            limit = at(before, step, env).step_limit
            got: Transition = at(transition, step, env)
            assert got.reward == pytest.approx(reward, abs=1e-6)
            assert (got.moved, got.pushed) == (moved, pushed)
            assert got.terminated == board.solved
            assert got.truncated == (n_taken >= limit and not board.solved)
            assert at(final, step, env).n_steps == n_taken
            assert "".join(seen[step, env]) == "".join(board.rows())
            if got.terminated or got.truncated:
                n_done += 1
                following: EnvState = at(after, step, env)
                board = reference(drawn(levels, int(following.level)))
                n_taken = 0
    return n_done


@pytest.mark.parametrize(
    ("interior", "n_boxes", "bordered", "step_limit", "n_actions"),
    [
        ((5, 5), 1, True, 60, 4),
        ((3, 4), 1, False, (5, 40), 4),
        ((4, 7), 3, False, 50, 4),
        ((8, 8), 4, True, 120, 4),
        ((4, 4), 1, False, 60, 5),
        ((5, 6), 2, True, (5, 60), 5),
        ((4, 4), 1, False, 60, 9),
        ((5, 6), 2, True, (5, 60), 9),
    ],
)
def test_transition_for_transition(
    reference, interior, n_boxes, bordered, step_limit, n_actions
):
    levels = generate_levels(24, interior=interior, n_boxes=n_boxes, seed=1)
    levels = levels if bordered else levels.interior()
    environment = Environment(levels.shape, step_limit, n_actions=n_actions)
    assert assert_parity(reference, environment, levels, n_steps=150) >= 16


@pytest.mark.real_data
def test_transition_for_transition_on_boxoban(reference, boxoban):
    levels = read_levels(boxoban / "unfiltered/test", max_levels=24)
    environment = Environment(levels.shape, (30, 120))
    assert assert_parity(reference, environment, levels, n_steps=150) >= 16


def test_rewards_and_flags_by_hand():
    levels = level("#######", "#@$.  #", "# $.  #", "#######")
    # On a goal, off it, up to the wall, then pushes and steps that cannot be.
    steps = play(levels, "rrrrul")
    rewards = [round(float(step.reward), 4) for step in steps]
    assert rewards == [0.9, -1.1, -0.1, -0.1, -0.1, -0.1]
    assert [bool(step.pushed) for step in steps] == [1, 1, 1, 0, 0, 0]
    assert [bool(step.moved) for step in steps] == [1, 1, 1, 0, 0, 1]
    assert not any(step.done for step in steps)
    solving = play(levels, "rldr")
    assert [round(float(step.reward), 4) for step in solving] == [0.9, -0.1, -0.1, 10.9]
    assert [bool(step.terminated) for step in solving] == [0, 0, 0, 1]
    assert solving[0].reward.dtype == jnp.float32


def test_the_names_of_the_actions_are_what_they_do():
    levels = level("#####", "#   #", "# @ #", "#   #", "#$ .#", "#####")
    start = {"up": -5, "down": 5, "left": -1, "right": 1, "operation": 0}
    for n_actions, names in ACTION_SETS.items():
        environment = Environment(levels.shape, n_actions=n_actions)
        assert environment.actions == names
        assert len(names) == n_actions
        for action, name in enumerate(names):
            state = begin(environment, levels)
            after, _ = environment.step(state, action)
            assert int(after.player - state.player) == start[name.split()[-1]]


@pytest.mark.parametrize("n_actions", [5, 9])
def test_only_a_push_moves_a_box(n_actions):
    levels = level("#######", "#@$. .#", "#$    #", "#######")
    environment = Environment(levels.shape, n_actions=n_actions)
    state = begin(environment, levels)
    for action, name in enumerate(environment.actions):
        after, transition = environment.step(state, action)
        pushes = name in ("right", "push right")
        assert bool(transition.pushed) == bool(transition.moved) == pushes
        assert np.array_equal(after.board, state.board) == (not pushes)
        assert float(transition.reward) == pytest.approx(0.9 if pushes else -0.1)
        assert int(after.n_steps) == 1


@pytest.mark.parametrize("n_actions", [5, 9])
def test_a_solved_board_stays_solved_without_operation(n_actions):
    levels = level("#####", "#@$.#", "#####")
    environment = Environment(levels.shape, n_actions=n_actions)
    state, _ = environment.step(begin(environment, levels), 4)
    after, transition = environment.step(state, 0)
    assert bool(transition.terminated)
    assert not bool(transition.moved)
    assert int(after.player) == int(state.player)


def test_the_rewards_are_those_asked_for():
    levels = level("########", "#@$. .$#", "########")
    environment = Environment(
        levels.shape,
        step_reward=-0.5,
        on_goal_reward=2.0,
        off_goal_reward=-3.0,
        solved_reward=40.0,
    )
    state = begin(environment, levels)
    rewards = []
    for letter in "rrlr":
        state, transition = environment.step(state, "udlr".index(letter))
        rewards.append(float(transition.reward))
    assert rewards == pytest.approx([1.5, -3.5, -0.5, -0.5 + 0.0])
    solving = level("#####", "#@$.#", "#####")
    environment = Environment(solving.shape, step_reward=-0.5, solved_reward=40.0)
    _, transition = environment.step(begin(environment, solving), 3)
    assert float(transition.reward) == pytest.approx(-0.5 + 1.0 + 40.0)


COLOR_OF_CHARACTER = {
    "#": (0, 0, 0),
    " ": (243, 248, 238),
    "$": (142, 121, 56),
    "*": (254, 95, 56),
    "@": (160, 212, 56),
    "+": (219, 212, 56),
    ".": (254, 126, 125),
}


@pytest.mark.parametrize("bordered", [True, False])
def test_colors_and_planes_show_the_same(bordered):
    levels = level("########", "#+$ *  #", "# $.   #", "########")
    levels = levels if bordered else levels.interior()
    planes, colors = (
        Environment(levels.shape),
        Environment(levels.shape, observation="tiny_rgb"),
    )
    for moves in ("", "r", "rr", "rd"):
        state = begin(planes, levels)
        for letter in moves:
            state, _ = planes.step(state, "udlr".index(letter))
        seen = characters_of(np.asarray(planes.observe(state)))
        pixels = np.asarray(colors.observe(state))
        expected = [[COLOR_OF_CHARACTER[char] for char in row] for row in seen]
        np.testing.assert_array_equal(pixels, expected)
        assert (pixels.dtype, pixels.shape) == (np.uint8, (*levels.shape, 3))
        for environment in (planes, colors):
            observation = environment.observe(state)
            assert observation.shape == environment.observed.shape
            assert observation.dtype == environment.observed.dtype


def test_a_box_moved_from_goal_to_goal_earns_nothing():
    levels = level("#######", "#@*.  #", "#$    #", "#######")
    assert float(play(levels, "r")[0].reward) == pytest.approx(-0.1)


@pytest.mark.parametrize("moves", ["urrr", "llll", "dddd"])
def test_nothing_leaves_a_board_without_a_border(moves):
    levels = level("####", "#@$#", "#. #", "####").interior()
    for step in play(levels, moves):
        assert not bool(step.pushed)


def test_truncation_is_not_termination():
    levels = level("#####", "#@$.#", "#####")
    idle = play(levels, "lll", step_limit=2)
    assert [bool(step.truncated) for step in idle] == [False, True, True]
    assert not any(step.terminated for step in idle)
    at_the_limit = play(levels, "lr", step_limit=2)[-1]
    assert bool(at_the_limit.terminated)
    assert bool(at_the_limit.solved)
    assert not bool(at_the_limit.truncated)


def test_limits_are_drawn_from_the_whole_range():
    levels = generate_levels(4, seed=0)
    environment = Environment(levels.shape, (3, 6))
    on_device = Levels.from_level_set(levels)
    keys = jax.random.split(jax.random.key(0), 2000)
    states = jax.vmap(lambda key: environment.reset(on_device, 1, key=key))(keys)
    drawn_limits, counts = np.unique(np.asarray(states.step_limit), return_counts=True)
    assert drawn_limits.tolist() == [3, 4, 5, 6]
    # Binomial(2000, 1/4) has standard deviation 19.4.
    assert np.all(np.abs(counts - 500) < 5 * 19.4)
    assert set(np.asarray(states.level).tolist()) == {1}


def test_autoreset_starts_levels_evenly_and_keeps_the_last_state():
    levels = generate_levels(10, seed=2)
    environment = Environment(levels.shape, (1, 3))
    trace = random_rollout(environment, levels, n_envs=200, n_steps=60)
    _, before, after, transition, final, _ = trace
    done = transition.terminated | transition.truncated
    assert not np.any(after.n_steps[done])
    for name in ("board", "player", "n_steps", "n_unplaced", "step_limit", "level"):
        kept, last = getattr(after, name)[~done], getattr(final, name)[~done]
        np.testing.assert_array_equal(kept, last)
    np.testing.assert_array_equal(final.n_steps, before.n_steps + 1)
    np.testing.assert_array_equal(final.level, before.level)
    index = after.level[done]
    squares = levels.walls.reshape(10, -1).shape[1]
    for name in ("walls", "goals", "boxes"):
        expected = getattr(levels, name).reshape(10, squares)[index]
        begun = getattr(jax.tree.map(jnp.asarray, after), name)
        np.testing.assert_array_equal(begun[done], expected)
    np.testing.assert_array_equal(after.player[done], levels.players[index])
    share = np.bincount(index, minlength=10) / len(index)
    assert np.all(np.abs(share - 0.1) < 5 * np.sqrt(0.09 / len(index)))


def test_one_board_and_many_agree_without_recompiling():
    levels = generate_levels(8, seed=0)
    environment = Environment(levels.shape, 60)
    on_device = Levels.from_level_set(levels)
    key = jax.random.key(0)
    step = jax.jit(environment.step)
    many = jax.vmap(lambda i: environment.reset(on_device, i, key=key))(jnp.arange(8))
    stepped, transitions = jax.vmap(environment.step)(many, jnp.arange(8) % 4)
    for index in range(8):
        one = environment.reset(on_device, index, key=key)
        after, transition = step(one, jnp.int32(index % 4))
        expected = jax.tree.map(lambda leaf, i=index: leaf[i], (stepped, transitions))
        jax.tree.map(np.testing.assert_array_equal, (after, transition), expected)
    assert step._cache_size() == 1


def test_what_an_environment_refuses():
    levels = Levels.from_level_set(generate_levels(2, seed=0))
    with pytest.raises(ConfigError, match=r"boards are \(8, 8\), .* \(7, 7\)"):
        Environment((8, 8)).reset(levels, 0, key=jax.random.key(0))
    for limit in (0, (5, 4), (0, 3)):
        with pytest.raises(ConfigError, match="step_limit"):
            Environment((7, 7), limit)
    with pytest.raises(ConfigError, match="squares"):
        Environment((0, 7))
    with pytest.raises(ConfigError, match="n_actions must be one of 4, 5, 9, got 6"):
        Environment((7, 7), n_actions=6)
    with pytest.raises(ConfigError, match="one of planes, tiny_rgb, got 'rgb'"):
        Environment((7, 7), observation="rgb")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("n_actions", 7, "field 'environment.n_actions': .*4, 5 or 9"),
        ("observation", "rgb", "field 'environment.observation': .*'tiny_rgb'"),
        ("step_reward", "free", "field 'environment.step_reward': .*number"),
        ("solved_reward", float("inf"), "field 'environment.solved_reward': .*finite"),
        ("step_limit", [60, 30], "field 'environment.step_limit': .*low <= high"),
        ("step_limit", 0, "field 'environment.step_limit': .*at least 1.*got 0"),
        ("step_limit", [1, 2, 3], r"field 'environment.step_limit': .*\[low, high\]"),
        ("step_limit", float("nan"), "field 'environment.step_limit': .*at least 1"),
        ("n_action", 4, "unknown field 'environment.n_action': did you mean"),
    ],
)
def test_what_a_config_refuses(field, value, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse(SokobanConfig, {"environment": {field: value}})
    assert "\n" not in str(caught.value)


def test_a_config_decides_every_rule():
    fields = {
        "step_limit": (5, 6),
        "step_reward": -0.2,
        "on_goal_reward": 0.5,
        "off_goal_reward": -0.4,
        "solved_reward": 3.0,
        "n_actions": 9,
        "observation": "tiny_rgb",
    }
    config = parse(SokobanConfig, {"environment": fields}).environment
    built = Environment.from_config(config, (5, 4))
    assert built == Environment((5, 4), **fields)
    default = Environment.from_config(SokobanConfig().environment, (5, 4))
    assert default == Environment((5, 4), step_limit=(30, 120))
