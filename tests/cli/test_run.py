"""`run`, and what may happen to it on the way."""

import signal

import pytest

from allocsearch import registry
from allocsearch.errors import DataError
from allocsearch_statetrack.task import StateTrack

OUTCOME = ("budget", "expert", "arm", "number", "depth", "n_experts", "width", "score")


def outcomes(cli, name, directory):
    """What decides whether two studies found the same."""
    rows = cli("trials", name, "--directory", directory, "--json").json
    return [tuple(row[key] for key in (*OUTCOME, "state", "metrics")) for row in rows]


def test_run_prints_best_of_both_arms_as_json_and_progress_on_stderr(finished):
    answer = finished.answer
    assert [row["arm"] for row in answer.json["summary"]] == [
        "recurrent",
        "nonrecurrent",
    ]
    for row in answer.json["summary"]:
        assert row["n_scored"] == 2
        assert set(row["test"]) == set(row["metrics"])
    assert "4/4" in answer.err


def test_run_saves_figures(finished):
    names = {path.split("/")[-1] for path in finished.answer.json["figures"]}
    stems = ("score_against_depth", "learning_curves")
    assert names == {f"{stem}.{kind}" for stem in stems for kind in ("png", "svg")}
    for path in finished.answer.json["figures"]:
        with open(path, "rb") as file:
            assert len(file.read()) > 1000


def test_a_finished_study_runs_nothing_again(cli, finished, tiny):
    before = outcomes(cli, "moments", finished.directory)
    where = ("--name", "moments", "--directory", finished.directory)
    answer = cli("run", *tiny, *where)
    assert answer.code == 0
    assert "4 done before" in answer.err
    assert "1/4" not in answer.err
    assert outcomes(cli, "moments", finished.directory) == before
    for text in (
        "Best allocations",
        "valid: streams 16",
        "test: streams 16",
        "depth L",
    ):
        assert text in answer.out


def test_dry_run_writes_nothing(cli, tmp_path, tiny):
    answer = cli("run", *tiny, "--directory", tmp_path, "--dry-run", "--json")
    assert answer.code == 0
    assert [cell["n_trials"] for cell in answer.json["cells"]] == [2, 2]
    assert [cell["n_points"] for cell in answer.json["cells"]] == [2, 2]
    assert answer.json["seconds"] > 0
    assert not list(tmp_path.iterdir())


def test_n_trials_counts_per_study(cli, tmp_path, tiny, finished):
    where = ("--directory", tmp_path)
    half = [flag if flag != "4" else "2" for flag in tiny]
    assert cli("run", *half, "--name", "moments", *where, "-q").code == 0
    assert len(outcomes(cli, "moments", tmp_path)) == 2
    answer = cli("resume", "moments", *where, "--n-trials", "4")
    assert answer.code == 0
    assert "4 trials, 2 done before" in answer.err
    assert outcomes(cli, "moments", tmp_path) == outcomes(
        cli, "moments", finished.directory
    )


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)],
)
def test_resume_after_a_signal_equals_an_undisturbed_run(
    cli, apart, tmp_path, tiny, finished, number, code
):
    where = ("--directory", str(tmp_path))
    running = apart("run", *tiny, "--name", "moments", *where, "--json")
    running.wait_for("1/4")
    running.send(number)
    cut_off = running.end()
    assert cut_off.code == code, cut_off
    ended = [row for row in outcomes(cli, "moments", tmp_path) if "complete" in row]
    assert 1 <= len(ended) < 4
    if number != signal.SIGKILL:
        assert f"allocsearch resume moments --directory {tmp_path}" in cut_off.err
        assert cut_off.json["interrupted"]
        assert "stops at once" in cut_off.err

    answer = cli("resume", "moments", *where)
    assert answer.code == 0, answer.err
    assert f"{len(ended)} done before" in answer.err
    assert outcomes(cli, "moments", tmp_path) == outcomes(
        cli, "moments", finished.directory
    )


def test_second_ctrl_c_stops_at_once(apart, tmp_path, tiny):
    long = [flag if flag != "640" else "1000000000" for flag in tiny]
    running = apart("run", *long, "--directory", tmp_path, "--name", "long")
    running.wait_for("4 trials")
    running.send(signal.SIGINT)
    running.wait_for("once more")
    running.send(signal.SIGINT)
    assert running.end().code == 130


class Faulty(StateTrack):
    """A task whose training always breaks, with markup in what it says."""

    def train(self, *_):
        raise RuntimeError("the [bold]device[/bold] is on fire")


def test_exit_1_when_every_trial_fails(cli, tmp_path, tiny):
    registry.register("task", "faulty", Faulty)
    try:
        flags = [flag if flag != "statetrack" else "faulty" for flag in tiny]
        args = ("--directory", tmp_path, "--name", "lost")
        answer = cli("run", *flags, *args, "--json")
    finally:
        registry.unregister("task", "faulty")
    assert answer.code == 1
    assert {row["n_failed"] for row in answer.json["summary"]} == {2}
    assert "RuntimeError: the [bold]device[/bold] is on fire" in answer.err
    for command in ("trials", "status"):
        assert cli(command, "lost", "--directory", tmp_path).code == 0
    shown = cli("show", "lost", "recurrent/0", "--directory", tmp_path)
    assert "[bold]device[/bold]" in shown.out
    answer = cli("evaluate", "lost", "recurrent/0", "--directory", tmp_path)
    assert answer.code == 1
    assert "failed" in answer.err


class Untested(StateTrack):
    """A task without test data."""

    def score(self, model, split):
        if split == "test":
            raise DataError("there is no 'test' split")
        return super().score(model, split)

    def manifest(self):
        return {k: v for k, v in super().manifest().items() if k != "test"}


def test_a_task_without_test_data_says_so(cli, tmp_path, tiny):
    registry.register("task", "untested", Untested)
    try:
        flags = [flag if flag != "statetrack" else "untested" for flag in tiny]
        answer = cli("run", *flags, "--directory", tmp_path)
    finally:
        registry.unregister("task", "untested")
    assert answer.code == 0
    assert "there are no test scores: there is no 'test' split" in answer.err
    assert "no test data" in answer.out


def test_heavy_budget_without_a_terminal_needs_yes(cli, tmp_path):
    args = ("--task", "sokoban", "--budget", "large", "--directory", tmp_path)
    answer = cli("run", *args, "--set", "levels={}")
    assert answer.code == 2
    args = (*args, "--set", "task.levels={n_train: 50, n_valid: 5, n_test: 5}")
    answer = cli("run", *args)
    assert answer.code == 2
    assert "--yes" in answer.err
    assert "FLOP" in answer.err
    assert len(answer.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())
