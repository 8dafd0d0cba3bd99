"""The environment against plain Python, step for step, and its laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch.errors import ConfigError
from allocsearch.tasks.sokoban.environment import (
    ACTIONS,
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
        action = jax.random.randint(action_key, (n_envs,), 0, len(ACTIONS))
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
            reward, moved, pushed = board.move("udlr"[action[step, env]])
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
    ("interior", "n_boxes", "bordered", "step_limit"),
    [
        ((5, 5), 1, True, 60),
        ((3, 4), 1, False, (5, 40)),
        ((4, 7), 3, False, 50),
        ((8, 8), 4, True, 120),
    ],
)
def test_transition_for_transition(reference, interior, n_boxes, bordered, step_limit):
    levels = generate_levels(24, interior=interior, n_boxes=n_boxes, seed=1)
    levels = levels if bordered else levels.interior()
    environment = Environment(levels.shape, step_limit)
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


def test_agrees_with_jumanji():
    sokoban = pytest.importorskip("jumanji.environments.routing.sokoban")
    types = pytest.importorskip("jumanji.environments.routing.sokoban.types")
    levels = generate_levels(32, interior=(8, 8), n_boxes=4, seed=5)
    environment = Environment(levels.shape, 120)
    trace = random_rollout(environment, levels, n_envs=32, n_steps=100)
    action, before, _, transition, final, _ = trace
    theirs = sokoban.Sokoban(generator=object(), viewer=object(), time_limit=10_000)

    def their_step(board, player, action):
        walls, goals, boxes = (board & 1) != 0, (board & 2) != 0, (board & 4) != 0
        fixed = jnp.where(walls, 1, jnp.where(goals, 2, 0)).reshape(10, 10)
        moving = jnp.where(boxes, 4, 0).at[player].set(3).reshape(10, 10)
        state = types.State(
            key=jax.random.key(0),
            fixed_grid=fixed.astype(jnp.uint8),
            variable_grid=moving.astype(jnp.uint8),
            agent_location=jnp.array([player // 10, player % 10]),
            step_count=jnp.int32(0),
        )
        # Their order is up, right, down, left.
        state, timestep = theirs.step(state, jnp.array([0, 2, 3, 1])[action])
        return state.variable_grid, timestep.reward

    moving, reward = jax.jit(jax.vmap(jax.vmap(their_step)))(
        before.board, before.player, action
    )
    moving = np.asarray(moving).reshape(*action.shape, -1)
    np.testing.assert_array_equal(moving == 4, (final.board & 4) != 0)
    np.testing.assert_array_equal((moving == 3).argmax(axis=-1), final.player)
    np.testing.assert_allclose(reward, transition.reward, atol=1e-6)
