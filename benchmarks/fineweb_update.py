"""A complete update of FineWeb: loader, forward, backward and optimiser.

    python benchmarks/fineweb_update.py
    python benchmarks/fineweb_update.py --budget small --depth 1 --data fineweb-1B

Each arm trains as `allocsearch train` does, first once to compile. Printed are tokens
per second of whole updates, the loader's share of the time (reading windows and putting
them on the device), and the FLOP/s that the traced gradient amounts to, as a fraction
of what a matrix product reaches in the same run. On a shared machine the ratios carry,
the absolute times do not.
"""

import argparse
import time

import jax
from timing import fastest, matmul_peak

from allocsearch.cli.choosing import Shape, choose
from allocsearch.config import load_config
from allocsearch.tasks.fineweb import FineWeb
from allocsearch.tasks.resolve import Setting, resolve
from allocsearch.trial import audit_candidate


def measure(setting: Setting, shape: Shape, rounds: int) -> dict[str, float]:
    """Seconds to compile, and of each chunk; the loader's; FLOP/s and the peak."""
    task = setting.task
    assert isinstance(task, FineWeb)
    _, allocation = choose(setting, shape)
    audit = audit_candidate(task, allocation, setting.budget)
    optimizer, runs = task.init(allocation, setting.training, (0,))
    start = time.perf_counter()
    state, _ = task.train((optimizer, runs), 1)
    compiling = time.perf_counter() - start
    peak = matmul_peak()
    seconds = fastest(lambda: task.train(state, 1), rounds)
    loader = fastest(lambda: jax.tree.leaves(task.feed(runs[0]).stream), rounds)
    peak = max(peak, matmul_peak())
    return {
        "compiling": compiling,
        "tokens_per_second": task.steps_per_chunk / seconds,
        "loader_share": loader / seconds,
        "fraction_of_peak": audit.training * task.steps_per_chunk / seconds / peak,
        "core_share": audit.work.core / audit.work.total,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="A complete update of FineWeb")
    parser.add_argument("--budget", default="tiny")
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--n-experts", type=int, default=1)
    parser.add_argument("--data")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    fields = {"name": "fineweb", **({"data": given.data} if given.data else {})}
    base = {"task": fields, "budgets": given.budget}
    setting = resolve(load_config(None, given.set, base), given.budget)
    print(f"budget {given.budget}, L {given.depth}, E {given.n_experts}")
    print(f"{'arm':<14}{'compile':>9}{'tokens/s':>10}{'loader':>9}{'of peak':>9}")
    for recurrent in (True, False):
        shape = Shape(recurrent, given.depth, given.n_experts)
        found = measure(setting, shape, given.rounds)
        print(
            f"{'recurrent' if recurrent else 'non-recurrent':<14}"
            f"{found['compiling']:>7.1f} s{found['tokens_per_second']:>10,.0f}"
            f"{found['loader_share']:>9.2%}{found['fraction_of_peak']:>9.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
