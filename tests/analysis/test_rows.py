"""Rows are JSON, say who won and never more than the mode allows."""

import json
import math

import pytest

from allocsearch.analysis.rows import (
    detail_row,
    pareto_rows,
    summary_notes,
    summary_rows,
    trials_rows,
)
from allocsearch.errors import ConfigError, UnknownNameError

KEY = ("tiny", "conv_lstm", "recurrent")


def test_rows_are_strict_json(search):
    rows = [summary_rows(search), trials_rows(search), pareto_rows(search)]
    rows.append([detail_row(result, search) for result in search])
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows


@pytest.mark.parametrize("n", [0, 1, 2])
def test_rows_of_few_trials(trial, n):
    results = [trial(1.0, recurrent=i == 0) for i in range(n)]
    assert len(trials_rows(results)) == len(pareto_rows(results)) == n
    rows = summary_rows(results)
    assert [row["number"] for row in rows] == [[], [0, None], [0, 0]][n]
    assert all(row["standard_error"] is None for row in trials_rows(results))


def test_summary_names_the_winner_of_each_arm(search):
    recurrent, other = summary_rows(search)
    assert (recurrent["number"], recurrent["depth"]) == (3, 8)
    assert recurrent["score"] == pytest.approx(4.1)
    assert recurrent["baseline"] == {"return": -1.0}
    assert other["arm"] == "nonrecurrent"
    counts = {key: recurrent[key] for key in ("n_trials", "n_scored", "n_failed")}
    assert counts == {"n_trials": 8, "n_scored": 5, "n_failed": 1}
    assert recurrent["scored_per_depth"] == {"1": 1, "2": 2, "4": 1, "8": 1}


def test_summary_takes_test_metrics_of_finalists(search):
    metrics = {"return": 3.9, "n_levels": 1000, "odd": math.nan}
    recurrent, other = summary_rows(search, {KEY: metrics})
    assert recurrent["test"] == {"return": 3.9, "n_levels": 1000, "odd": None}
    assert other["test"] == {}


def test_minimized_objectives_win_by_less(trial, loss):
    results = [trial((s, s), number=i, objective=loss) for i, s in enumerate((3, 2, 4))]
    results.append(trial((2.5, 2.5), objective=loss, recurrent=False))
    rows = summary_rows(results)
    assert rows[0]["number"] == 1
    assert "The best recurrent loss is ahead by 0.5" in summary_notes(rows)[0]


def test_trials_are_listed_by_number_with_both_arms_together(search):
    rows = trials_rows(reversed(search))
    assert [row["number"] for row in rows] == [i for i in range(8) for _ in range(2)]
    assert [row["arm"] for row in rows[:2]] == ["recurrent", "nonrecurrent"]
    assert sum(row["best"] for row in rows) == 2
    assert {row["reason"] for row in rows} == {"", "[b]OOM[/b]"}


def test_detail_holds_every_seed_and_its_curve(search):
    row = detail_row(search[0], search)
    assert [seed["seed"] for seed in row["seeds"]] == [0, 1, 2]
    assert len(row["seeds"][0]["curve"]) == 3
    assert row["allocation"] == search[0].allocation.to_dict()
    assert detail_row(search[0])["ci_low"] is not None


def test_pareto_rows_carry_the_axis(search):
    rows = pareto_rows(search, "core_flops")
    assert {row["x"] for row in rows} == {"core_flops"}
    assert all(row["cost"] == row["core_flops"] for row in rows)
    with pytest.raises(UnknownNameError):
        pareto_rows(search, "price")


def test_search_mode_claims_nothing_about_depth(search):
    notes = summary_notes(summary_rows(search), "search")
    assert notes[-1] == (
        "Search mode: best of 5 found in each arm; not a claim about depth."
    )
    rest = " ".join(notes[:-1]).lower()
    assert not any(word in rest for word in ("depth", "deep", "shallow"))
    assert "ahead by 2.400 ± 0.082" in notes[0]


def test_claim_mode_counts_per_depth(search):
    note = summary_notes(summary_rows(search), "claim")[-1]
    assert "recurrent L=1: 1, L=2: 2, L=4: 1, L=8: 1; non-recurrent L=1: 1" in note


def test_sweep_mode_says_that_work_is_only_bounded(trial):
    notes = summary_notes(summary_rows([trial(matched=False)]), "sweep")
    assert "The recurrent trial #0 is not matched" in notes[1]
    assert "only bounded" in notes[-1]


def test_an_arm_without_a_complete_trial_is_named(trial):
    failed = trial((), recurrent=False, state="failed", core=None)
    notes = summary_notes(summary_rows([trial(), failed]))
    assert notes[0] == (
        "No non-recurrent trial is complete with a finite score "
        "(1 tried, 1 failed, 0 running)."
    )
    notes = summary_notes(summary_rows([trial()]))
    assert notes[0] == "No non-recurrent trial was run."


def test_unequal_horizons_are_pointed_out(trial):
    results = [trial(), trial(recurrent=False, horizon=99)]
    assert "different horizons" in " ".join(summary_notes(summary_rows(results)))


def test_an_unknown_mode_is_refused(search):
    with pytest.raises(ConfigError, match="search, claim, sweep"):
        summary_notes(summary_rows(search), "prove")
