"""What a proposal costs beside bare Optuna's: both on SQLite, in one run.

Both studies hold the same finished trials over the same axes. Ours asks, checks and
stores a point; bare Optuna asks and suggests every parameter with multivariate TPE.
They take turns, so that a busy machine slows both.

    python benchmarks/proposals.py --trials 1000 --asks 20
"""

import argparse
import itertools
import json
import shutil
import sqlite3
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import optuna

from allocsearch.search import Axis, Points, SearchStudy
from allocsearch.search.optuna_space import distributions, params_of
from allocsearch.search.optuna_space import suggest as suggest_axis

AXES = (
    Axis("depth", tuple(range(1, 33))),
    Axis("n_experts", tuple(range(1, 33))),
    Axis("radius", (0, 1, 2, 4, 8, "full")),
    Axis("aggregation", ("mean", "softmax_gated", "sqrt_sum"), ordinal=False),
)


def space() -> Points:
    """Some 16 000 points with a ragged edge."""
    sizes = [range(len(axis.values)) for axis in AXES]
    rows = [r for r in itertools.product(*sizes) if (r[0] + 1) * (r[1] + 1) <= 512]
    return Points(AXES, tuple(rows))


def suggest(trial: optuna.Trial) -> None:
    """Bare Optuna's own way to the same parameters."""
    for axis in AXES:
        suggest_axis(trial, axis)


def fill(path: Path, points: Points, n_trials: int) -> None:
    """Finished trials at random points of the space, each once, as plain SQL.

    One trial is asked and told in earnest; the others are copies of its rows with
    other parameters and values.
    """
    url = f"sqlite:///{path}"
    study = SearchStudy.load(url, "s")
    first = points.positions[study.ask().row]
    study.tell(0, [0.0])
    study.close()
    rng = np.random.default_rng(0)
    others = np.delete(np.arange(len(points)), first)
    chosen = rng.choice(others, size=n_trials - 1, replace=False)
    space = distributions(points)
    with sqlite3.connect(path) as database:
        numbers = [{"n": i + 1} for i in range(len(chosen))]
        database.executemany(
            "INSERT INTO trials (trial_id, number, study_id, state, datetime_start, "
            "datetime_complete) SELECT trial_id + :n, :n, study_id, state, "
            "datetime_start, datetime_complete FROM trials WHERE number = 0",
            numbers,
        )
        for table in ("trial_user_attributes", "trial_system_attributes"):
            database.executemany(
                f"INSERT INTO {table} (trial_id, key, value_json) "
                f"SELECT trial_id + :n, key, value_json FROM {table} "
                "WHERE trial_id = 1",
                numbers,
            )
        for i, position in enumerate(chosen):
            row = points.rows[position]
            database.execute(
                "INSERT INTO trial_values (trial_id, objective, value, value_type) "
                "VALUES (?, 0, ?, 'FINITE')",
                (i + 2, float(sum(row) + rng.normal())),
            )
            for name, param in params_of(points, row).items():
                database.execute(
                    "INSERT INTO trial_params (trial_id, param_name, param_value, "
                    "distribution_json) SELECT ?, param_name, ?, distribution_json "
                    "FROM trial_params WHERE trial_id = 1 AND param_name = ?",
                    (i + 2, space[name].to_internal_repr(param), name),
                )
    database.close()


def measure(n_trials: int, n_asks: int, folder: Path) -> dict[str, float]:
    """Median seconds of a proposal, ours and bare, and the ratio."""
    points = space()
    ours_url = f"sqlite:///{folder / 'ours.db'}"
    SearchStudy.open(
        ours_url, "s", points, directions=("maximize",), sampler="auto", seed=0
    ).close()
    fill(folder / "ours.db", points, n_trials)
    shutil.copy(folder / "ours.db", folder / "bare.db")
    bare = optuna.load_study(
        study_name="s",
        storage=f"sqlite:///{folder / 'bare.db'}",
        sampler=optuna.samplers.TPESampler(multivariate=True, seed=0),
    )
    ours = SearchStudy.load(ours_url, "s")
    suggest(bare.ask())
    ours.ask()
    spent: dict[str, list[float]] = {"ours": [], "bare": []}
    for _ in range(n_asks):
        begun = time.perf_counter()
        suggest(bare.ask())
        between = time.perf_counter()
        ours.ask()
        spent["bare"].append(between - begun)
        spent["ours"].append(time.perf_counter() - between)
    begun = time.perf_counter()
    ours.records()
    seconds = {f"{k}_seconds": statistics.median(v) for k, v in spent.items()}
    return {
        "points": len(points),
        "finished_trials": n_trials,
        **seconds,
        "ratio": seconds["ours_seconds"] / seconds["bare_seconds"],
        "records_seconds": time.perf_counter() - begun,
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--asks", type=int, default=20)
    parser.add_argument("--folder", help="where the databases go; default temporary")
    args = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        print(json.dumps(measure(args.trials, args.asks, Path(folder)), indent=2))


if __name__ == "__main__":
    main()
