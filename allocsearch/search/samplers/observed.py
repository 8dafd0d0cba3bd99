"""A study's history as arrays: what samplers of our own learn from."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from allocsearch.search.samplers.base import Request

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


@dataclass(frozen=True)
class Observed:
    """What is known of the points that were proposed, by trial number.

    Attributes:
        positions: of the points with a result, `[n]`.
        losses: their objectives, less is better, `[n, n_objectives]`. A point that
            failed has the worst value of each objective: whatever failed once there,
            as by divergence, is to be kept away from.
        running: positions of the points without a result yet, `[n_running]`.
    """

    positions: np.ndarray
    losses: np.ndarray
    running: np.ndarray


def observe(request: Request) -> Observed:
    """The history of a request."""
    from optuna.study import StudyDirection

    signs = np.array(
        [-1.0 if d == StudyDirection.MAXIMIZE else 1.0 for d in request.directions]
    )
    positions, losses, running = [], [], []
    trials = request.study.get_trials(deepcopy=False)
    for position, trial in zip(request.positions, trials, strict=True):
        if not trial.state.is_finished():
            running.append(position)
            continue
        positions.append(position)
        losses.append(_values(trial) or [np.nan] * len(signs))
    found = np.array(losses, dtype=float).reshape(-1, len(signs)) * signs
    succeeded = ~np.isnan(found).any(axis=1)
    if succeeded.any():
        found[~succeeded] = found[succeeded].max(axis=0)
    else:
        positions, found = [], found[:0]
    return Observed(
        np.array(positions, dtype=np.int64), found, np.array(running, dtype=np.int64)
    )


def _values(trial: "FrozenTrial") -> list[float]:
    """What a trial reached, at its last rung if it was pruned; empty if it failed."""
    from optuna.trial import TrialState

    if trial.state == TrialState.PRUNED and trial.intermediate_values:
        return [trial.intermediate_values[max(trial.intermediate_values)]]
    return list(trial.values) if trial.state == TrialState.COMPLETE else []
