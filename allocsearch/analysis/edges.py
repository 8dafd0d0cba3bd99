"""Whether what was best lies at the edge of what was tried."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from allocsearch.analysis.best import best_by_arm
from allocsearch.analysis.formats import arm_label
from allocsearch.results import TrialResult

_SHAPE = {"depth": "depth L", "n_experts": "experts E"}


def edge_notes(
    results: Iterable[TrialResult], searched: Mapping[str, Mapping[str, Sequence[Any]]]
) -> list[str]:
    """A sentence for every winner with a value at the edge of its range.

    A best learning rate that is the largest tried says that a larger one might be
    better still. Depth and experts have an edge at the top alone, 1 being the least
    there is.

    Args:
        results: trials in any order.
        searched: by budget, the values of every setting that was searched, and those
            of "depth" and "n_experts".
    """
    notes = []
    for winner in best_by_arm(results).values():
        ranges = searched.get(winner.budget, {})
        known = {
            **winner.settings,
            **{n: getattr(winner.allocation, n) for n in _SHAPE},
        }
        for name, values in ranges.items():
            edge = _edge(name, known.get(name), values)
            if edge:
                what = _SHAPE.get(name, name.replace("_", " "))
                notes.append(
                    f"The best {arm_label(winner.arm)} allocation of budget "
                    f"{winner.budget} has {what} {known[name]:g}, the {edge} searched: "
                    "a wider range may hold a better one."
                )
    return notes


def _edge(name: str, value: Any, values: Sequence[Any]) -> str | None:
    numbers = [v for v in values if isinstance(v, int | float)]
    if len(numbers) < 2 or not isinstance(value, int | float):
        return None
    if value >= max(numbers):
        return "largest"
    return "smallest" if value <= min(numbers) and name not in _SHAPE else None
