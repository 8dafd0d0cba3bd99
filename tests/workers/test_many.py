"""Many drivers on one study, in a real PostgreSQL, and what may happen to them."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from allocsearch.claims import Shared, is_dead, this_worker
from allocsearch.driver import run
from allocsearch.observer import Observer
from allocsearch.search import SearchStudy
from allocsearch.study import load_study, prepare
from allocsearch.trial import Dropped
from allocsearch.workers.base import Control

DRIVE = """
import sys
from allocsearch.cli import main
sys.argv = ["allocsearch", "worker", *sys.argv[1:]]
main()
"""


@pytest.fixture
def worker(tmp_path):
    """Starts `allocsearch worker` in a process of its own."""
    started = []

    def start(*args):
        words = ["s", "--directory", str(tmp_path), "--quiet", *args]
        with open(tmp_path / "workers.log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", DRIVE, *words], stdout=log, stderr=log
            )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def rows(path):
    return [line.split() for line in path.read_text().splitlines()]


def wait_until(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ended_once(study, n):
    """Every trial is complete, none is lost, doubled or left running."""
    trials = study.trials()
    assert len(trials) == n
    assert {t.state for t in trials} == {"complete"}
    made = {(t.arm, t.allocation, t.settings["learning_rate"]) for t in trials}
    assert len(made) == n
    nothing_runs(study)


def nothing_runs(study):
    """No trial is left running, and both arms have a finalist."""
    for cell in study.manifest["cells"]:
        search = SearchStudy.load(study.storage, f"{study.name}/{cell}")
        assert search.counts()["running"] == 0
        search.close()
    assert len(study.finalists()) == 2


def test_one_driver_finds_what_it_finds_in_sqlite(config, shared, told):
    in_file = run(config(name="file"))
    in_server = run(shared())
    assert told(in_server) == told(in_file)
    assert in_server.finalists() == in_file.finalists()
    assert told(run(shared())) == told(in_file)


def test_drivers_beside_each_other_share_the_trials(config, shared, told, tmp_path):
    grid = {"search": {"sampler": "grid", "n_trials": 12}}
    serial = run(config(name="serial", **grid))
    values = shared(**grid)
    study = prepare(values)
    seen = [Observer(), Observer()]
    threads = [
        threading.Thread(target=run, args=(values,), kwargs={"observer": one})
        for one in seen
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended_once(study, 12)
    assert sorted(map(repr, told(study))) == sorted(map(repr, told(serial)))
    assert set(Counter(tuple(r[1:3]) for r in rows(tmp_path / "log")).values()) == {1}


def test_killed_workers_lose_nothing(shared, worker, tmp_path):
    """Ten kills among three workers, at random moments of their training."""
    _campaign(shared, worker, tmp_path, n_trials=12, n_workers=3, n_kills=10)


@pytest.mark.long
def test_fifty_kills_among_four_workers_lose_nothing(shared, worker, tmp_path):
    _campaign(shared, worker, tmp_path, n_trials=40, n_workers=4, n_kills=50)


def test_killed_workers_climb_rungs_all_the_same(shared, worker, tmp_path):
    search = {"rungs": "halving", "first_rung": 0.2}
    _begin(shared, search, n_trials=12)
    repeated = _kill_at_random(worker, tmp_path, n_workers=3, n_kills=6)[1]
    study = load_study("s", tmp_path)
    trials = study.trials()
    assert len(trials) == len({(t.arm, t.number) for t in trials}) == 12
    assert {t.state for t in trials} == {"complete", "pruned"}
    for arm in ("recurrent", "nonrecurrent"):
        states = Counter(t.state for t in trials if t.arm == arm)
        assert 1 <= states["complete"] < 6
    assert all(t.fraction < 1 for t in trials if t.state == "pruned")
    nothing_runs(study)
    assert repeated <= 2 * 6


def _campaign(shared, worker, tmp_path, *, n_trials, n_workers, n_kills):
    _begin(shared, {}, n_trials)
    n_chunks, repeated = _kill_at_random(
        worker, tmp_path, n_workers=n_workers, n_kills=n_kills
    )
    ended_once(load_study("s", tmp_path), n_trials)
    assert n_chunks == n_trials * 20
    # Progress is kept: a kill costs at most the chunk that it fell into and the one
    # that was not yet checkpointed.
    assert repeated <= 2 * n_kills


def _begin(shared, search, n_trials):
    rates = [i / 1000 for i in range(1, 21)]
    base = {"sampler": "random", "n_trials": n_trials, "learning_rates": rates}
    training = {"horizon": 200}
    task = {"chunk_seconds": 0.2}
    prepare(shared(search={**base, **search}, training=training, task=task))


def _kill_at_random(worker, tmp_path, *, n_workers, n_kills):
    """Have workers train a study; the chunks that were trained, and how many again."""
    draw = random.Random(0)
    workers = [worker("--executor", "inline") for _ in range(n_workers)]
    log = tmp_path / "log"

    def in_training():
        pids = {row[0] for row in rows(log)} if log.exists() else ()
        return [p for p in workers if p.poll() is None and str(p.pid) in pids]

    for _ in range(n_kills):
        wait_until(in_training)
        time.sleep(draw.uniform(0, 0.5))
        victim = draw.choice(in_training())
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        workers.append(worker("--executor", "inline"))
    for process in workers:
        assert process.wait(300) in (0, -signal.SIGKILL)
    assert sum(p.returncode != 0 for p in workers) == n_kills
    chunks = Counter(tuple(row[1:3]) for row in rows(log))
    return len(chunks), sum(chunks.values()) - len(chunks)


def test_one_worker_killed_again_and_again_finds_the_same(
    config, shared, worker, told, tmp_path
):
    whole = run(config(name="whole"))
    prepare(shared())
    log = tmp_path / "log"
    for n_chunks in (3, 9, 14):
        process = worker("--executor", "inline")
        wait_until(lambda n=n_chunks: log.exists() and len(rows(log)) >= n)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert worker("--executor", "inline").wait(120) == 0
    assert told(load_study("s", tmp_path)) == told(whole)


def test_a_stopped_server_is_ridden_out(server, shared, told, config):
    _outage(server, shared, told, config, seconds=8)


@pytest.mark.long
def test_a_server_stopped_for_a_minute_is_ridden_out(server, shared, told, config):
    _outage(server, shared, told, config, seconds=60)


def _outage(server, shared, told, config, seconds):
    whole = run(config(name="whole"))
    stopped = []

    class Stop(Observer):
        def trial_finished(self, result):
            if not stopped:
                stopped.append(result)
                server.stop()
                threading.Timer(seconds, server.start).start()

    study = run(shared(), observer=Stop())
    assert stopped
    assert told(study) == told(whole)
    ended_once(study, 8)


def test_a_late_result_is_dropped_quietly(shared, told, tmp_path):
    """A driver that was frozen for longer than its lease finds its trial taken."""
    values = shared(search={"n_trials": 2})
    prepare(values)
    code = (
        "import json, sys; from allocsearch.driver import run; "
        "run(json.loads(sys.argv[1]))"
    )
    frozen = subprocess.Popen([sys.executable, "-c", code, json.dumps(values)])
    log = tmp_path / "log"
    wait_until(log.exists)
    frozen.send_signal(signal.SIGSTOP)
    # As if on another machine, where nobody can see whether it lives.
    study = run(values)
    before = told(study)
    ended_once(study, 2)
    frozen.send_signal(signal.SIGCONT)
    assert frozen.wait(120) == 0
    assert told(load_study("s", tmp_path)) == before


@pytest.mark.parametrize(
    ("number", "task"),
    [(signal.SIGUSR1, {}), (signal.SIGTERM, {"init_seconds": 60})],
    ids=["in training", "in compilation"],
)
def test_a_signal_releases_within_ten_seconds(shared, worker, tmp_path, number, task):
    from allocsearch.cli.standing import study_standing

    values = shared(training={"horizon": 10_000}, task=task)
    study = prepare(values)
    process = worker("--executor", "inline")

    def trains():
        try:
            return study_standing(study)["workers"]
        except Exception:
            return False

    wait_until(trains)
    if not task:
        wait_until((tmp_path / "log").exists)
    (running,) = [
        t for c in study_standing(study)["cells"] for t in c["running_trials"]
    ]
    assert running["worker"].endswith(f":{process.pid}")
    assert 0 <= running["renewed_seconds_ago"] < 2
    process.send_signal(number)
    begun = time.monotonic()
    assert process.wait(30) == 128 + number
    assert time.monotonic() - begun < 10
    standing = study_standing(study)
    assert standing["workers"] == []
    assert standing["running"] == 1


def test_the_dead_are_known_where_they_lived():
    assert not is_dead(this_worker())
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    host, _, identity = this_worker().rsplit(":", 2)
    machine = identity.partition("-")[0]
    stat = Path(f"/proc/{child.pid}/stat").read_text()
    birth = stat.rpartition(")")[2].split()[19]
    name = f"{host}:{child.pid}:{machine}-{birth}-x"
    assert not is_dead(name)
    child.communicate()
    assert is_dead(name)
    assert not is_dead(name.replace(host, "elsewhere"))
    assert is_dead(f"{host}:{os.getpid()}:{machine}-0-x")
    assert not is_dead("a name of another kind")
    assert not is_dead("")


def test_a_holder_in_doubt_waits_and_one_that_lost_drops(server, database):
    import optuna

    optuna.create_study(storage=database.replace("sql:", "sql+psycopg:"))
    words, drops = [], [(("s", 0), "drop"), (("s", 1), "drop")]
    ours = Shared(database, 1.0, lambda key, word: words.append((key, word)))
    assert ours.take(("s", 0))
    assert ours.take(("s", 1))
    wait_until(lambda: len(words) >= 4, 30)
    assert set(words) == {(("s", 0), "go_on"), (("s", 1), "go_on")}
    server.stop()
    wait_until(lambda: words[-1][1] == "hold", 30)
    assert Counter(word for _, word in words)["hold"] in (1, 2)
    server.start()
    wait_until(lambda: words[-1][1] == "go_on", 30)
    other = Shared(database, 60.0, lambda *_: None)
    assert not other.take(("s", 0))
    with ours._leases._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE allocsearch_leases SET epoch = epoch + 1")
    wait_until(lambda: words[-2:] in (drops, drops[::-1]), 30)
    assert not ours.still_ours(("s", 0))
    ours.close()
    other.close()


def test_what_a_job_is_told():
    control = Control()
    assert not control()
    control.tell("hold")
    answers = []
    asking = threading.Thread(target=lambda: answers.append(control()))
    asking.start()
    control.tell("stop")
    time.sleep(0.1)
    assert answers == []
    control.tell("go_on")
    asking.join(10)
    assert answers == [True]
    control.tell("drop")
    with pytest.raises(Dropped):
        control()


def test_a_job_that_heard_nothing_for_long_waits():
    control = Control(valid_seconds=0.3)
    assert not control()
    time.sleep(0.4)
    threading.Timer(0.3, control.tell, ("go_on",)).start()
    begun = time.monotonic()
    assert not control()
    assert time.monotonic() - begun > 0.2
    time.sleep(0.4)
    control.tell("drop")
    with pytest.raises(Dropped):
        control()
