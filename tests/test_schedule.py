"""What a study does beyond proposing: rungs, several objectives, races, fresh seeds.

The task trains in no time: scores are a formula of allocation, seed and steps.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from allocsearch import registry
from allocsearch.allocation import Allocation
from allocsearch.config import ExpertConfig
from allocsearch.driver import run
from allocsearch.errors import ConfigError, UnknownNameError
from allocsearch.observer import Observer
from allocsearch.parsing import Section
from allocsearch.results import Objective
from allocsearch.search import SearchStudy
from allocsearch.study import load_study
from allocsearch.tasks.protocol import Task
from allocsearch.tasks.records import NamedBudget


class Pass(eqx.Module):
    weight: jax.Array

    def __call__(self, x):
        return x @ self.weight


def quality(allocation):
    return 1.0 - 0.1 * abs(allocation.depth - 2) + 0.01 * allocation.n_experts


class Learning(Task):
    """The score rises to an allocation's quality, the shallow ones first."""

    class Config(Section):
        noise: float = 0.0
        """Spread between seeds."""
        second: float = 0.0
        """How long a chunk takes."""

    name = "learning"
    budgets: ClassVar = {
        "b": NamedBudget(
            Allocation("mlp", True, 2, 1, 32),
            tolerance=0.3,
            training={"horizon": 90, "n_seeds": 2, "n_evaluations": 9},
            search={"n_trials": 9, "confirm_seeds": 0},
        ),
        "bb": NamedBudget(
            Allocation("mlp", True, 2, 1, 32),
            multiple=4,
            tolerance=0.3,
            training={"horizon": 90, "n_seeds": 2, "n_evaluations": 9},
            search={"n_trials": 9, "confirm_seeds": 0},
        ),
    }
    experts = (ExpertConfig(name="mlp"),)
    objectives = (
        Objective("score", "points", "maximize"),
        Objective("regret", "points", "minimize"),
    )
    unit = "steps"
    chunks: ClassVar = []

    def __init__(self, config):
        self.config = config

    positions = ()
    observation = jax.ShapeDtypeStruct((3,), jnp.float32)
    steps_per_chunk = 10

    def encoder(self, width, *, key):
        return Pass(jax.random.normal(key, (3, width)))

    def head(self, width, *, key):
        return Pass(jax.random.normal(key, (width, 1)))

    def init(self, allocation, training, seeds):
        del training
        return allocation, seeds, jnp.zeros(())

    def train(self, state, n_chunks):
        allocation, seeds, count = state
        self.chunks.append(allocation)
        return (allocation, seeds, count + n_chunks), [{"loss": 1.0}] * len(seeds)

    def evaluate(self, state, split="valid"):
        del split
        allocation, seeds, count = state
        learned = min(1.0, float(count) / 9 * 2 / allocation.depth**0.5)
        return [
            {
                "score": quality(allocation) * learned
                + self.config.noise * (s % 97) / 97,
                "regret": 1.0 - learned,
            }
            for s in seeds
        ]

    def baseline(self, split="valid"):
        del split
        return {}

    def manifest(self):
        return {"data": "none"}


@pytest.fixture(autouse=True)
def _learning():
    registry.register("task", "learning", Learning)
    Learning.chunks.clear()
    yield
    registry.unregister("task", "learning")


@pytest.fixture
def config(tmp_path):
    def make(search=(), **changes):
        base = {
            "name": "s",
            "task": {"name": "learning"},
            "budgets": "b",
            "arms": "recurrent",
            "space": {
                "depths": [1, 2, 4],
                "n_experts": [1, 2, 4],
                "radii": ["full"],
                "aggregations": ["mean"],
            },
            "search": dict(search),
            "output": {"directory": str(tmp_path / "studies")},
        }
        return {**base, **changes}

    return make


HALVING = {"rungs": "halving", "sampler": "grid"}


def plain(study):
    return [
        (t.number, t.state, t.allocation.label, t.score, t.fraction, len(t.seeds))
        for t in study.trials()
    ]


def test_rungs_train_less_and_find_the_same(config):
    whole = run(config({"sampler": "grid"}, name="whole"))
    n_whole = len(Learning.chunks)
    Learning.chunks.clear()
    study = run(config(HALVING))
    best = [max(s.trials(), key=lambda t: t.score) for s in (whole, study)]
    assert best[0].allocation == best[1].allocation
    assert len(Learning.chunks) < n_whole / 2


def test_with_rungs_every_depth_has_one_full_training(config):
    trials = run(config(HALVING)).trials()
    complete = [t for t in trials if t.state == "complete"]
    assert {t.allocation.depth for t in complete} == {1, 2, 4}
    assert {t.state for t in trials} == {"complete", "pruned"}
    assert all(t.fraction == 1.0 for t in complete)
    pruned = [t for t in trials if t.state == "pruned"]
    assert all(t.fraction < 1.0 and "of the horizon" in t.reason for t in pruned)


def test_pruned_trials_are_neither_best_nor_on_a_front(config):
    study = run(config(HALVING))
    assert all(t.state == "complete" for t in study.pareto())


class StopAfter:
    def __init__(self, n):
        self.left = n

    def __call__(self):
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("search", [HALVING, {"rungs": "hyperband", "sampler": "tpe"}])
@pytest.mark.parametrize("n", [7])
def test_stopped_and_resumed_as_undisturbed(config, search, n):
    undisturbed = run(config(search, name="undisturbed"))
    for _ in range(60):
        study = run(config(search), should_stop=StopAfter(n))
        if all(t.state != "running" for t in study.trials()) and study.finalists():
            break
    assert plain(study) == plain(undisturbed)


def test_killed_between_proposing_and_sending_nothing_stays_running(
    config, monkeypatch
):
    send, calls = SearchStudy.send, []

    def die_once(self, number, until):
        calls.append(number)
        if len(calls) == 3:
            raise KeyboardInterrupt
        send(self, number, until)

    undisturbed = run(config(HALVING, name="undisturbed"))
    monkeypatch.setattr(SearchStudy, "send", die_once)
    with pytest.raises(KeyboardInterrupt):
        run(config(HALVING))
    assert plain(run(config(HALVING))) == plain(undisturbed)


def test_promoted_trials_go_on_from_their_checkpoint(config):
    study = run(config(HALVING))
    chunks = sum(round(9 * t.fraction) for t in study.trials())
    assert len(Learning.chunks) == chunks


def test_several_objectives_are_told_and_searched(config):
    search = {"objectives": ["score", "depth", "step_seconds"], "n_trials": 6}
    study = run(config(search))
    assert [o.name for o in study.cells[0].objectives] == search["objectives"]
    assert all(t.measures["step_seconds"] > 0 for t in study.trials())
    assert study.pareto("step_seconds")


def test_several_objectives_with_rungs(config):
    study = run(config({**HALVING, "objectives": ["score", "parameters"]}))
    assert {t.state for t in study.trials()} == {"complete", "pruned"}


def test_latency_is_measured_where_it_is_an_objective(config):
    search = {"objectives": ["score", "latency_seconds"], "n_trials": 2}
    trials = run(config(search)).trials()
    assert all(0 < t.measures["latency_seconds"] < 10 for t in trials)


def test_another_objective_of_the_task_decides_what_is_best(config):
    trials = run(config({"objectives": ["regret"], "n_trials": 3})).trials()
    assert trials[0].objective.name == "regret"


@pytest.mark.parametrize(
    ("search", "error", "message"),
    [
        ({"objectives": ["scor"]}, UnknownNameError, "'score'"),
        ({"objectives": ["depth"]}, ConfigError, "only costs"),
        ({"objectives": ["score", "score"]}, ConfigError, "twice"),
        ({"mode": "claim", "rungs": "halving"}, ConfigError, "rungs"),
        ({"fields": {"task.noise": [1.0]}}, ConfigError, "field of training"),
        ({"fields": {"training.horizon": [1]}}, ConfigError, "training.horizon"),
        ({"fields": {"training.b2": [2.0]}}, ConfigError, "training"),
    ],
)
def test_what_does_not_go_together_is_refused(config, search, error, message, tmp_path):
    with pytest.raises(error, match=message):
        run(config(search))
    assert not (tmp_path / "studies").exists()


def test_training_fields_are_axes(config):
    search = {"fields": {"training.b2": [0.9, 0.99]}, "sampler": "grid", "n_trials": 4}
    trials = run(config(search)).trials()
    assert [t.settings["b2"] for t in trials] == [0.9, 0.99, 0.9, 0.99]


def test_a_sweep_is_bounded_from_above_only(config):
    space = {"depths": [1, 2], "n_experts": [1, 2], "widths": [8, 16]}
    study = run(config({"mode": "sweep"}, space=space))
    trials = study.trials()
    shapes = {(t.allocation.depth, t.allocation.n_experts) for t in trials}
    assert shapes == {(1, 1), (1, 2), (2, 1), (2, 2)}
    assert {t.allocation.width for t in trials} == {8, 16}
    assert len(trials) == 8
    budget = study.cells[0].setting.budget
    for trial in trials:
        assert trial.audit.work.core <= budget.flops
        assert trial.matched == (trial.audit.work.core >= budget.least)
    assert not all(t.matched for t in trials)


def test_warm_start_begins_with_the_best_of_the_smaller_budget(config):
    search = {"warm_start": 2, "n_trials": 10, "sampler": "random"}
    study = run(config(search, budgets=["b", "bb"]))
    small = [t for t in study.trials() if t.budget == "b"]
    large = [t for t in study.trials() if t.budget == "bb"]
    ranked = sorted(small, key=lambda t: -t.score)[:2]

    def shape(trial):
        a = trial.allocation
        return a.depth, a.n_experts, a.radius, a.aggregation

    assert list(map(shape, large[:2])) == list(map(shape, ranked))
    assert all(
        t.allocation.width > s.allocation.width
        for t, s in zip(large[:2], ranked, strict=True)
    )


def test_a_race_adds_whole_groups_of_seeds_to_contenders_alone(config):
    task = {"name": "learning", "noise": 0.05}
    search = {"race_groups": 2, "sampler": "grid"}
    trials = run(config(search, task=task)).trials()
    sizes = {len(t.seeds) for t in trials}
    assert sizes <= {2, 4, 6}
    assert len(sizes) > 1
    best = max(trials, key=lambda t: t.score)
    assert len(best.seeds) == max(sizes)
    assert len({s.seed for s in best.seeds}) == len(best.seeds)
    least = min(trials, key=lambda t: t.score)
    assert len(least.seeds) == 2


def test_winners_are_confirmed_with_fresh_seeds(config):
    task = {"name": "learning", "noise": 0.01}
    trials = run(config({"confirm_seeds": 3, "sampler": "grid"}, task=task)).trials()
    confirmed = [t for t in trials if t.confirmed]
    best = max(trials, key=lambda t: t.score)
    assert [t.number for t in confirmed] == [best.number]
    fresh = {s.seed for s in best.confirmed}
    assert len(fresh) == 3
    assert not fresh & {s.seed for t in trials for s in t.seeds}
    expected = quality(best.allocation) + 0.01 * sum(s % 97 for s in fresh) / 291
    assert best.confirmed_mean("score") == pytest.approx(expected)


class Notes(Observer):
    def __init__(self):
        self.said = []

    def note(self, text):
        self.said.append(text)


def test_a_timeout_is_of_the_study_and_a_higher_one_goes_on(config, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    real = Learning.train

    def slow(self, state, n_chunks):
        now[0] += 10.0
        return real(self, state, n_chunks)

    monkeypatch.setattr(Learning, "train", slow)
    notes = Notes()
    study = run(config({"timeout": 200.0, "sampler": "grid"}), observer=notes)
    assert any("200 seconds" in text for text in notes.said)
    assert 2 <= sum(t.state == "complete" for t in study.trials()) <= 3
    # The time of the first part counts: nothing more is trained.
    n = len(Learning.chunks)
    run(config({"timeout": 200.0, "sampler": "grid"}))
    assert len(Learning.chunks) <= n + 1
    study = run(config({"timeout": 5000.0, "sampler": "grid"}))
    assert sum(t.state == "complete" for t in study.trials()) == 9


def test_cost_counts_what_trials_took(config, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    real = Learning.train

    def slow(self, state, n_chunks):
        now[0] += 360.0
        return real(self, state, n_chunks)

    monkeypatch.setattr(Learning, "train", slow)
    notes = Notes()
    run(config({"max_cost": 2.0, "sampler": "grid"}), observer=notes)
    assert any("2 device-hours" in text for text in notes.said)
    assert 18 <= len(Learning.chunks) <= 21


def test_a_short_horizon_is_warned_of(config):
    notes = Notes()
    run(config({"n_trials": 1}, training={"horizon": 20}), observer=notes)
    assert any("short horizons favour shallow" in text for text in notes.said)


def test_study_reads_back_without_its_task(config, tmp_path):
    run(config(HALVING))
    registry.unregister("task", "learning")
    trials = load_study("s", tmp_path / "studies").trials()
    registry.register("task", "learning", Learning)
    assert {t.state for t in trials} == {"complete", "pruned"}
