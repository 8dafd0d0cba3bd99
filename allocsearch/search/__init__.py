"""Searching a finite set of points with named axes. Optuna lives here, nowhere else.

The names below load on first use: `Points` and the samplers' names need no Optuna.
"""

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "Axis": "allocsearch.search.points",
    "EnoughTrials": "allocsearch.search.records",
    "LateResult": "allocsearch.search.records",
    "Leases": "allocsearch.search.leases",
    "Points": "allocsearch.search.points",
    "Proposal": "allocsearch.search.records",
    "SAMPLERS": "allocsearch.search.samplers",
    "SearchStudy": "allocsearch.search.store",
    "SpaceExhausted": "allocsearch.search.records",
    "TrialRecord": "allocsearch.search.records",
    "list_studies": "allocsearch.search.store",
    "is_shared": "allocsearch.search.storage",
    "make_sampler": "allocsearch.search.samplers",
    "ride_out": "allocsearch.search.riding",
}

if TYPE_CHECKING:
    from allocsearch.search.leases import Leases
    from allocsearch.search.points import Axis, Points
    from allocsearch.search.records import (
        EnoughTrials,
        LateResult,
        Proposal,
        SpaceExhausted,
        TrialRecord,
    )
    from allocsearch.search.riding import ride_out
    from allocsearch.search.samplers import SAMPLERS, make_sampler
    from allocsearch.search.storage import is_shared
    from allocsearch.search.store import SearchStudy, list_studies

__all__ = [
    "SAMPLERS",
    "Axis",
    "EnoughTrials",
    "LateResult",
    "Leases",
    "Points",
    "Proposal",
    "SearchStudy",
    "SpaceExhausted",
    "TrialRecord",
    "is_shared",
    "list_studies",
    "make_sampler",
    "ride_out",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'allocsearch.search' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
