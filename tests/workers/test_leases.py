"""Leases: one holder at a time, by the database's clock, whatever else happens."""

import json
import subprocess
import sys
import threading
import time

import optuna
import pytest

from allocsearch.search.leases import Lease, Leases


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """A database that holds an Optuna study already."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'study.db'}"
        optuna.create_study(study_name="s", storage=url)
        return url
    url = request.getfixturevalue("database")
    full = url.replace("postgresql:", "postgresql+psycopg:")
    optuna.create_study(study_name="s", storage=full)
    return url


def test_one_holder_at_a_time(url):
    leases = Leases.open(url)
    first = leases.acquire("s", 3, "a", 60)
    assert first == Lease("s", 3, "a", 1)
    assert leases.acquire("s", 3, "b", 60) is None
    assert leases.acquire("s", 3, "a", 60) is None
    assert leases.acquire("s", 4, "b", 60) == Lease("s", 4, "b", 1)
    assert leases.acquire("t", 3, "b", 60) == Lease("t", 3, "b", 1)
    assert leases.release(first)
    assert leases.acquire("s", 3, "b", 60) == Lease("s", 3, "b", 2)
    assert not leases.renew(first, 60)
    assert not leases.release(first)
    assert leases.live(["s"]) == {("s", 3), ("s", 4)}


def test_a_lease_runs_out_and_its_late_holder_is_told(url):
    leases = Leases.open(url)
    lost = leases.acquire("s", 0, "a", 0.2)
    kept = leases.acquire("s", 1, "a", 0.2)
    time.sleep(0.4)
    assert leases.live(["s"]) == set()
    # Nobody wanted this one meanwhile: it is still its holder's.
    assert leases.renew(kept, 60)
    assert leases.acquire("s", 1, "b", 60) is None
    taken = leases.acquire("s", 0, "a", 60)  # even by the same name it is another
    assert taken == Lease("s", 0, "a", 2)
    assert not leases.renew(lost, 60)
    assert not leases.release(lost)
    assert leases.renew(taken, 60)


def test_who_holds_what_and_for_how_long(url):
    leases = Leases.open(url)
    leases.acquire("s", 7, "host:1", 30)
    time.sleep(0.2)
    (holding,) = leases.held(["s", "other"])
    assert holding.lease == Lease("s", 7, "host:1", 1)
    assert 0.1 < holding.seconds_since_renewal < 5
    assert 25 < holding.seconds_left < 29.9
    assert abs(holding.since.timestamp() - time.time()) < 5
    leases.renew(holding.lease, 60)
    assert leases.held(["s"])[0].seconds_left > 58
    leases.release(holding.lease)
    assert leases.held(["s"]) == []


def test_looking_makes_no_table(url):
    from allocsearch.search.storage import open_storage

    assert Leases(url, open_storage(url, create=False)).held(["s"]) == []


CLAIM_ALL = """
import json, sys
from allocsearch.search.leases import Leases

url, worker = sys.argv[1:]
leases = Leases.open(url)
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps([n for n in range(40) if leases.acquire("s", n, worker, 60)]))
"""


def test_of_many_processes_one_gets_each(database):
    full = database.replace("postgresql:", "postgresql+psycopg:")
    optuna.create_study(study_name="s", storage=full)
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM_ALL, database, f"w{i}"],
            stdin=pipe,
            stdout=pipe,
            text=True,
        )
        for i in range(4)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    claimed = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    assert sorted(n for numbers in claimed for n in numbers) == list(range(40))


def test_a_restart_of_the_server_is_ridden_out(server, database):
    full = database.replace("postgresql:", "postgresql+psycopg:")
    optuna.create_study(study_name="s", storage=full)
    leases = Leases.open(database)
    leases.acquire("s", 0, "a", 60)
    server.stop()
    back = threading.Timer(1.5, server.start)
    back.start()
    begun = time.monotonic()
    lease = leases.acquire("s", 1, "a", 60)
    assert time.monotonic() - begun > 1
    back.join()
    assert lease == Lease("s", 1, "a", 1)
    assert leases.live(["s"]) == {("s", 0), ("s", 1)}
