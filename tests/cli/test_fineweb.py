"""The FineWeb task on the command line, on the built-in text."""

import csv

import pytest

TRAINING = [
    *("--task", "fineweb", "--budget", "20k", "--expert", "gru"),
    *("--horizon", "256", "--n-seeds", "1", "--set", "training.n_evaluations=1"),
    *("--set", "task={window: 8, n_slots: 8, updates_per_chunk: 2}"),
    *("--set", "task.evaluation={n_valid: 300, n_test: 300, n_slots: 4}"),
]


@pytest.fixture(scope="module")
def trained(cli, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    answer = cli("train", *TRAINING, "-L", "1", "-E", "2", "--out", folder, "--json")
    assert answer.code == 0, answer.err
    return folder, answer.json


def test_training_reports_the_loss_beside_its_baseline(trained):
    _, row = trained
    assert 0 < row["metrics"]["bits_per_byte"] < row["metrics"]["loss"] * 1.5
    assert row["baseline"]["loss"] < row["metrics"]["loss"]  # after four updates
    assert row["audit"]["work"]["head"] == 2 * 257 * row["allocation"]["width"]


def test_evaluation_tells_the_loss_by_position(cli, trained, tmp_path):
    folder, row = trained
    out = tmp_path / "pieces.csv"
    found = cli("evaluate", folder, "--json", "--out", out).json
    assert found["metrics"] == row["metrics"]
    curve = found["seeds"][0]["details"]["loss_by_position"]
    assert curve["position"] == [0, 1, 2, 4, 8, 16, 32, 64]
    assert sum(curve["tokens"]) == 4 * 72
    weighted = sum(n * x for n, x in zip(curve["tokens"], curve["loss"], strict=True))
    assert weighted / 288 == pytest.approx(row["metrics"]["loss"], rel=1e-5)
    with open(out, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == found["n_items"] == 288
    assert {row["slot"] for row in rows} == {"0", "1", "2", "3"}


def test_generation_is_repeatable_and_has_the_prompt(cli, trained):
    folder, _ = trained
    flags = ("--prompt", "Ada and ", "--n-tokens", "12", "--seed", "3")
    made = cli("generate", folder, *flags, "--json").json
    assert len(made["tokens"]) == 12
    assert made["prompt_tokens"] == [*b"Ada and "]
    shown = cli("generate", folder, *flags)
    assert shown.code == 0
    assert shown.out.startswith("Ada and ")
    assert "\x1b" not in shown.out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--n-tokens", "0"), "at least 1"),
        (("--temperature", "-1"), "temperature is -1"),
        (("--top-k", "0"), "top-k is 0"),
    ],
)
def test_what_cannot_be_drawn_is_a_sentence(cli, trained, args, words):
    answer = cli("generate", trained[0], *args)
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err


def test_a_task_that_makes_nothing_says_so(cli, finished):
    name, *where = finished.at
    answer = cli("generate", name, "recurrent/best", *where)
    assert answer.code == 2
    assert "'statetrack' generate nothing" in answer.err


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("task.window=0",), "task: field 'window'"),
        (("task.evaluation.n_valid=10",), "less than one window of every stream"),
        (("training.accumulation=3",), "does not divide"),
        (("training.optimizer=sgd",), "training.optimizer"),
        (("task.data=nowhere",), "nowhere"),
        (("task.tokenizer=nothing",), "unknown tokenizer 'nothing'"),
    ],
)
def test_bad_fields_are_sentences(cli, settings, words):
    flags = [flag for setting in settings for flag in ("--set", setting)]
    answer = cli("train", "-t", "fineweb", "-b", "tiny", *flags)
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err
    assert len(answer.err.splitlines()) == 1


def test_other_tasks_refuse_accumulation(cli):
    args = ("--task", "sokoban", "--set", "training.accumulation=2")
    answer = cli("space", *args)
    assert answer.code == 2
    assert "does not accumulate gradients" in answer.err


def test_the_space_of_a_large_budget_shows_the_head_apart(cli):
    rows = cli("space", "-t", "fineweb", "-b", "small", "--json").json
    assert {row["depth"] for row in rows} == {1, 2, 4, 8, 16, 32}
    for row in rows:
        assert row["head_flops"] == 2 * row["width"] * 50_257
        assert row["core_flops"] <= row["budget_flops"]
