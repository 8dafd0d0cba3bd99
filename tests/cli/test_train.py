"""`train` and `evaluate`: one allocation, and its checkpoint."""

import csv
import importlib.util
import signal

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from allocsearch import checkpoint
from allocsearch.allocation import Allocation
from allocsearch.candidate import Candidate, describe_candidate
from allocsearch.config import TrainingConfig
from allocsearch.tasks.resolve import build_task

SHAPE = ("--n-experts", "1", "--recurrent")
LEVELS = {"interior": [4, 4], "n_boxes": 1, "n_train": 8, "n_valid": 30, "n_test": 8}
SAMPLED = ("--set", "task.evaluation={policy: sampled, seed: 6}")
ENVIRONMENT = {"keep_border": False, "evaluation_step_limit": 20}


@pytest.fixture(scope="module")
def trained(cli, training, tmp_path_factory):
    """What `train` printed, and its checkpoint."""
    folder = tmp_path_factory.mktemp("train") / "one"
    answer = cli("train", *training, *SHAPE, "--out", folder, "--json")
    assert answer.code == 0, answer.err
    return answer, folder


def test_train_prints_curve_and_final_metrics_beside_the_baseline(trained):
    answer, folder = trained
    found = answer.json
    assert found["allocation"]["width"] == 32
    assert found["audit"]["work"]["core"] <= found["budget_flops"]
    assert set(found["baseline"]) == set(found["metrics"])
    assert [point["steps"] for point in found["curves"][0]] == [320, 640]
    assert "320 tokens: accuracy" in answer.err
    assert "budget micro" in answer.err
    assert checkpoint.exists(folder)


def test_train_equals_the_study_s_own_trial(trained, cli, finished):
    rows = cli("trials", *finished.at, "--json").json
    same = [r for r in rows if r["arm"] == "recurrent" and r["n_experts"] == 1]
    assert [row["metrics"] for row in same] == [trained[0].json["metrics"]]


def test_train_goes_on_from_its_checkpoint(trained, cli, training):
    answer, folder = trained
    again = cli("train", *training, *SHAPE, "--out", folder, "--json")
    assert again.json["metrics"] == answer.json["metrics"]
    assert "320 tokens" not in again.err  # nothing was left to train
    table = cli("train", *training, *SHAPE, "--out", folder).out
    assert "untrained" in table
    assert f"checkpoint {folder}" in table.replace("\n", "")


def test_checkpoint_of_another_task_is_refused(trained, cli, training):
    other = ("--set", "task.data_seed=7")
    answer = cli("train", *training, *SHAPE, *other, "--out", trained[1])
    assert answer.code == 2
    assert "another trial" in answer.err


def test_evaluate_a_checkpoint_needs_nothing_else(trained, cli):
    answer, folder = trained
    valid = cli("evaluate", folder, "--json").json
    assert valid["trained"] == 1.0
    assert valid["task"]["group"] == "s3"
    last = answer.json["curves"][0][-1]
    assert {"steps": last["steps"], **valid["metrics"]} == last
    test = cli("evaluate", folder, "--split", "test", "--json").json
    assert test["metrics"] != valid["metrics"]


def test_evaluate_on_other_data(trained, cli):
    folder = trained[1]
    here = cli("evaluate", folder, "--json").json
    there = cli("evaluate", folder, "--set", "task.data_seed=7", "--json").json
    assert there["task"]["data_seed"] == 7
    assert there["metrics"] != here["metrics"]
    answer = cli("evaluate", folder, "--data", "nowhere")
    assert answer.code == 2
    assert "'data'" in answer.err


def test_evaluate_a_trial_of_a_study(cli, finished):
    study, *where = finished.at
    found = cli(
        "evaluate", study, "recurrent/best", "--split", "test", *where, "--json"
    )
    winner = next(
        row for row in finished.answer.json["summary"] if row["arm"] == "recurrent"
    )
    assert found.json["metrics"] == pytest.approx(winner["test"])
    table = cli("evaluate", study, "recurrent/best", *where).out
    assert "On valid data of task statetrack" in table


def test_a_trial_whose_checkpoint_was_not_kept(finished, cli):
    study, *where = finished.at
    best = cli("show", study, "recurrent/best", *where, "--json").json["number"]
    answer = cli("evaluate", study, f"recurrent/{1 - best}", *where)
    assert answer.code == 1
    assert f"micro/mlp/recurrent/{1 - best} was not kept" in answer.err
    assert "--set output.keep=all" in answer.err


@pytest.fixture(scope="module")
def player(tmp_path_factory):
    """A checkpoint of two seeds that have not learnt to push boxes yet."""
    fields = {"levels": LEVELS, "environment": ENVIRONMENT, "n_envs": 2}
    task, config = build_task("sokoban", fields)
    allocation = Allocation("conv_lstm", True, 1, 1, 4)
    candidate = Candidate(allocation, TrainingConfig(horizon=1000), (3, 5), config)
    state = task.init_trained(allocation, candidate.training, candidate.seeds)
    folder = tmp_path_factory.mktemp("player") / "sokoban"
    metadata = {"candidate": describe_candidate(candidate), "steps": 0}
    checkpoint.save(folder, state, metadata)
    return folder


def test_flags_change_how_a_checkpoint_is_evaluated(player, cli):
    greedy = cli("evaluate", player, "--json").json
    sampled = cli("evaluate", player, *SAMPLED, "--json").json
    assert sampled["task"]["evaluation"]["policy"] == "sampled"
    assert sampled["metrics"] != greedy["metrics"]
    wrong = cli("evaluate", player, "--set", "task.evaluation.policy=random")
    assert wrong.code == 2
    assert "evaluation.policy" in wrong.err


def test_items_are_a_row_per_seed_and_level(player, cli, tmp_path):
    path = tmp_path / "new" / "levels.csv"
    answer = cli("evaluate", player, "--out", path, "--json")
    assert answer.code == 0, answer.err
    assert f"60 rows written to {path}" in answer.err
    assert [file.name for file in path.parent.iterdir()] == ["levels.csv"]
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["seed", "level", "return", "length", "solved"]
    for found in answer.json["seeds"]:
        own = [row for row in rows if row["seed"] == str(found["seed"])]
        assert [int(row["level"]) for row in own] == list(range(30))
        metrics = found["metrics"]
        solved = np.mean([row["solved"] == "True" for row in own])
        assert solved == pytest.approx(metrics["solved_fraction"])
        returns = np.mean([float(row["return"]) for row in own])
        assert returns == pytest.approx(metrics["return"], rel=1e-5)
        lengths = np.mean([int(row["length"]) for row in own])
        assert lengths == pytest.approx(metrics["episode_length"])


def test_metrics_have_intervals_over_items(player, trained, cli, tmp_path):
    path = tmp_path / "levels.csv"
    found = cli("evaluate", player, "--out", path, *SAMPLED, "--json").json
    assert found["n_items"] == 30
    frame = pd.read_csv(path)
    columns = {"return": "return", "solved_fraction": "solved"}
    for metric, column in columns.items():
        by_seed = frame.pivot(index="level", columns="seed", values=column).astype(
            float
        )
        means = {"mean": by_seed.mean(axis=1), **by_seed}
        rows = {"mean": found, **{seed["seed"]: seed for seed in found["seeds"]}}
        for name, values in means.items():
            low, high = rows[name]["intervals"][metric]
            expected = stats.bootstrap(
                (values,), np.mean, method="percentile", rng=np.random.default_rng(2)
            ).confidence_interval
            assert low < np.mean(values) < high
            error = 0.15 * stats.sem(values) + 1e-6
            assert (low, high) == pytest.approx(tuple(expected), abs=error)
    table = cli("evaluate", player, *SAMPLED).out
    assert "95 % from" in table
    assert "over 30 items" in table
    without = cli("evaluate", trained[1], "--json").json
    assert (without["intervals"], without["n_items"]) == ({}, 0)
    assert "95 %" not in cli("evaluate", trained[1]).out


def test_items_in_parquet_are_those_in_csv(player, cli, tmp_path):
    pytest.importorskip("pyarrow")
    for name in ("levels.csv", "levels.parquet"):
        assert cli("evaluate", player, "--out", tmp_path / name).code == 0
    csv_frame = pd.read_csv(tmp_path / "levels.csv")
    frame = pd.read_parquet(tmp_path / "levels.parquet")
    assert frame["solved"].dtype == bool
    pd.testing.assert_frame_equal(frame, csv_frame, check_dtype=False)


def test_files_of_items_that_cannot_be_written_are_refused(
    player, trained, cli, tmp_path, monkeypatch
):
    def refused(*args):
        answer = cli("evaluate", *args)
        assert answer.code == 2
        return " ".join(answer.err.split())

    assert ".parquet or .csv" in refused(player, "--out", tmp_path / "levels.json")
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "levels.csv"
    assert "cannot be written" in refused(player, "--out", place)
    assert "leave --out away" in refused(trained[1], "--out", tmp_path / "items.csv")
    found = importlib.util.find_spec
    without = lambda name, *a: None if name == "pyarrow" else found(name, *a)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", without)
    said = refused(player, "--out", tmp_path / "levels.parquet")
    assert "allocsearch[parquet]" in said
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_ctrl_c_keeps_a_checkpoint(cli, apart, training, tmp_path):
    long = [flag if flag != "640" else "100000000" for flag in training]
    running = apart("train", *long, *SHAPE, "--out", tmp_path / "long")
    running.wait_for("seeds 1")
    running.send(signal.SIGINT)
    answer = running.end()
    assert answer.code == 130, answer
    assert f"--out {tmp_path / 'long'}" in answer.err
    found = cli("evaluate", tmp_path / "long", "--json").json
    assert 0 < found["trained"] < 1
