"""The default: a Gaussian process while trials are few, then Parzen estimators."""

from dataclasses import dataclass

from allocsearch.search.points import Points, Row
from allocsearch.search.samplers.base import Request, ToTheLast, check_at_least_one
from allocsearch.search.samplers.gp import GPSampler
from allocsearch.search.samplers.tpe import TPESampler


@dataclass(frozen=True)
class AutoSampler(ToTheLast):
    """`gp` for the first trials, `tpe` from then on.

    A Gaussian process finds good points in the fewest trials, but each proposal costs
    it the cube of their number; Parzen estimators stay quick over thousands.

    Attributes:
        n_startup: finished trials before either learns; until then the choice is
            uniform.
        n_gp: trials that `gp` proposes.
    """

    n_startup: int = 10
    n_gp: int = 200

    def check(self, points: Points) -> None:  # noqa: ARG002
        """See `Sampler.check`."""
        check_at_least_one("auto", self, ("n_startup",))

    def propose(self, request: Request) -> Row:
        """See `Sampler.propose`."""
        if len(request.taken) < self.n_gp:
            return GPSampler(n_startup=self.n_startup).propose(request)
        return TPESampler(n_startup=self.n_startup).propose(request)
