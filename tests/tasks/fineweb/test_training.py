"""Training on streams: what it sees, where gradients stop, resuming, accumulation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch import checkpoint
from allocsearch.allocation import Allocation
from allocsearch.config import TrainingConfig
from allocsearch.errors import ConfigError, DataError
from allocsearch.parsing import parse
from allocsearch.scaling import Optimizer
from allocsearch.tasks.fineweb import FineWeb
from allocsearch.tasks.fineweb.config import FineWebConfig
from allocsearch.tasks.fineweb.corpus import Corpus
from allocsearch.tasks.fineweb.shards import ArrayShard
from allocsearch.tasks.fineweb.tokenization import load_tokenizer

WINDOW, SLOTS = 4, 4
TRAINING = TrainingConfig(horizon=480, learning_rate=3e-3, warmup=0)
GRU = Allocation("gru", True, 1, 2, 6)
ATTENDING = Allocation(
    "transformer", True, 1, 2, 4, options=(("window", WINDOW), ("ratio", 1))
)
PARALLEL = Allocation(
    "transformer", False, 1, 2, 4, options=(("window", WINDOW), ("ratio", 1))
)


def random_corpus(*sizes, seed=0):
    """Shards of random bytes."""
    generator = np.random.default_rng(seed)
    tokens = [generator.integers(0, 256, n) for n in sizes]
    details = tuple({"sha256": str(t.sum()), "n_tokens": len(t)} for t in tokens)
    shards = tuple(ArrayShard(t) for t in tokens)
    return Corpus(load_tokenizer("bytes"), shards, "random bytes", details)


# Shards of two and of three windows, so that five windows are an epoch.
SIZES = (2 * WINDOW * SLOTS + 1, 3 * WINDOW * SLOTS + 3)


def make_task(sizes=SIZES, seed=0, **fields):
    own = {
        "window": WINDOW,
        "n_slots": SLOTS,
        "updates_per_chunk": 1,
        "loss_chunk": 8,
        "evaluation": {"n_valid": 65, "n_test": 65, "n_slots": 2},
    }
    task = FineWeb(parse(FineWebConfig, {**own, **fields}))
    task.__dict__["corpora"] = {
        "train": random_corpus(*sizes, seed=seed),
        "valid": random_corpus(65, seed=1),
        "test": random_corpus(65, seed=2),
    }
    return task


def leaves(tree):
    return [np.asarray(x) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def same(a, b):
    pairs = zip(leaves(a), leaves(b), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


@pytest.fixture(scope="module")
def task():
    return make_task()


@pytest.mark.parametrize("allocation", [GRU, ATTENDING, PARALLEL], ids=str)
def test_resuming_at_every_window_boundary_is_exact(task, allocation, tmp_path):
    """Over shards (after 2) and epochs (after 5), from saves of resumed runs too."""
    straight = resumed = task.init(allocation, TRAINING, (0,))
    for i in range(12):
        straight, metrics = task.train(straight, 1)
        fresh = task.init(allocation, TRAINING, (0,))
        checkpoint.save(tmp_path / "c", resumed, {})
        resumed, again = task.train(checkpoint.load(tmp_path / "c", fresh), 1)
        assert metrics == again
        assert same(straight, resumed), i
    assert int(straight[1][0].stream.position) == 12


def test_a_run_is_the_same_in_chunks_of_several_updates():
    one, three = make_task(), make_task(updates_per_chunk=3)
    a, _ = one.train(one.init(GRU, TRAINING, (0,)), 6)
    b, _ = three.train(three.init(GRU, TRAINING, (0,)), 2)
    for x, y in zip(leaves(a[1][0]), leaves(b[1][0]), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def stepped_losses(model, carries, tokens, reset):
    """The loss of every token of one window, by single steps of every stream."""
    losses, after = [], []
    for b, carry in enumerate(carries):
        for t in range(tokens.shape[1] - 1):
            carry, logits = model.step(carry, tokens[b, t], reset[b, t])
            losses.append(-jax.nn.log_softmax(logits)[tokens[b, t + 1]])
        after.append(carry)
    return jnp.mean(jnp.stack(losses)), after


@pytest.mark.parametrize("allocation", [GRU, PARALLEL], ids=lambda a: a.arm)
def test_updates_are_those_of_single_steps_over_the_slots(task, allocation):
    """Windows, resets, the carry between them and where its gradient stops."""
    trained, _ = task.train(task.init(allocation, TRAINING, (0,)), 3)
    optimizer, (run,) = task.init(allocation, TRAINING, (0,))
    model, state = run.model, run.optimizer
    carries = [model.init_carry()] * SLOTS

    @eqx.filter_jit
    def update(model, state, carries, tokens, reset):
        def loss(model):
            return stepped_losses(model, carries, tokens, reset)

        gradients, after = eqx.filter_grad(loss, has_aux=True)(model)
        return *optimizer.update(gradients, state, model), after

    read = [np.asarray(shard.read(0, 10**6)) for shard in task.corpora["train"].shards]
    for shard, first in ((0, 0), (0, 1), (1, 0)):
        n = (len(read[shard]) - 1) // SLOTS // WINDOW * WINDOW
        starts = [b * n + first * WINDOW for b in range(SLOTS)]
        tokens = np.stack([read[shard][s : s + WINDOW + 1] for s in starts])
        reset = np.zeros((SLOTS, WINDOW), bool)
        if not allocation.recurrent:
            carries = [model.init_carry()] * SLOTS
        elif first == 0:
            reset[:, 0] = True
        model, state, carries = update(model, state, carries, tokens, reset)
    ours = trained[1][0].model
    for x, y in zip(leaves(ours), leaves(model), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("allocation", [GRU, PARALLEL], ids=lambda a: a.arm)
@pytest.mark.parametrize("n", [2, 4])
def test_accumulated_gradients_are_those_of_the_whole_batch(allocation, n):
    # Plain moments move with the gradient: Adam's first step only knows its sign.
    task = make_task()
    whole, parts = (
        task.init(allocation, TRAINING.model_copy(update={"accumulation": k}), (0,))
        for k in (1, n)
    )
    whole, a = task.train(whole, 1)
    parts, b = task.train(parts, 1)
    assert a[0]["loss"] == pytest.approx(b[0]["loss"], rel=1e-5)
    moments = [leaves(s[1][0].optimizer.moments) for s in (whole, parts)]
    for x, y in zip(*moments, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-7)
    carries = [leaves(s[1][0].stream.carry) for s in (whole, parts)]
    for x, y in zip(*carries, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_parts_that_do_not_divide_the_streams_are_refused(task):
    training = TRAINING.model_copy(update={"accumulation": 3})
    with pytest.raises(ConfigError, match="does not divide"):
        task.init(GRU, training, (0,))


def test_other_data_than_a_run_was_trained_on_are_refused(task):
    state, _ = task.train(task.init(GRU, TRAINING, (0,)), 1)
    with pytest.raises(DataError, match="other data"):
        make_task(seed=7).train(state, 1)


def test_low_precision_trains_and_keeps_its_carry_in_full(task):
    training = TRAINING.model_copy(update={"precision": "bfloat16"})
    state, _ = task.train(task.init(GRU, training, (0,)), 2)
    low, full = task.train(state, 1)[1], None
    exact, _ = task.train(task.init(GRU, TRAINING, (0,)), 2)
    full = task.train(exact, 1)[1]
    assert {x.dtype for x in leaves(state[1][0].stream.carry)} == {np.dtype("float32")}
    assert low[0]["loss"] == pytest.approx(full[0]["loss"], rel=0.02)


def test_documents_start_streams_anew_if_asked():
    task = make_task(reset_at_documents=True)
    tokens = task.corpora["train"].shards[0]._tokens
    tokens[3] = 256
    run = task.init(GRU, TRAINING, (0,))[1][0]
    reset = np.asarray(task.feed(run).stream.batch.reset)
    assert reset.sum() == SLOTS + 1
    assert reset[0, 0, 3]


def test_seeds_together_are_seeds_alone(task):
    together = TRAINING.model_copy(update={"seeds_together": True})
    pair, metrics = task.train(task.init(GRU, together, (0, 1)), 2)
    for seed in (0, 1):
        alone, own = task.train(task.init(GRU, TRAINING, (seed,)), 2)
        assert own[0]["loss"] == pytest.approx(metrics[seed]["loss"], rel=1e-5)
        pairs = zip(leaves(alone[1][0]), leaves(pair[1][seed]), strict=True)
        for x, y in pairs:
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_the_optimizer_is_told_how_many_updates_there_are(task):
    run = task.init(GRU, TRAINING, (0,))[1][0]
    assert int(run.optimizer.horizon) == 30  # 480 tokens of 16 an update
    assert isinstance(task.init(GRU, TRAINING, (0,))[0], Optimizer)
