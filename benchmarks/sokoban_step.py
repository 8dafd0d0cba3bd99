"""The Sokoban training step as a fraction of the matmul peak, measured in one run.

Prints environment steps per second against jumanji's (see sokoban_environment.py),
and for several networks one compiled chunk of training, rollout and update together:
environment steps per second, and achieved FLOP/s over those of a large matrix product.
Work is what `allocsearch.audit` counts on the canonical network: one forward step to
act and one forward and backward step to learn, for every step and epoch.

With ``--torch-python``, an interpreter that has PyTorch, the update of the first
network is also timed against PyTorch's, in turns (see torch_comparison.py).

    python benchmarks/sokoban_step.py --rounds 5
    python benchmarks/sokoban_step.py --torch-python ~/torch/bin/python --only-torch
"""

import argparse
import os
import time
from dataclasses import dataclass

import equinox as eqx
import jax
from sokoban_environment import measure as measure_environment
from timing import fastest, matmul_peak
from torch_comparison import compare

from allocsearch.allocation import Allocation
from allocsearch.audit import audit_model
from allocsearch.config import TrainingConfig
from allocsearch.parsing import merge, parse
from allocsearch.tasks.protocol import build_model
from allocsearch.tasks.sokoban import Sokoban
from allocsearch.tasks.sokoban.config import SokobanConfig

BOARD_10 = {
    "levels": {"n_train": 500, "n_valid": 10, "n_test": 10},
    "n_envs": 128,
    "unroll": 20,
    "n_minibatches": 1,
    "n_epochs": 1,
    "unrolls_per_chunk": 1,
    "loss": {"kind": "vtrace"},
}


@dataclass(frozen=True)
class Case:
    """One network on one board."""

    allocation: Allocation
    fields: dict

    @property
    def name(self) -> str:
        """For the table."""
        return f"{self.allocation.label} {self.allocation.arm}"


def cases() -> list[Case]:
    """The reference step, tiny's reference, and deep against wide."""
    tiny = merge(Sokoban.budgets["tiny"].task, {"unrolls_per_chunk": 1})
    few = {**BOARD_10, "n_envs": 32}

    def conv_lstm(depth: int, n_experts: int, width: int, recurrent: bool = True):
        return Allocation("conv_lstm", recurrent, depth, n_experts, width)

    return [
        Case(conv_lstm(2, 4, 16), BOARD_10),
        Case(conv_lstm(2, 4, 16, recurrent=False), BOARD_10),
        Case(conv_lstm(4, 1, 12), tiny),
        Case(conv_lstm(1, 4, 12), tiny),
        Case(conv_lstm(16, 1, 16), few),
        Case(conv_lstm(1, 16, 16), few),
    ]


def flops_per_step(task: Sokoban, allocation: Allocation) -> int:
    """Contractions of training, per environment step."""
    model = eqx.filter_eval_shape(
        lambda: build_model(task, allocation, key=jax.random.key(0), canonical=True)
    )
    audit = audit_model(model, task.observation)
    return audit.work.total + task.config.n_epochs * audit.training


def measure(case: Case, rounds: int) -> dict[str, float]:
    """Compile seconds, steps and FLOP per second of one case, and the peak beside."""
    task = Sokoban(parse(SokobanConfig, case.fields))
    state = task.init(case.allocation, TrainingConfig(horizon=10**6), (0,))
    start = time.perf_counter()
    state, _ = task.train(state, 1)
    compiling = time.perf_counter() - start
    peak = matmul_peak()
    seconds = fastest(lambda: task.train(state, 1), rounds)
    steps = task.steps_per_chunk / seconds
    flops = steps * flops_per_step(task, case.allocation)
    peak = max(peak, matmul_peak())
    return {"compiling": compiling, "steps": steps, "flops": flops, "peak": peak}


def print_comparison(python: str, rounds: int) -> None:
    """Our update against PyTorch's, of the reference network."""
    case = cases()[0]
    task = Sokoban(parse(SokobanConfig, case.fields))
    n_threads = len(os.sched_getaffinity(0))
    found = compare(task, case.allocation, python, rounds, n_threads)
    steps = task.config.n_envs * task.config.unroll
    print(f"update of {case.name} alone, against PyTorch {found.version}, in turns")
    print(f"  allocsearch {steps / min(found.ours):>8,.0f} steps/s")
    print(f"  PyTorch     {steps / min(found.theirs):>8,.0f} steps/s")
    print(
        f"  ratio       {found.of_fastest:>8.2f} (median of pairs {found.median:.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Sokoban training step")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--skip-environment", action="store_true")
    parser.add_argument("--torch-python", help="an interpreter that has PyTorch")
    parser.add_argument("--only-torch", action="store_true")
    arguments = parser.parse_args()
    if arguments.torch_python:
        print_comparison(arguments.torch_python, arguments.rounds)
    if arguments.only_torch:
        return
    if not arguments.skip_environment:
        figures = measure_environment(n_rounds=arguments.rounds)
        rates = figures["steps_per_second"]
        print("environment alone, 10x10, four boxes, 1024 boards")
        print(f"  allocsearch {rates['allocsearch'] / 1e3:>8,.0f} k steps/s")
        print(f"  jumanji     {rates['jumanji'] / 1e3:>8,.0f} k steps/s")
        print(f"  ratio       {figures['ratio']:>8.2f}")
    print("training step, rollout and update together")
    print(f"  {'network':<36}{'compile':>9}{'steps/s':>9}{'GFLOP/s':>9}{'of peak':>9}")
    for case in cases():
        result = measure(case, arguments.rounds)
        fraction = result["flops"] / result["peak"]
        print(
            f"  {case.name:<36}{result['compiling']:>7.1f} s{result['steps']:>9,.0f}"
            f"{result['flops'] / 1e9:>9.1f}{fraction:>9.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
