"""Selection and its numbers against hand computation."""

import csv
import io
import statistics
from dataclasses import replace

import pytest
from rich.console import Console

from allocsearch.analysis.by_depth import by_depth_csv, by_depth_rows, by_depth_tables
from allocsearch.errors import ConfigError, UnknownNameError
from allocsearch.results import TrialResult


def trained(trial: TrialResult, *values: float) -> TrialResult:
    """The trial with the objective as measured while training, one per seed."""
    name = trial.objective.name
    seeds = [
        replace(seed, training={name: value, "reward": 0.5})
        for seed, value in zip(trial.seeds, values, strict=True)
    ]
    return replace(trial, seeds=tuple(seeds))


def test_mean_and_sample_variance(trial):
    row, *none = by_depth_rows([trial((1.0, 2.0, 6.0))])
    assert none == []
    assert row["score"] == 3.0
    assert row["variance"] == pytest.approx(7.0)  # (4 + 1 + 9) / 2
    assert row["variance"] == pytest.approx(statistics.variance([1.0, 2.0, 6.0]))
    assert row["metrics"]["solved_fraction"] == pytest.approx(0.1)
    assert row["n_seeds"] == 3


def test_a_single_seed_has_no_variance(trial):
    assert by_depth_rows([trial(1.0)])[0]["variance"] is None


def test_the_two_rules_choose_differently(trial):
    valid = trained(trial((5.0, 5.0), number=0), 1.0, 2.0)
    training = trained(trial((4.0, 4.0), number=1), 3.0, 2.0)
    rows = {
        rule: by_depth_rows([valid, training], rule)[0]
        for rule in ("objective", "training")
    }
    assert rows["objective"]["number"] == 0
    assert rows["training"]["number"] == 1
    assert rows["training"]["training"] == {"return": 2.5, "reward": 0.5}
    assert rows["training"]["score"] == 4.0
    assert {row["n_selected_from"] for row in rows.values()} == {2}


def test_the_lowest_loss_is_selected(trial, loss):
    a = trained(trial((3.0, 3.0), number=0, objective=loss), 1.0, 1.0)
    b = trained(trial((2.0, 2.0), number=1, objective=loss), 2.0, 2.0)
    assert by_depth_rows([a, b])[0]["number"] == 1
    assert by_depth_rows([a, b], "training")[0]["number"] == 0


def test_every_depth_of_every_arm_once(search):
    rows = by_depth_rows(search)
    places = [(row["arm"], row["depth"]) for row in rows]
    arms = ("recurrent", "nonrecurrent")
    assert places == [(arm, depth) for arm in arms for depth in (1, 2, 4, 8)]
    # Trial 4, of depth 2 too, scores lower than trial 1; diverged ones never count.
    assert [row["number"] for row in rows] == [0, 1, 2, 3] * 2
    assert [row["n_selected_from"] for row in rows] == [1, 2, 1, 1] * 2


def test_selection_by_what_was_never_measured_is_refused(trial):
    old = TrialResult.from_dict(
        {
            **trial().to_dict(),
            "seeds": [{"seed": 0, "metrics": {"return": 1.0}, "curve": []}],
        }
    )
    assert by_depth_rows([old])[0]["training"] == {}
    with pytest.raises(ConfigError, match="trial 0 of study demo has no return"):
        by_depth_rows([old], "training")
    with pytest.raises(UnknownNameError, match="'training'"):
        by_depth_rows([old], "trainig")


def test_csv_has_the_same_numbers(search):
    rows = by_depth_rows(search)
    read = list(csv.DictReader(io.StringIO(by_depth_csv(rows))))
    assert len(read) == len(rows)
    for text, row in zip(read, rows, strict=True):
        assert float(text["variance"]) == row["variance"]
        fraction = row["metrics"]["solved_fraction"]
        assert float(text["metrics.solved_fraction"]) == fraction
        assert (text["arm"], int(text["width"])) == (row["arm"], row["width"])


def test_the_table_fits_and_says_how_it_selects(search):
    console = Console(width=100, record=True)
    console.print(by_depth_tables(by_depth_rows(search)))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 100
    assert "solved fraction" in text
    assert "highest return on validation data" in text
    assert "[b]" not in text


def test_nothing_gives_nothing():
    assert by_depth_rows([]) == []
    console = Console(width=80, record=True)
    console.print(by_depth_tables([]))
    assert "No complete trial" in console.export_text()
