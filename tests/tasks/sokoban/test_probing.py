"""Episodes that probes are fitted on, and what is counted of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch.allocation import Allocation
from allocsearch.errors import ConfigError, DataError, UnknownNameError
from allocsearch.experts.layers import rms_norm
from allocsearch.parsing import parse
from allocsearch.tasks.probes import ProbeRequest
from allocsearch.tasks.protocol import build_model
from allocsearch.tasks.sokoban import Sokoban, probing, trajectories
from allocsearch.tasks.sokoban.config import SokobanConfig
from allocsearch.tasks.sokoban.evaluation import play
from allocsearch.tasks.sokoban.playback import play_level
from allocsearch.tasks.sokoban.probe_labels import CLASSES, NEVER
from allocsearch.tasks.sokoban.probing import count, default_episodes
from allocsearch.tasks.sokoban.trajectories import (
    batch_size,
    play_greedily,
    read_inside,
)
from allocsearch.tasks.trained import Run

LIMIT = 12
RECURRENT = Allocation("conv_lstm", True, 2, 2, 4)


@pytest.fixture(scope="module")
def task() -> Sokoban:
    config = {
        "levels": {"interior": [2, 4], "n_boxes": 1, "n_train": 120},
        "environment": {"keep_border": False, "evaluation_step_limit": LIMIT},
    }
    config["levels"] |= {"n_valid": 30, "n_test": 5, "min_pushes": 1}
    return Sokoban(parse(SokobanConfig, config))


def build(task, allocation):
    model = build_model(task, allocation, key=jax.random.key(15))
    # Weights of the readout drawn small would make every board's action the same.
    return eqx.tree_at(lambda m: m.head.readout.out, model, 30 * model.head.readout.out)


@pytest.fixture(scope="module")
def model(task):
    return build(task, RECURRENT)


def episodes(task, model, indices, what="raw"):
    """Eight levels at a time, as in all tests, for one compiled program."""
    rules, levels = task._evaluation, task.levels("valid")
    return list(play_greedily(model, rules, levels, indices, what=what, n_at_once=8))


def test_episodes_are_those_of_evaluation(task, model):
    batches = episodes(task, model, np.arange(30))
    assert [len(batch) for batch in batches] == [8, 8, 8, 6]
    scores = play(model, task._evaluation, task.levels("valid"))
    for name in ("solved", "lengths"):
        found = np.concatenate([getattr(batch, name) for batch in batches])
        np.testing.assert_array_equal(found, getattr(scores, name))
    assert 0 < np.sum(scores.solved) < 30
    index = int(np.argmax(scores.solved))
    (batch,) = episodes(task, model, np.array([index, 0]))
    alone = play_level(model, task._evaluation, task.levels("valid"), index)
    n = len(alone) + 1
    boards, players = batch.boards[0, :n], batch.players[0, :n]
    codes = alone.boards.reshape(n, -1)
    np.testing.assert_array_equal(boards, codes & 0b111 & boards)
    np.testing.assert_array_equal((codes != boards).argmax(axis=1), players)


@pytest.mark.parametrize("what", ["raw", "2"])
def test_what_is_read_is_what_the_network_carries_on(task, model, what):
    """Against the carry of the plain step, one board at a time."""
    rules, levels, index = task._evaluation, task.levels("valid"), 7
    (batch,) = episodes(task, model, np.array([index]), what)
    step = eqx.filter_jit(lambda c, o: model.step(c, o, False))
    state, carry = rules.reset(levels, index, key=jax.random.key(0)), model.init_carry()
    for t in range(batch.lengths[0]):
        seen = rules.observe(state)
        carry, outputs = step(carry, seen)
        if what == "raw":
            expected = np.asarray(carry.state[0])
        else:
            cells = np.asarray(carry.memories[1][int(what) - 1])
            expected = np.concatenate([*cells], axis=-1)
        np.testing.assert_allclose(batch.read["network"][0, t], expected, atol=2e-5)
        np.testing.assert_array_equal(batch.read["observation"][0, t], seen)
        state, _ = rules.step(state, jnp.argmax(outputs.logits))


def one_step(model, task):
    """What is left after one step, the carry, and what the head reads."""
    z = jnp.ones((*task.positions, model.core.allocation.width))
    step = eqx.filter_jit(lambda c, z: model.core.step_inside(c, z, False))
    carry, features, inside = step(model.init_carry(), z)
    return inside, carry, features


def test_the_state_is_what_the_head_reads_and_raw_what_is_below_its_norm(task):
    model = build(task, Allocation("conv_glu", False, 2, 1, 4))
    inside, _, features = one_step(model, task)
    raw = read_inside(model, inside, "raw")
    np.testing.assert_allclose(rms_norm(raw), features, atol=1e-5)
    assert not np.allclose(raw, features, atol=0.1)
    np.testing.assert_allclose(read_inside(model, inside, "state"), features, atol=1e-5)


def test_states_of_a_communication_radius_are_read_as_their_mean(task):
    model = build(task, Allocation("conv_lstm", True, 1, 4, 3, radius=1))
    inside, carry, features = one_step(model, task)
    assert carry.state.shape[0] == 4
    mean = np.asarray(carry.state).mean(axis=0)
    np.testing.assert_allclose(read_inside(model, inside, "raw"), mean, atol=1e-6)
    np.testing.assert_allclose(read_inside(model, inside, "state"), features, atol=1e-5)


def test_without_a_norm_both_are_the_same(task):
    options = {"norm": "none", "update": "replace"}
    model = build(task, Allocation("conv_lstm", True, 1, 1, 3, options=options))
    inside, carry, _ = one_step(model, task)
    for what in ("state", "raw"):
        read = read_inside(model, inside, what)
        np.testing.assert_array_equal(read, carry.state[0])


def test_counts_against_a_plain_loop():
    rng = np.random.default_rng(0)
    shape, threshold = (3, 6, 2, 2), 0.4
    labels = rng.integers(0, 5, shape)
    likeliest = rng.integers(0, 5, shape)
    direction = np.where(rng.random(shape) < 0.5, labels, rng.integers(0, 4, shape)) % 4
    score, lengths = rng.random(shape), np.array([6, 2, 4])
    live = np.arange(6) < lengths[:, None]
    targets, emitted, right, confusion = count(
        labels, likeliest, direction, score, live, threshold
    )
    expected = np.zeros((3, 3, 6), int)
    pairs = np.zeros((3, 5, 5), int)
    for b, t, i, j in np.ndindex(shape):
        if t >= lengths[b]:
            continue
        at = b, t, i, j
        expected[0, b, t] += labels[at] != NEVER
        if score[at] >= threshold:
            expected[1, b, t] += 1
            expected[2, b, t] += direction[at] == labels[at]
        pairs[b, labels[at], likeliest[at]] += 1
    np.testing.assert_array_equal([targets, emitted, right], expected)
    np.testing.assert_array_equal(confusion, pairs)
    none = count(labels, likeliest, direction, score, live, None)
    assert none[1].sum() == none[2].sum() == 0
    np.testing.assert_array_equal(none[0], targets)


@pytest.fixture
def quick(monkeypatch):
    """Probes fitted only so far as to say something, and a program used before."""
    fit = probing.fit_probe
    monkeypatch.setattr(
        probing, "fit_probe", lambda *a, **k: fit(*a, n_updates=50, **k)
    )
    # An untrained network solves few levels.
    monkeypatch.setattr(probing, "_VALIDATION_SHARE", 0.5)
    monkeypatch.setattr(trajectories, "_MOST_LEVELS", 8)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("target", ["agent", "box"])
def test_a_network_is_probed(task, model, target):
    # More steps than an episode may have.
    request = ProbeRequest(target, kernel=1, precision=0.1, n_steps=LIMIT + 3)
    state = None, (Run(model, None, None),)
    found, again = (task.probe(state, request, label="") for _ in range(2))
    scores = play(model, task._evaluation, task.levels("valid"))
    np.testing.assert_array_equal(found.solved, scores.solved)
    np.testing.assert_array_equal(found.lengths, scores.lengths)
    assert found.classes == CLASSES
    assert found.items == task._splits["valid"].digest()
    assert found.details["n_played"] == 60
    assert found.details["n_channels"] == {"network": 4, "observation": 7}
    for counts, same in (
        (found.network, again.network),
        (found.observation, again.observation),
    ):
        assert counts.threshold == same.threshold
        for name in ("targets", "emitted", "right"):
            values = getattr(counts, name)
            assert values.shape == (30, LIMIT + 3)
            np.testing.assert_array_equal(values, getattr(same, name))
            beyond = np.arange(LIMIT + 3) >= found.lengths[:, None]
            assert not values[beyond].any()
        assert np.all(counts.right <= np.minimum(counts.emitted, counts.targets))
        squares = 8 * np.minimum(found.lengths, LIMIT + 3)
        np.testing.assert_array_equal(counts.confusion.sum(axis=(1, 2)), squares)
        aimed = counts.confusion[:, :NEVER].sum(axis=(1, 2))
        np.testing.assert_array_equal(aimed, counts.targets.sum(axis=1))
    np.testing.assert_array_equal(found.network.targets, found.observation.targets)
    assert found.network.calibrated >= 0.1


def test_what_cannot_be_probed(task, model):
    def ask(network=model, **changes):
        state = None, (Run(network, None, None),)
        request = ProbeRequest(**{"target": "agent", **changes})
        return task.probe(state, request, label="it")

    with pytest.raises(ConfigError, match="no level 3, only 1 to 2"):
        ask(read="3")
    glu = build(task, Allocation("conv_glu", True, 1, 1, 4))
    with pytest.raises(ConfigError, match="keeps no memory to read"):
        ask(glu, read="1")
    trimmed = Allocation(
        "conv_lstm", False, 1, 1, 4, options=(("nonrecurrent_form", "trimmed"),)
    )
    with pytest.raises(ConfigError, match="keeps no memory to read"):
        ask(build(task, trimmed), read="1")
    with pytest.raises(UnknownNameError, match="did you mean 'agent'"):
        ask(target="agnt")
    with pytest.raises(DataError, match="no 'hard' split"):
        ask(split="hard")
    few = parse(SokobanConfig, {"levels": {"n_train": 9, "n_valid": 2, "n_test": 2}})
    state = None, (Run(model, None, None),)
    with pytest.raises(DataError, match="10 training levels or more"):
        Sokoban(few).probe(state, ProbeRequest("agent"), label="it")
    idle = eqx.tree_at(lambda m: m.head.readout.out, model, jnp.zeros((20, 5)))
    with pytest.raises(DataError, match="it solves none of 8 training levels"):
        ask(idle, n_episodes=10)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kernel": 2}, "1 or 3 squares a side, not 2"),
        ({"precision": 1.0}, "between 0 and 1, got 1.0"),
        ({"n_steps": 0}, "1 or more, not 0"),
        ({"n_episodes": 9}, "10 episodes or more"),
        ({"seed": -1}, "0 or more, not -1"),
    ],
)
def test_requests_out_of_range(values, words):
    with pytest.raises(ConfigError, match=words):
        ProbeRequest("agent", **values)


def test_batches_and_episodes_follow_the_size(task, model):
    assert default_episodes((5, 5)) == 1500
    assert default_episodes((10, 10)) == default_episodes((20, 20)) == 3000
    rules = task._evaluation
    assert batch_size(model, rules, "state", 1000) == 128
    assert batch_size(model, rules, "state", 3) == 3
