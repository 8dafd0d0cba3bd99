"""The FineWeb task: a language model that reads a stream of text."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allocsearch.tasks.fineweb.task import FineWeb

__all__ = ["FineWeb"]


def __getattr__(name: str) -> Any:
    """Load the task on first use, so that preparing data needs no JAX."""
    if name == "FineWeb":
        from allocsearch.tasks.fineweb.task import FineWeb

        return FineWeb
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
