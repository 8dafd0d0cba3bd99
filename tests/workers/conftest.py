"""A real database server, and studies whose trials take moments."""

import importlib.util
import itertools
from pathlib import Path

import pytest


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
