"""What a sampler is told of trials that stand at a rung, or were pruned at one."""

import copy

from optuna.trial import FrozenTrial, TrialState

from allocsearch.search.trial_records import RUNGS

_STEPS = 10**6
"""Optuna's steps are integers: this many to the horizon."""


def as_told(trial: FrozenTrial, n_objectives: int) -> FrozenTrial:
    """A trial with its latest rung in the place where Optuna's samplers look.

    A trial that paused would otherwise count as running, which is taken for bad, and
    one that was pruned would have no value. With one objective both become pruned
    trials, which samplers rank by step and then by value, behind complete ones. With
    several, for which Optuna knows no pruning, the last rung stands for the end.
    """
    reached = trial.user_attrs.get(RUNGS)
    if not reached or trial.state in (TrialState.COMPLETE, TrialState.FAIL):
        return trial
    told = copy.copy(trial)
    told.datetime_complete = trial.datetime_complete or trial.datetime_start
    if n_objectives > 1:
        told.state, told.values = TrialState.COMPLETE, reached[-1][1]
        return told
    steps = {round(f * _STEPS): v[0] for f, v in reached}
    told.state, told.intermediate_values = TrialState.PRUNED, steps
    return told
