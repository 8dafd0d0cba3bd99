"""Searchers on public tables under a hard cost: ours, uniform choice, plain Optuna.

Ours and uniform choice see the feasible networks alone. Plain Optuna suggests from the
whole grid and is told each network's cost as a constraint, as its manual has it; where
no network stands at a cell, it is told the table's worst losses and a violation (on
scan-bench, the nearest network). A repeated network counts as a duplicate, one above
the limit as infeasible.

Regret is that of the best feasible network found, in standard deviations of feasible
losses; for two objectives, the share of the front's hypervolume that is missing, the
reference being the worst feasible value of each. Means over seeds with Student's 95 %
interval; the ratio is the first searcher's mean over this one's.

    python benchmarks/searchers.py --cache /tmp/tables --seeds 20
    python benchmarks/searchers.py --cache /tmp/tables --tables cells --searchers nsga2
"""

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import optuna
from public_tables import TABLES, Table, tables
from scipy import stats

from allocsearch.search.identity import Identity
from allocsearch.search.optuna_space import distributions, params_of, suggest
from allocsearch.search.proposing import Proposer
from allocsearch.search.samplers import SAMPLERS

DEFAULT_TABLES = ("graph/front", "cells", "language")
DEFAULT_SEARCHERS = ("auto", "random", "optuna-tpe", "optuna-nsga2")


@dataclass(frozen=True)
class Outcome:
    """What one run came to: its gap, and how many proposals were of no use."""

    gap: float
    infeasible: int
    duplicates: int


def ours(table: Table, sampler: str, seed: int, n: int) -> Outcome:
    """One run of a sampler of ours, the database left out."""
    n_objectives = table.losses.shape[1]
    identity = Identity(table.points, ("minimize",) * n_objectives, seed, sampler, {})
    proposer, space = Proposer("s", identity), distributions(table.points)
    trials: list[optuna.trial.FrozenTrial] = []
    taken: dict[int, int] = {}
    for number in range(n):
        taken[number], _ = proposer.propose(trials, taken)
        trial = optuna.trial.create_trial(
            params=params_of(table.points, table.points.rows[taken[number]]),
            distributions=space,
            values=table.losses[table.feasible[taken[number]]].tolist(),
        )
        trial.number = number
        trials.append(trial)
    rows = table.feasible[list(taken.values())]
    infeasible = int((table.cost[rows] > table.limit).sum())
    return Outcome(gap(table, rows), infeasible, n - len(set(rows.tolist())))


def plain(table: Table, sampler: str, seed: int, n: int) -> Outcome:
    """One run of Optuna alone, with its own soft constraints."""
    make = {
        "optuna-tpe": optuna.samplers.TPESampler,
        "optuna-nsga2": optuna.samplers.NSGAIISampler,
    }
    study = optuna.create_study(
        directions=["minimize"] * table.losses.shape[1],
        sampler=make[sampler](seed=seed),
    )
    found, seen = [], []
    for _ in range(n):
        trial = study.ask()
        for axis in table.axes:
            suggest(trial, axis)
        cell = tuple(int(trial.params[axis.name]) for axis in table.axes)
        row = table.row_at(cell)
        seen.append(row if row >= 0 else cell)
        if row < 0:
            trial.set_constraint("cost", 1.0)
            study.tell(trial, table.losses.max(axis=0).tolist())
            continue
        trial.set_constraint("cost", float(table.cost[row] / table.limit - 1))
        study.tell(trial, table.losses[row].tolist())
        if table.cost[row] <= table.limit:
            found.append(row)
    return Outcome(gap(table, found), n - len(found), n - len(set(seen)))


def gap(table: Table, rows: list[int] | np.ndarray) -> float:
    """How far feasible `rows` are from the best there is; 0 is perfect."""
    every = table.losses[table.feasible]
    found = table.losses[np.asarray(rows, dtype=int)]
    if table.losses.shape[1] == 1:
        return float((found.min() - every.min()) / every.std())
    low, high = every.min(axis=0), every.max(axis=0)
    whole = hypervolume((every - low) / (high - low))
    return 1 - hypervolume((found - low) / (high - low)) / whole


def hypervolume(losses: np.ndarray) -> float:
    """The area that points dominate below (1, 1), less being better."""
    area, edge = 0.0, 1.0
    for x, y in losses[np.argsort(losses[:, 0], kind="stable")]:
        area += max(0.0, 1 - x) * max(0.0, edge - y)
        edge = min(edge, y)
    return area


def interval(values: list[float]) -> tuple[float, float]:
    """Mean and half of Student's 95 % interval."""
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values)), float(stats.t.ppf(0.975, len(values) - 1) * error)


def main() -> None:
    """Print one table for each public table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--tables", nargs="+", default=DEFAULT_TABLES, choices=TABLES)
    parser.add_argument("--searchers", nargs="+", default=DEFAULT_SEARCHERS)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=100)
    args = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    print("table | searcher | gap ± 95 % | ratio | infeasible | duplicates")
    for table, name in zip(tables(args.tables, args.cache), args.tables, strict=True):
        first = None
        for searcher in args.searchers:
            run = ours if searcher in SAMPLERS else plain
            seeds = range(args.seeds)
            done = [run(table, searcher, seed, args.evaluations) for seed in seeds]
            mean, half = interval([outcome.gap for outcome in done])
            first = mean if first is None else first
            wasted = [
                np.mean([getattr(outcome, what) for outcome in done])
                for what in ("infeasible", "duplicates")
            ]
            print(
                f"{name} | {searcher} | {mean:.4f} ± {half:.4f} | "
                f"{first / mean if mean else float('nan'):.2f} | "
                f"{wasted[0]:.1f} | {wasted[1]:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
