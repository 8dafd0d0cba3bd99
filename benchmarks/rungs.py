"""Rungs against full trainings, on a table of real runs with learning curves.

Both search the same table with the same sampler and number of trials; with rungs most
of them stop early. Cost is the training that was done, in full trainings; regret is
how far the best trial that reached the horizon is from the table's best. Means over
seeds, with Student's 95 % interval, and the ratio of costs.

    python benchmarks/rungs.py --folder /dev/shm --seeds 20
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from scipy import stats

import allocsearch

SEARCHES = {
    "none": {"rungs": "none"},
    "halving": {"rungs": "halving"},
    "halving, 4": {"rungs": "halving", "reduction": 4, "first_rung": 1 / 16},
    "hyperband": {"rungs": "hyperband"},
}
TABLE = Path(__file__).parent / "data" / "micro.csv"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=27)
    parser.add_argument("--folder", help="for the studies; a temporary one if left out")
    options = parser.parse_args()
    found: dict[str, list] = {name: [] for name in SEARCHES}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        best = max(score_of(trial) for trial in whole_table(folder))
        for seed in range(options.seeds):
            for rungs, outcomes in found.items():
                trials = searched(folder, rungs, seed, options.trials)
                outcomes.append(outcome(trials, best))
    base = np.array(found["none"])[:, 1].mean()
    print(f"{options.trials} trials, {options.seeds} seeds, best {best:.3f}")
    for rungs, outcomes in found.items():
        regret, cost = np.array(outcomes).T
        ratio = cost.mean() / base
        print(
            f"{rungs:11} regret {regret.mean():.4f} ± {half(regret):.4f}   "
            f"cost {cost.mean():.2f} ± {half(cost):.2f}   ratio {ratio:.2f}"
        )


def searched(folder: str, rungs: str, seed: int, n_trials: int) -> list:
    """The trials of one study of the recurrent rows."""
    study = allocsearch.run(
        {
            "task": {
                "name": "tabular",
                "data": str(TABLE),
                "objectives": "accuracy:maximize",
            },
            "name": f"{rungs}-{seed}".replace(", ", "-"),
            "arms": "recurrent",
            "training": {"n_seeds": 2},
            "seed": seed,
            "search": {"n_trials": n_trials, **SEARCHES[rungs]},
            "output": {"directory": folder},
        }
    )
    return study.trials()


def whole_table(folder: str) -> list:
    """Every recurrent row."""
    return searched(folder, "none", 10**6, 10**4)


def score_of(trial: object) -> float:
    """The score of a trial that reached the horizon."""
    return trial.score if trial.state == "complete" else -np.inf


def outcome(trials: list, best: float) -> tuple[float, float]:
    """Regret, and full trainings that were paid for."""
    cost = sum(trial.fraction for trial in trials)
    return best - max(map(score_of, trials)), cost


def half(values: np.ndarray) -> float:
    """Half of Student's 95 % interval."""
    n = len(values)
    return float(stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / n**0.5)


if __name__ == "__main__":
    main()
