"""Which trial a user means: a number alone, or with its budget, expert and arm.

``3``, ``recurrent/3`` and ``tiny/mlp/recurrent/3`` name a trial; ``best`` in place of
the number is the best one. Whatever is left out must not be needed.
"""

from collections.abc import Sequence

from allocsearch.analysis.best import best_by_arm
from allocsearch.analysis.candidates import key_of
from allocsearch.cli.exits import NothingToDo
from allocsearch.errors import ConfigError
from allocsearch.results import TrialResult
from allocsearch.study import Study

_MOST_CHOICES = 8


def find_trial(
    study: Study, text: str, *, parts: Sequence[str | None] = ()
) -> TrialResult:
    """The one trial that is meant.

    Args:
        study: where to look.
        text: as described above.
        parts: further budgets, experts or arms that it must have, or None.

    Raises:
        ConfigError: no trial, or several, have that name; the message lists them.
        NothingToDo: the study has no trial at all.
    """
    *more, last = [part.strip() for part in text.split("/")]
    wanted = [_arm(part) for part in (*more, *parts) if part]
    trials = study.trials()
    if not trials:
        raise NothingToDo(f"study {study.name!r} has no trials yet")
    inside = [trial for trial in trials if set(wanted) <= set(key_of(trial))]
    if last == "best":
        found = list(best_by_arm(inside).values())
    elif last.isdecimal():
        found = [trial for trial in inside if trial.number == int(last)]
    else:
        raise ConfigError(
            f"trial {text!r} ends neither in a number nor in 'best', as in 3 or "
            f"{name_of(trials[0])}"
        )
    if len(found) != 1:
        raise _not_one(study, text, found, trials)
    return found[0]


def name_of(trial: TrialResult) -> str:
    """The full name of a trial: ``"tiny/mlp/recurrent/3"``."""
    return "/".join([*key_of(trial), str(trial.number)])


def _arm(part: str) -> str:
    return "nonrecurrent" if part == "non-recurrent" else part


def _not_one(
    study: Study,
    text: str,
    found: Sequence[TrialResult],
    trials: Sequence[TrialResult],
) -> ConfigError:
    if found:
        names = " or ".join(name_of(trial) for trial in found[:_MOST_CHOICES])
        return ConfigError(
            f"trial {text!r} of study {study.name!r} may be {names}: give one of them, "
            "or --budget, --expert or --arm"
        )
    cells: dict[str, list[int]] = {}
    for trial in trials:
        cells.setdefault("/".join(key_of(trial)), []).append(trial.number)
    listing = ", ".join(
        f"{cell}/{min(numbers)} to {max(numbers)}" for cell, numbers in cells.items()
    )
    return ConfigError(f"study {study.name!r} has no trial {text!r}; it has {listing}")
