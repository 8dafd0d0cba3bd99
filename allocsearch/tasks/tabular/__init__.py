"""The tabular task: results from a table instead of training."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allocsearch.tasks.tabular.task import Tabular

__all__ = ["Tabular"]


def __getattr__(name: str) -> Any:
    """Load the task on first use, so that reading tables needs no JAX."""
    if name == "Tabular":
        from allocsearch.tasks.tabular.task import Tabular

        return Tabular
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
