"""Compiled programs are let go of before a process runs out of mappings."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from allocsearch import programs
from allocsearch.driver import run

MAPPINGS = Path("/proc/self/maps")


def compile_programs(n):
    for size in range(1, n + 1):
        jax.jit(lambda x: jnp.sin(x) @ x.T)(jnp.ones((size, 3))).block_until_ready()


@pytest.mark.skipif(not MAPPINGS.exists(), reason="Linux tells of its mappings")
def test_mappings_are_given_back():
    programs.release_programs(0.0)
    before = len(MAPPINGS.read_text().splitlines())
    compile_programs(100)
    held = len(MAPPINGS.read_text().splitlines())
    assert held > before + 100
    assert not programs.release_programs(1.0)
    assert programs.release_programs(0.0)
    assert len(MAPPINGS.read_text().splitlines()) < before + (held - before) / 2


def test_programs_go_where_nothing_is_known_of_mappings(monkeypatch, tmp_path):
    monkeypatch.setattr(programs, "_MAPPINGS", tmp_path / "maps")
    square = jax.jit(lambda x: x * x)
    square(2.0)
    assert square._cache_size() == 1
    assert programs.release_programs()
    assert square._cache_size() == 0


def test_a_study_releases_programs(monkeypatch, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text(
        "recurrent,depth,n_experts,width,flops,seed,steps,score\n"
        "True,1,1,8,100,0,10,0.5\nTrue,2,1,4,100,0,10,0.25\n"
    )
    (tmp_path / "limit").write_text("10")
    monkeypatch.setattr(programs, "_LIMIT", tmp_path / "limit")
    square = jax.jit(lambda x: x * x)
    square(2.0)
    run(
        {
            "task": {"name": "tabular", "data": str(table)},
            "arms": "recurrent",
            "output": {"directory": str(tmp_path / "studies")},
        }
    )
    assert square._cache_size() == 0
