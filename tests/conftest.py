"""Shared by all tests: strict JAX, and where real data would be."""

import os
from pathlib import Path

# Nearly all the time of these tests is compilation, which this makes a quarter shorter.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")

import jax
import pytest
from hypothesis import HealthCheck, settings

from allocsearch.programs import release_programs

# A loaded machine makes examples slow, which says nothing about the code.
settings.register_profile(
    "steady", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")
jax.config.update("jax_platforms", "cpu")

REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run tests marked long too")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        return
    skip = pytest.mark.skip(reason="long: run with --long")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def programs_are_released():
    """Thousands of tests compile more than one process can hold."""
    yield
    release_programs()


@pytest.fixture(scope="session")
def real_data():
    """The folder of real levels and text; skips where there is none."""
    if not REAL_DATA.exists():
        pytest.skip(f"no real data at {REAL_DATA}")
    return REAL_DATA
