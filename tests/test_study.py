"""Studies: fair shares, faults that stay where they happen, and going on later.

Most of these run a task that trains in no time: its score is a formula of the
allocation, so what a study should find is known.
"""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from allocsearch import checkpoint, registry
from allocsearch.allocation import Allocation
from allocsearch.config import ExpertConfig
from allocsearch.driver import run
from allocsearch.errors import ConfigError, StudyError
from allocsearch.observer import Observer
from allocsearch.parsing import Section
from allocsearch.results import Objective
from allocsearch.study import load_study
from allocsearch.tasks.protocol import Task
from allocsearch.tasks.records import NamedBudget


class Pass(eqx.Module):
    weight: jax.Array

    def __call__(self, x):
        return x @ self.weight


class Formula(Task):
    """Scores an allocation as depth·E − (d/64), and fails where it is told to."""

    class Config(Section):
        fail_at_depth: int = 0
        """Training at this depth raises."""
        nan_at_depth: int = 0
        """Training at this depth gives NaN."""
        data: str = "a"
        """Stands for a data set."""

    name = "formula"
    budgets: ClassVar = {
        "b": NamedBudget(
            Allocation("mlp", True, 2, 1, 32),
            tolerance=0.3,
            training={"horizon": 40, "n_seeds": 2},
            search={"n_trials": 8},
        )
    }
    experts = (ExpertConfig(name="mlp"),)
    objectives = (Objective("score", "points", "maximize"),)
    unit = "steps"

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
        if allocation.depth == self.config.fail_at_depth:
            raise RuntimeError("a fault\nof two lines")
        loss = math.nan if allocation.depth == self.config.nan_at_depth else 1.0
        return (allocation, seeds, count + n_chunks), [{"loss": loss}] * len(seeds)

    def evaluate(self, state, split="valid"):
        allocation, seeds, count = state
        base = allocation.depth * allocation.n_experts - allocation.width / 64
        shift = 100.0 if split == "test" else 0.0
        return [
            {"score": base + shift + 0.01 * i + 1e-6 * float(count)}
            for i in range(len(seeds))
        ]

    def baseline(self, split="valid"):
        del split
        return {"score": -1.0}

    def manifest(self):
        return {"data": self.config.data}


@pytest.fixture(autouse=True)
def _formula():
    registry.register("task", "formula", Formula)
    yield
    registry.unregister("task", "formula")


@pytest.fixture
def config(tmp_path):
    def make(**changes):
        base = {
            "name": "s",
            "task": {"name": "formula"},
            "budgets": "b",
            "space": {"depths": [1, 2, 4], "n_experts": [1, 2, 4]},
            "output": {"directory": str(tmp_path)},
        }
        return {**base, **changes}

    return make


class Recorder(Observer):
    def __init__(self):
        self.started, self.finished, self.notes = [], [], []

    def trial_started(self, cell, number, candidate):
        self.started.append((cell.name, number, candidate.allocation))

    def trial_finished(self, result):
        self.finished.append(result)

    def note(self, text):
        self.notes.append(text)


def told(study):
    """What a study found, without times."""
    return [
        (t.budget, t.allocation, t.number, t.state, [s.metrics for s in t.seeds])
        for t in study.trials()
    ]


def test_both_arms_get_equal_trials_and_the_best_is_found(config):
    study = run(config())
    trials = study.trials()
    assert sum(t.arm == "recurrent" for t in trials) == 4
    assert sum(t.arm == "nonrecurrent" for t in trials) == 4
    assert all(t.state == "complete" and t.matched for t in trials)
    for trial in trials:
        a = trial.allocation
        mean = a.depth * a.n_experts - a.width / 64 + 0.005 + 4e-6
        assert trial.score == pytest.approx(mean)
        assert trial.audit.work.core <= trial.budget_flops
    for key, metrics in study.finalists().items():
        best = max(t.score for t in trials if t.arm == key[2])
        assert metrics["score"] == pytest.approx(best + 100)
    assert len(study.results()) == 8


def test_no_candidate_is_tried_twice_and_a_small_space_ends(config):
    seen = Recorder()
    space = {
        "depths": [1, 2],
        "n_experts": [1, 2],
        "radii": "full",
        "aggregations": "sqrt_sum",
    }
    study = run(config(space=space, search={"n_trials": 100}), observer=seen)
    allocations = [t.allocation for t in study.trials()]
    assert len(set(allocations)) == len(allocations) == 8
    assert sum("have been tried" in note for note in seen.notes) == 2


def test_a_fault_fails_one_trial_with_its_reason(config):
    study = run(config(task={"name": "formula", "fail_at_depth": 4}))
    for trial in study.trials():
        broken = trial.allocation.depth == 4
        assert trial.state == ("failed" if broken else "complete")
        if broken:
            assert "RuntimeError: a fault of two lines" in trial.reason
            assert trial.allocation.label in trial.reason
            assert math.isnan(trial.score)
    assert all(t.allocation.depth != 4 for t in study.pareto())


def test_nan_fails_a_trial_and_is_never_best(config):
    study = run(config(task={"name": "formula", "nan_at_depth": 4}))
    failed = [t for t in study.trials() if t.state == "failed"]
    assert {t.allocation.depth for t in failed} <= {4}
    assert all("loss is nan in training" in t.reason for t in failed)


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_in_two_parts_as_in_one(config, tmp_path, sampler):
    whole = run(config(search={"n_trials": 12, "sampler": sampler}))
    other = config(output={"directory": str(tmp_path / "other")})
    run({**other, "search": {"n_trials": 4, "sampler": sampler}})
    parts = run({**other, "search": {"n_trials": 12, "sampler": sampler}})
    assert told(parts) == told(whole)
    seen = Recorder()
    run({**other, "search": {"n_trials": 12, "sampler": sampler}}, observer=seen)
    assert seen.started == []


def test_stopped_anywhere_and_resumed_as_undisturbed(config, tmp_path):
    whole = run(config())
    other = config(output={"directory": str(tmp_path / "other")})
    for _ in range(100):
        chunks = iter(range(7))
        study = run(other, should_stop=lambda chunks=chunks: next(chunks, 9) >= 5)
        if len(study.finalists()) == 2:
            break
    assert told(study) == told(whole)


def test_damaged_checkpoints_cost_time_and_nothing_else(config, tmp_path):
    """The one before is used where there is one; without one the trial starts anew."""
    few = {"n_trials": 2}
    whole = run(config(name="whole", search=few))
    output = {"directory": str(tmp_path), "checkpoint_seconds": 0}
    for name, n_damaged, words in (
        ("one", 1, "before it is used"),
        ("all", 2, "set aside"),
    ):
        calls = iter(range(100))
        broken = config(name=name, output=output, search=few)
        study = run(broken, should_stop=lambda calls=calls: next(calls) >= 2)
        (trial,) = [t for t in study.trials() if t.state == "running"]
        steps = sorted((study.directory / trial.checkpoint).iterdir())
        assert len(steps) == 2
        for step in steps[2 - n_damaged :]:
            (step / "arrays.bin").write_bytes(b"damaged")
        seen = Recorder()
        study = run(broken, observer=seen)
        (note,) = [note for note in seen.notes if words in note]
        assert steps[1].name in note
        assert "is damaged" in note
        assert seen.started[0][:2] == ("b/mlp/recurrent", trial.number)
        assert told(study) == told(whole)


def test_checkpoints_at_a_url(config, tmp_path):
    pytest.importorskip("fsspec")
    few = {"n_trials": 2}
    whole = run(config(name="whole", search=few))
    output = {
        "directory": str(tmp_path),
        "checkpoint_seconds": 0,
        "checkpoints": f"memory://{tmp_path.name}",
        "keep": "none",
    }
    calls = iter(range(100))
    afar = config(search=few, output=output)
    study = run(afar, should_stop=lambda: next(calls) >= 2)
    (trial,) = [t for t in study.trials() if t.state == "running"]
    place = study.checkpoint_at(trial.checkpoint)
    assert str(place).startswith(f"memory://{tmp_path.name}/s/trials/b/mlp/")
    assert checkpoint.latest(place).metadata["n_done"] == 2
    assert not (study.directory / "trials").exists()
    study = run(afar)
    assert told(study) == told(whole)
    assert len(study.finalists()) == 2
    assert not checkpoint.exists(place)


def test_claim_tries_every_depth_alike(config):
    study = run(
        config(search={"mode": "claim", "n_trials": 14}, training={"n_seeds": 1})
    )
    trials = study.trials()
    for arm in ("recurrent", "nonrecurrent"):
        depths = [t.allocation.depth for t in trials if t.arm == arm]
        assert sorted(depths) == [1, 1, 2, 2, 4, 4]
    assert {(t.allocation.radius, t.allocation.aggregation) for t in trials} == {
        ("full", "sqrt_sum")
    }


def test_learning_rates_are_an_axis(config):
    rates = [1e-4, 1e-3, 1e-2]
    study = run(config(search={"n_trials": 12, "learning_rates": rates}))
    frame = study.results()
    assert set(frame["settings.learning_rate"]) <= set(rates)
    assert frame["settings.learning_rate"].nunique() > 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "seed was 0, now 1"),
        ({"space": {"depths": [1]}}, "settings.b.space.depths"),
        ({"task": {"name": "formula", "data": "b"}}, "settings.b.task.data"),
        ({"training": {"horizon": 50}}, "settings.b.training.horizon was 40, now 50"),
    ],
)
def test_another_configuration_is_refused(config, changes, message):
    run(config())
    before = told(load_study("s", config()["output"]["directory"]))
    with pytest.raises(StudyError, match=message):
        run(config(**changes))
    assert told(load_study("s", config()["output"]["directory"])) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"search": {"n_trials": 1}}, "1 trials are too few"),
        ({"search": {"mode": "claim", "n_trials": 4}}, "as many trials at every depth"),
        (
            {"experts": [{"name": "mlp", "arms": "recurrent"}]},
            "no expert is meant for the nonrecurrent arm",
        ),
        (
            {"experts": "conv_lstm"},
            "works on a 2-D board, but this task gives a vector",
        ),
    ],
)
def test_what_cannot_be_run_writes_nothing(config, tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        run(config(**changes))
    assert not (tmp_path / "s").exists()


def test_one_driver_at_a_time(config):
    class Second(Observer):
        def trial_started(self, *_):
            with pytest.raises(StudyError, match="is being run by another process"):
                run(config())

    run(config(), observer=Second())


def test_a_study_can_be_read_without_its_task(config):
    study = run(config())
    registry.unregister("task", "formula")
    again = load_study("s", study.directory.parent)
    assert told(again) == told(study)
    assert len(again.pareto()) > 0
    registry.register("task", "formula", Formula)
