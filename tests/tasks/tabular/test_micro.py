"""The table of micro-runs that comes with the source."""

from pathlib import Path

import pytest

from allocsearch.tasks.tabular.table import read_table

PATH = Path(__file__).resolve().parents[3] / "benchmarks" / "data" / "micro.csv"


@pytest.fixture(scope="module")
def table():
    return read_table(PATH)


def test_it_is_small_and_whole(table):
    assert PATH.stat().st_size < 300_000
    assert table.columns == ("accuracy", "loss")
    assert {len(runs) for runs in table.curves.values()} == {2}
    assert table.steps.tolist() == [12_800 * (i + 1) for i in range(8)]
    for runs in table.curves.values():
        for run in runs:
            assert run.steps.tolist() == table.steps.tolist()


def test_its_work_is_matched_and_its_results_are_no_better_than_perfect(table):
    limit = max(table.costs.values())
    assert min(table.costs.values()) >= 0.7 * limit
    for runs in table.curves.values():
        for run in runs:
            assert (
                (run.metrics["accuracy"] >= 0) & (run.metrics["accuracy"] <= 1)
            ).all()
            assert (run.metrics["loss"] > 0).all()


def test_what_carries_state_learns_and_what_does_not_stays_at_chance(table):
    """120 classes: chance is near 0.01 after some steps, more in the first ones."""
    ends = {
        allocation: max(run.metrics["accuracy"][-1] for run in runs)
        for allocation, runs in table.curves.items()
    }
    assert max(ends.values()) > 0.7
    assert all(v < 0.15 for a, v in ends.items() if not a.recurrent)
