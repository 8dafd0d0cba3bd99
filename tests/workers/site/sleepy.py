"""A task that trains by sleeping, and that may end its process on the way.

It is found by its entry point, as any plug-in is, so that worker processes find it.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from allocsearch.allocation import Allocation
from allocsearch.config import ExpertConfig
from allocsearch.parsing import Section
from allocsearch.results import Objective
from allocsearch.tasks.protocol import Task
from allocsearch.tasks.records import NamedBudget


class Pass(eqx.Module):
    weight: jax.Array

    def __call__(self, x):
        return x @ self.weight


@dataclass(frozen=True)
class Told:
    """What a trial is; no array, so no part of a checkpoint."""

    allocation: Allocation
    learning_rate: float
    seeds: tuple[int, ...]


class Sleepy(Task):
    class Config(Section):
        chunk_seconds: float = 0.0
        """How long a chunk takes."""
        init_seconds: float = 0.0
        """How long it takes before the first chunk, as compiling would."""
        crash_at_depth: int = 0
        """At this depth the second chunk ends the process by SIGSEGV."""
        crash_once: str = ""
        """A file; where it exists, the second chunk removes it and ends the process."""
        log: str = ""
        """A file that gets a line for every chunk: process, trial, chunk, cores."""

    name = "sleepy"
    budgets: ClassVar = {
        "b": NamedBudget(
            Allocation("mlp", True, 2, 1, 32),
            tolerance=0.3,
            training={"horizon": 40, "n_seeds": 1},
            search={"n_trials": 8, "confirm_seeds": 0},
        )
    }
    experts = (ExpertConfig(name="mlp"),)
    objectives = (Objective("score", "points", "maximize"),)
    unit = "steps"
    positions = ()
    observation = jax.ShapeDtypeStruct((3,), jnp.float32)
    steps_per_chunk = 10

    def __init__(self, config):
        self.config = config

    def encoder(self, width, *, key):
        return Pass(jax.random.normal(key, (3, width)))

    def head(self, width, *, key):
        return Pass(jax.random.normal(key, (width, 1)))

    def init(self, allocation, training, seeds):
        time.sleep(self.config.init_seconds)
        return Told(allocation, training.learning_rate, seeds), jnp.zeros(())

    def train(self, state, n_chunks):
        told, count = state
        print("what a task prints")
        time.sleep(self.config.chunk_seconds * n_chunks)
        if int(count) == 1:
            self._perhaps_crash(told.allocation)
        self._log(told, int(count))
        return (told, count + n_chunks), [{"loss": 1.0}] * len(told.seeds)

    def _perhaps_crash(self, allocation):
        once = self.config.crash_once
        if once and Path(once).exists():
            Path(once).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if allocation.depth == self.config.crash_at_depth:
            os.kill(os.getpid(), signal.SIGSEGV)

    def _log(self, told, count):
        if self.config.log:
            with open(self.config.log, "a") as file:
                label = told.allocation.arm + told.allocation.label.replace(" ", "_")
                label += f"_{told.learning_rate}"
                cores = sorted(os.sched_getaffinity(0))
                print(os.getpid(), label, count, *cores, file=file, flush=True)

    def evaluate(self, state, split="valid"):
        del split
        told, count = state
        base = told.allocation.n_experts - told.allocation.depth
        score = base + told.learning_rate + 1e-3 * float(count)
        return [{"score": score}] * len(told.seeds)

    def baseline(self, split="valid"):
        del split
        return {}

    def manifest(self):
        return {}
