"""Successive halving against a plain account of who may go on."""

import itertools

import numpy as np
import pytest

from allocsearch.errors import ConfigError
from allocsearch.search.rungs import Climber, Rungs, ranked

UP = ("maximize",)


def paused(number, score, rung, stratum=1, below=()):
    scores = {**dict(below), rung: (score,)}
    return Climber(number, stratum, scores, rung, "paused")


def ladder(**changes):
    values = {"least": 1 / 9, "reduction": 3, "brackets": False, "directions": UP}
    return Rungs(**{**values, **changes})


@pytest.mark.parametrize(
    ("least", "reduction", "fractions"),
    [
        (1 / 9, 3, (1 / 9, 1 / 3, 1.0)),
        (0.1, 3, (1 / 9, 1 / 3, 1.0)),
        (0.12, 3, (1 / 3, 1.0)),
        (0.9, 2, (1.0,)),
        (1 / 4, 2, (1 / 4, 1 / 2, 1.0)),
    ],
)
def test_rungs_are_a_factor_apart_and_end_at_the_horizon(least, reduction, fractions):
    found = ladder(least=least, reduction=reduction).fractions
    assert found == pytest.approx(fractions)


@pytest.mark.parametrize("changes", [{"least": 0.0}, {"least": 1.0}, {"reduction": 1}])
def test_what_is_no_ladder_is_refused(changes):
    with pytest.raises(ConfigError, match="give"):
        ladder(**changes)


def test_nobody_goes_on_before_enough_have_arrived():
    rungs = ladder()
    first = rungs.fractions[0]
    climbers = [paused(i, float(i), first) for i in range(2)]
    assert rungs.promotion(climbers) is None
    assert rungs.promotion([*climbers, paused(2, 0.5, first)]).number == 1


def test_ties_go_to_the_earlier_trial():
    rungs = ladder()
    climbers = [paused(i, 1.0, rungs.fractions[0]) for i in range(3)]
    assert rungs.promotion(climbers).number == 0


def test_a_ladder_climbed_to_its_end_trains_a_share_of_each_rung():
    """Told the true score at every rung, n trials end as in synchronous halving."""
    rungs = ladder()
    rng = np.random.default_rng(0)
    quality = rng.permutation(27).astype(float)
    until = dict.fromkeys(range(27), rungs.fractions[0])
    scores = {i: {until[i]: (quality[i],)} for i in until}
    while True:
        climbers = [
            Climber(
                i, 1, scores[i], until[i], "complete" if until[i] == 1 else "paused"
            )
            for i in until
        ]
        chosen = rungs.promotion(climbers)
        if chosen is None:
            break
        until[chosen.number] = rungs.after(chosen.number, chosen.until)
        scores[chosen.number][until[chosen.number]] = (quality[chosen.number],)
    reached = {
        rung: {i for i in until if rung in scores[i]} for rung in rungs.fractions
    }
    assert [len(reached[rung]) for rung in rungs.fractions] == [27, 9, 3]
    assert reached[1.0] == set(np.argsort(-quality)[:3])


def test_the_higher_rung_is_settled_first():
    rungs = ladder()
    low, middle, _ = rungs.fractions
    climbers = [
        *(paused(i, float(i), low) for i in range(3)),
        *(paused(i, float(i), middle, below={low: (9.0,)}) for i in range(3, 6)),
    ]
    assert rungs.promotion(climbers).number == 5


def test_failed_trials_count_where_they_were_but_never_go_on():
    rungs = ladder()
    first = rungs.fractions[0]
    best = Climber(0, 1, {first: (9.0,)}, rungs.fractions[1], "failed")
    others = [paused(i, float(i), first) for i in range(1, 3)]
    assert rungs.promotion([best, *others]) is None
    more = [paused(i, 0.0, first) for i in range(3, 6)]
    assert rungs.promotion([best, *others, *more]).number == 2


def test_every_stratum_is_owed_one_full_training():
    rungs = ladder()
    low, middle, _ = rungs.fractions
    climbers = [
        Climber(0, 1, {low: (5.0,), 1.0: (5.0,)}, 1.0, "complete"),
        paused(1, 9.0, low, stratum=2),
        paused(2, 1.0, middle, stratum=2, below={low: (1.0,)}),
        paused(3, 7.0, low, stratum=1),
    ]
    assert rungs.owed(climbers).number == 2  # the higher rung before the better score
    served = Climber(4, 2, {}, 1.0, "running")
    assert rungs.owed([*climbers, served]) is None


def test_hyperband_has_its_shares():
    rungs = ladder(brackets=True)
    n = len(rungs.fractions)
    shares = [-(-n * 3 ** (n - 1 - k) // (n - k)) for k in range(n)]
    first = [rungs.ladder(i)[0] for i in range(sum(shares))]
    assert [first.count(rung) for rung in rungs.fractions] == shares == [9, 5, 3]


def test_brackets_do_not_mix():
    rungs = ladder(brackets=True)
    first = [i for i in range(40) if rungs.ladder(i)[0] == rungs.fractions[0]]
    second = [i for i in range(40) if rungs.ladder(i)[0] == rungs.fractions[1]]
    low, middle, _ = rungs.fractions
    mixed = [paused(first[0], 9.0, middle, below={low: (9.0,)})]
    mixed += [paused(i, 1.0, middle) for i in second[:2]]
    assert rungs.promotion(mixed) is None
    assert rungs.promotion([*mixed, paused(second[2], 0.0, middle)]).number == second[0]


def test_one_objective_is_sorted_by():
    assert ranked([(1.0,), (3.0,), (2.0,)], UP) == [1, 2, 0]
    assert ranked([(1.0,), (3.0,), (2.0,)], ("minimize",)) == [0, 2, 1]


def test_fronts_come_in_order_and_their_ends_first():
    directions = ("maximize", "minimize")
    rng = np.random.default_rng(1)
    values = rng.normal(size=(40, 2)).round(1)

    def beats(a, b):
        no_worse = a[0] >= b[0] and a[1] <= b[1]
        return no_worse and (a[0] > b[0] or a[1] < b[1])

    depth = {}
    left = set(range(40))
    for level in itertools.count():
        front = {i for i in left if not any(beats(values[j], values[i]) for j in left)}
        depth |= dict.fromkeys(front, level)
        left -= front
        if not left:
            break
    order = ranked(values, directions)
    assert sorted(order) == list(range(40))
    levels = [depth[i] for i in order]
    assert levels == sorted(levels)
    front = [i for i in order if depth[i] == 0]
    assert {int(np.argmax(values[front, 0])), int(np.argmin(values[front, 1]))} <= {
        0,
        1,
    }
