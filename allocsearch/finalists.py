"""The best trial of each search, scored on test data once."""

from collections.abc import Callable
from statistics import fmean

from allocsearch import checkpoint
from allocsearch.analysis.best import best_by_arm
from allocsearch.candidate import evaluate_checkpoint
from allocsearch.checkpoint import Place
from allocsearch.errors import CheckpointError, DataError
from allocsearch.folder import write_json
from allocsearch.plan import CONFIRMATION
from allocsearch.results import TrialResult
from allocsearch.study import Study, checkpoint_name


def score_finalists(study: Study, note: Callable[[str], None]) -> None:
    """Score the best trial of each cell on test data, unless that was done before.

    Where fresh seeds confirmed it, theirs are the networks: they had no part in the
    choice.

    Args:
        study: whose; the scores are kept in its folder.
        note: told what is scored, and what cannot be.
    """
    done = study.finalists()
    cells = {(c.budget, c.expert.name, c.arm): c for c in study.cells}
    entries = []
    for key, trial in best_by_arm(study.trials()).items():
        metrics = done.get(key)
        if metrics is None:
            note(f"scoring {trial.allocation.label} on test data")
            path = _networks(study, cells[key].name, trial)
            try:
                scores = evaluate_checkpoint(path, cells[key].setting.task, "test")
            except (DataError, CheckpointError) as error:
                note(f"there are no test scores: {error}")
                continue
            metrics = {n: fmean(s[n] for s in scores) for n in scores[0]}
        entries.append({"key": key, "number": trial.number, "metrics": metrics})
    write_json(study.directory / "finalists.json", entries)


def _networks(study: Study, cell: str, trial: TrialResult) -> Place:
    fresh = study.checkpoint_at(checkpoint_name(cell, trial.number, CONFIRMATION))
    confirmed = any(seed.metrics for seed in trial.confirmed)
    if confirmed and checkpoint.exists(fresh):
        return fresh
    return study.checkpoint_at(trial.checkpoint)
