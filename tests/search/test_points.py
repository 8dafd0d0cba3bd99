import subprocess
import sys

import pytest

from allocsearch.errors import ConfigError
from allocsearch.search import Axis, Points
from allocsearch.search.seeds import derive_seed

AXES = (Axis("depth", (1, 2, 4)), Axis("kind", ("a", "b"), ordinal=False))


def test_values_and_rows_are_each_others_inverse(points: Points):
    for row in points.rows:
        assert points.row(points.values(row)) == row
        assert row in points
    assert (99, 0, 0, 0) not in points
    assert points.row({"depth": 1}) is None
    assert points.row({**points.values(points.rows[0]), "depth": 3}) is None


def test_json_restores_the_same_points(points: Points):
    again = Points.from_json(points.to_json())
    assert again == points
    assert again.digest() == points.digest()


@pytest.mark.parametrize(
    "other",
    [
        Points(AXES, ((0, 0), (2, 1))),
        Points(AXES, ((1, 0), (0, 0))),
        Points((Axis("depth", (1, 2, 5)), AXES[1]), ((0, 0), (1, 0))),
        Points((Axis("depth", (1.0, 2, 4)), AXES[1]), ((0, 0), (1, 0))),
        Points((AXES[0], Axis("kind", ("a", "b"))), ((0, 0), (1, 0))),
    ],
)
def test_digest_changes_with_anything(other: Points):
    assert other.digest() != Points(AXES, ((0, 0), (1, 0))).digest()


def test_digest_is_the_same_for_ever():
    digest = Points(AXES, ((0, 0), (1, 0))).digest()
    # Studies on disk hold this number: a change makes them all unreadable.
    assert digest.startswith("b9d6d4163a92a03a")


def test_nearest_counts_steps_by_share_and_takes_the_first_of_a_tie():
    axes = (Axis("x", tuple(range(11))), Axis("y", (0, 1)), AXES[1])
    among = Points(axes, ((0, 0, 0), (4, 0, 0), (8, 0, 0), (6, 1, 0), (6, 0, 1)))
    assert among.nearest((6, 0, 0), range(5)) == 1
    assert among.nearest((6, 0, 0), [2, 3, 4]) == 2
    assert among.nearest((6, 0, 0), [4, 3]) == 3
    assert among.nearest((7, 0, 0), range(5)) == 2


@pytest.mark.parametrize(
    ("axes", "rows", "message"),
    [
        (AXES, ((0, 0), (0, 0)), "listed twice"),
        (AXES, ((3, 0),), "in range"),
        (AXES, ((0,),), "in range"),
        ((AXES[0], AXES[0]), ((0, 0),), "share a name"),
    ],
)
def test_nonsense_is_refused(axes, rows, message: str):
    with pytest.raises(ConfigError, match=message):
        Points(axes, rows)


def test_an_axis_needs_values_and_each_once():
    with pytest.raises(ConfigError, match="no values"):
        Axis("depth", ())
    with pytest.raises(ConfigError, match="twice"):
        Axis("depth", (1, 2, 1))


def test_seeds_do_not_change_from_process_to_process():
    assert derive_seed(1, "arm", 2) == derive_seed(1, "arm", 2)
    seeds = {derive_seed(s, a, n) for s in (1, 2) for a in "ab" for n in range(50)}
    assert len(seeds) == 200
    assert derive_seed(0, "arm", 0) == 4257837758


def test_points_and_samplers_need_no_optuna():
    code = (
        "import sys; from allocsearch.search import SAMPLERS, Points, make_sampler;"
        "make_sampler('tpe'); sys.exit('optuna' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
