"""How far studies are: counts per cell, running trials and their age, best so far."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from allocsearch.analysis.best import best_by_arm
from allocsearch.analysis.candidates import key_of
from allocsearch.analysis.fitted import Column, FittedTable
from allocsearch.analysis.formats import (
    MISSING,
    arm_label,
    format_number,
    format_seconds,
    plain,
)
from allocsearch.analysis.rows import Row
from allocsearch.cli.naming import name_of
from allocsearch.cli.printing import note, show, show_json
from allocsearch.errors import StudyError
from allocsearch.folder import is_held
from allocsearch.results import TrialResult
from allocsearch.search import Leases, is_shared
from allocsearch.search.leases import Holding
from allocsearch.study import Study, load_study

_STATES = ("complete", "pruned", "failed", "running")


def print_one(name: str, directory: Path, as_json: bool) -> None:
    """Print one study, cell by cell."""
    standing = study_standing(load_study(name, directory))
    if as_json:
        show_json(standing)
    else:
        show(_one_table(standing))


def print_all(directory: Path, as_json: bool) -> None:
    """Print every study of a directory on a line."""
    found = []
    for path in sorted(directory.glob("*/study.json")):
        try:
            found.append(study_standing(load_study(path.parent)))
        except StudyError as error:
            note(str(error))
    if as_json:
        show_json(found)
    elif found:
        show(_all_table(found, directory))
    else:
        show(f"No studies in {directory}.")


def study_standing(study: Study) -> Row:
    """How far a study is, JSON-ready. Needs no data and no JAX."""
    trials = study.trials()
    planned = study.manifest["n_trials"]
    held = _held(study)
    cells = [
        _cell(cell, n, [t for t in trials if "/".join(key_of(t)) == cell], held)
        for cell, n in planned.items()
    ]
    live = [one for one in held.values() if one.seconds_left > 0]
    begun = min((t.started for t in trials), default="")
    return {
        "study": study.name,
        "directory": str(study.directory),
        "in_progress": bool(live) or is_held(study.directory / "lock"),
        "workers": sorted({one.lease.host_and_pid for one in live}),
        "age_seconds": _age(begun),
        "n_trials": sum(planned.values()),
        **{state: sum(cell[state] for cell in cells) for state in _STATES},
        "cells": cells,
    }


def _held(study: Study) -> dict[tuple[str, int], Holding]:
    """Who trains what, by cell and number, where several workers may."""
    if not is_shared(study.storage):
        return {}
    names = {f"{study.name}/{cell}": cell for cell in study.manifest["n_trials"]}
    leases = Leases.load(study.storage)
    found = leases.held(list(names))
    leases.close()
    return {(names[h.lease.search], h.lease.number): h for h in found}


def _cell(
    cell: str,
    planned: int,
    trials: Sequence[TrialResult],
    held: Mapping[tuple[str, int], Holding],
) -> Row:
    counts = Counter(trial.state for trial in trials)
    best = next(iter(best_by_arm(trials).values()), None)
    budget, expert, arm = cell.split("/")
    return {
        "budget": budget,
        "expert": expert,
        "arm": arm,
        "n_trials": planned,
        **{state: counts[state] for state in _STATES},
        "best": best and _best(best),
        "running_trials": [
            {
                "number": trial.number,
                "label": trial.allocation.label,
                "age_seconds": _age(trial.started),
                **_holder(held.get((cell, trial.number))),
            }
            for trial in trials
            if trial.state == "running"
        ],
    }


def _holder(holding: Holding | None) -> Row:
    if holding is None:
        return {}
    return {
        "worker": holding.lease.host_and_pid,
        "renewed_seconds_ago": holding.seconds_since_renewal,
        "lease_seconds_left": holding.seconds_left,
    }


def _best(trial: TrialResult) -> Row:
    return {
        "name": name_of(trial),
        "number": trial.number,
        "label": trial.allocation.label,
        "objective": trial.objective.name,
        "score": trial.score,
    }


def _age(started: str) -> float | None:
    if not started:
        return None
    then = datetime.fromisoformat(started)
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return max(0.0, (datetime.now(UTC) - then).total_seconds())


def _one_table(standing: Row) -> RenderableType:
    cells = standing["cells"]
    columns = [
        Column("budget", [plain(c["budget"]) for c in cells], "left"),
        Column("expert", [plain(c["expert"]) for c in cells], "left"),
        Column("arm", [arm_label(c["arm"]) for c in cells], "left"),
        Column("done", [_done(c) for c in cells]),
        Column("failed", [str(c["failed"]) for c in cells]),
        Column("running", [str(c["running"]) for c in cells]),
        Column("best so far", [_best_cell(c["best"]) for c in cells], "left"),
        Column("allocation", [_best_label(c["best"]) for c in cells], "left", 1),
    ]
    running = [
        f"{arm_label(cell['arm'])} #{trial['number']} {plain(trial['label'])}: "
        f"begun {_ago(trial['age_seconds'])}{_by(trial)}"
        for cell in cells
        for trial in cell["running_trials"]
    ]
    title = f"Study {plain(standing['study'])}: {_activity(standing)}"
    return Group(FittedTable(title, columns), *(Text(line) for line in running))


def _by(trial: Row) -> str:
    if "worker" not in trial:
        return ""
    heard = f"heard of {_ago(trial['renewed_seconds_ago'])}"
    free = ", free to be taken up" if trial["lease_seconds_left"] <= 0 else ""
    return f", by {plain(trial['worker'])}, {heard}{free}"


def _all_table(found: Sequence[Row], directory: Path) -> RenderableType:
    columns = [
        Column("study", [plain(s["study"]) for s in found], "left"),
        Column("done", [_done(s) for s in found]),
        Column("failed", [str(s["failed"]) for s in found]),
        Column("running", [str(s["running"]) for s in found]),
        Column("begun", [_ago(s["age_seconds"]) for s in found], "right", 1),
        Column("state", [_activity(s) for s in found], "left"),
    ]
    return FittedTable(f"Studies in {plain(str(directory))}", columns)


def _done(row: Row) -> str:
    return f"{_n_ended(row)}/{row['n_trials']}"


def _n_ended(row: Row) -> int:
    return row["complete"] + row["pruned"] + row["failed"]


def _activity(standing: Row) -> str:
    if standing["in_progress"]:
        return "being run now"
    if _n_ended(standing) >= standing["n_trials"]:
        return "finished"
    return "interrupted" if standing["running"] else "not finished"


def _ago(seconds: float | None) -> str:
    return MISSING if seconds is None else f"{format_seconds(round(seconds))} ago"


def _best_cell(best: Row | None) -> str:
    if best is None:
        return MISSING
    name = best["objective"].replace("_", " ")
    return plain(f"{name} {format_number(best['score'])} (#{best['number']})")


def _best_label(best: Row | None) -> str:
    return MISSING if best is None else plain(best["label"])
