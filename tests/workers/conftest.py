"""A real database server, and studies whose trials take moments."""

import importlib.util
import itertools
import os
import sys
from pathlib import Path

import pytest

from allocsearch import registry
from allocsearch.parsing import merge


def _load(name):
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"workers_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL server; skips with the reason where there can be none."""
    postgresql = _load("postgresql")
    programs = postgresql.find_programs()
    if isinstance(programs, str):
        pytest.skip(programs)
    server = postgresql.Server(programs)
    server.start()
    yield server
    server.remove()


_NUMBERS = itertools.count()


@pytest.fixture
def database(server):
    """The URL of an empty PostgreSQL database."""
    return server.database(f"db{next(_NUMBERS)}")


@pytest.fixture
def shared(config, database, tmp_path):
    """A study in PostgreSQL whose chunks take a moment and are logged."""

    def make(**changes):
        base = config(
            task={"chunk_seconds": 0.05, "log": str(tmp_path / "log")},
            output={"storage": database},
            execution={"lease_seconds": 2},
        )
        return merge(base, changes)

    return make


@pytest.fixture(scope="session")
def slurm():
    """A Slurm of one node; skips with the reason where there can be none."""
    slurm = _load("slurm")
    if (reason := slurm.find_programs()) is not None:
        pytest.skip(reason)
    cluster = slurm.Slurm()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.remove()


SITE = Path(__file__).with_name("site")


@pytest.fixture(scope="module", autouse=True)
def _sleepy():
    """The task `sleepy` is installed, for this process and for those it starts."""
    sys.path.append(str(SITE))
    registry._installed.cache_clear()
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [before, str(SITE)] if before else [str(SITE)]
    )
    yield
    sys.path.remove(str(SITE))
    registry._installed.cache_clear()
    os.environ["PYTHONPATH"] = before or ""


@pytest.fixture
def config(tmp_path):
    """A study of eight trials of four chunks."""

    def make(**changes):
        base = {
            "name": "s",
            "task": {"name": "sleepy"},
            "budgets": "b",
            # Small networks, as each is traced before it trains.
            "space": {"depths": [1], "n_experts": [1, 2]},
            "search": {"learning_rates": [i / 1000 for i in range(1, 13)]},
            "output": {"directory": str(tmp_path), "checkpoint_seconds": 0},
        }
        return merge(base, changes)

    return make


@pytest.fixture
def told():
    """What a study found, without times."""
    return lambda study: [
        (t.arm, t.number, t.state, t.allocation, t.settings, t.seeds, t.reason)
        for t in study.trials()
    ]
