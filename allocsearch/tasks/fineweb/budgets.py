"""The named budgets of FineWeb, and the task as it is run under each."""

from types import MappingProxyType
from typing import Any

from allocsearch.allocation import Allocation
from allocsearch.tasks.records import NamedBudget


def _reference(depth: int, width: int) -> Allocation:
    # Its attention window is the task's, see `FineWeb.expert_options`.
    return Allocation("transformer", True, depth, 1, width)


_TINY = NamedBudget(
    reference=_reference(4, 64),
    tolerance=0.20,
    granule=4,
    # With GPT-2's 50 257 tokens the head would be most of the work.
    task={"tokenizer": "bytes"},
    training={
        "horizon": 300_000,
        "n_seeds": 1,
        "learning_rate": 1e-2,
        "n_evaluations": 5,
    },
    search={"n_trials": 4},
    space={"depths": [1, 2, 4, 8], "n_experts": [1, 2, 4, 8]},
)

_TASK: dict[str, Any] = {
    "tokenizer": "gpt2",
    "window": 512,
    "n_slots": 128,
    "updates_per_chunk": 1,
    "evaluation": {"n_valid": 1_048_576, "n_test": 1_048_576, "n_slots": 64},
}


def _full(multiple: int, granule: int, horizon: int) -> NamedBudget:
    return NamedBudget(
        reference=_reference(16, 512),
        multiple=multiple,
        granule=granule,
        task=_TASK,
        # At L 16, E 1, d 512 the rule makes 1.9e-4 of this rate, near what is best for
        # transformers of that width in the literature; not tuned here.
        training={
            "horizon": horizon,
            "n_seeds": 3,
            "learning_rate": 6e-3,
            "warmup": 200,
        },
        heavy=True,
    )


BUDGETS = MappingProxyType(
    {
        "tiny": _TINY,
        "small": _full(1, 16, 500_000_000),
        "medium": _full(4, 32, 1_000_000_000),
        "large": _full(16, 64, 2_000_000_000),
    }
)
