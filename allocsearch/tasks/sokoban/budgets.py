"""The named budgets of Sokoban, and the task as it is run under each."""

from types import MappingProxyType

from allocsearch.allocation import Allocation
from allocsearch.tasks.records import NamedBudget


def _reference(depth: int, width: int) -> Allocation:
    return Allocation("conv_lstm", True, depth, 1, width)


_TINY = NamedBudget(
    reference=_reference(4, 12),
    tolerance=0.20,
    task={
        "levels": {"interior": [5, 5], "n_boxes": 1},
        "environment": {
            "keep_border": False,
            "step_limit": [10, 30],
            "evaluation_step_limit": 60,
        },
        # Short credit: at random play the last pushes carry nearly all the signal.
        "loss": {
            "kind": "ppo",
            "discount": 0.95,
            "trace_decay": 0.8,
            "entropy": 0.04,
        },
        "n_envs": 128,
        "unroll": 16,
        "n_minibatches": 4,
    },
    training={"horizon": 60_000, "n_seeds": 1, "learning_rate": 1e-3},
    search={"n_trials": 4, "confirm_seeds": 0},
    space={
        "depths": [1, 2, 4, 8],
        "n_experts": [1, 2, 4],
    },
)
_FULL_TRAINING = {"horizon": 50_000_000, "n_seeds": 3}

BUDGETS = MappingProxyType(
    {
        "tiny": _TINY,
        "small": NamedBudget(
            reference=_reference(8, 32), training=_FULL_TRAINING, heavy=True
        ),
        "medium": NamedBudget(
            reference=_reference(8, 32),
            multiple=4,
            granule=2,
            training=_FULL_TRAINING,
            heavy=True,
        ),
        "large": NamedBudget(
            reference=_reference(8, 32),
            multiple=16,
            granule=4,
            training=_FULL_TRAINING,
            heavy=True,
        ),
    }
)
