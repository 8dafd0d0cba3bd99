"""Searching a finite set of points with named axes. Optuna lives here, nowhere else.

The names below load on first use: `Points` and the samplers' names need no Optuna.
"""

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "Axis": "allocsearch.search.points",
    "Points": "allocsearch.search.points",
    "Proposal": "allocsearch.search.records",
    "SAMPLERS": "allocsearch.search.samplers",
    "SearchStudy": "allocsearch.search.store",
    "SpaceExhausted": "allocsearch.search.records",
    "TrialRecord": "allocsearch.search.records",
    "list_studies": "allocsearch.search.store",
    "make_sampler": "allocsearch.search.samplers",
}

if TYPE_CHECKING:
    from allocsearch.search.points import Axis, Points
    from allocsearch.search.records import Proposal, SpaceExhausted, TrialRecord
    from allocsearch.search.samplers import SAMPLERS, make_sampler
    from allocsearch.search.store import SearchStudy, list_studies

__all__ = [
    "SAMPLERS",
    "Axis",
    "Points",
    "Proposal",
    "SearchStudy",
    "SpaceExhausted",
    "TrialRecord",
    "list_studies",
    "make_sampler",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'allocsearch.search' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
