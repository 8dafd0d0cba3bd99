"""Tree-structured Parzen estimator, confined to the points that are left."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from allocsearch.search.optuna_space import internal_columns, row_of
from allocsearch.search.points import Points, Row
from allocsearch.search.samplers.base import Request, ToTheLast, check_at_least_one
from allocsearch.search.samplers.random import RandomSampler

if TYPE_CHECKING:
    import optuna

_DRAWS = 4
"""Draws from l for each candidate wanted, before open points are enumerated."""


@dataclass(frozen=True)
class TPESampler(ToTheLast):
    """Optuna's multivariate TPE over the feasible, unseen points only.

    TPE draws candidates from l, the density of the good trials, and keeps the one
    with the largest l / g, g being the density of the others. Here the candidates
    come from l restricted to the open points: draws from l that are open, or, where
    those are rare, a choice among all open points by their density. Running
    trials count towards g (constant liar), so parallel proposals spread.
    Reference: Watanabe, arXiv:2304.11127.

    Attributes:
        n_startup: complete trials before the densities are trusted; until then the
            choice is uniform.
        n_candidates: how many points are drawn from l.
    """

    n_startup: int = 10
    n_candidates: int = 24

    def check(self, points: Points) -> None:  # noqa: ARG002
        """See `Sampler.check`."""
        check_at_least_one("tpe", self)

    def propose(self, request: Request) -> Row:
        """See `Sampler.propose`."""
        if not request.space:
            return RandomSampler().propose(request)
        params = self._tpe(request).sample_relative(
            request.study, request.trial, request.space
        )
        if not params:
            return RandomSampler().propose(request)
        row = row_of(request.points, params)
        return RandomSampler().propose(request) if row is None else row

    def _tpe(self, request: Request) -> "optuna.samplers.TPESampler":
        import optuna

        tpe = optuna.samplers.TPESampler(
            n_startup_trials=self.n_startup,
            n_ei_candidates=self.n_candidates,
            multivariate=True,
            constant_liar=True,
            seed=request.seed,
        )
        # Optuna keeps this attribute for its users to replace. Should it ever go,
        # proposals fall back to the nearest open point, which is right but coarser.
        base = getattr(tpe, "_parzen_estimator_cls", None)
        if isinstance(base, type):
            columns = internal_columns(request.points, request.space, request.open)
            sizes = [len(a.values) for a in request.points.axes if a.name in columns]
            tpe._parzen_estimator_cls = _confined(base, columns, sizes)
        return tpe


def _confined(base: Any, columns: dict[str, np.ndarray], sizes: Sequence[int]) -> Any:
    """A Parzen estimator that draws from `columns` alone, each row by its density.

    Rejection comes first because it takes no pass over the candidates; enumeration
    gives the same law and is never in vain.

    Args:
        base: Optuna's estimator class.
        columns: for each parameter its internal value at every candidate.
        sizes: how many values each of them has.
    """

    def code(values: dict[str, np.ndarray]) -> np.ndarray:
        """One number for each row: its indices as the digits of a mixed radix."""
        number = np.zeros(len(next(iter(values.values()))))
        for name, size in zip(columns, sizes, strict=True):
            number = number * size + values[name]
        return number

    open_codes = code(columns)

    class ConfinedEstimator(base):
        def sample(
            self, rng: np.random.RandomState, size: int
        ) -> dict[str, np.ndarray]:
            free = super().sample(rng, _DRAWS * size)
            (accepted,) = np.nonzero(np.isin(code(free), open_codes))
            if len(accepted) >= size:
                return {name: v[accepted[:size]] for name, v in free.items()}
            log_density = self.log_pdf(columns)
            weight = np.exp(log_density - log_density.max())
            drawn = rng.choice(len(weight), size=size, p=weight / weight.sum())
            return {name: column[drawn] for name, column in columns.items()}

    return ConfinedEstimator
