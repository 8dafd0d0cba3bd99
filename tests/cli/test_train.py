"""`train` and `evaluate`: one allocation, and its checkpoint."""

import signal

import pytest

SHAPE = ("--n-experts", "1", "--recurrent")


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
    assert (folder / "manifest.json").exists()


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
