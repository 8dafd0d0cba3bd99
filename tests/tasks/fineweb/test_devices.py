"""Streams over several devices, simulated in a process of their own."""

import json
import os
import subprocess
import sys

import jax
import pytest

from allocsearch.errors import ConfigError
from allocsearch.tasks.fineweb.devices import slot_mesh

SCRIPT = """
import json, sys
import jax, numpy as np
from allocsearch.allocation import Allocation
from allocsearch.config import TrainingConfig, parse
from allocsearch.tasks.fineweb import FineWeb
from allocsearch.tasks.fineweb.config import FineWebConfig

found = {"devices": len(jax.devices())}
for parallel in (None, False):
    fields = {
        "window": 4, "n_slots": 8, "updates_per_chunk": 2, "data_parallel": parallel,
        "evaluation": {"n_valid": 200, "n_test": 200, "n_slots": 4},
    }
    task = FineWeb(parse(FineWebConfig, fields))
    training = TrainingConfig(
        horizon=256, learning_rate=3e-3, warmup=0, accumulation=2
    )
    state = task.init(Allocation("gru", True, 1, 2, 6), training, (0,))
    losses = []
    for _ in range(3):
        state, metrics = task.train(state, 1)
        losses.append(metrics[0]["loss"])
    carry = jax.tree.leaves(state[1][0].stream.carry)[0]
    found[str(parallel)] = {
        "losses": losses,
        "valid": task.evaluate(state)[0]["loss"],
        "parts": len({str(s.index) for s in carry.addressable_shards}),
    }
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def on_four():
    flags = os.environ.get("XLA_FLAGS", "")
    more = f"{flags} --xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": more, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_four_devices_give_the_losses_of_one(on_four):
    assert on_four["devices"] == 4
    spread, alone = on_four["None"], on_four["False"]
    assert spread["losses"] == pytest.approx(alone["losses"], rel=1e-5)
    assert spread["valid"] == pytest.approx(alone["valid"], rel=1e-5)


def test_each_device_has_streams_of_its_own(on_four):
    assert on_four["None"]["parts"] == 4
    assert on_four["False"]["parts"] == 1


def test_one_device_needs_no_mesh():
    assert slot_mesh(8, True) is None


def test_streams_that_do_not_divide_are_refused_if_it_is_wanted(monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [None] * 3)
    assert slot_mesh(8, None) is None
    with pytest.raises(ConfigError, match="do not divide over 3 devices"):
        slot_mesh(8, True)
