"""Search how a streaming model should spend a fixed compute budget.

The names below load on first use, so that importing the package, `--help` and the
analysis of finished studies stay fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

from allocsearch.version import __version__ as __version__
from allocsearch.xla_flags import avoid_ynnpack_reductions

avoid_ynnpack_reductions()

_HOME = {
    "Allocation": "allocsearch.allocation",
    "Budget": "allocsearch.work",
    "ParallelExperts": "allocsearch.network",
    "Study": "allocsearch.study",
    "StudyConfig": "allocsearch.config",
    "TrialResult": "allocsearch.results",
    "Work": "allocsearch.work",
    "feasible_space": "allocsearch.space",
    "load_study": "allocsearch.study",
    "run": "allocsearch.driver",
}

if TYPE_CHECKING:
    from allocsearch.allocation import Allocation
    from allocsearch.config import StudyConfig
    from allocsearch.driver import run
    from allocsearch.network import ParallelExperts
    from allocsearch.results import TrialResult
    from allocsearch.space import feasible_space
    from allocsearch.study import Study, load_study
    from allocsearch.work import Budget, Work

__all__ = [
    "Allocation",
    "Budget",
    "ParallelExperts",
    "Study",
    "StudyConfig",
    "TrialResult",
    "Work",
    "feasible_space",
    "load_study",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'allocsearch' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
