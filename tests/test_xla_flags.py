"""The flag that keeps jaxlib 0.10 from crashing, and the program that it crashed on."""

import os
import subprocess
import sys
from importlib import metadata

import pytest

from allocsearch import xla_flags

FLAG = "--xla_cpu_experimental_ynn_fusion_type"
SAFE = f"{FLAG}=LIBRARY_FUSION_TYPE_DOT"
CHOSEN = f"{FLAG}=LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"


@pytest.mark.parametrize(
    ("version", "before", "after"),
    [
        ("0.10.2", "", SAFE),
        ("0.10.0", "--xla_dump_to=/x", f"--xla_dump_to=/x {SAFE}"),
        ("0.10.2", CHOSEN, CHOSEN),
        ("0.9.2", "", ""),
        ("0.12.0.1", "", ""),
    ],
)
def test_flag_is_added_where_it_is_needed(monkeypatch, version, before, after):
    monkeypatch.setenv("XLA_FLAGS", before)
    monkeypatch.setattr(metadata, "version", {"jaxlib": version}.get)
    xla_flags.avoid_ynnpack_reductions()
    assert os.environ["XLA_FLAGS"] == after


def test_the_program_that_crashed_trains(tmp_path):
    """Without the flag, jaxlib 0.10.2 ends this process with SIGSEGV."""
    command = (
        "train --task sokoban --budget tiny -L 8 -E 2 --nonrecurrent "
        "--aggregation l2_softmax_gated --horizon 2048"
    ).split()
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-m", "allocsearch", *command, "--out", tmp_path / "out"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
