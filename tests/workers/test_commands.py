"""The commands over it: flags, `worker` that leaves early, and what `status` shows."""

import time

import pytest
from typer.testing import CliRunner

from allocsearch.cli.app import app
from allocsearch.search import Leases, SearchStudy
from allocsearch.study import load_study, prepare


@pytest.fixture
def call(tmp_path):
    """Run a command on the study `s`."""

    def invoke(command, *args):
        words = [command, "s", "--directory", str(tmp_path), *map(str, args)]
        return CliRunner().invoke(app, words)

    return invoke


def states(study):
    return [trial.state for trial in study.trials()]


def test_a_worker_leaves_when_it_was_told_to(shared, call, tmp_path):
    study = prepare(shared(search={"n_trials": 4}))
    assert call("worker", "--n-trials", 1).exit_code == 0
    assert states(study) == ["complete"]
    answer = call("worker", "--timeout", 0)
    assert answer.exit_code == 0
    assert "allocsearch resume s" in answer.stderr
    assert states(study) == ["complete"]
    assert study.finalists() == {}
    answer = call("worker", "--executor", "local", "--workers", 2)
    assert answer.exit_code == 0
    assert states(study) == ["complete"] * 4
    assert len(study.finalists()) == 2
    # How this worker ran is not what the study is.
    assert load_study("s", tmp_path).config.execution.executor == "inline"


def test_status_shows_who_trains_what(shared, call):
    study = prepare(shared(search={"n_trials": 4}))
    call("worker", "--n-trials", 1)
    cell = study.cells[1]
    name = f"s/{cell.name}"
    search = SearchStudy.open(
        study.storage,
        name,
        cell.points,
        directions=("maximize",),
        sampler=cell.sampler[0],
        seed=SearchStudy.load(study.storage, name)._asker._seed,
    )
    from allocsearch.attempt import Job, blank_result

    proposal = search.ask()
    job = Job(cell.name, proposal.number, proposal.values)
    search.record(proposal.number, "result", blank_result(study, cell, job).to_dict())
    Leases.open(study.storage).acquire(name, proposal.number, "node7:42:x", 1.5)
    answer = call("status")
    assert "being run now" in answer.stdout
    assert ", by node7:42, heard of" in answer.stdout
    time.sleep(1.6)
    answer = call("status")
    assert "free to be taken up" in answer.stdout
    assert "interrupted" in answer.stdout


def test_flags_of_execution(config, call, tmp_path):
    prepare(config())
    answer = call("resume", "--workers", 2)
    assert answer.exit_code == 2
    assert "give `--executor local`" in answer.stderr
    answer = call("resume", "--executor", "locl")
    assert answer.exit_code == 2
    assert "'inline', 'local' or 'ray'" in answer.stderr
    assert not (tmp_path / "s" / "study.db").exists()
