"""Worker processes: kept, pinned, replaced when they crash, gone with their driver."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from allocsearch import registry
from allocsearch.driver import run
from allocsearch.errors import ConfigError, StudyError
from allocsearch.observer import Observer
from allocsearch.study import prepare
from allocsearch.workers.devices import (
    environment_of,
    share_of_cores,
    share_of_gpus,
    visible_gpus,
)


class Notes(Observer):
    def __init__(self):
        self.notes, self.progress = [], Counter()

    def note(self, text):
        self.notes.append(text)

    def trial_progressed(self, cell, number, progress):
        self.progress[cell.name, number] += 1
        assert 0 < progress.fraction <= 1


def rows(path):
    return [line.split() for line in path.read_text().splitlines()]


def test_two_workers_propose_what_the_serial_study_does(config, told, tmp_path):
    grid = {"search": {"sampler": "grid", "n_trials": 12}}
    serial = run(config(name="serial", **grid))
    log = tmp_path / "log"
    task = {"task": {"log": str(log)}}
    seen = Notes()
    local = {"execution": {"executor": "local", "n_workers": 2}}
    both = run(config(**grid, **task, **local), observer=seen)
    assert told(both) == told(serial)
    assert both.finalists() == serial.finalists()
    # Every chunk was reported once, and each process kept to its own core.
    assert Counter(seen.progress.values()) == {4: 12}
    cores = {row[0]: row[3:] for row in rows(log)}
    assert len(cores) == 2
    if len(os.sched_getaffinity(0)) >= 2:
        first, second = map(set, cores.values())
        assert not first & second
    printed = [p.read_text() for p in (both.directory / "logs").iterdir()]
    assert all("what a task prints" in text for text in printed)


def test_a_crash_costs_nothing_a_second_one_its_trial(config, tmp_path):
    once = tmp_path / "once"
    once.touch()
    log = tmp_path / "log"
    seen = Notes()
    study = run(
        config(
            task={"crash_at_depth": 4, "crash_once": str(once), "log": str(log)},
            space={"depths": [1, 4], "n_experts": [1]},
            arms="recurrent",
            search={"sampler": "grid", "n_trials": 2, "learning_rates": []},
            execution={"executor": "local"},
        ),
        observer=seen,
    )
    assert not once.exists()
    trials = study.trials()
    assert [t.allocation.depth for t in trials] == [1, 4]
    for trial in trials:
        assert trial.state == ("failed" if trial.allocation.depth == 4 else "complete")
        if trial.state == "failed":
            assert trial.allocation.label in trial.reason
            assert "seeds [" in trial.reason
            assert "twice, the second time after 10 steps by SIGSEGV" in trial.reason
    assert any("SIGKILL, as when memory runs out" in note for note in seen.notes)
    # Taken up from checkpoints: but for the chunk whose checkpoint was being written.
    chunks = Counter(tuple(row[1:3]) for row in rows(log))
    again = {key for key, n in chunks.items() if n > 1}
    assert all(chunk == "0" and chunks[label, chunk] == 2 for label, chunk in again)


def test_stopped_and_resumed_as_undisturbed(config, told):
    whole = run(config(name="whole"))
    local = {"execution": {"executor": "local", "n_workers": 1}}
    seen = Progressed()
    slow = {"chunk_seconds": 0.3}
    study = run(
        config(task=slow, **local), observer=seen, should_stop=lambda: seen.n >= 6
    )
    states = Counter(t.state for t in study.trials())
    assert states["running"] == 1
    assert told(run(config(task=slow, **local))) == told(whole)


class Progressed(Observer):
    """Counts chunks."""

    n = 0

    def trial_progressed(self, cell, number, progress):
        del cell, number, progress
        self.n += 1


def test_what_cannot_start_says_why(config):
    class Unknown(registry.load("task", "sleepy")):
        name = "unknown"

    registry.register("task", "unknown", Unknown)
    try:
        with pytest.raises(StudyError, match="unknown task 'unknown'"):
            run(config(task={"name": "unknown"}, execution={"executor": "local"}))
    finally:
        registry.unregister("task", "unknown")
    with pytest.raises(ConfigError, match="give `--executor local`"):
        run(config(execution={"n_workers": 2}))
    with pytest.raises(ConfigError, match="gpus_per_trial is 99, but there are"):
        run(config(name="t", execution={"executor": "local", "gpus_per_trial": 99}))


def test_a_disk_that_cannot_be_written_ends_the_run_not_the_trial(config, told):
    whole = run(config(name="whole", search={"n_trials": 2}))
    local = config(execution={"executor": "local"}, search={"n_trials": 2})
    study = prepare(local)
    in_the_way = study.directory / "trials"
    in_the_way.touch()
    with pytest.raises(StudyError, match="cannot be written"):
        run(local)
    assert {t.state for t in study.trials()} == {"running"}
    in_the_way.unlink()
    assert told(run(local)) == told(whole)


def test_workers_end_with_their_driver(config, tmp_path):
    path = tmp_path / "config.json"
    task = {"chunk_seconds": 0.1, "log": str(tmp_path / "log")}
    values = config(
        task=task,
        training={"horizon": 100_000},
        execution={"executor": "local", "n_workers": 2},
    )
    path.write_text(json.dumps(values))
    code = "import sys; from allocsearch.driver import run; run(sys.argv[1])"
    driver = subprocess.Popen([sys.executable, "-c", code, str(path)])
    log = tmp_path / "log"
    deadline = time.monotonic() + 120
    while len({row[0] for row in rows(log)} if log.exists() else ()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    workers = {int(row[0]) for row in rows(log)}
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("n_signals", [1, 2])
def test_ctrl_c_in_a_terminal(config, tmp_path, n_signals):
    """It reaches every process of the terminal; only the driver heeds it."""
    log = tmp_path / "log"
    # A long first chunk in one case, so that only the second Ctrl-C can end it.
    task = {"chunk_seconds": 0.1 if n_signals == 1 else 60.0, "log": str(log)}
    study = prepare(config(task=task, training={"horizon": 100_000}))
    command = ["resume", "s", "--directory", str(tmp_path), "--executor", "local"]
    driver = subprocess.Popen(
        [sys.executable, "-m", "allocsearch", *command, "--workers", "2"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while len(logs := list(study.directory.glob("logs/*"))) < 2 or not all(
        "what a task prints" in path.read_text() for path in logs
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    workers = children(driver.pid)
    assert len(workers) == 2
    for pid in workers:
        os.kill(pid, signal.SIGINT)
    for _ in range(n_signals):
        os.killpg(driver.pid, signal.SIGINT)
        time.sleep(0.5)
    begun = time.monotonic()
    err = driver.communicate(timeout=60)[1]
    assert driver.returncode == 130
    assert time.monotonic() - begun < 20
    assert "once more stops at once" in err
    assert ("allocsearch resume s" in err) == (n_signals == 1)
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    trials = study.trials()
    assert [t.state for t in trials] == ["running"] * 2
    found = [(study.directory / t.checkpoint).exists() for t in trials]
    assert found == [n_signals == 1] * 2


def children(pid):
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in found for child in path.read_text().split()]


def test_cores_are_shared_out_evenly():
    assert share_of_cores(0, 1, [0, 1, 2]) == [0, 1, 2]
    shares = [share_of_cores(i, 2, [4, 5, 6, 7]) for i in range(2)]
    assert shares == [[4, 5], [6, 7]]
    assert [share_of_cores(i, 3, [0, 1]) for i in range(3)] == [[0], [1], [0]]
    assert share_of_cores(1, 2, [0, 1, 2, 3], 1) == [1]


def test_gpus_are_shared_out_in_turn():
    assert share_of_gpus(0, 2, []) == ([], None)
    assert share_of_gpus(1, 2, ["0", "1"]) == (["1"], None)
    assert share_of_gpus(2, 4, ["0", "1"]) == (["0"], pytest.approx(0.45))
    assert share_of_gpus(1, 2, ["0", "1", "2", "3"], 2) == (["2", "3"], None)
    assert share_of_gpus(0, 1, ["0"], 0) == ([], None)
    with pytest.raises(ConfigError, match="there are 1 GPUs"):
        share_of_gpus(0, 1, ["0"], 2)


def test_the_environment_of_a_worker(monkeypatch):
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "3, 5"}) == ["3", "5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    first, second = (environment_of(i, 2, None) for i in range(2))
    assert first["CUDA_VISIBLE_DEVICES"] == "3"
    assert second["CUDA_VISIBLE_DEVICES"] == "5"
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in first
    third = environment_of(2, 4, None)
    assert third["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.450"
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.2")
    assert environment_of(2, 4, None)["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.2"
