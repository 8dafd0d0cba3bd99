"""The Sokoban task: levels, environment, training and evaluation."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allocsearch.tasks.sokoban.task import Sokoban

__all__ = ["Sokoban"]


def __getattr__(name: str) -> Any:
    """Load the task on first use, so that reading levels needs no JAX."""
    if name == "Sokoban":
        from allocsearch.tasks.sokoban.task import Sokoban

        return Sokoban
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
