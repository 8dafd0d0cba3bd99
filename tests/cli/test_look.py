"""Commands that look at a study, and those that prepare one."""

import json

import pytest
import yaml

from allocsearch.config import StudyConfig
from allocsearch.parsing import parse


def test_status_of_one_study(cli, finished):
    standing = cli("status", *finished.at, "--json").json
    assert (standing["complete"], standing["n_trials"]) == (4, 4)
    assert not standing["in_progress"]
    for cell in standing["cells"]:
        assert (cell["complete"], cell["failed"], cell["running"]) == (2, 0, 0)
        assert cell["best"]["objective"] == "accuracy"
    assert "finished" in cli("status", *finished.at).out


def test_status_of_a_directory(cli, finished, tmp_path):
    answer = cli("status", "--directory", finished.directory, "--json")
    assert [row["study"] for row in answer.json] == ["moments"]
    assert "4/4" in cli("status", "--directory", finished.directory).out
    answer = cli("status", "--directory", tmp_path)
    assert (answer.code, "No studies" in answer.out) == (0, True)


def test_status_passes_over_a_damaged_study(cli, tmp_path):
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "study.json").write_text("{")
    answer = cli("status", "--directory", tmp_path, "--json")
    assert (answer.code, answer.json) == (0, [])
    assert "torn" in answer.err


def test_trials(cli, finished):
    rows = cli("trials", *finished.at, "--json").json
    assert len(rows) == 4
    assert {row["state"] for row in rows} == {"complete"}
    assert sum(row["best"] for row in rows) == 2
    assert "accuracy" in cli("trials", *finished.at).out


@pytest.mark.parametrize(
    "names",
    [
        ("recurrent/0",),
        ("micro/mlp/recurrent/0",),
        ("0", "--arm", "recurrent"),
        ("mlp/0", "--budget", "micro", "--arm", "recurrent"),
    ],
)
def test_show_takes_any_name_that_is_enough(cli, finished, names):
    study, *where = finished.at
    row = cli("show", study, *names, *where, "--json").json
    assert (row["arm"], row["number"]) == ("recurrent", 0)
    assert len(row["seeds"][0]["curve"]) == 2


def test_show_best(cli, finished):
    study, *where = finished.at
    row = cli("show", study, "non-recurrent/best", *where, "--json").json
    rows = cli("trials", *finished.at, "--json").json
    best = next(r for r in rows if r["best"] and r["arm"] == "nonrecurrent")
    assert row["number"] == best["number"]
    assert "Provenance" in cli("show", study, "nonrecurrent/best", *where).out


def test_pareto(cli, finished, tmp_path):
    args = (*finished.at, "--x", "parameters", "--out", tmp_path / "fronts" / "front")
    answer = cli("pareto", *args, "--json")
    assert {row["x"] for row in answer.json} == {"parameters"}
    assert (tmp_path / "fronts" / "front.png").stat().st_size > 1000
    assert (tmp_path / "fronts" / "front.svg").exists()
    assert "front.svg" in answer.err
    assert "Pareto front" in cli("pareto", *finished.at).out


def test_space_lists_members_of_the_budget(cli):
    flags = ("--task", "statetrack", "--budget", "micro")
    rows = cli("space", *flags, "--json").json
    assert {row["arm"] for row in rows} == {"recurrent", "nonrecurrent"}
    for row in rows:
        assert 0.75 <= row["share"] <= 1
        parts = ("core_flops", "encoder_flops", "head_flops")
        assert row["total_flops"] == sum(row[part] for part in parts)
    table = cli("space", *flags, "--arm", "recurrent", env={"COLUMNS": "80"}).out
    assert "mlp, recurrent" in table
    assert max(map(len, table.splitlines())) <= 80


def test_plugins_lists_built_ins(cli):
    answer = cli("plugins", "--json")
    names = {(row["kind"], row["name"]) for row in answer.json}
    assert {("task", "statetrack"), ("expert", "mlp"), ("aggregation", "mean")} <= names


def test_doctor(cli, tmp_path):
    found = cli("doctor", "--directory", tmp_path / "studies", "--json").json
    assert found["ok"]
    assert found["matmul_gflops_per_second"] > 0
    assert found["directory"]["free_bytes"] > 0
    assert not list(tmp_path.iterdir())


def test_show_config_is_a_config_with_every_field(cli, tmp_path):
    flags = ("--task", "statetrack", "--budget", "micro")
    text = cli("show-config", *flags, "--set", "training.b1=0.8").out
    values = yaml.safe_load(text)
    config = parse(StudyConfig, values)
    assert config.training.b1 == 0.8
    assert set(values) == set(StudyConfig.model_fields)
    for section in ("space", "search", "training", "output"):
        kind = StudyConfig.model_fields[section].annotation
        assert set(values[section]) == set(kind.model_fields)
    assert "# Adam's decay of the first moment." in text
    assert "# Streams trained on at once." in text

    path = tmp_path / "study.yaml"
    path.write_text(text)
    assert cli("show-config", path).out == text
    assert cli("show-config", path, "--json").json == json.loads(json.dumps(values))


def test_table(cli, finished):
    rows = cli("table", *finished.at, "--json").json
    assert [(row["arm"], row["depth"]) for row in rows] == [
        ("recurrent", 1),
        ("nonrecurrent", 1),
    ]
    best = {
        r["arm"]: r for r in cli("trials", *finished.at, "--json").json if r["best"]
    }
    for row in rows:
        assert row["number"] == best[row["arm"]]["number"]
        assert row["score"] == best[row["arm"]]["score"]
    lines = cli("table", *finished.at, "--csv").out.splitlines()
    assert len(lines) == 3
    assert "metrics.accuracy" in lines[0].split(",")
    assert "Selected at each depth" in cli("table", *finished.at).out


def test_table_refuses_what_it_cannot_select_by(cli, finished):
    answer = cli("table", *finished.at, "--select", "training")
    assert (answer.code, "no accuracy" in answer.err) == (2, True)
    assert cli("table", *finished.at, "--select", "luck").code == 2
    answer = cli("table", *finished.at, "--json", "--csv")
    assert (answer.code, "choose one" in answer.err) == (2, True)
