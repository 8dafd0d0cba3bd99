"""Which checkpoints stay: against a plain reading of what a front is."""

import random
from types import SimpleNamespace

import jax.numpy as jnp
import pytest

from allocsearch import checkpoint
from allocsearch.allocation import Allocation
from allocsearch.config import OutputConfig, StudyConfig
from allocsearch.results import Objective, SeedResult, TrialResult
from allocsearch.retention import keepers, prune
from allocsearch.study import Study, checkpoint_name

SCORE = Objective("score", "points", "maximize")
CELLS = ("b/mlp/recurrent", "b/mlp/nonrecurrent")


def trial(cell, number, depth, score, state="complete"):
    allocation = Allocation("mlp", cell == CELLS[0], depth, 1, 8)
    return TrialResult(
        study="s",
        task="t",
        budget="b",
        budget_flops=100,
        number=number,
        state=state,
        allocation=allocation,
        objectives=(SCORE,),
        seeds=(SeedResult(0, {"score": score}),) if state == "complete" else (),
        checkpoint=checkpoint_name(cell, number),
    )


@pytest.fixture
def trials():
    """Random ones, and in each cell a failed and a running one."""
    draw = random.Random(0)
    found = []
    for cell in CELLS:
        found += [
            trial(cell, i, draw.choice([1, 2, 4, 8]), draw.gauss(0, 1))
            for i in range(12)
        ]
        found += [trial(cell, 12, 2, 0, "failed"), trial(cell, 13, 2, 0, "running")]
    return found


@pytest.fixture
def study(tmp_path, trials):
    """A study with a checkpoint of every trial, made without training."""

    def make(**output):
        config = StudyConfig(
            name="s", output=OutputConfig(directory=str(tmp_path), **output)
        )
        made = Study(tmp_path / "s", config)

        def some(cells=None):
            return [
                t
                for t in trials
                if not cells
                or t.checkpoint.split("/", 1)[1].rpartition("/")[0] in cells
            ]

        made.trials = some
        for t in trials:
            checkpoint.save(made.checkpoint_at(t.checkpoint), jnp.zeros(3), {}, keep=1)
        return made

    return make


def present(study):
    """(cell, number) of the trials that have a checkpoint."""
    return {
        (cell, int(name))
        for cell in CELLS
        for name in checkpoint.children(study.checkpoint_at(f"trials/{cell}"))
    }


def front(trials):
    """By comparing every pair."""
    found = set()
    for cell in CELLS:
        own = [t for t in trials if t.arm == cell.rpartition("/")[2]]
        own = [t for t in own if t.state == "complete"]
        for t in own:
            depth = t.allocation.depth
            if not any(
                o.score >= t.score
                and o.allocation.depth <= depth
                and (o.score > t.score or o.allocation.depth < depth)
                for o in own
            ):
                found.add((cell, t.number))
    return found


RUNNING = {(cell, 13) for cell in CELLS}


def best(trials, most):
    found = set()
    for cell in CELLS:
        own = [t for t in trials if t.arm == cell.rpartition("/")[2] and t.seeds]
        own.sort(key=lambda t: -t.score)
        found |= {(cell, t.number) for t in own[:most]}
    return found


def test_by_default_the_front_stays_and_what_runs(study, trials):
    kept = study()
    prune(kept)
    assert present(kept) == front(trials) | RUNNING
    assert 2 < len(front(trials)) < 20


def test_one_cell_at_a_time(study, trials):
    kept = study()
    prune(kept, CELLS[0])
    other = {(CELLS[1], i) for i in range(14)}
    assert present(kept) == other | {
        k for k in front(trials) | RUNNING if k[0] == CELLS[0]
    }


@pytest.mark.parametrize("most", [0, 1, 3, 100])
def test_so_many_of_the_best(study, trials, most):
    kept = study(keep=most)
    prune(kept)
    # Until they are scored on test data the best stay in any case.
    assert present(kept) == best(trials, max(most, 1)) | RUNNING
    prune(kept, finished=True)
    assert present(kept) == best(trials, most) | RUNNING


def test_none_and_all(study, trials):
    everything = study(keep="all")
    prune(everything, finished=True)
    assert len(present(everything)) == len(trials)
    nothing = study(keep="none")
    prune(nothing, finished=True)
    assert present(nothing) == RUNNING


def test_a_quota_lets_go_of_the_worst_first(study, trials):
    kept = study(keep="all")
    size = checkpoint.nbytes(kept.checkpoint_at(trials[0].checkpoint))
    kept = study(keep="all", checkpoint_quota=int(size * 4.5))
    prune(kept, CELLS[0])
    assert present(kept) == best(trials, 2) | RUNNING
    none = study(checkpoint_quota=0)
    prune(none, finished=True)
    assert present(none) == RUNNING


def test_the_best_of_each_take_turns(trials):
    order = [(t.arm, t.score) for t in keepers(trials, "all")]
    assert [arm for arm, _ in order[:4]] == ["recurrent", "nonrecurrent"] * 2
    for arm in ("recurrent", "nonrecurrent"):
        scores = [score for a, score in order if a == arm]
        assert scores == sorted(scores, reverse=True)


def test_what_was_set_aside_goes_with_its_trial(study):
    kept = study(keep=0)
    place = kept.checkpoint_at(checkpoint_name(CELLS[0], 12))
    checkpoint.set_aside(place)
    (place.parent / "notes.txt").write_text("of the user")
    prune(kept, finished=True)
    assert not place.with_name(place.name + ".damaged").exists()
    assert (place.parent / "notes.txt").exists()


def test_a_place_that_cannot_be_cleared_is_a_note(study, monkeypatch):
    kept = study(checkpoints="memory://retention")
    store = SimpleNamespace(name="x")
    store.clear = lambda: (_ for _ in ()).throw(PermissionError(13, "Access Denied"))
    monkeypatch.setattr(checkpoint, "open_store", lambda place: _both(place, store))
    notes = []
    prune(kept, note=notes.append)
    (note,) = notes
    assert "old checkpoints stay" in note
    assert "Access Denied" in note


def _both(place, refusing):
    from allocsearch.checkpoint.stores import open_store

    real = open_store(place)
    refusing.children = real.children
    return refusing
