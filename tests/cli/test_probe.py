"""`allocsearch probe`: what networks hold of what they will do."""

import csv
import io
import json
from dataclasses import replace

import equinox as eqx
import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from allocsearch import checkpoint
from allocsearch.allocation import Allocation
from allocsearch.candidate import Candidate, describe_candidate
from allocsearch.cli.exits import NothingToDo
from allocsearch.cli.probing import Network, _check_calibrated, _curves, _table
from allocsearch.config import TrainingConfig
from allocsearch.errors import ConfigError
from allocsearch.tasks.probes import ProbeCounts, Probed, ProbeRequest
from allocsearch.tasks.resolve import build_task
from allocsearch.tasks.sokoban import probing, trajectories

LIMIT = 8
ALLOCATION = Allocation("conv_glu", True, 1, 1, 4)
WITHOUT = Allocation("conv_glu", False, 1, 1, 5)


def keep(place, allocation, levels_seed=0, scale=30):
    """A checkpoint of an untrained network, its policy far from uniform."""
    fields = {
        "levels": {"interior": [2, 4], "n_boxes": 1, "n_train": 120, "min_pushes": 1},
        "environment": {"keep_border": False, "evaluation_step_limit": LIMIT},
    }
    fields["levels"] |= {"n_valid": 20, "n_test": 2, "seed": levels_seed}
    task, config = build_task("sokoban", fields)
    candidate = Candidate(allocation, TrainingConfig(horizon=1), (7, 8), config)
    seeds = candidate.seeds
    _, runs = task.init_trained(allocation, candidate.training, seeds)
    at = lambda run: run.model.head.readout.out  # noqa: E731
    runs = tuple(eqx.tree_at(at, run, scale * at(run)) for run in runs)
    metadata = {"candidate": describe_candidate(candidate), "steps": 0}
    checkpoint.save(place, (None, runs), metadata)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probed")
    keep(folder / "carries", ALLOCATION)
    keep(folder / "forgets", WITHOUT)
    keep(folder / "elsewhere", ALLOCATION, levels_seed=1)
    keep(folder / "idle", ALLOCATION, scale=0)
    return folder


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Probes fitted only so far as to say something."""
    fit = probing.fit_probe
    monkeypatch.setattr(
        probing, "fit_probe", lambda *a, **k: fit(*a, n_updates=50, **k)
    )
    monkeypatch.setattr(probing, "_VALIDATION_SHARE", 0.5)
    monkeypatch.setattr(trajectories, "_MOST_LEVELS", 20)


def test_two_networks_compared(cli, places, tmp_path):
    outs = [tmp_path / f"recall.{kind}" for kind in ("png", "csv", "json")]
    args = ["probe", places / "carries", places / "forgets", "--precision", "0.1"]
    args += ["--steps", "5", *(word for out in outs for word in ("--out", out))]
    shown = cli(*args, env={"COLUMNS": "200"})
    assert shown.code == 0, shown.err
    report = json.loads(outs[2].read_text())
    carries, forgets = report["networks"]
    assert (carries["label"], forgets["label"]) == ("carries", "forgets")
    assert (carries["arm"], forgets["arm"]) == ("recurrent", "nonrecurrent")
    assert carries["seed"] == 7
    assert carries["n_channels"] == {"network": 4, "observation": 7}
    assert carries["n_played"] == 60
    assert 0 < report["n_common"] <= min(carries["n_solved"], forgets["n_solved"])
    assert report["n_items"] == 20
    first = carries["probes"]["network"]
    assert first["steps"][0]["n_items"] == report["n_common"]
    assert first["calibrated_precision"] >= 0.1
    found = sum(row["recall"] * row["n_targets"] for row in first["steps"])
    n_targets = sum(row["n_targets"] for row in first["steps"])
    assert first["recall"] == pytest.approx(found / n_targets)
    with open(outs[1]) as file:
        rows = list(csv.DictReader(file))
    expected = [
        row
        for network in report["networks"]
        for probe in network["probes"].values()
        for row in probe["steps"]
    ]
    assert [(r["label"], r["reading"], int(r["step"])) for r in rows] == [
        (r["label"], r["reading"], r["step"]) for r in expected
    ]
    assert float(rows[0]["recall"]) == pytest.approx(expected[0]["recall"])
    with Image.open(outs[0]) as image:
        assert image.format == "PNG"
    assert f"{report['n_common']} of 20 valid items that all solve" in shown.out
    assert f"{first['recall']:.3f}" in shown.out
    assert f"{first['macro_f1']:.3f}" in shown.out
    # Alone, the probe is the same, and what it is scored on is all that is solved.
    alone = cli("probe", places / "carries", *args[3:7], "--json").json
    (again,) = alone["networks"]
    assert again["probes"]["network"]["threshold"] == first["threshold"]
    assert alone["n_common"] == again["n_solved"] == carries["n_solved"]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ((), 2, "Missing argument"),
        (("nowhere",), 2, "there is no checkpoint at nowhere"),
        (("{}/carries", "--split", "train"), 2, "unknown split 'train'"),
        (("{}/carries", "--target", "boxes"), 2, "did you mean 'box'?"),
        (("{}/carries", "--read", "stat"), 2, "did you mean 'state'?"),
        (("{}/carries", "--kernel", "5"), 2, "1 or 3 squares a side, not 5"),
        (("{}/carries", "--read", "1"), 2, "keeps no memory to read"),
        (("{}/carries", "--out", "x.pdf"), 2, "end its name in .png, .svg, .csv"),
        (("{}/carries", "--out", "no/x.png"), 2, "there is no folder no"),
        (("{}/idle",), 2, "idle solves none of 60 training levels"),
        (("{}/carries", "{}/elsewhere", "--precision", "0.1"), 2, "different data"),
    ],
)
def test_what_cannot_be_probed(cli, places, tmp_path, monkeypatch, args, code, words):
    monkeypatch.chdir(tmp_path)
    answer = cli("probe", *(arg.format(places) for arg in args))
    assert answer.code == code, answer.err
    assert answer.out == ""
    assert answer.err.count("\n") == 1
    assert words in answer.err
    assert not list(tmp_path.iterdir())


def told(label, solved, right, observed=True):
    """A network whose probe emits right directions on so many of two squares."""
    right = np.array(right)
    counts = ProbeCounts(
        threshold=0.5,
        calibrated=0.9,
        targets=np.full(right.shape, 2),
        emitted=np.full(right.shape, 2),
        right=right,
        confusion=np.tile(np.eye(2, dtype=int), (len(right), 1, 1)),
    )
    nothing = replace(counts, threshold=None, emitted=0 * right, right=0 * right)
    probed = Probed(
        items="the same",
        solved=np.array(solved),
        lengths=np.full(len(right), right.shape[1]),
        classes=("there", "never"),
        network=counts,
        observation=counts if observed else nothing,
    )
    return Network(label, {"label": label, "arm": "recurrent"}, probed)


def test_only_what_all_solve_is_compared():
    first = told("first", [True, True, False], [[2, 1], [0, 1], [2, 2]])
    second = told("second", [True, False, True], [[1, 0], [2, 2], [2, 2]], False)
    request = ProbeRequest("agent", n_steps=2)
    curves = _curves([first, second], request)
    assert curves.report["n_common"] == 1
    recalls = {(c.label, c.reading): c.recall for c in curves.curves}
    assert recalls["first", "network"] == (1.0, 0.5)
    assert recalls["second", "network"] == (0.5, 0.0)
    assert recalls["second", "observation"] == (0.0, 0.0)
    assert [n["n_solved"] for n in curves.report["networks"]] == [2, 2]
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(_table([first, second], curves, request))
    text = console.export_text()
    assert "the 1 of 3 valid items that all solve" in text
    assert "No threshold makes the observation of second so precise" in text
    third = told("third", [False, True, True], [[0, 0]] * 3)
    with pytest.raises(NothingToDo, match="solved: first 2, second 2, third 2"):
        _curves([first, second, third], request)


def test_a_precision_out_of_reach_says_what_was_reached():
    found = told("first", [True], [[1]])
    request = ProbeRequest("agent", precision=0.95)
    _check_calibrated(found, request)
    counts = replace(found.probed.network, threshold=None)
    found = replace(found, probed=replace(found.probed, network=counts))
    words = "probe of first a precision of 0.95; the best is 0.900"
    with pytest.raises(ConfigError, match=words):
        _check_calibrated(found, request)


def test_tasks_without_probes_and_of_other_names(cli, finished, places):
    path = finished.directory / finished.at[0] / "recurrent" / "best"
    assert "task 'statetrack' has no probes to fit" in cli("probe", path).err
    answer = cli("probe", places / "carries", path)
    assert answer.code == 2
    assert "probe networks of one task together" in answer.err
