"""Two local trials, each on a core of its own, against one: the ratio of throughputs.

python benchmarks/workers.py [--seconds 20]

Each worker trains a short Sokoban trial over and over, compiled beforehand. What is
compared is chunks per second of training, so that starting and compiling, which are
paid once, do not count. Needs two cores that nobody else uses; where others do, look at
the ratio by processor time, which shows how much the two slow each other down.
"""

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass

TRAIN = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
from allocsearch.config import load_config
from allocsearch.plan import plan

levels = "task={levels: {n_train: 50, n_valid: 10, n_test: 10}, n_envs: 8}"
config = load_config(None, ["task.name=sokoban", levels, "space.depths=[1]",
                            "space.n_experts=[1]", "training.n_seeds=1"])
cell = plan(config)[0]
task = cell.setting.task
candidate = cell.candidate(cell.points.values(cell.points.rows[0]), 0)
state = task.init(candidate.allocation, candidate.training, candidate.seeds)
state, _ = task.train(state, 1)
print("ready", flush=True)
sys.stdin.readline()
n, begun, used = 0, time.monotonic(), time.process_time()
while time.monotonic() < begun + float(sys.argv[2]):
    state, _ = task.train(state, 1)
    n += 1
print(n, time.monotonic() - begun, time.process_time() - used, flush=True)
"""


@dataclass(frozen=True)
class Throughput:
    """Chunks of all workers, per second and per second of their processors."""

    wall: float
    processor: float


def measure(cores: list[int], seconds: float) -> Throughput:
    """Train on each of the cores at the same time."""
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
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    found = [[*map(float, w.communicate()[0].split())] for w in workers]
    return Throughput(
        wall=sum(n / wall for n, wall, _ in found),
        processor=sum(n / used for n, _, used in found),
    )


def main() -> None:
    """Print both throughputs and their ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    seconds = parser.parse_args().seconds
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise SystemExit("two cores are needed")
    one = measure(cores[:1], seconds)
    two = measure(cores, seconds)
    print(f"one pinned worker         {one.wall:.2f} chunks/s")
    print(f"two pinned workers        {two.wall:.2f} chunks/s")
    print(f"ratio                     {two.wall / one.wall:.2f}")
    print(f"ratio by processor time   {two.processor / one.processor:.2f}")


if __name__ == "__main__":
    main()
