"""Bad input: one sentence on stderr, exit code 2, never a traceback."""

import importlib

import pytest

from allocsearch import registry

TASK = ("--task", "statetrack")
MICRO = (*TASK, "--budget", "micro")


def refused(answer):
    """The one sentence of a refusal."""
    assert answer.code == 2, (answer.code, answer.out, answer.err)
    assert answer.out == ""
    lines = answer.err.splitlines()
    assert len(lines) == 1, answer.err
    assert lines[0].startswith("allocsearch: ")
    assert "Traceback" not in answer.err
    return lines[0]


BAD_FLAGS = {
    "unknown task": (("--task", "statetrak"), "did you mean 'statetrack'?"),
    "no task": ((), "--task"),
    "unknown budget": ((*TASK, "--budget", "micor"), "did you mean 'micro'?"),
    "negative budget": ((*TASK, "--budget", "-5M"), "not positive"),
    "budget that is no number": ((*TASK, "--budget", "12x"), "12x"),
    "impossible budget": ((*TASK, "--budget", "7"), "the nearest is mlp L1 E1 d2"),
    "unknown expert": ((*MICRO, "--expert", "mpl"), "did you mean 'mlp'?"),
    "unknown arm": ((*MICRO, "--arm", "recurent"), "'recurent'"),
    "unknown key": ((*MICRO, "--set", "training.horizont=3"), "'horizon'"),
    "unknown section": ((*MICRO, "--set", "trainig.horizon=3"), "'training'"),
    "unknown field of the task": ((*MICRO, "--set", "task.grup=s3"), "'group'"),
    "setting without =": ((*MICRO, "--set", "training.horizon"), "section.field=value"),
    "setting that is no YAML": ((*MICRO, "--set", "seed=[1"), "not valid YAML"),
    "value of the wrong type": ((*MICRO, "--set", "seed=many"), "'seed'"),
    "negative horizon": ((*MICRO, "--set", "training.horizon=-1"), "-1"),
    "unknown sampler": ((*MICRO, "--set", "search.sampler=tep"), "'tpe'"),
    "no data": ((*MICRO, "--data", "nowhere"), "'data'"),
}
RUN_FLAGS = {
    "horizon": ((*MICRO, "--horizon", "soon"), "'soon'"),
    "mode": ((*MICRO, "--mode", "clam"), "'clam'"),
    "seed": ((*MICRO, "--seed", "x"), "--seed"),
    "negative seed": ((*MICRO, "--seed", "-1"), "'seed'"),
    "too few trials": ((*MICRO, "--n-trials", "1"), "too few"),
    "name": ((*MICRO, "--name", "a/b"), "'name'"),
    "option": (("--frobnicate",), "allocsearch run --help"),
    "missing YAML": (("nowhere.yaml",), "nowhere.yaml cannot be read"),
}


@pytest.mark.parametrize("case", BAD_FLAGS)
@pytest.mark.parametrize("command", ["run", "space"])
def test_bad_flags(cli, tmp_path, monkeypatch, command, case):
    if (command, case) == ("space", "unknown sampler"):
        pytest.skip("the space does not depend on it")
    monkeypatch.chdir(tmp_path)
    flags, words = BAD_FLAGS[case]
    assert words in refused(cli(command, *flags))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("case", RUN_FLAGS)
def test_bad_flags_of_run(cli, tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    flags, words = RUN_FLAGS[case]
    assert words in refused(cli("run", *flags))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("task: [", "not valid YAML at line"),
        ("- task", "must be a mapping"),
        ("task: statetrack\nbugdets: micro", "did you mean 'budgets'?"),
        ("task: {group: s3}", "task's name"),
        ("task: !!python/object/apply:os.system [ls]", "not valid YAML"),
        ("task: statetrack\nbudgets: []", "budgets"),
        ("", "task"),
    ],
)
def test_broken_yaml(cli, tmp_path, text, words):
    path = tmp_path / "study.yaml"
    path.write_text(text)
    assert words in refused(cli("run", path, "--directory", tmp_path / "studies"))


def test_yaml_that_is_no_text(cli, tmp_path):
    path = tmp_path / "study.yaml"
    path.write_bytes(b"\xff\xfe\x00task")
    assert "not UTF-8" in refused(cli("run", path))


@pytest.mark.parametrize(
    "command", ["resume", "status", "trials", "pareto", "show", "evaluate"]
)
def test_unknown_study(cli, finished, command):
    more = ["0"] if command in ("show", "evaluate") else []
    args = ("momentz", *more, "--directory", finished.directory)
    assert "did you mean 'moments'?" in refused(cli(command, *args))


def test_resume_with_no_trials(cli, finished):
    answer = cli("resume", *finished.at, "--n-trials", "0")
    assert "'search.n_trials'" in refused(answer)


def test_a_study_that_was_begun_otherwise(cli, finished, tiny):
    where = ("--name", "moments", "--directory", finished.directory)
    sentence = refused(cli("run", *tiny, "--seed", "5", *where))
    assert "seed was 0, now 5" in sentence
    assert "resume" in sentence


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        ("0", "may be micro/mlp/recurrent/0 or micro/mlp/nonrecurrent/0"),
        ("17", "it has micro/mlp/recurrent/0 to 1"),
        ("recurrent/x", "neither in a number nor in 'best'"),
        ("best", "--arm"),
        ("huge/0", "no trial 'huge/0'"),
    ],
)
def test_trial_that_is_not_one(cli, finished, trial, words):
    name, *where = finished.at
    assert words in refused(cli("show", name, trial, *where))


def test_unknown_axis_and_split(cli, finished):
    assert "did you mean 'depth'?" in refused(
        cli("pareto", *finished.at, "--x", "dept")
    )
    name, *where = finished.at
    answer = cli("evaluate", name, "recurrent/0", "--split", "tset", *where)
    assert "'test'" in refused(answer)


def test_checkpoint_that_is_none(cli, tmp_path):
    assert "no checkpoint" in refused(cli("evaluate", tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--depth", "0"), "depth is 0"),
        (("--radius", "x"), "radius is 'x'"),
        (("--aggregation", "men"), "'mean'"),
        (("--width", "64"), "outside budget 'micro'"),
        (("--depth", "1000"), "the nearest is"),
    ],
)
def test_allocation_that_cannot_be_trained(cli, tmp_path, flags, words):
    answer = cli("train", *MICRO, *flags, "--out", tmp_path / "out")
    assert words in refused(answer)
    assert not list(tmp_path.iterdir())


def test_missing_level_directory(cli, tmp_path):
    flags = ("--task", "sokoban", "--budget", "tiny", "--data", tmp_path / "nothing")
    assert "nothing" in refused(cli("space", *flags))


def test_a_bug_is_a_sentence_too(cli, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("one over\nzero")

    monkeypatch.setattr("allocsearch.study.load_study", broken)
    answer = cli("trials", "any")
    assert answer.code == 70
    assert answer.err.count("\n") == 1
    assert "ZeroDivisionError: one over zero" in answer.err
    assert "--debug" in answer.err
    with pytest.raises(ZeroDivisionError):
        cli("--debug", "trials", "any", catch_exceptions=False)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Make distributions that offer entry points, as pip would leave them."""

    def make(name, entry_points):
        info = tmp_path / f"{name.replace('-', '_')}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(entry_points)
        registry._installed.cache_clear()
        registry._import.cache_clear()
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(tmp_path)
    yield make
    registry._installed.cache_clear()
    registry._import.cache_clear()


def test_plugin_that_raises_on_import(cli, install, tmp_path):
    (tmp_path / "sour.py").write_text("raise OSError('no [red]luck[/red] today')\n")
    install("sour-experts", "[allocsearch.experts]\nsour = sour:Sour\n")
    sentence = refused(cli("space", *MICRO, "--expert", "sour"))
    assert "sour-experts 1.2" in sentence
    assert "OSError: no [red]luck[/red] today" in sentence

    answer = cli("plugins", env={"COLUMNS": "200"})
    assert answer.code == 0
    assert "no [red]luck[/red] today" in answer.out
    rows = {row["name"]: row for row in cli("plugins", "--json").json}
    assert rows["sour"]["version"] == "1.2"
    assert rows["sour"]["error"]
    assert rows["mlp"]["error"] is None
    assert cli("space", *MICRO).code == 0


def test_name_that_two_packages_claim(cli, install):
    install("one-pack", "[allocsearch.experts]\ntwin = one:Twin\n")
    install("two-pack", "[allocsearch.experts]\ntwin = two:Twin\n")
    sentence = refused(cli("space", *MICRO, "--expert", "twin"))
    assert "one-pack and two-pack" in sentence
    answer = cli("plugins", "--json")
    assert answer.code == 0
    errors = [row["error"] for row in answer.json if row["name"] == "twin"]
    assert len(errors) == 2
    assert all("uninstall one" in error for error in errors)
