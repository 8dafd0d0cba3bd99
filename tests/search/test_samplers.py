"""Laws that hold for every sampler, on spaces with ragged edges."""

import itertools
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocsearch.errors import ConfigError, UnknownNameError
from allocsearch.search import (
    SAMPLERS,
    Axis,
    Points,
    SearchStudy,
    SpaceExhausted,
    make_sampler,
)

OPTIONS = {
    "auto": {"n_startup": 3, "n_gp": 6},
    "gp": {"n_startup": 3},
    "nsga2": {"population": 4},
    "stratified": {"by": "a0"},
    "tpe": {"n_startup": 3},
}


@st.composite
def ragged(draw) -> Points:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    axes = tuple(
        Axis(f"a{i}", tuple(2**j for j in range(size)), ordinal=draw(st.booleans()))
        for i, size in enumerate(sizes)
    )
    every = list(itertools.product(*map(range, sizes)))
    rows = draw(st.lists(st.sampled_from(every), min_size=1, max_size=14, unique=True))
    return Points(axes, tuple(sorted(rows)))


@pytest.mark.parametrize("sampler", SAMPLERS)
@given(points=ragged(), seed=st.integers(0, 9), fates=st.lists(st.integers(0, 3)))
@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_every_point_once_and_then_the_end(sampler: str, points, seed, fates):
    study = SearchStudy.open(
        "sqlite://",
        "s",
        points,
        directions=("maximize",),
        sampler=sampler,
        seed=seed,
        sampler_options=OPTIONS.get(sampler, {}),
    )
    seen = []
    for i in range(len(points)):
        proposal = study.ask()
        assert proposal.number == i
        assert proposal.row in points
        assert proposal.values == points.values(proposal.row)
        seen.append(proposal.row)
        fate = fates[i] if i < len(fates) else 0
        if fate == 1:
            study.fail(i, "it broke")
        elif fate != 2:
            study.tell(i, [sum(proposal.row)])
    assert sorted(seen) == sorted(points.rows)
    with pytest.raises(SpaceExhausted, match=f"all {len(points)} points"):
        study.ask()
    assert len(study.records()) == len(points)
    study.close()


def rows_of(points: Points, sampler: str, n: int, seed: int = 0, **options) -> list:
    study = SearchStudy.open(
        "sqlite://",
        "s",
        points,
        directions=("minimize",),
        sampler=sampler,
        seed=seed,
        sampler_options=options,
    )
    rows = []
    for _ in range(n):
        proposal = study.ask()
        study.tell(proposal.number, [sum(proposal.row)])
        rows.append(proposal.row)
    study.close()
    return rows


def test_grid_goes_in_canonical_order(points: Points):
    assert rows_of(points, "grid", 9) == list(points.rows[:9])


def test_stratified_is_balanced_at_every_prefix(points: Points):
    smallest = min(Counter(row[0] for row in points.rows).values())
    n = 4 * smallest
    rows = rows_of(points, "stratified", n)
    for length in range(1, n + 1):
        shares = Counter(row[0] for row in rows[:length])
        counts = [shares[i] for i in range(4)]
        assert max(counts) - min(counts) <= 1
    assert rows != rows_of(points, "stratified", n, seed=1)


def test_strict_stratified_ends_rather_than_lose_balance(points: Points):
    smallest = min(Counter(row[0] for row in points.rows).values())
    study = SearchStudy.open(
        "sqlite://",
        "s",
        points,
        directions=("minimize",),
        sampler="stratified",
        seed=0,
        sampler_options={"strict": True},
    )
    shares = Counter(study.ask().row[0] for _ in range(4 * smallest))
    assert set(shares.values()) == {smallest}
    with pytest.raises(SpaceExhausted, match=r"depth \d has only \d points"):
        study.ask()
    assert len(study.records()) == 4 * smallest


def test_seed_and_name_both_change_proposals(points: Points):
    assert rows_of(points, "random", 6) != rows_of(points, "random", 6, seed=1)


def test_unknown_names_say_what_is_known(points: Points):
    with pytest.raises(UnknownNameError, match="did you mean 'random'"):
        make_sampler("randm")
    with pytest.raises(UnknownNameError, match="n_startup"):
        make_sampler("tpe", {"n_start": 3})
    with pytest.raises(ConfigError, match="of type int"):
        make_sampler("tpe", {"n_startup": "3"})
    with pytest.raises(ConfigError, match="no axis is called 'height'"):
        rows_of(points, "stratified", 1, by="height")
    with pytest.raises(ConfigError, match="1 or more"):
        rows_of(points, "tpe", 1, n_startup=0)
