"""A real Ray cluster of two nodes on this machine: nodes and drivers that die."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from allocsearch.driver import run
from allocsearch.errors import StudyError
from allocsearch.observer import Observer

ray = pytest.importorskip("ray")


@pytest.fixture
def cluster():
    """A head that trains nothing, and two nodes that train one trial each."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def on_ray(config, cluster, tmp_path):
    def make(**changes):
        execution = {"executor": "ray", "n_workers": 2, "address": cluster[0].address}
        task = {"chunk_seconds": 0.3, "log": str(tmp_path / "log")}
        search = {"sampler": "grid", "n_trials": 6}
        return config(task=task, search=search, execution=execution, **changes)

    return make


class KillANode(Observer):
    """Takes a node away as soon as both nodes are training."""

    def __init__(self, cluster, node):
        self.cluster, self.node = cluster, node
        self.training, self.notes = set(), []

    def trial_progressed(self, cell, number, progress):
        del progress
        self.training.add((cell.name, number))
        if len(self.training) >= 2 and self.node is not None:
            self.cluster.remove_node(self.node, allow_graceful=False)
            self.node = None

    def note(self, text):
        self.notes.append(text)


def test_a_lost_node_costs_no_trial(config, on_ray, cluster, told, tmp_path):
    grid = {"search": {"sampler": "grid", "n_trials": 6}}
    serial = run(config(name="serial", **grid))
    seen = KillANode(cluster[0], cluster[1][0])
    study = run(on_ray(), observer=seen)
    assert seen.node is None
    # More than once, where Ray tries the lost node before it knows.
    assert any("was lost" in note for note in seen.notes), seen.notes
    assert told(study) == told(serial)
    rows = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert len({row[0] for row in rows}) >= 3
    # It went on from its checkpoint: but for the chunk of the loss, none was repeated.
    repeated = Counter(tuple(row[1:3]) for row in rows)
    assert sum(repeated.values()) - len(repeated) <= 1
    assert len(repeated) == 24


def test_a_lost_driver_is_resumed(config, on_ray, told, tmp_path):
    grid = {"search": {"sampler": "grid", "n_trials": 6}}
    serial = run(config(name="serial", **grid))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(on_ray()))
    code = "import sys; from allocsearch.driver import run; run(sys.argv[1])"
    driver = subprocess.Popen([sys.executable, "-c", code, str(path)])
    log = tmp_path / "log"
    deadline = time.monotonic() + 120
    while not log.exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    workers = {int(line.split()[0]) for line in log.read_text().splitlines()}
    while any(os.path.exists(f"/proc/{pid}") for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert told(run(on_ray())) == told(serial)


def test_a_cluster_that_is_not_there(config):
    execution = {"executor": "ray", "address": "127.0.0.1:1"}
    with pytest.raises(
        StudyError, match=r"the Ray cluster at 127.0.0.1:1 cannot be reached"
    ):
        run(config(execution=execution))
