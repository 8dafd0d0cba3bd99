"""What goes between a task and those who use it: plain values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from allocsearch.allocation import Allocation
from allocsearch.errors import ConfigError


@dataclass(frozen=True)
class NamedBudget:
    """A budget by name, and the task as it is meant to be run under it.

    Attributes:
        reference: its core work, on the task's own positions, is the budget.
        multiple: times this.
        tolerance: how far below still counts as spending it.
        granule: widths are multiples of this.
        task: the task's own fields under this budget.
        training: training fields under this budget; must give the horizon.
        search: search fields under this budget, such as `n_trials`.
        space: space fields under this budget, such as `n_experts`.
        heavy: whether a run on a CPU should ask first.
    """

    reference: Allocation
    multiple: int = 1
    tolerance: float = 0.10
    granule: int = 1
    task: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)
    space: Mapping[str, Any] = field(default_factory=dict)
    heavy: bool = False


@dataclass(frozen=True)
class DataReport:
    """What files hold that a task could train on, as `Task.inspect_data` found them.

    Attributes:
        parts: by the name of each split or directory, values by the same words:
            numbers, strings or lists of them.
        notes: sentences a user should read, such as what splits share.
        problems: what is wrong in the files, each with file, place and rule.
        details: further JSON-ready values.
    """

    parts: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DataOptions:
    """How data are to be made, as `allocsearch data` was told; None is the task's own.

    Attributes:
        out: the folder to make them in.
        dataset: a dataset by name, to be read over the network.
        config: which of its parts.
        column: the field that has the text.
        tokenizer: how text becomes numbers.
        max_tokens: how many to train on, at most.
        valid_tokens: how many to validate on, at most.
        shard_tokens: how many in a file.
        processes: how many work at once.
    """

    out: Path | None = None
    dataset: str | None = None
    config: str | None = None
    column: str = "text"
    tokenizer: str | None = None
    max_tokens: int | None = None
    valid_tokens: int | None = None
    shard_tokens: int | None = None
    processes: int | None = None


@dataclass(frozen=True)
class Showing:
    """One item of a task's data to look at, as `Task.show_item` shows it.

    Attributes:
        item: the item as text, alike only where two showings are of the same one.
        texts: what terminals show, step by step.
        frames: pictures, step by step: uint8 `[height, width, 3]`, of one size; none
            where the task draws none.
        details: the same as JSON-ready values.
        name: what the item is called, or empty.
    """

    item: str
    texts: tuple[Text, ...]
    frames: tuple[np.ndarray, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True)
class Prompt:
    """What a trained network is asked to go on with, see `Task.generate`.

    Attributes:
        text: the beginning; a stream's own beginning if empty.
        n_steps: how many steps to draw, tokens for a language model.
        temperature: logits are divided by it; at 0 the likeliest step is taken.
        top_k: draw among this many likeliest steps; among all if None.
        seed: decides what is drawn.
    """

    text: str = ""
    n_steps: int = 100
    temperature: float = 1.0
    top_k: int | None = None
    seed: int = 0

    def __post_init__(self):
        if self.n_steps < 1:
            raise ConfigError(f"{self.n_steps} steps to draw: give at least 1")
        if not 0 <= self.temperature < math.inf:
            raise ConfigError(
                f"temperature is {self.temperature}: give a number of 0 or more"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"top-k is {self.top_k}: give at least 1")


@dataclass(frozen=True)
class Generated:
    """What a network made of a `Prompt`.

    Attributes:
        text: without the prompt.
        details: JSON-ready values, such as the tokens.
    """

    text: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """Training values that belong together, by name; laid over those of a budget.

    Attributes:
        task: the task's own fields.
        training: training fields.
        warning: what a study that compares allocations with it should know.
    """

    task: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    warning: str | None = None


@dataclass(frozen=True)
class Scores:
    """How one network did on a split.

    Attributes:
        metrics: by name, the objectives among them.
        items: columns by name, other than "seed", with one value for each item of the
            split, such as a level, in the same order for every network; empty where
            a task does not tell.
        means: the metrics that are means of a column, and which.
        details: further JSON-ready values, such as a curve.
    """

    metrics: dict[str, float]
    items: Mapping[str, np.ndarray] = field(default_factory=dict)
    means: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
