"""What `run` and `resume` do once the config is known."""

from allocsearch.analysis.fitted import Column, FittedTable
from allocsearch.analysis.formats import arm_label, plain
from allocsearch.analysis.rows import Row
from allocsearch.cli import exits
from allocsearch.cli.forecast import ask_if_heavy, forecast
from allocsearch.cli.outcome import report
from allocsearch.cli.printing import note, show, show_json
from allocsearch.cli.watching import run_watched
from allocsearch.config import StudyConfig
from allocsearch.plan import Cell, warnings_of
from allocsearch.study import new_study
from allocsearch.work import format_flops
from allocsearch.workers.devices import spare_gpus


def search(config: StudyConfig, *, yes: bool, as_json: bool, quiet: bool) -> int:
    """Begin a study or go on with it, and print what came of it.

    Args:
        config: of the study.
        yes: whether a heavy budget needs no question.
        as_json: whether stdout is to be JSON.
        quiet: whether to leave out progress.

    Returns:
        The exit code.
    """
    if config.execution.executor != "inline":
        spare_gpus()
    study = new_study(config)
    if not ask_if_heavy(study.cells, yes):
        note("nothing was started")
        return exits.NOTHING
    interrupted = run_watched(study, quiet)
    if interrupted is not None:
        if as_json:
            show_json({"study": study.name, "interrupted": True})
        return interrupted
    return report(study, as_json)


def describe(config: StudyConfig, as_json: bool) -> None:
    """Print the searches of a study and a forecast; write nothing."""
    study = new_study(config)
    rows = [_cell_row(cell) for cell in study.cells]
    cost = forecast(study.cells)
    if as_json:
        show_json(
            {
                "study": study.name,
                "directory": str(study.directory),
                "cells": rows,
                "training_flops": cost.training_flops,
                "matmul_flops_per_second": cost.peak,
                "seconds": cost.seconds,
            }
        )
        return
    columns = [
        Column("budget", [plain(row["budget"]) for row in rows], "left"),
        Column("per step", [format_flops(row["budget_flops"]) for row in rows]),
        Column("expert", [plain(row["expert"]) for row in rows], "left"),
        Column("arm", [arm_label(row["arm"]) for row in rows], "left"),
        Column("feasible", [str(row["n_points"]) for row in rows]),
        Column("trials", [str(row["n_trials"]) for row in rows]),
        Column("sampler", [plain(row["sampler"]) for row in rows], "left", 2),
        Column("seeds", [str(row["n_seeds"]) for row in rows], "right", 1),
        Column("horizon", [f"{row['horizon']:,}" for row in rows], "right", 1),
    ]
    notes = [f"Forecast: {cost}.", f"It would be kept in {study.directory}."]
    notes += [f"{w[0].upper()}{w[1:]}." for w in warnings_of(study.cells)]
    show(FittedTable(f"Study {plain(study.name)}", columns, notes))


def _cell_row(cell: Cell) -> Row:
    training = cell.setting.training
    return {
        "budget": cell.budget,
        "budget_flops": cell.setting.budget.flops,
        "expert": cell.expert.name,
        "arm": cell.arm,
        "n_allocations": len(cell.allocations),
        "n_points": len(cell.points),
        "n_trials": cell.n_trials,
        "sampler": cell.sampler[0],
        "n_seeds": training.n_seeds,
        "horizon": training.horizon or cell.setting.task.steps_per_chunk,
        "unit": cell.setting.task.unit,
    }
