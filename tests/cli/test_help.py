"""Help: every command has one, with examples, and it starts fast."""

import re
import subprocess
import sys

import pytest

COMMANDS = """run resume worker launch train status trials show pareto table evaluate
watch probe generate data space show-config plugins doctor""".split()
NO_TABLE = ("worker", "launch")


def test_top_level_help_lists_every_command_and_the_exit_codes(cli):
    answer = cli("--help")
    assert answer.code == 0
    for word in (*COMMANDS, "130", "143", "resumable"):
        assert word in answer.out
    assert set(re.findall(r"^│ ([a-z][a-z-]+) ", answer.out, re.M)) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(cli, command):
    answer = cli(command, "--help", env={"COLUMNS": "100"})
    assert answer.code == 0
    assert f" allocsearch {command}" in answer.out.partition("Examples:")[2]
    assert "<bool>" not in answer.out


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in NO_TABLE])
def test_json_wherever_a_table_is_printed(cli, command):
    assert "--json" in cli(command, "--help").out


def test_version(cli):
    answer = cli("--version")
    assert (answer.code, answer.out.split()[0]) == (0, "allocsearch")


def modules_after(*args):
    """Which heavy packages a command imported."""
    heavy = ("jax", "optuna", "matplotlib", "pandas", "numpy", "pydantic")
    script = f"""
import sys
from allocsearch.cli.app import app
try:
    app({[str(a) for a in args]!r})
except SystemExit as end:
    assert not end.code, end.code
print("LOADED", *[m for m in {heavy!r} if m in sys.modules])
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(found.stdout.rpartition("LOADED")[2].split())


def test_help_imports_nothing_heavy():
    assert modules_after("--help") == set()


@pytest.mark.parametrize("command", ["trials", "status"])
def test_looking_needs_no_jax(finished, command):
    loaded = modules_after(command, *finished.at)
    assert not loaded & {"jax", "matplotlib", "pandas"}
