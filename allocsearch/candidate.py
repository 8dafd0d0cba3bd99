"""What one trial trains, and the networks that its checkpoint holds."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import PyTree

from allocsearch import checkpoint
from allocsearch.allocation import Allocation
from allocsearch.checkpoint import Place
from allocsearch.config import TrainingConfig
from allocsearch.errors import CheckpointError
from allocsearch.tasks.protocol import Task
from allocsearch.tasks.records import Scores


@dataclass(frozen=True)
class Candidate:
    """What one trial trains.

    Attributes:
        allocation: the network.
        training: horizon, learning rate and the rest, every field set.
        seeds: one training run each.
        task: the task's name and fields, as `Setting.task_config` has them.
    """

    allocation: Allocation
    training: TrainingConfig
    seeds: tuple[int, ...]
    task: Mapping[str, Any] = field(default_factory=dict)


def describe_candidate(candidate: Candidate) -> dict[str, Any]:
    """What a checkpoint says of its candidate, JSON-ready."""
    return {
        "allocation": candidate.allocation.to_dict(),
        "training": candidate.training.model_dump(mode="json"),
        "seeds": list(candidate.seeds),
        # Through JSON, so that tuples and lists compare equal.
        "task": json.loads(json.dumps(dict(candidate.task))),
    }


def candidate_from(description: dict[str, Any]) -> Candidate:
    """The inverse of `describe_candidate`.

    Raises:
        CheckpointError: it describes none.
    """
    try:
        return Candidate(
            Allocation.from_dict(description["allocation"]),
            TrainingConfig(**description["training"]),
            tuple(description["seeds"]),
            dict(description["task"]),
        )
    except (LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            "the checkpoint is foreign: it does not say which network it is of"
        ) from error


def describe_checkpoint(
    path: Place, note: Callable[[str], None] = lambda _: None
) -> tuple[Candidate, int]:
    """The candidate of a checkpoint, and the steps that it was trained for.

    Args:
        path: the checkpoint's folder or URL.
        note: told in a sentence when a damaged step is passed over.

    Raises:
        CheckpointError: it is missing, damaged or foreign.
    """
    metadata = checkpoint.latest(path, note=note).metadata
    steps = metadata.get("steps")
    if not isinstance(steps, int):
        raise CheckpointError(
            f"checkpoint {path} is foreign: it does not say how far training was"
        )
    return candidate_from(metadata.get("candidate", {})), steps


def load_networks(path: Place, task: Task, *, most: int | None = None) -> PyTree:
    """The networks of a checkpoint, as much of a state as `Task.evaluate` reads.

    Args:
        path: the checkpoint's folder or URL.
        task: the task that they were trained on, or one like it.
        most: how many, the first seeds; all of them if left out.

    Raises:
        CheckpointError: it is missing, damaged or foreign.
    """
    found = checkpoint.latest(path)
    candidate = candidate_from(found.metadata.get("candidate", {}))
    seeds = candidate.seeds[:most]
    template = task.init_trained(candidate.allocation, candidate.training, seeds)
    return found.restore(template, partial=True)


def evaluate_checkpoint(path: Place, task: Task, split: str) -> list[dict[str, float]]:
    """Score the networks of a checkpoint.

    Args:
        path: the checkpoint's folder or URL.
        task: the task that they were trained on, or one like it.
        split: "valid" or "test".

    Returns:
        For each seed its metrics by name.

    Raises:
        CheckpointError: it is missing, damaged or foreign.
    """
    return task.evaluate(load_networks(path, task), split)


def evaluate_checkpoint_each(path: Place, task: Task, split: str) -> list[Scores]:
    """As `evaluate_checkpoint`, and what each item scored, where the task can tell."""
    return task.evaluate_each(load_networks(path, task), split)
