"""What samplers do with results: better than chance, apart, and unharmed by faults."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from allocsearch.errors import ConfigError
from allocsearch.search import SAMPLERS, Axis, Points, SearchStudy
from allocsearch.search.identity import Identity
from allocsearch.search.optuna_space import distributions, params_of
from allocsearch.search.proposing import Proposer
from allocsearch.search.samplers import make_sampler
from allocsearch.search.samplers.gp import normal_scores, scalarised

AXES = (
    Axis("depth", (1, 2, 4, 8, 16, 32)),
    Axis("n_experts", (1, 2, 4, 8, 16, 32)),
    Axis("aggregation", ("a", "b", "c", "d"), ordinal=False),
)
ROWS = itertools.product(range(6), range(6), range(4))
POINTS = Points(AXES, tuple(row for row in ROWS if row[0] + row[1] <= 7))
OPTIONS = {
    "auto": {"n_startup": 5},
    "gp": {"n_startup": 5},
    "nsga2": {"population": 5},
    "tpe": {"n_startup": 5},
}
LEARNERS = tuple(OPTIONS)


class History:
    """A study in memory, so that many trials are quick."""

    def __init__(self, sampler: str, seed: int = 0, n_objectives: int = 1):
        options, directions = OPTIONS.get(sampler, {}), ("minimize",) * n_objectives
        options = {"by": "depth"} if sampler == "stratified" else options
        identity = Identity(POINTS, directions, seed, sampler, options)
        self.proposer = Proposer("s", identity)
        self.trials: list[FrozenTrial] = []
        self.taken: dict[int, int] = {}

    def ask(self) -> int:
        return self.proposer.propose(self.trials, self.taken)[0]

    def add(self, position: int, values: list[float] | None, state=None) -> None:
        trial = create_trial(
            state=state or (TrialState.COMPLETE if values else TrialState.RUNNING),
            params=params_of(POINTS, POINTS.rows[position]),
            distributions=distributions(POINTS),
            values=values,
        )
        trial.number = len(self.trials)
        self.taken[trial.number] = position
        self.trials.append(trial)


def losses(seed: int, n_objectives: int = 1) -> np.ndarray:
    """Smooth bowls with a penalty per aggregation, `[n_points, n_objectives]`."""
    rng, columns = np.random.default_rng(seed), []
    for _ in range(n_objectives):
        centre, penalty = rng.uniform(0, 5, 2), rng.uniform(0, 0.15, 4)
        distance = ((POINTS.array[:, :2] - centre) ** 2).sum(axis=1)
        columns.append(penalty[POINTS.array[:, 2]] - np.exp(-distance / 12))
    return np.stack(columns, axis=1)


def searched(sampler: str, table: np.ndarray, n: int, seed: int = 0) -> list[int]:
    history = History(sampler, seed, table.shape[1])
    for _ in range(n):
        position = history.ask()
        history.add(position, table[position].tolist())
    return list(history.taken.values())


@pytest.mark.parametrize("sampler", LEARNERS)
def test_better_than_chance(sampler: str):
    n, seeds, ours, chance = 25, range(6), [], []
    for seed in seeds:
        table = losses(seed)[:, 0]
        found = searched(sampler, table[:, None], n, seed)
        ours.append(table[found].min() - table.min())
        rng = np.random.default_rng(seed)
        orders = [rng.permutation(table)[:n].min() for _ in range(200)]
        chance.append(np.mean(orders) - table.min())
    assert np.mean(ours) < 0.7 * np.mean(chance)


def area(points: np.ndarray) -> float:
    """The share of a fine grid below (0.2, 0.2) that points dominate."""
    grid = np.linspace(-1.0, 0.2, 60)
    beats = [points[:, i, None] <= grid for i in range(2)]
    return float((beats[0][:, :, None] & beats[1][:, None, :]).any(axis=0).mean())


@pytest.mark.parametrize(
    ("sampler", "share"), [("gp", 0.5), ("tpe", 0.8), ("nsga2", 0.95)]
)
def test_the_front_of_two_objectives_is_found_sooner_than_by_chance(sampler, share):
    n, ours, chance = 30, [], []
    for seed in range(8):
        table = losses(seed, 2)
        found = searched(sampler, table, n, seed)
        assert len(set(found)) == n
        whole = area(table)
        ours.append(1 - area(table[found]) / whole)
        rng = np.random.default_rng(seed)
        drawn = [rng.choice(len(table), n, replace=False) for _ in range(40)]
        chance.append(np.mean([1 - area(table[rows]) / whole for rows in drawn]))
    assert np.mean(ours) < share * np.mean(chance)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_three_objectives_and_both_directions(sampler: str):
    options = {"stratified": {"by": "depth"}, **OPTIONS}.get(sampler, {})
    study = SearchStudy.open(
        "sqlite://",
        "s",
        POINTS,
        directions=("maximize", "minimize", "minimize"),
        sampler=sampler,
        seed=0,
        sampler_options=options,
    )
    rows = set()
    for i in range(9):
        row = study.ask().row
        rows.add(row)
        study.tell(i, [float(sum(row)), float(row[0]), 1.0])
    assert len(rows) == 9
    study.close()


@pytest.mark.parametrize("sampler", LEARNERS)
def test_parallel_proposals_spread(sampler: str):
    """Ten workers that ask at once, after twelve results, get ten corners of it."""
    table, history = losses(1), History(sampler)
    for _ in range(12):
        position = history.ask()
        history.add(position, table[position].tolist())
    together = []
    for _ in range(10):
        together.append(history.ask())
        history.add(together[-1], None)
    assert len(set(together)) == 10
    shapes = {POINTS.rows[position][:2] for position in together}
    assert len(shapes) >= 4


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_proposal_follows_from_the_history_alone(sampler: str):
    table = losses(2)
    first = History(sampler, seed=3)
    for _ in range(9):
        position = first.ask()
        first.add(position, table[position].tolist())
    again = History(sampler, seed=3)
    for position in first.taken.values():
        again.add(position, table[position].tolist())
    assert [first.ask(), first.ask()] == [again.ask()] * 2


def test_hash_seeds_of_processes_do_not_matter():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_learning as t;"
        "print([t.searched(s, t.losses(0, 2), 9) for s in t.LEARNERS])"
    )
    folder = str(Path(__file__).parent)
    said = [
        subprocess.run(
            [sys.executable, "-c", code, folder],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert said[0].count("[") == 1 + len(LEARNERS)


@pytest.mark.parametrize("sampler", ["gp", "auto"])
def test_where_trials_fail_the_process_does_not_stay(sampler: str):
    """The best half of the space diverges: it is left after a few tries."""
    table = np.array([[-float(row[0])] for row in POINTS.rows])
    history = History(sampler)
    late = []
    for i in range(40):
        position = history.ask()
        fails = POINTS.rows[position][0] >= 4
        if fails:
            history.add(position, None, TrialState.FAIL)
        else:
            history.add(position, table[position].tolist())
        late += [fails] if i >= 25 else []
    assert np.mean(late) < 0.4


@pytest.mark.parametrize("sampler", LEARNERS)
def test_a_strangers_infinity_and_equal_results_do_no_harm(sampler: str):
    history = History(sampler)
    history.add(0, [float("-inf")])
    history.add(1, None, TrialState.FAIL)
    for _ in range(8):
        position = history.ask()
        assert position not in history.taken.values()
        history.add(position, [1.0])


@pytest.mark.parametrize("sampler", LEARNERS)
def test_nothing_but_failures(sampler: str):
    history = History(sampler)
    for _ in range(8):
        history.add(history.ask(), None, TrialState.FAIL)
    assert len(set(history.taken.values())) == 8


def test_auto_is_gp_first_and_tpe_then():
    table = losses(0)
    auto, gp, tpe = History("auto"), History("gp"), History("tpe")
    auto.proposer.identity.options["n_gp"] = 8
    for _ in range(12):
        positions = [history.ask() for history in (auto, gp, tpe)]
        early = len(auto.trials) < 8
        assert positions[0] == positions[1 if early else 2]
        for history in (auto, gp, tpe):
            history.add(positions[0], table[positions[0]].tolist())


def test_gp_looks_at_few_of_many_results():
    sampler = make_sampler("gp", {"n_observations": 6})
    losses = np.array([5, 1, 9, 2, 8, 3, 7, 4, 6, 0], dtype=float)
    assert sampler._kept(losses).tolist() == [1, 3, 6, 7, 8, 9]  # type: ignore[attr-defined]


def test_normal_scores_keep_order_and_ties():
    scores = normal_scores(np.array([3.0, 1.0, 1e9, 1.0]))
    assert scores[1] == scores[3] < scores[0] < scores[2]
    assert scores.mean() == pytest.approx(0, abs=0.2)
    assert scores.std() == pytest.approx(1)
    assert normal_scores(np.array([2.0, 2.0])).tolist() == [0.0, 0.0]


def test_a_scalar_loss_respects_dominance():
    rng = np.random.default_rng(0)
    values = np.array([[0.0, 0.0], [1.0, 0.5], [2.0, 2.0]])
    for _ in range(20):
        assert (np.diff(scalarised(values, rng)) > 0).all()
    assert scalarised(values[:, :1], rng).tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("sampler", "options", "words"),
    [
        ("gp", {"n_observations": 1}, "2 or more"),
        ("gp", {"n_startup": 0}, "1 or more"),
        ("nsga2", {"crossover": 1.5}, "from 0 to 1"),
        ("nsga2", {"population": 0}, "1 or more"),
        ("auto", {"n_startup": 0}, "1 or more"),
    ],
)
def test_options_out_of_range_are_refused(sampler, options, words):
    with pytest.raises(ConfigError, match=words):
        make_sampler(sampler, options).check(POINTS)
