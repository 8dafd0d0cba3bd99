import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from allocsearch.search import Axis, Points


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, in memory where the system has such: commits are quick there."""
    memory = Path("/dev/shm")
    where = tempfile.mkdtemp(dir=memory if memory.is_dir() else None)
    yield Path(where)
    shutil.rmtree(where)


@pytest.fixture
def storage(folder: Path) -> str:
    return f"sqlite:///{folder / 'study.db'}"


@pytest.fixture
def points() -> Points:
    """34 points: depth 1 has nine, depth 8 has four."""
    axes = (
        Axis("depth", (1, 2, 4, 8)),
        Axis("n_experts", (1, 2, 4)),
        Axis("radius", (0, 1, "full")),
        Axis("aggregation", ("mean", "sqrt_sum"), ordinal=False),
    )
    rows = (
        row
        for row in itertools.product(range(4), range(3), range(3), range(2))
        if row[2] <= row[1] and row[0] + row[1] <= 4 and (row[1] or not row[3])
    )
    return Points(axes, tuple(rows))
