"""Equal shares for every value of one axis: what a fair comparison along it needs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allocsearch.search.points import Points, Row
from allocsearch.search.samplers.base import Request
from allocsearch.search.seeds import derive_seed


@dataclass(frozen=True)
class StratifiedSampler:
    """As many points for each value of the axis `by` as for any other.

    The next point goes to the value that has had the fewest, ties to the first on
    the axis, so shares differ by at most one at every prefix while all strata last.
    Within a stratum the order is a permutation drawn once from the study's seed.
    Failed trials count: a replacement would give a depth that fails more tries.

    Attributes:
        by: the axis to balance.
        strict: end the search, rather than lose balance, once a stratum is used up.
    """

    by: str = "depth"
    strict: bool = False

    def check(self, points: Points) -> None:
        """See `Sampler.check`."""
        points.axis_index(self.by)

    def ended(
        self, points: Points, taken: Sequence[int], left: np.ndarray
    ) -> str | None:
        """See `Sampler.ended`: only a strict comparison ends early."""
        if not self.strict:
            return None
        shares = self._shares(points, taken)
        lasting = self._lasting(points, left)
        fewest = min(shares[stratum] for stratum in lasting)
        for stratum, share in shares.items():
            if stratum not in lasting and share <= fewest:
                value = points.axes[points.axis_index(self.by)].values[stratum]
                return (
                    f"{self.by} {value} has only {share} points and all were proposed; "
                    f"more of any other {self.by} would unbalance the comparison"
                )
        return None

    def propose(self, request: Request) -> Row:
        """See `Sampler.propose`."""
        shares = self._shares(request.points, request.taken)
        lasting = self._lasting(request.points, request.open)
        stratum = min(lasting, key=lambda s: (shares[s], s))
        strata = self._strata(request.points)
        rng = np.random.default_rng(derive_seed(request.study_seed, self.by, stratum))
        order = rng.permutation(np.flatnonzero(strata == stratum))
        return request.points.rows[order[np.isin(order, request.open)][0]]

    def _strata(self, points: Points) -> np.ndarray:
        return points.array[:, points.axis_index(self.by)]

    def _lasting(self, points: Points, left: np.ndarray) -> set[int]:
        return {int(stratum) for stratum in self._strata(points)[left]}

    def _shares(self, points: Points, taken: Sequence[int]) -> dict[int, int]:
        strata = self._strata(points)
        shares = {int(stratum): 0 for stratum in np.unique(strata)}
        for position in taken:
            shares[int(strata[position])] += 1
        return shares
