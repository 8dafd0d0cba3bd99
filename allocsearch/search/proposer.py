"""The bridge to Optuna: it asks for parameters, one of our samplers answers."""

from collections.abc import Callable
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial

Choose = Callable[[optuna.Study, FrozenTrial], dict[str, Any]]


class Proposer(optuna.samplers.BaseSampler):
    """Gives every parameter of a trial at once, as `choose` says."""

    def __init__(self, space: dict[str, BaseDistribution], choose: Choose) -> None:
        """A proposer.

        Args:
            space: the distribution of every parameter.
            choose: from study and trial to a value for every parameter, or to none.
        """
        self._space = space
        self._choose = choose

    def infer_relative_search_space(
        self,
        study: optuna.Study,  # noqa: ARG002
        trial: FrozenTrial,  # noqa: ARG002
    ) -> dict[str, BaseDistribution]:
        """Every parameter, from the first trial on."""
        return self._space

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],  # noqa: ARG002
    ) -> dict[str, Any]:
        """The chosen values."""
        return self._choose(study, trial)

    def sample_independent(
        self,
        study: optuna.Study,  # noqa: ARG002
        trial: FrozenTrial,  # noqa: ARG002
        param_name: str,  # noqa: ARG002
        param_distribution: BaseDistribution,
    ) -> Any:
        """Some value, for a trial that is refused as soon as it is complete."""
        if isinstance(param_distribution, CategoricalDistribution):
            return param_distribution.choices[0]
        return param_distribution.to_external_repr(0)
