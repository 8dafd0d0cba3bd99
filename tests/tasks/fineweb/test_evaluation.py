"""Scores against single steps, sums by hand and counts."""

import math
from collections import Counter

import equinox as eqx
import numpy as np
import pytest

from allocsearch.allocation import Allocation
from allocsearch.config import TrainingConfig
from allocsearch.errors import ConfigError
from allocsearch.parsing import parse
from allocsearch.tasks.fineweb import FineWeb
from allocsearch.tasks.fineweb.config import FineWebConfig
from allocsearch.tasks.fineweb.evaluation import HeldOut, Losses, positions_of
from allocsearch.testing import check_task

WINDOW = 4
FIELDS = {
    "window": WINDOW,
    "n_slots": 2,
    "updates_per_chunk": 1,
    "evaluation": {"n_valid": 30, "n_test": 30, "n_slots": 2},
}
OPTIONS = (("window", WINDOW), ("ratio", 1))
GRU = Allocation("gru", True, 1, 1, 4)
PARALLEL = Allocation("transformer", False, 1, 1, 4, options=OPTIONS)


@pytest.fixture(scope="module")
def task():
    return FineWeb(parse(FineWebConfig, FIELDS))


def network(task, allocation):
    state = task.init_trained(allocation, TrainingConfig(), (0,))
    return state[1][0].model


def stepped(model, tokens, fresh_each_window):
    """Losses of one slot, (n, window), by single steps."""
    step, carry = eqx.filter_jit(model.step), model.init_carry()
    losses = np.zeros((len(tokens), WINDOW))
    for i, window in enumerate(tokens):
        carry = model.init_carry() if fresh_each_window else carry
        for t in range(WINDOW):
            carry, logits = step(carry, window[t], False)
            logits = np.asarray(logits, np.float64)
            p = np.exp(logits) / np.exp(logits).sum()
            losses[i, t] = -np.log(p[window[t + 1]])
    return losses


@pytest.mark.parametrize("allocation", [GRU, PARALLEL], ids=lambda a: a.arm)
def test_losses_are_those_of_single_steps(task, allocation):
    model, held_out = network(task, allocation), task.held_out("valid")
    assert held_out.tokens.shape == (3, 2, WINDOW + 1)
    recurrent = allocation.recurrent
    each = [stepped(model, held_out.tokens[:, s], not recurrent) for s in range(2)]
    scores = task.score_each(model, "valid")
    assert scores.metrics["loss"] == pytest.approx(np.mean(each), rel=1e-5)
    slot, position = scores.items["slot"], scores.items["position"]
    first = scores.items["loss"][(slot == 1) & (position == 0)]
    expected = [each[1][0, 0]] if recurrent else each[1][:, 0]
    np.testing.assert_allclose(first, expected, rtol=1e-5)
    if not recurrent:
        rolling = [stepped(model, held_out.tokens[:, s], False) for s in range(2)]
        streaming = scores.metrics["streaming_loss"]
        assert streaming == pytest.approx(np.mean(rolling), rel=1e-5)
        assert abs(streaming - scores.metrics["loss"]) > 1e-7


def test_the_protocol_holds(task):
    check_task(task, GRU, TrainingConfig(horizon=32))


def test_units_of_the_loss():
    values = np.full((1, 1, 4), math.log(8.0))
    metrics = Losses(values, np.arange(4).reshape(1, 1, 4), n_bytes=6).metrics()
    assert metrics["perplexity"] == pytest.approx(8.0)
    assert metrics["bits_per_byte"] == pytest.approx(4 * 3 / 6)


def test_loss_by_position_is_a_mean_over_powers_of_two():
    values = np.arange(10.0).reshape(1, 1, 10)
    curve = Losses(values, np.arange(10).reshape(1, 1, 10), 10).by_position()
    assert curve == {
        "position": [0, 1, 2, 4, 8],
        "tokens": [1, 1, 2, 4, 2],
        "loss": [0.0, 1.0, 2.5, 5.5, 8.5],
    }


def test_positions_count_from_the_last_reset():
    reset = np.zeros((3, 2, 3), bool)
    reset[0, :, 0] = True
    reset[1, 1, 2] = True
    positions = positions_of(reset)
    assert positions[:, 0].reshape(-1).tolist() == list(range(9))
    assert positions[:, 1].reshape(-1).tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]


@pytest.mark.parametrize("split", ["valid", "test"])
def test_the_baseline_is_a_guess_by_frequency(task, split):
    train = task.corpora["train"].shards[0]
    counts = Counter(train.read(0, train.n_tokens).tolist())
    targets = task.held_out(split).tokens[:, :, 1:].reshape(-1).tolist()
    total = train.n_tokens + 257
    losses = [-math.log((counts[target] + 1) / total) for target in targets]
    expected = sum(losses) / len(losses)
    assert task.baseline(split)["loss"] == pytest.approx(expected)


def test_held_out_tokens_are_disjoint_and_in_order(task):
    valid, test = task.corpora["valid"], task.corpora["test"]
    whole = valid.shards[0].whole
    read = [c.shards[0].read(0, 30).tolist() for c in (valid, test)]
    assert [*read[0], *read[1]] == whole.read(0, 60).tolist()


def test_bytes_of_text_leave_out_the_ends_of_documents(task):
    held_out = task.held_out("valid")
    assert isinstance(held_out, HeldOut)
    assert held_out.n_bytes == (held_out.tokens[:, :, 1:] < 256).sum()


def test_too_few_held_out_tokens_are_refused():
    with pytest.raises(ConfigError, match="n_test = 8 is less than one window"):
        parse(FineWebConfig, {"window": 4, "evaluation": {"n_test": 8, "n_slots": 2}})
