"""Makes a table of real micro-runs, with learning curves, for the tabular task.

State tracking in S5, trained for seconds under one small budget: recurrent MLPs and
non-recurrent transformers over depth, experts, radius and aggregation, the width
solved from them. The allocations go in one shuffled order, each is written as soon as
it is done, and a second call goes on where the first one stopped. Needs the
statetrack plug-in.

    python benchmarks/micro_table.py micro.csv --minutes 15
"""

import argparse
import csv
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from allocsearch.allocation import DEFAULT_AGGREGATION, Allocation
from allocsearch.config import load_config
from allocsearch.plan import AXES, Cell
from allocsearch.space import core_flops
from allocsearch.tasks.resolve import Setting, resolve
from allocsearch.trial import train_candidate

CONFIG = {
    "task": {
        "name": "statetrack",
        "group": "s5",
        "length": 8,
        "batch": 32,
        "updates_per_chunk": 50,
    },
    "budgets": "micro",
    "seed": 0,
    "space": {
        "depths": [1, 2, 3, 4],
        "n_experts": [1, 2, 4, 6],
        "radii": [0, 1, "full"],
        "aggregations": ["sqrt_sum", "mean", "softmax_gated", "l2_softmax_gated"],
    },
    "training": {"horizon": 102_400, "n_seeds": 2, "n_evaluations": 8},
}
EXPERTS = (
    {"name": "mlp", "arms": ["recurrent"]},
    {
        "name": "transformer",
        "options": {"window": 8},
        "arms": ["nonrecurrent"],
    },
)
COLUMNS = (
    *("expert", "recurrent", "depth", "n_experts", "width", "radius", "aggregation"),
    *("flops", "seed", "steps", "accuracy", "loss"),
)


def cells() -> Iterator[tuple[Setting, Cell, Allocation]]:
    """Every allocation of both arms, in one shuffled order."""
    config = load_config(base={**CONFIG, "experts": EXPERTS})
    setting = resolve(config, "micro")
    found = []
    for expert in setting.experts:
        arm = expert.arms[0]
        allocations = setting.allocations(expert, arm)
        if arm == "nonrecurrent":
            # At this horizon they stay near chance: their shape is all there is to see.
            allocations = tuple(a for a in allocations if _plain(a))
        cell = Cell(setting, expert, arm, allocations, len(allocations))
        found += [(setting, cell, allocation) for allocation in allocations]
    random.Random(0).shuffle(found)
    yield from found


def _plain(allocation: Allocation) -> bool:
    return allocation.radius == "full" and allocation.aggregation == DEFAULT_AGGREGATION


def rows(setting: Setting, cell: Cell, allocation: Allocation) -> list[dict]:
    """The learning curves of one allocation, one row a seed and evaluation."""
    coordinates = {axis: getattr(allocation, axis) for axis in AXES}
    outcome = train_candidate(setting.task, cell.candidate(coordinates, 0))
    fixed = {name: getattr(allocation, name) for name in COLUMNS[:7]}
    fixed["flops"] = core_flops(allocation, setting.task.positions)
    return [
        {
            **fixed,
            "seed": i,
            "steps": int(point["steps"]),
            "accuracy": round(point["accuracy"], 4),
            "loss": round(point["loss"], 4),
        }
        for i, seed in enumerate(outcome.seeds)
        for point in seed.curve
    ]


def key(row: dict) -> tuple[str, ...]:
    """What names an allocation in the file."""
    return tuple(str(row[name]) for name in COLUMNS[:7])


def done(path: Path) -> set[tuple[str, ...]]:
    """The allocations that the file holds whole; what was cut off is taken out."""
    found: list[dict] = []
    if path.exists():
        with path.open(newline="") as file:
            found = list(csv.DictReader(file))
    names = Counter(map(key, found))
    whole = CONFIG["training"]["n_seeds"] * CONFIG["training"]["n_evaluations"]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(row for row in found if names[key(row)] == whole)
    return {name for name, count in names.items() if count == whole}


def main() -> None:
    """Train what is missing until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--minutes", type=float, default=15.0)
    args = parser.parse_args()
    begun, kept = time.monotonic(), done(args.path)
    for setting, cell, allocation in cells():
        if time.monotonic() - begun > 60 * args.minutes:
            print("time is up; the same command goes on")
            return
        if key({name: getattr(allocation, name) for name in COLUMNS[:7]}) in kept:
            continue
        started = time.monotonic()
        found = rows(setting, cell, allocation)
        with args.path.open("a", newline="") as file:
            csv.DictWriter(file, COLUMNS).writerows(found)
        print(
            f"{time.monotonic() - started:5.1f} s  {allocation.arm:12} "
            f"{allocation.label}: {found[-1]['accuracy']}",
            flush=True,
        )
    print("the table is complete")


if __name__ == "__main__":
    main()
