"""The task: rollouts, the carry and its resets, training."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch import checkpoint
from allocsearch.allocation import Allocation
from allocsearch.candidate import Candidate, describe_candidate, evaluate_checkpoint
from allocsearch.config import TrainingConfig
from allocsearch.model import Model
from allocsearch.parsing import parse
from allocsearch.scaling import Optimizer
from allocsearch.tasks.protocol import build_model
from allocsearch.tasks.sokoban import Sokoban
from allocsearch.tasks.sokoban.config import SokobanConfig
from allocsearch.tasks.sokoban.rollout import unroll
from allocsearch.tasks.sokoban.task import split_environments

RECURRENT = Allocation("conv_lstm", True, 1, 2, 4)
FEEDFORWARD = Allocation("conv_lstm", False, 1, 2, 4)
TRAINING = TrainingConfig(horizon=4000, learning_rate=3e-3)


class Counting(Sokoban):
    """Counts how often a chunk is traced."""

    n_traces = 0

    def chunk(self, run, optimizer):
        self.n_traces += 1
        return super().chunk(run, optimizer)


@pytest.fixture(scope="module")
def task(small) -> Counting:
    return Counting(parse(SokobanConfig, small))


@pytest.fixture(scope="module", params=[RECURRENT, FEEDFORWARD], ids=lambda a: a.arm)
def allocation(request) -> Allocation:
    return request.param


@pytest.fixture(scope="module")
def model(task) -> Model:
    return build(task, RECURRENT)


@pytest.fixture(scope="module")
def acted(task, model):
    """A stream before and after 40 steps, and the experience between."""
    before = task.init_stream(model, key=jax.random.key(1))
    after, experience = act(task, model, before, 40)
    return before, after, experience


@eqx.filter_jit
def build(task: Sokoban, allocation: Allocation) -> Model:
    return build_model(task, allocation, key=jax.random.key(0))


@eqx.filter_jit
def act(task: Sokoban, model: Model, stream, n_steps: int):
    return unroll(task.environment, task.levels("train"), model, stream, n_steps)


def leaves(tree) -> list[np.ndarray]:
    def value(x):
        is_key = jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(x) if is_key else x)

    return [value(x) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def same(a, b) -> bool:
    pairs = zip(leaves(a), leaves(b), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


@eqx.filter_jit
def replayed(model: Model, experience, begins) -> jax.Array:
    """Values of the whole unroll, the carry reset where `begins` says."""
    replay = jax.vmap(model.unroll, in_axes=(0, 1, 1), out_axes=(0, 1))
    _, outputs = replay(experience.carry, experience.observations, begins)
    return outputs.value


def in_segments(model: Model, experience, env: int) -> np.ndarray:
    """Values of one environment, each episode run by itself from a zero carry."""
    begins = np.asarray(experience.begins[:, env])
    step = eqx.filter_jit(lambda c, o: model.step(c, o, False))
    values, carry = [], None
    for t, observation in enumerate(experience.observations[:, env]):
        if begins[t]:
            carry = model.init_carry()
        carry, outputs = step(carry, observation)
        values.append(float(outputs.value))
    return np.array(values)


def test_the_carry_is_reset_exactly_where_levels_begin(model, acted):
    _, _, experience = acted
    assert experience.begins[1:].any(axis=0).all()  # every stream has a reset inside
    whole = replayed(model, experience, experience.begins)
    for env in range(3):
        expected = in_segments(model, experience, env)
        np.testing.assert_allclose(whole[:, env], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(whole, experience.values[:-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_reset_one_step_off_would_be_noticed(model, acted, shift):
    _, _, experience = acted
    wrong = jnp.roll(experience.begins, shift, axis=0).at[0].set(True)
    off = replayed(model, experience, wrong) - experience.values[:-1]
    assert np.abs(off).max() > 1e-3


def test_a_stale_or_missing_carry_would_be_noticed(task, model, acted):
    _, after, _ = acted
    _, following = act(task, model, after, 40)
    right = replayed(model, following, following.begins)
    np.testing.assert_allclose(right, following.values[:-1], rtol=1e-4, atol=1e-5)
    zero = jax.tree.map(jnp.zeros_like, following.carry)
    forgot = eqx.tree_at(lambda e: e.carry, following, zero)
    wrong = replayed(model, forgot, forgot.begins)
    assert np.abs(wrong[0] - right[0]).max() > 1e-3


def test_truncated_episodes_show_their_last_board_and_then_begin_anew(acted):
    _, _, experience = acted
    counts, begins = np.asarray(experience.counts), np.asarray(experience.begins)
    terminated = np.asarray(experience.terminated)
    assert not counts.all()
    # A level begins after a solved board and after the last board of a truncated one.
    np.testing.assert_array_equal(begins[1:], terminated[:-1] | ~counts[:-1])
    assert not np.any(begins & ~counts)
    assert not np.any(terminated & ~counts)
    assert np.all(np.asarray(experience.rewards)[~counts] == 0)
    for env in range(counts.shape[1]):
        starts = np.flatnonzero(begins[:, env])
        for start, end in itertools.pairwise(starts):
            n_steps = counts[start:end, env].sum()
            limited = not counts[end - 1, env]
            assert n_steps <= 6
            assert n_steps >= 3 or not limited


def test_the_first_step_of_every_stream_begins_a_level(task, model):
    stream = task.init_stream(model, key=jax.random.key(4))
    assert stream.begins.all()
    assert not stream.halted.any()
    assert np.all(np.asarray(stream.states.n_steps) == 0)


def test_pieces_equal_the_whole(task, allocation):
    start = task.init(allocation, TRAINING, [0])
    whole, whole_metrics = task.train(start, 3)
    pieces, _ = task.train(start, 1)
    pieces, piece_metrics = task.train(pieces, 2)
    assert same(whole[1], pieces[1])
    assert whole_metrics == piece_metrics
    assert not same(start[1], whole[1])


def test_a_seed_decides_the_run_and_groups_do_not(task):
    one, _ = task.train(task.init(RECURRENT, TRAINING, [3]), 1)
    two, _ = task.train(task.init(RECURRENT, TRAINING, [2, 3]), 1)
    assert same(one[1][0], two[1][1])
    assert not same(one[1][0], two[1][0])


def test_evaluation_changes_nothing_and_repeats(task):
    start = task.init(RECURRENT, TRAINING, [0])
    before = [x.copy() for x in leaves(start)]
    first, again = task.evaluate(start), task.evaluate(start)
    assert first == again
    assert all(map(np.array_equal, before, leaves(start)))
    straight, _ = task.train(start, 2)
    halfway, _ = task.train(start, 1)
    task.evaluate(halfway)
    resumed, _ = task.train(halfway, 1)
    assert same(straight[1], resumed[1])


def test_metrics_have_the_objectives_and_the_baseline_too(task):
    state, (training,) = task.train(task.init(RECURRENT, TRAINING, [0]), 1)
    (scores,) = task.evaluate(state)
    names = {objective.name for objective in task.objectives}
    assert names <= set(scores)
    assert set(task.baseline()) == set(scores)
    assert all(np.isfinite(list({**scores, **training}.values())))
    assert task.baseline() == task.baseline()
    assert task.evaluate(state, "test") != [{}]


def test_a_chunk_is_compiled_once(task):
    state = task.init(RECURRENT, TRAINING, [0])
    task.train(state, 1)
    n_traces = task.n_traces
    task.train(state, 2)
    task.train(task.init(RECURRENT, TRAINING, [1]), 1)
    assert task.n_traces == n_traces
    other = TrainingConfig(horizon=9000, learning_rate=1e-4)
    task.train(task.init(RECURRENT, other, [0]), 1)
    assert task.n_traces == n_traces


def test_steps_and_updates_add_up(task):
    assert task.steps_per_chunk == 6 * 12 * 2
    assert task.updates_per_chunk == 4
    state, _ = task.train(task.init(RECURRENT, TRAINING, [0]), 3)
    assert int(state[1][0].optimizer.n_updates) == 3 * task.updates_per_chunk


def test_minibatches_hold_whole_environments(acted):
    _, _, experience = acted
    batches = split_environments(experience, 2)
    for index, envs in enumerate((slice(0, 3), slice(3, 6))):
        batch = jax.tree.map(lambda x, i=index: x[i], batches)
        np.testing.assert_array_equal(batch.actions, experience.actions[:, envs])
        assert same(batch.carry, jax.tree.map(lambda x, s=envs: x[s], experience.carry))


def test_gradients_of_both_networks_are_finite_and_reach_every_part(task, allocation):
    model = build(task, allocation)
    stream = task.init_stream(model, key=jax.random.key(1))
    _, experience = act(task, model, stream, 40)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda m, e: task._loss(m, e)[0]))
    gradients = gradient(model, experience)
    for part in (gradients.encoder, gradients.core, gradients.head):
        assert all(np.isfinite(x).all() for x in leaves(part))
        assert any(np.any(x != 0) for x in leaves(part))


def test_head_penalty_is_the_sum_of_squares_of_its_matrices(small, task, model, acted):
    _, _, experience = acted
    fields = {**small, "loss": {"head_penalty": 0.25}}
    penalised = Sokoban(parse(SokobanConfig, fields))
    loss = eqx.filter_jit(lambda t, m, e: t._loss(m, e)[0])
    more = loss(penalised, model, experience) - loss(task, model, experience)
    head = model.head
    matrices = (head.queries, head.readout.out)
    expected = 0.25 * sum(np.sum(np.asarray(x) ** 2) for x in matrices)
    np.testing.assert_allclose(more, expected, rtol=1e-3)


def test_loss_is_the_same_for_scan_and_all_at_once(task):
    """A network without recurrence is not scanned over time, with the same result."""
    model = build(task, FEEDFORWARD)
    stream = task.init_stream(model, key=jax.random.key(1))
    _, experience = act(task, model, stream, 40)
    whole = replayed(model, experience, experience.begins)
    np.testing.assert_allclose(whole, experience.values[:-1], rtol=1e-4, atol=1e-5)


def test_optimizer_is_shared_by_learning_rates():
    program = Optimizer(TRAINING).program
    assert program == Optimizer(TrainingConfig(learning_rate=1.0)).program
    assert program != Optimizer(TrainingConfig(b2=0.5)).program


def test_seeds_trained_together_are_those_trained_apart(task, allocation):
    """To rounding: a mapped program may sum in another order."""
    together = TRAINING.model_copy(update={"seeds_together": True})
    many, metrics = task.train(task.init(allocation, together, [3, 4]), 2)
    for run, measured, seed in zip(many[1], metrics, (3, 4), strict=True):
        one, (alone,) = task.train(task.init(allocation, TRAINING, [seed]), 2)
        for a, b in zip(leaves(run.model), leaves(one[1][0].model), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
        assert measured["reward"] == pytest.approx(alone["reward"], abs=1e-6)
    pieces, _ = task.train(task.init(allocation, together, [3, 4]), 1)
    pieces, _ = task.train(pieces, 1)
    assert same(many[1], pieces[1])


def test_half_precision_trains_the_same_parameters(task, allocation):
    """Losses agree to bfloat16's two or three digits; what is kept is float32."""
    half = TRAINING.model_copy(update={"precision": "bfloat16"})
    start = task.init(allocation, half, [0])
    after, (measured,) = task.train(start, 1)
    kinds = {x.dtype for x in leaves(after[1]) if np.issubdtype(x.dtype, np.inexact)}
    assert kinds == {np.dtype(np.float32)}
    _, (full,) = task.train(task.init(allocation, TRAINING, [0]), 1)
    assert measured["entropy"] == pytest.approx(full["entropy"], rel=0.02)
    assert measured["entropy"] != full["entropy"]
    before, moved = start[1][0].model, after[1][0].model
    for part in ("encoder", "core", "head"):
        assert not same(getattr(before, part), getattr(moved, part))


def test_a_checkpoint_is_scored_on_levels_of_another_size(small, task, tmp_path):
    """With no training data beside them; the same network as on its own levels."""
    candidate = Candidate(RECURRENT, TRAINING, (3,))
    state, _ = task.train(task.init(RECURRENT, TRAINING, (3,)), 1)
    metadata = {"candidate": describe_candidate(candidate)}
    checkpoint.save(tmp_path / "kept", state, metadata)
    assert evaluate_checkpoint(tmp_path / "kept", task, "test") == task.evaluate(
        state, "test"
    )
    levels = tmp_path / "levels.xsb"
    levels.write_text("#######\n#@ $ .#\n#  $ .#\n#######\n")
    fields = {**small, "data": str(levels)}
    (scores,) = evaluate_checkpoint(
        tmp_path / "kept", Sokoban(parse(SokobanConfig, fields)), "test"
    )
    assert scores["episode_length"] <= 10
