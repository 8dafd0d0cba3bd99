"""Fronts against their definition, evaluated by brute force."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocsearch.analysis.pareto import AXES, pareto_front, pareto_fronts
from allocsearch.errors import ConfigError, UnknownNameError
from allocsearch.results import Objective

SCORES = st.sampled_from([0.0, 1.0, 1.5, 2.0, math.nan, math.inf, -math.inf])
STATES = st.sampled_from(["complete"] * 6 + ["failed", "running"])
POINTS = st.lists(st.tuples(SCORES, st.integers(1, 4), STATES), max_size=12)


def brute_force(points: set[tuple[float, float]], direction: str) -> set:
    """Points (score, cost) that none dominates, by comparing all pairs."""
    sign = 1 if direction == "maximize" else -1

    def dominates(a, b):
        no_worse = sign * a[0] >= sign * b[0] and a[1] <= b[1]
        return no_worse and a != b

    return {p for p in points if not any(dominates(q, p) for q in points)}


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("x", ["depth", "core_flops", "seconds"])
@given(points=POINTS, order=st.randoms(use_true_random=False))
def test_front_is_the_non_dominated_set(trial, direction, x, points, order):
    objective = Objective("score", "", direction)
    results = [
        trial(
            (s, s), L, number=i, state=state, objective=objective, core=L, seconds=L / 2
        )
        for i, (s, L, state) in enumerate(points)
    ]
    front = pareto_front(results, x)
    cost = AXES[x].read
    entered = {
        (r.score, cost(r))
        for r, (s, _, state) in zip(results, points, strict=True)
        if state == "complete" and math.isfinite(s)
    }
    found = [(r.score, cost(r)) for r in front]
    assert set(found) == brute_force(entered, direction)
    assert len(set(found)) == len(found)
    assert [c for _, c in found] == sorted(c for _, c in found)
    shuffled = list(results)
    order.shuffle(shuffled)
    assert pareto_front(shuffled, x) == front


def test_of_equals_the_front_keeps_the_cheapest_then_the_first(trial):
    dear = trial((1.0, 1.0), 2, number=0, core=300)
    cheap = trial((1.0, 1.0), 2, number=2, core=200)
    later = trial((1.0, 1.0), 2, number=3, core=200)
    assert pareto_front([dear, later, cheap]) == [cheap]


def test_a_trial_that_was_never_built_is_on_no_axis_of_work(trial):
    bare = trial((1.0, 1.0), core=None)
    assert pareto_front([bare], "core_flops") == []
    assert pareto_front([bare], "depth") == [bare]


def test_unmatched_trials_count_only_where_nothing_is_matched(trial):
    matched = trial((1.0, 1.0), 4)
    unmatched = trial((9.0, 9.0), 1, number=1, matched=False)
    assert pareto_front([matched, unmatched]) == [matched]
    assert pareto_front([unmatched]) == [unmatched]


def test_fronts_keep_budgets_experts_and_arms_apart(trial):
    a = trial((1.0, 1.0), 4)
    b = trial((5.0, 5.0), 1, recurrent=False)
    c = trial((9.0, 9.0), 1, budget="small", budget_flops=10**8)
    d = trial((), 1, state="failed", budget="large", budget_flops=10**9)
    assert pareto_fronts([d, c, b, a]) == {
        ("tiny", "conv_lstm", "recurrent"): [a],
        ("tiny", "conv_lstm", "nonrecurrent"): [b],
        ("small", "conv_lstm", "recurrent"): [c],
        ("large", "conv_lstm", "recurrent"): [],
    }


@pytest.mark.parametrize("x", sorted(AXES))
def test_every_axis_reads_a_number(trial, x):
    assert pareto_front([trial()], x) == [trial()]
    assert AXES[x].read(trial()) >= 0


def test_an_unknown_axis_names_the_nearest(trial):
    with pytest.raises(UnknownNameError, match="'depth'"):
        pareto_front([trial()], "dept")


def test_different_objectives_are_never_ranked_together(trial, loss):
    with pytest.raises(ConfigError, match=r"loss \(minimize\), return \(maximize\)"):
        pareto_front([trial(), trial(objective=loss)])


def test_nothing_gives_nothing(trial):
    assert pareto_front([]) == []
    assert pareto_fronts([]) == {}
    running = replace(trial(), state="running")
    assert pareto_front([running]) == []
