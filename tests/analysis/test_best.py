"""Winners: direction, exclusions and ties."""

import math
from dataclasses import replace
from itertools import permutations

from allocsearch.analysis.best import best_by_arm

KEY = ("tiny", "conv_lstm", "recurrent")


def test_best_follows_the_direction(trial, loss):
    low, high = trial((1.0, 1.0)), trial((2.0, 2.0), number=1)
    assert best_by_arm([low, high]) == {KEY: high}
    low, high = (
        trial((s, s), number=i, objective=loss) for i, s in enumerate((1.0, 2.0))
    )
    assert best_by_arm([high, low]) == {KEY: low}


def test_failed_running_and_non_finite_trials_are_never_best(trial):
    good = trial((0.5, 0.5))
    others = [
        trial((math.inf, math.inf), number=1),
        trial((9.0, math.nan), number=2),
        trial((9.0, 9.0), number=3, state="failed"),
        trial((9.0, 9.0), number=4, state="running"),
        trial((), number=5),
    ]
    assert best_by_arm([*others, good]) == {KEY: good}
    assert best_by_arm(others) == {}


def test_a_seed_without_the_objective_disqualifies(trial, loss):
    assert best_by_arm([replace(trial(), objectives=(loss,))]) == {}


def test_matched_trials_come_first(trial):
    matched = trial((1.0, 1.0))
    free = trial((2.0, 2.0), number=1, matched=False)
    assert best_by_arm([free, matched]) == {KEY: matched}
    assert best_by_arm([free]) == {KEY: free}


def test_ties_break_the_same_way_in_any_order(trial):
    ties = [
        trial((1.0, 1.0), 4, number=0, core=300),
        trial((1.0, 1.0), 4, number=1, core=200),
        trial((1.0, 1.0), 2, number=2, core=200),
        trial((1.0, 1.0), 2, number=3, core=200),
    ]
    assert {best_by_arm(order)[KEY].number for order in permutations(ties)} == {2}


def test_one_winner_for_each_search(trial):
    results = [
        trial(number=0),
        trial(number=0, recurrent=False),
        trial(number=0, budget="small", budget_flops=10**8),
    ]
    assert list(best_by_arm(reversed(results))) == [
        KEY,
        ("tiny", "conv_lstm", "nonrecurrent"),
        ("small", "conv_lstm", "recurrent"),
    ]
