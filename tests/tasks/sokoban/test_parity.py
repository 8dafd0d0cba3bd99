"""The environment against those that researchers know, transition for transition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch.errors import DataError, PluginError
from allocsearch.tasks.sokoban import gym_sokoban
from allocsearch.tasks.sokoban.environment import Environment, Levels
from allocsearch.tasks.sokoban.generator import generate_levels
from allocsearch.tasks.sokoban.levels import LevelSet, parse_levels

N_STEPS = 130
SEED = 7
# The same in each: the order of gym-sokoban's nine holds the other two.
GYM_SOKOBAN_ACTION = {4: (1, 2, 3, 4), 5: (0, 1, 2, 3, 4), 9: tuple(range(9))}


def near_ones(n: int, **shape) -> LevelSet:
    """Levels that chance often solves: no box is more than a few pushes away."""
    return generate_levels(n, seed=SEED, min_pushes=1, max_pulls=2, **shape)


def with_placed_boxes(levels: LevelSet, n_placed: int) -> LevelSet:
    """With more boxes, on goals, where walls were if there were enough."""
    generator = np.random.default_rng(SEED)
    walls, goals, boxes = levels.walls.copy(), levels.goals.copy(), levels.boxes.copy()
    for index in range(len(levels)):
        free = ~(goals[index] | boxes[index])
        free.reshape(-1)[levels.players[index]] = False
        inner = generator.permutation(np.argwhere(free[1:-1, 1:-1]) + 1)
        is_wall = walls[index][tuple(inner.T)]
        chosen = inner[np.argsort(~is_wall, kind="stable")[:n_placed]]
        at = (index, *chosen.T)
        walls[at], goals[at], boxes[at] = False, True, True
    codes = (walls * 1 | goals * 2 | boxes * 4).astype(np.uint8)
    return LevelSet(codes, levels.players, "with placed boxes")


def random_play(environment: Environment, levels: LevelSet):
    """Actions `[T, N]` on every level, without resets, and what each step led to."""
    on_device = Levels.from_level_set(levels)
    n_levels, key = len(levels), jax.random.key(SEED)
    begin = jax.vmap(lambda i: environment.reset(on_device, i, key=key))
    actions = jax.random.randint(key, (N_STEPS, n_levels), 0, environment.n_actions)

    def step(states, actions):
        after, transitions = jax.vmap(environment.step)(states, actions)
        seen = jax.vmap(environment.observe)(after)
        return after, (states, after, transitions, seen)

    start = begin(jnp.arange(n_levels))
    _, trace = jax.jit(lambda s, a: jax.lax.scan(step, s, a))(start, actions)
    return jax.tree.map(np.asarray, (actions, *trace))


@pytest.fixture
def their_levels():
    pytest.importorskip(
        "gym_sokoban.envs.sokoban_env", reason="gym-sokoban is not installed"
    )
    four = generate_levels(20, interior=(8, 8), n_boxes=4, seed=SEED)
    return {"four boxes": four, "near": near_ones(20, interior=(4, 5), n_boxes=2)}


@pytest.mark.parametrize("n_actions", [4, 5, 9])
@pytest.mark.parametrize("kind", ["four boxes", "near"])
def test_gym_sokoban_steps_alike(their_levels, kind, n_actions):
    levels = their_levels[kind]
    environment = Environment(
        levels.shape, 120, n_actions=n_actions, observation="tiny_rgb"
    )
    actions, _, after, transitions, seen = random_play(environment, levels)
    n_solved = n_steps = 0
    for index in range(len(levels)):
        theirs = gym_sokoban.at_level(levels, index)
        for step in range(N_STEPS):
            action = GYM_SOKOBAN_ACTION[n_actions][actions[step, index]]
            image, reward, done, info = theirs.step(action, "tiny_rgb_array")
            at = (step, index)
            board = gym_sokoban.board(theirs).reshape(-1)
            player = int(after.player[at])
            assert np.array_equal(board & 7, after.board[at])
            assert np.flatnonzero(board & 8).tolist() == [player]
            np.testing.assert_array_equal(image, seen[at])
            assert transitions.reward[at] == pytest.approx(reward, abs=1e-5)
            assert transitions.done[at] == done
            assert transitions.moved[at] == info["action.moved_player"]
            assert transitions.pushed[at] == info["action.moved_box"]
            n_steps += 1
            if done:
                assert transitions.terminated[at] == info["all_boxes_on_target"]
                n_solved += int(transitions.terminated[at])
                break
        assert done
    assert n_steps > 1000
    assert n_solved > (2 if kind == "near" else -1)


def test_what_is_put_into_gym_sokoban_comes_out(their_levels):
    for levels in their_levels.values():
        for index in range(len(levels)):
            theirs = gym_sokoban.at_level(levels, index)
            expected = levels.codes_with_player()[index]
            np.testing.assert_array_equal(gym_sokoban.board(theirs), expected)
            np.testing.assert_array_equal(
                theirs.player_position, np.argwhere(expected & 8)[0]
            )


def test_gym_sokoban_needs_a_closed_border(their_levels):
    levels = their_levels["four boxes"].interior()
    open_ones = np.flatnonzero(~levels.walls[:, 0].all(axis=1))
    with pytest.raises(DataError, match="needs a closed border of walls"):
        gym_sokoban.at_level(levels, int(open_ones[0]))


def test_a_missing_gym_sokoban_is_one_sentence(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gym_sokoban.envs.sokoban_env", None)
    levels = parse_levels("#####\n#@$.#\n#####\n", origin="drawn in the test")
    with pytest.raises(PluginError, match=r"pip install 'allocsearch\[gym-sokoban\]'"):
        gym_sokoban.at_level(levels, 0)


def test_jumanji_steps_alike():
    sokoban = pytest.importorskip("jumanji.environments.routing.sokoban")
    types = pytest.importorskip("jumanji.environments.routing.sokoban.types")
    four = generate_levels(32, interior=(8, 8), n_boxes=4, seed=SEED)
    one = near_ones(64, interior=(8, 8), n_boxes=1)
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
        return state.variable_grid, timestep.reward, timestep.last()

    their_steps = jax.jit(jax.vmap(jax.vmap(their_step)))
    n_solved = 0
    for levels in (four, with_placed_boxes(one, 3)):
        trace = random_play(Environment(levels.shape, 10_000), levels)
        actions, before, after, transitions, _ = trace
        moving, reward, done = their_steps(before.board, before.player, actions)
        moving = np.asarray(moving).reshape(*actions.shape, -1)
        np.testing.assert_array_equal(moving == 4, (after.board & 4) != 0)
        np.testing.assert_array_equal((moving == 3).argmax(axis=-1), after.player)
        np.testing.assert_allclose(reward, transitions.reward, atol=1e-6)
        np.testing.assert_array_equal(done, transitions.terminated)
        n_solved += int(transitions.terminated.any(axis=0).sum())
    assert n_solved > 3
