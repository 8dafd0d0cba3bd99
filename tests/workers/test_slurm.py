"""A real Slurm: preempted, warned of its time limit, queued again, going on."""

import subprocess
import time
from collections import Counter

import pytest
from typer.testing import CliRunner

from allocsearch.cli.app import app
from allocsearch.errors import StudyError
from allocsearch.study import load_study, prepare
from allocsearch.workers.slurm import SlurmJob, batch_script


def rows(path):
    return [line.split() for line in path.read_text().splitlines()]


def wait_until(condition, seconds=150):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def launch(*args):
    return CliRunner().invoke(app, ["launch", "slurm", "s", *map(str, args)])


def test_jobs_that_are_taken_off_go_on(slurm, shared, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    prepare(
        shared(
            search={"n_trials": 2},
            task={"chunk_seconds": 0.25},
            training={"horizon": 400, "n_evaluations": 4},
            execution={"executor": "inline", "lease_seconds": 20},
        )
    )
    log = tmp_path / "log"
    answer = launch("--directory", tmp_path, "--partition", "low", "--submit")
    assert answer.exit_code == 0, answer.stderr
    number = answer.stderr.split()[1].rstrip(":")
    wait_until(lambda: log.exists() and len(rows(log)) > 2)
    # A job of more worth takes the whole node.
    high = ["sbatch", "-p", "high", "--exclusive", "--parsable", "--output=/dev/null"]
    slurm.call(*high, "--wrap", "sleep 1")
    wait_until(lambda: len({row[0] for row in rows(log)}) == 2)
    n_before = len(rows(log))
    wait_until(lambda: len(rows(log)) > n_before + 2)
    # What Slurm sends before the time limit.
    slurm.call("scancel", "--signal=USR1", number)
    wait_until(lambda: len({row[0] for row in rows(log)}) == 3)
    study = load_study("s", tmp_path)
    wait_until(lambda: len(study.finalists()) == 2)
    assert [t.state for t in study.trials()] == ["complete"] * 2
    # Every time a checkpoint was written first: no chunk was trained twice.
    chunks = Counter(tuple(row[1:3]) for row in rows(log))
    assert set(chunks.values()) == {1}
    assert len(chunks) == 80
    text = "".join(path.read_text() for path in study.directory.glob("logs/slurm-*"))
    assert "SIGTERM: stopping at the next checkpoint" in text
    assert "SIGUSR1: stopping at the next checkpoint" in text


def test_the_script_is_a_script(tmp_path):
    directory = tmp_path / "a study's folder"
    job = SlurmJob(4, cpus=2, gpus=1, time="01:00:00", more=("--account=lab",))
    script = batch_script("s", directory, job)
    assert script.startswith("#!/bin/bash\n#SBATCH --job-name=allocsearch-s\n")
    for line in (
        "--array=0-3",
        "--gpus=1",
        "--time=01:00:00",
        "--account=lab",
        "--requeue",
        "--signal=USR1@60",
    ):
        assert f"#SBATCH {line}\n" in script
    assert "--partition" not in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    with pytest.raises(StudyError, match="cannot be an option"):
        batch_script("s", directory, SlurmJob(1, more=("--a\nrm -rf /",)))


def test_launch_refuses_what_it_cannot_do(config, tmp_path):
    prepare(config())
    where = ("--directory", tmp_path)
    answer = launch(*where)
    assert answer.exit_code == 2
    assert "begin a study with --storage postgresql://" in answer.stderr
    at = ["s", "--directory", str(tmp_path)]
    answer = CliRunner().invoke(app, ["launch", "pbs", *at])
    assert answer.exit_code == 2
    assert "known: slurm" in answer.stderr
    answer = CliRunner().invoke(app, ["worker", *at])
    assert answer.exit_code == 2
    assert "--executor local --workers N" in answer.stderr
