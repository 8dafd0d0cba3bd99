"""The task: laws, scores, curriculum, budgets, and that networks learn it."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch.allocation import Allocation
from allocsearch.config import SpaceConfig, TrainingConfig
from allocsearch.errors import UnknownNameError
from allocsearch.space import core_flops, feasible_space
from allocsearch.tasks.protocol import n_chunks
from allocsearch.tasks.records import Scores
from allocsearch.testing import ConformanceError, check_task
from allocsearch.work import Budget
from allocsearch_statetrack.groups import GROUPS
from allocsearch_statetrack.task import StateTrack, StateTrackConfig

MICRO = StateTrack.budgets["micro"]


def micro_task(**fields) -> StateTrack:
    return StateTrack(StateTrackConfig(**{**MICRO.task, **fields}))


@pytest.fixture(scope="module")
def trained():
    """The micro budget's reference, trained to its horizon on one seed."""
    task, training = micro_task(), TrainingConfig(**MICRO.training)
    state = task.init(MICRO.reference, training, (0,))
    return task, *task.train(state, n_chunks(task, training))


def test_the_laws_of_a_task_hold():
    training = TrainingConfig(**{**MICRO.training, "horizon": 4 * 4 * 8})
    task = micro_task(batch=4, updates_per_chunk=1, n_held_out=8)
    check_task(task, Allocation("mlp", True, 1, 2, 8), training)


class OffByOne(StateTrack):
    """Tells items whose mean is not the metric."""

    def score_each(self, model, split):
        metrics = self.score(model, split)
        right = np.full(3, metrics["accuracy"] + 1)
        return Scores(metrics, {"right": right}, {"accuracy": "right"})


def test_items_that_contradict_their_metric_are_caught():
    fields = {"batch": 4, "updates_per_chunk": 1, "n_held_out": 8}
    task = OffByOne(StateTrackConfig(**{**MICRO.task, **fields}))
    training = TrainingConfig(**{**MICRO.training, "horizon": 4 * 4 * 8})
    with pytest.raises(ConformanceError, match="accuracy is"):
        check_task(task, Allocation("mlp", True, 1, 2, 8), training)


def test_micro_learns_within_its_horizon(trained):
    task, state, metrics = trained
    (valid,), (test,) = task.evaluate(state), task.evaluate(state, "test")
    assert valid["accuracy"] > 20 / 120
    assert test["accuracy"] > 20 / 120
    assert valid["loss"] < math.log(120) / 2
    assert metrics[0]["stream_length"] == 8


@pytest.mark.parametrize(
    ("length", "loss", "then"), [(4, 0.2, 4), (4, 0.1, 8), (24, 0.1, 32), (32, 0.1, 32)]
)
def test_streams_double_when_the_loss_is_low(length, loss, then):
    task = StateTrack(StateTrackConfig())
    assert int(task.next_length(jnp.asarray(length), jnp.asarray(loss))) == then


def test_the_baseline_is_chance():
    assert micro_task().baseline()["accuracy"] == pytest.approx(1 / 120)
    assert micro_task().baseline("test")["loss"] == pytest.approx(math.log(120))
    assert micro_task(group="s3").baseline()["accuracy_128"] == pytest.approx(1 / 6)


class Oracle:
    """Follows the product in plain numpy, and so stands where a network would."""

    def __init__(self, task: StateTrack, forget: bool = False):
        self.task, self.forget = task, forget

    def init_carry(self):
        return jnp.zeros((), jnp.int32)

    def unroll(self, carry, tokens, reset):
        table = jnp.asarray(GROUPS[self.task.config.group].table)

        def step(element, now):
            token, starts = now
            before = jnp.where(starts | self.forget, 0, element)
            element = table[token, before]
            return element, jax.nn.one_hot(element, self.task.n_classes)

        return jax.lax.scan(step, carry, (tokens, reset))


@pytest.mark.parametrize(
    ("control", "forget", "accuracy"),
    [(False, False, 1.0), (True, True, 1.0), (False, True, 0.0), (True, False, 0.0)],
)
def test_the_score_knows_who_follows_the_product(control, forget, accuracy):
    task = micro_task(negative_control=control)
    tokens = jnp.asarray(task.held_out("valid"))
    _, hits = task.judge(Oracle(task, forget), tokens)  # type: ignore[arg-type]
    assert float(hits[0]) == 1.0
    assert float(hits[7]) == pytest.approx(accuracy, abs=0.12)


def test_the_control_asks_for_the_generator_alone():
    task = micro_task(negative_control=True)
    batch = task._draw(jnp.asarray(8), key=jax.random.key(0))
    elements = [GROUPS["s5"].elements[label] for label in np.ravel(batch.labels)]
    assert elements == [GROUPS["s5"].generators[t] for t in np.ravel(batch.tokens)]
    assert int(batch.reset.sum()) == 1


def test_splits_differ_and_are_the_same_every_time():
    task = micro_task()
    valid, test = task.held_out("valid"), task.held_out("test")
    assert not {row.tobytes() for row in valid} & {row.tobytes() for row in test}
    assert np.array_equal(valid, micro_task().held_out("valid"))
    assert not np.array_equal(valid, micro_task(data_seed=1).held_out("valid"))
    assert task.manifest()["valid"]["sha256"] != task.manifest()["test"]["sha256"]
    with pytest.raises(UnknownNameError, match="did you mean 'test'"):
        task.held_out("tests")


def test_equal_tasks_share_compiled_programs():
    assert micro_task() == micro_task()
    assert hash(micro_task()) == hash(micro_task())
    assert micro_task() != micro_task(length=16)


def test_tiny_is_the_work_of_its_reference():
    assert core_flops(StateTrack.budgets["tiny"].reference, ()) == 98_304


@pytest.mark.parametrize("name", StateTrack.budgets)
@pytest.mark.parametrize("expert", StateTrack.experts, ids=lambda e: e.name)
def test_budgets_leave_a_choice_of_depths_and_experts(name, expert):
    named = StateTrack.budgets[name]
    budget = Budget(
        core_flops(named.reference, ()),
        name,
        tolerance=named.tolerance,
        granule=named.granule,
    )
    space = feasible_space(
        expert.name,
        recurrent=expert.arms == ("recurrent",),
        budget=budget,
        axes=SpaceConfig(**named.space),
        options=tuple(expert.options.items()),
    )
    choice = {L: {a.n_experts for a in space if a.depth == L} for L in (1, 2, 4, 8)}
    at_least = 3 if name == "tiny" else 1
    assert all(len(experts) >= at_least for experts in choice.values())
    assert min(a.width for a in space) >= 4


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_recurrent_level_tracks_s5(seed):
    tiny = StateTrack.budgets["tiny"]
    task, training = StateTrack(StateTrackConfig()), TrainingConfig(**tiny.training)
    state = task.init(tiny.reference, training, (seed,))
    state, _ = task.train(state, n_chunks(task, training))
    (metrics,) = task.evaluate(state)
    assert metrics["accuracy"] >= 0.95
