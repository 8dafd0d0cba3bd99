"""What is asked of linear probes of a task's networks, and what they then tell.

A task fits the probes; what they say is kept as counts for each item of held-out data,
so that networks can be compared on the items they have in common.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from allocsearch.errors import ConfigError


@dataclass(frozen=True)
class ProbeRequest:
    """What to probe a network for, and how.

    Attributes:
        target: what is to be told, by a name of the task's.
        kernel: squares per side that a probe reads: 1 or 3.
        read: what of the network is read: "state" for the top state s^L through its
            norm, "raw" for s^L itself, or the number of a level, 1 at the bottom, for
            the memories of its experts.
        n_episodes: training items to play; None leaves it to the task.
        precision: what the threshold is set for, in (0, 1).
        n_steps: steps from the start of an episode that are scored.
        split: whose items are scored, "valid" or "test".
        seed: decides everything random.

    Raises:
        ConfigError: a value is out of range.
    """

    target: str
    kernel: int = 3
    read: str = "state"
    n_episodes: int | None = None
    precision: float = 0.93
    n_steps: int = 20
    split: str = "valid"
    seed: int = 0

    def __post_init__(self):
        if self.kernel not in (1, 3):
            raise ConfigError(f"a probe reads 1 or 3 squares a side, not {self.kernel}")
        if not 0 < self.precision < 1:
            raise ConfigError(
                f"the precision must lie between 0 and 1, got {self.precision}"
            )
        if self.n_steps < 1:
            raise ConfigError(
                f"the steps to score must be 1 or more, not {self.n_steps}"
            )
        if self.n_episodes is not None and self.n_episodes < 10:
            raise ConfigError(
                f"probes need 10 episodes or more to learn from, not {self.n_episodes}"
            )
        if self.seed < 0:
            raise ConfigError(f"the seed must be 0 or more, not {self.seed}")


@dataclass(frozen=True)
class ProbeCounts:
    """How one probe did on each of I items, at each of the first T steps.

    The probe emits a class at a place where its probability meets the threshold.

    Attributes:
        threshold: the least probability; None if none gave the precision asked for.
        calibrated: precision of the threshold on the episodes it was set on; without
            a threshold the best that any would have had.
        targets: int64 `[I, T]`, places with a class to emit.
        emitted: int64 `[I, T]`, places where one was emitted.
        right: int64 `[I, T]`, places where the right one was.
        confusion: int64 `[I, classes, classes]`, likeliest class (columns) of each true
            one (rows) over the T steps, no threshold applied; the last class is that
            of having nothing to emit.
    """

    threshold: float | None
    calibrated: float
    targets: np.ndarray
    emitted: np.ndarray
    right: np.ndarray
    confusion: np.ndarray


@dataclass(frozen=True)
class Probed:
    """What probes told of one network.

    Attributes:
        items: alike only where two networks were scored on the same items.
        solved: bool `[I]`, whether the network did what the item asks for.
        lengths: int `[I]`, steps of each item's episode.
        classes: names of the classes.
        network: the probe that reads the network.
        observation: the same kind of probe, of what the network was shown.
        details: further JSON-ready values.
    """

    items: str
    solved: np.ndarray
    lengths: np.ndarray
    classes: tuple[str, ...]
    network: ProbeCounts
    observation: ProbeCounts
    details: Mapping[str, Any] = field(default_factory=dict)
