"""A study that trains in moments, and the command line in this process or another."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from allocsearch.cli.app import app

NAME = "moments"
TRAINING = [
    *("--task", "statetrack", "--budget", "micro", "--expert", "mlp"),
    *("--horizon", "640", "--n-seeds", "1"),
    *("--set", "task={group: s3, length: 4, batch: 16}"),
    *("--set", "task={updates_per_chunk: 5, n_held_out: 16}"),
    *("--set", "space={depths: [1], n_experts: [1, 2]}"),
    *("--set", "space={radii: [full], aggregations: [mean]}"),
    *("--set", "training.n_evaluations=2"),
]
TINY = [*TRAINING, "--n-trials", "4"]


@dataclass(frozen=True)
class Answer:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """Standard output, which must be one JSON value and nothing else."""
        return json.loads(self.out)


def call(*args, **options):
    """Run a command in this process."""
    result = CliRunner().invoke(app, [str(a) for a in args], **options)
    return Answer(result.exit_code, result.stdout, result.stderr)


class Apart:
    """A command in a process of its own that may be sent signals.

    Standard error is read line by line to its end, so its pipe never fills.
    """

    def __init__(self, *args):
        command = [sys.executable, "-m", "allocsearch", *map(str, args)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
        self.err = ""

    def wait_for(self, words):
        """Read until a line with these words."""
        for line in self.process.stderr:
            self.err += line
            if words in line:
                return
        raise AssertionError(f"never said {words!r}: {self.err}")

    def send(self, number):
        """Send a signal."""
        self.process.send_signal(number)

    def end(self):
        """Wait for the end: what it answered in all."""
        self.err += self.process.stderr.read()
        out = self.process.stdout.read()
        return Answer(self.process.wait(timeout=120), out, self.err)


@pytest.fixture(scope="module", autouse=True)
def _compiled_once(tmp_path_factory):
    """Processes share what they compile: that is nearly all the time they take.

    This process takes no part in it: jaxlib 0.10 crashes now and then as it stores one
    of many large programs.
    """
    folder = tmp_path_factory.getbasetemp() / "compiled"
    folder.mkdir(exist_ok=True)
    values = {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.0",
    }
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    yield
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture(scope="session")
def cli():
    """The command line in this process."""
    return call


@pytest.fixture
def apart():
    """The command line in a process of its own."""
    started = []

    def start(*args):
        started.append(Apart(*args))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


@pytest.fixture
def tiny():
    """Flags of a study of four short trials."""
    return [*TINY]


@pytest.fixture(scope="session")
def training():
    """Flags of `train`, such that it trains as the study does."""
    return [*TRAINING]


@dataclass(frozen=True)
class Finished:
    """A study that ran undisturbed. Not to be changed."""

    directory: Path
    answer: Answer

    @property
    def at(self):
        """Arguments that name it."""
        return (NAME, "--directory", self.directory)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """One finished study that all tests look at."""
    directory = tmp_path_factory.mktemp("studies")
    answer = call("run", *TINY, "--name", NAME, "--directory", directory, "--json")
    assert answer.code == 0, answer.err
    return Finished(directory, answer)
