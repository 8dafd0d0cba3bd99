"""What a study costs beside its trials' training: a share of its wall time.

Runs a tiny Sokoban study in this process and measures the time spent in the task
(building, training and scoring networks, which includes compiling them), that of
checking a network's work by tracing it, and the rest: proposing, the database,
checkpoints, results, figures. Starting Python and importing JAX come before.

    python benchmarks/overhead.py --trials 4 --folder /dev/shm
"""

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import allocsearch
from allocsearch import attempt
from allocsearch.tasks.sokoban import Sokoban

TASK = ("__init__", "init", "train", "evaluate", "evaluate_each", "baseline")


def main() -> None:
    """Print each part's seconds and share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--folder", help="for the study; a temporary one if left out")
    options = parser.parse_args()
    spent: dict[str, float] = defaultdict(float)
    for name in TASK:
        method = getattr(Sokoban, name)
        setattr(Sokoban, name, timed(method, f"task: {name}", spent))
    attempt.audit_candidate = timed(attempt.audit_candidate, "audit", spent)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        begun = time.perf_counter()
        allocsearch.run(
            {
                "task": "sokoban",
                "search": {"n_trials": options.trials},
                "output": {"directory": folder},
            }
        )
        whole = time.perf_counter() - begun
    spent["the study's own"] = whole - sum(spent.values())
    for name, seconds in spent.items():
        print(f"{name:22} {seconds:7.2f} s  {seconds / whole:6.1%}")
    print(f"{'all':22} {whole:7.2f} s  of {options.trials} trials")


def timed(function: Callable, name: str, spent: dict[str, float]) -> Callable:
    """The function, with its time added to `spent`, calls within calls once."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        begun, inner = time.perf_counter(), sum(spent.values())
        try:
            return function(*args, **kwargs)
        finally:
            within = sum(spent.values()) - inner
            spent[name] += time.perf_counter() - begun - within

    return wrapped


if __name__ == "__main__":
    main()
