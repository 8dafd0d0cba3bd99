"""Our update against the same one in PyTorch, in turns in one run.

The two start from the same parameters and the same experience, and must find the same
loss and the same norm of the gradient before their speeds are compared.
"""

import json
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax

from allocsearch.allocation import Allocation
from allocsearch.config import TrainingConfig
from allocsearch.model import Model
from allocsearch.tasks.sokoban import Sokoban
from allocsearch.tasks.sokoban.rollout import Experience, unroll

_CHILD = Path(__file__).with_name("torch_step.py")
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Comparison:
    """Seconds of an update, ours and PyTorch's, taken in turns.

    Attributes:
        version: of PyTorch.
        ours: one for each round.
        theirs: likewise.
    """

    version: str
    ours: list[float]
    theirs: list[float]

    @property
    def of_fastest(self) -> float:
        """Our speed over theirs, each at its best."""
        return min(self.theirs) / min(self.ours)

    @property
    def median(self) -> float:
        """The median over rounds of our speed over theirs."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return statistics.median(theirs / ours for ours, theirs in pairs)


class Theirs:
    """PyTorch's update, in a process of its own."""

    def __init__(self, python: str, path: Path, n_threads: int):
        command = [python, str(_CHILD), str(path), str(n_threads)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.version = self._answer()["torch"]

    def step(self) -> dict[str, float]:
        """One update: seconds, loss, and norm of the gradient."""
        assert self._process.stdin is not None
        self._process.stdin.write("step\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("PyTorch's side ended early; its error is above")
        return json.loads(line)


def compare(
    task: Sokoban, allocation: Allocation, python: str, rounds: int, n_threads: int
) -> Comparison:
    """Time our update and PyTorch's in turns.

    Args:
        task: with the V-trace loss, one minibatch and the pooling head.
        allocation: of a plain recurrent conv_lstm.
        python: an interpreter that has PyTorch.
        rounds: updates of each.
        n_threads: PyTorch's threads.
    """
    training = TrainingConfig(horizon=10**6)
    optimizer, (run,) = task.init(allocation, training, (0,))
    act = eqx.filter_jit(
        lambda run: unroll(
            task.environment,
            task.levels("train"),
            run.model,
            run.stream,
            task.config.unroll,
        )
    )
    stream, _ = act(run)
    _, experience = act(eqx.tree_at(lambda r: r.stream, run, stream))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.npz"
        _write(path, task, run.model, experience)
        theirs = Theirs(python, path, n_threads)
        try:
            _check(task, run.model, experience, theirs.step())
            update = eqx.filter_jit(
                lambda model, state, experience: task._update(
                    model, state, experience, optimizer
                )
            )
            return _in_turns(update, run, experience, theirs, rounds)
        finally:
            theirs.close()


def _in_turns(
    update: Any, run: Any, experience: Experience, theirs: Theirs, rounds: int
) -> Comparison:
    comparison = Comparison(theirs.version, [], [])
    model, state = run.model, run.optimizer
    for i in range(rounds + 1):
        start = time.perf_counter()
        model, state, _ = update(model, state, experience)
        jax.block_until_ready(jax.tree.leaves(eqx.filter(model, eqx.is_array)))
        ours = time.perf_counter() - start
        seconds = theirs.step()["seconds"]
        if i:  # the first compiles
            comparison.ours.append(ours)
            comparison.theirs.append(seconds)
    return comparison


def _check(
    task: Sokoban, model: Model, experience: Experience, found: dict[str, float]
) -> None:
    gradient = eqx.filter_jit(
        eqx.filter_value_and_grad(lambda model, batch: task._loss(model, batch)[0])
    )
    loss, gradients = gradient(model, experience)
    expected = {"loss": float(loss), "norm": float(optax.global_norm(gradients))}
    for name, value in expected.items():
        if not np.isclose(found[name], value, rtol=_TOLERANCE, atol=1e-5):
            raise SystemExit(f"{name} is {value}, but PyTorch's is {found[name]}")


def _write(path: Path, task: Sokoban, model: Model, experience: Experience) -> None:
    loss = task.config.loss
    settings = {
        "discount": loss.discount,
        "trace_decay": loss.trace_decay,
        "reward_scale": loss.reward_scale,
        "normalise": loss.normalise,
        "value": loss.value,
        "entropy": loss.entropy,
    }
    level: Any = model.core.levels
    carry: Any = experience.carry
    arrays = {
        "gates": level.experts.weight,
        "gate_bias": level.experts.bias,
        "read_scale": level.read_scale,
        "carry_scale": model.core.carry_scale,
        "head_scale": model.core.head_scale,
        "encoder": model.encoder.weight,
        "encoder_bias": model.encoder.bias,
        "queries": model.head.queries,
        "out": model.head.readout.out,
        "out_bias": model.head.readout.bias,
    }
    names = ("observations", "begins", "actions", "log_probs", "values", "rewards")
    data = {name: getattr(experience, name) for name in names}
    data |= {name: getattr(experience, name) for name in ("terminated", "counts")}
    data["state"] = carry.state[:, 0]
    cells = np.asarray(carry.memories[1])  # (b, L, E, h, w, d)
    beside = np.moveaxis(cells, (1, 2), (0, 4))
    data["cells"] = beside.reshape(*beside.shape[:4], -1)
    arrays |= {f"data.{name}": array for name, array in data.items()}
    arrays["settings"] = json.dumps(settings)
    stored: Any = {name: np.asarray(array) for name, array in arrays.items()}
    np.savez(path, **stored)
