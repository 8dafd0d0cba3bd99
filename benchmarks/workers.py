"""Two local trials, each on a core of its own, against one: the ratio of throughputs.

python benchmarks/workers.py [--seconds 20]

Each worker trains the same short Sokoban trials over and over, compiled beforehand.
What is compared is chunks per second of training, so that starting and compiling,
which are paid once, do not count. Needs two cores that nobody else uses.
"""

import argparse
import os
import subprocess
import sys
import time

TRAIN = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
import jax
from allocsearch.config import load_config
from allocsearch.tasks.resolve import resolve
from allocsearch.plan import plan

levels = "task={levels: {n_train: 50, n_valid: 10, n_test: 10}, n_envs: 8}"
config = load_config(None, ["task.name=sokoban", levels, "space.depths=[4]",
                            "training.n_seeds=1"])
cell = plan(config)[0]
task = cell.setting.task
values = cell.points.values(cell.points.rows[0])
candidate = cell.candidate(values, 0)
state = task.init(candidate.allocation, candidate.training, candidate.seeds)
state, _ = task.train(state, 1)
print("ready", flush=True)
sys.stdin.readline()
n, end = 0, time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    state, _ = task.train(state, 1)
    n += 1
print(n, flush=True)
"""


def chunks_per_second(cores: list[int], seconds: float) -> float:
    """Chunks that one process on each of the cores trains in a second, in all."""
    pipe = subprocess.PIPE
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", TRAIN, str(core), str(seconds)],
            stdin=pipe,
            stdout=pipe,
            text=True,
        )
        for core in cores
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    begun = time.monotonic()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    n = sum(int(worker.communicate()[0]) for worker in workers)
    return n / (time.monotonic() - begun)


def main() -> None:
    """Print both throughputs and their ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    seconds = parser.parse_args().seconds
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise SystemExit("two cores are needed")
    one = chunks_per_second(cores[:1], seconds)
    two = chunks_per_second(cores, seconds)
    print(f"one pinned worker   {one:.2f} chunks/s")
    print(f"two pinned workers  {two:.2f} chunks/s")
    print(f"ratio               {two / one:.2f}")


if __name__ == "__main__":
    main()
