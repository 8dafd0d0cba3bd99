import itertools

import numpy as np
import optuna
import pytest

from allocsearch.search import Axis, Points, SearchStudy
from allocsearch.search.samplers import tpe

AXES = (
    Axis("depth", (1, 2, 4, 8, 16, 32)),
    Axis("n_experts", (1, 2, 4, 8, 16, 32)),
    Axis("radius", (0, 1, 2, 4, "full")),
    Axis("aggregation", ("a", "b", "c", "d"), ordinal=False),
)
ROWS = tuple(
    row
    for row in itertools.product(range(6), range(6), range(5), range(4))
    if row[0] + row[1] <= 7 and row[2] <= row[1]
)
POINTS = Points(AXES, ROWS)


def landscape(seed: int) -> np.ndarray:
    """The score of each point: one smooth hill, and a penalty per aggregation."""
    rng = np.random.default_rng(seed)
    centre, penalty = rng.uniform(0, 5, 3), rng.uniform(0, 0.15, 4)
    distance = ((POINTS.array[:, :3] - centre) ** 2).sum(axis=1)
    return np.exp(-distance / 12) - penalty[POINTS.array[:, 3]]


def open_tpe(seed: int, **options) -> SearchStudy:
    return SearchStudy.open(
        "sqlite://",
        "s",
        POINTS,
        directions=("maximize",),
        sampler="tpe",
        seed=seed,
        sampler_options=options,
    )


def tpe_regret(seed: int, n: int) -> float:
    scores, study, best = landscape(seed), open_tpe(seed), -np.inf
    noise = np.random.default_rng(seed).normal(0, 0.03, n)
    for i in range(n):
        proposal = study.ask()
        score = scores[POINTS.positions[proposal.row]]
        best = max(best, score)
        study.tell(i, [score + noise[i]])
    study.close()
    return scores.max() - best


def random_regret(seed: int, n: int) -> float:
    """Mean over many random orders: what uniform choice without repeats reaches."""
    scores, rng = landscape(seed), np.random.default_rng(seed)
    best = [rng.permutation(scores)[:n].max() for _ in range(400)]
    return float(scores.max() - np.mean(best))


def test_tpe_beats_random():
    # Measured with these seeds: 0.013 against 0.111.
    n, seeds = 24, range(10)
    ours = np.mean([tpe_regret(seed, n) for seed in seeds])
    theirs = np.mean([random_regret(seed, n) for seed in seeds])
    assert ours < 0.3 * theirs


def test_candidates_come_from_the_open_points_alone(monkeypatch: pytest.MonkeyPatch):
    """With the estimator confined, nothing has to be moved to its nearest point."""
    moved = []
    nearest = Points.nearest

    def counting(self, row, among):
        moved.append(row)
        return nearest(self, row, among)

    monkeypatch.setattr(Points, "nearest", counting)
    study = open_tpe(0, n_startup=5)
    for i in range(20):
        study.tell(i, [sum(study.ask().row)])
    assert moved == []


def test_without_optunas_hook_the_nearest_open_point_is_taken(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(tpe, "_confined", lambda base, *_: base)
    study = open_tpe(0, n_startup=3)
    rows = []
    for i in range(25):
        rows.append(study.ask().row)
        study.tell(i, [sum(rows[-1])])
    assert len(set(rows)) == 25
    assert set(rows) <= set(ROWS)


def test_parallel_proposals_differ_and_spread():
    study = open_tpe(0, n_startup=5)
    for i in range(12):
        proposal = study.ask()
        study.tell(i, [landscape(0)[POINTS.positions[proposal.row]]])
    together = [study.ask().row for _ in range(12)]
    assert len(set(together)) == 12


def test_running_trials_reach_the_estimator(monkeypatch: pytest.MonkeyPatch):
    counts = []
    build = optuna.samplers.TPESampler._build_parzen_estimator

    def counting(self, study, space, trials, handle_below):
        counts.append((handle_below, len(trials)))
        return build(self, study, space, trials, handle_below)

    monkeypatch.setattr(optuna.samplers.TPESampler, "_build_parzen_estimator", counting)
    study = open_tpe(0, n_startup=5)
    for i in range(10):
        study.tell(i, [sum(study.ask().row)])
    counts.clear()
    for _ in range(3):
        study.ask()
    assert counts == [
        (True, 1),
        (False, 9),
        (True, 1),
        (False, 10),
        (True, 1),
        (False, 11),
    ]


def test_several_objectives():
    study = SearchStudy.open(
        "sqlite://",
        "s",
        POINTS,
        directions=("maximize", "minimize"),
        sampler="tpe",
        seed=0,
        sampler_options={"n_startup": 4},
    )
    rows = set()
    for i in range(16):
        proposal = study.ask()
        rows.add(proposal.row)
        study.tell(i, [sum(proposal.row), proposal.row[0]])
    assert len(rows) == 16
