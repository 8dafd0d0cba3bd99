"""Which checkpoints of a study stay: of running trials all, of finished ones the best.

Deleting is safe at any time and in any process: only trials that have ended lose
theirs, and those never train again.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

from allocsearch import checkpoint
from allocsearch.analysis.best import best_by_arm
from allocsearch.analysis.candidates import candidates, grouped, key_of, ranking
from allocsearch.analysis.pareto import pareto_fronts
from allocsearch.errors import CheckpointError, StudyError
from allocsearch.results import TrialResult
from allocsearch.study import Study

Keep = int | str


def prune(
    study: Study,
    cell: str | None = None,
    *,
    finished: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> None:
    """Delete the checkpoints that `output.keep` and `output.checkpoint_quota` give up.

    Args:
        study: whose.
        cell: the only cell to look at, such as that of the trial that has just ended;
            all of them if left out or where a quota holds for all.
        finished: whether the study is: until then the best trial of each cell keeps
            its checkpoint, because it is to be scored on test data.
        note: told when something cannot be deleted; the study goes on all the same.
    """
    output = study.config.output
    if output.keep == "all" and output.checkpoint_quota is None:
        return
    alone = cell is not None and output.checkpoint_quota is None
    trials = study.trials([cell] if cell and alone else None)
    try:
        kept = keepers(trials, output.keep)
        if output.checkpoint_quota is not None:
            kept = _within(study, kept, output.checkpoint_quota)
        stay = {_identity(trial) for trial in kept}
        if not finished:
            stay |= {_identity(trial) for trial in best_by_arm(trials).values()}
        for key, group in grouped(trials).items():
            ended = {t.number for t in group if t.state != "running"}
            gone = {n for n in ended if (key, n) not in stay}
            _remove(study, "/".join(key), gone)
    except (StudyError, CheckpointError) as error:
        note(f"old checkpoints stay where they are: {error}")


def keepers(trials: Iterable[TrialResult], keep: Keep) -> list[TrialResult]:
    """The trials that keep their checkpoints, the most worth keeping first.

    Those of different (budget, expert, arm) take turns: each one's best, then each
    one's second, and so on.

    Args:
        trials: of a study; only complete and finite ones are kept.
        keep: ``"all"``; ``"front"`` for those that none beats in score and depth, and
            the best; ``"none"``; or how many of the best of each.
    """
    trials = list(trials)
    if keep == "all":
        chosen = [t for t in trials if t.state == "complete"]
    elif keep == "front":
        fronts = [t for front in pareto_fronts(trials).values() for t in front]
        chosen = [*fronts, *best_by_arm(trials).values()]
    else:
        most = 0 if keep == "none" else int(keep)
        ranked = grouped(candidates(trials)).values()
        chosen = [t for group in ranked for t in sorted(group, key=ranking)[:most]]
    unique = {_identity(trial): trial for trial in chosen}
    groups = [sorted(g, key=ranking) for g in grouped(unique.values()).values()]
    return [t for turn in zip_longest(*groups) for t in turn if t is not None]


def _within(study: Study, kept: Sequence[TrialResult], quota: int) -> list[TrialResult]:
    """As many from the front of the list as fit into a quota of bytes."""
    total = 0
    for i, trial in enumerate(kept):
        total += checkpoint.nbytes(study.checkpoint_at(trial.checkpoint))
        if total > quota:
            return list(kept[:i])
    return list(kept)


def _identity(trial: TrialResult) -> tuple[tuple[str, str, str], int]:
    return key_of(trial), trial.number


def _remove(study: Study, cell: str, numbers: set[int]) -> None:
    folder = study.checkpoint_at(f"trials/{cell}")
    for name in checkpoint.children(folder):
        # "00003", "00003-1" of further seeds, "00003.damaged" of one set aside.
        number = re.match(r"\d+", name)
        if number and int(number[0]) in numbers:
            checkpoint.remove(checkpoint.below(folder, name))
