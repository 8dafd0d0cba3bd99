"""From a config to the cells of a study: one search per budget, expert and arm."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from allocsearch.allocation import Allocation, Scalar
from allocsearch.candidate import Candidate
from allocsearch.config import ExpertConfig, StudyConfig, TrainingConfig
from allocsearch.errors import ConfigError
from allocsearch.objectives import searched_objectives
from allocsearch.parsing import parse
from allocsearch.registry import find
from allocsearch.results import Objective
from allocsearch.search import Axis, Points, make_sampler
from allocsearch.search.rungs import Rungs
from allocsearch.search.seeds import derive_seed
from allocsearch.tasks.resolve import Setting, resolve

DEFAULT_N_TRIALS = 40
AXES = ("depth", "n_experts", "radius", "aggregation", "width")
CONFIRMATION = -1
"""The group of fresh seeds that confirm a winner."""

# What these fields say must be the same for all trials, or there is no comparison.
_COMPARED = {"horizon", "n_seeds", "n_evaluations", "seeds_together"}


@dataclass(frozen=True, eq=False)
class Cell:
    """One search: a budget, an expert and an arm, with its feasible set.

    Attributes:
        setting: the task under the budget.
        expert: the kind of expert and its options.
        arm: "recurrent" or "nonrecurrent".
        allocations: the feasible set, in canonical order.
        n_trials: how many trials this cell gets, over all restarts.
    """

    setting: Setting
    expert: ExpertConfig
    arm: str
    allocations: tuple[Allocation, ...]
    n_trials: int

    @property
    def budget(self) -> str:
        """The budget's name."""
        return self.setting.budget.name

    @property
    def name(self) -> str:
        """``"budget/expert/arm"``; names the cell's search in the database."""
        return f"{self.budget}/{self.expert.name}/{self.arm}"

    @cached_property
    def points(self) -> Points:
        """The feasible set as points with named axes, learning rates included."""
        return _points(self.allocations, self._axes, self.fields)

    @property
    def sampler(self) -> tuple[str, dict[str, Any]]:
        """The sampler's name and options."""
        if self.setting.search.mode == "claim":
            return "stratified", {"by": "depth", "strict": True}
        search = self.setting.search
        name = search.sampler or ("grid" if search.mode == "sweep" else "auto")
        return name, dict(search.sampler_options)

    @cached_property
    def objectives(self) -> tuple[Objective, ...]:
        """What the search improves."""
        own, names = self.setting.task.objectives, self.setting.search.objectives
        return searched_objectives(own, names)

    @cached_property
    def rungs(self) -> Rungs | None:
        """Where trials pause; None where all train to the horizon at once."""
        search = self.setting.search
        if search.rungs == "none":
            return None
        return Rungs(
            search.first_rung,
            search.reduction,
            search.rungs == "hyperband",
            tuple(objective.direction for objective in self.objectives),
        )

    def candidate(
        self, values: Mapping[str, Any], study_seed: int, group: int = 0
    ) -> Candidate:
        """What to train at a point.

        Args:
            values: a value for every axis of `points`.
            study_seed: decides the training seeds, the same for every candidate.
            group: which group of `n_seeds` seeds: 0 for the search, more for a race;
                `CONFIRMATION` for fresh ones.
        """
        coordinates = tuple(values[axis] for axis in self._axes)
        allocation = self._by_coordinates[coordinates]
        training, n = self.setting.training, self.setting.training.n_seeds
        searched = {name: values[name] for name in self.fields if name in values}
        if group == CONFIRMATION:
            n = self.n_confirm_seeds
            seeds = _seeds(study_seed, "confirmation", range(n))
        else:
            seeds = _seeds(study_seed, "training", range(group * n, (group + 1) * n))
        if searched or n != training.n_seeds:
            changed = {**training.model_dump(), **searched, "n_seeds": n}
            training = parse(TrainingConfig, changed, "training")
        return Candidate(allocation, training, seeds, self.setting.task_config)

    @property
    def n_confirm_seeds(self) -> int:
        """Fresh seeds for the best trial."""
        given = self.setting.search.confirm_seeds
        return self.setting.training.n_seeds if given is None else given

    @cached_property
    def fields(self) -> dict[str, tuple[Scalar, ...]]:
        """Training fields that are searched, with their values, rising.

        Raises:
            ConfigError: a field is unknown, or decides how trials are compared.
        """
        search = self.setting.search
        found = {}
        if search.learning_rates:
            found["learning_rate"] = tuple(sorted(set(search.learning_rates)))
        for path, values in search.fields.items():
            section, _, name = path.partition(".")
            if section != "training" or name in _COMPARED or name in found:
                raise ConfigError(
                    f"search.fields cannot search {path!r}: give a field of training "
                    f"such as training.b2, none of {', '.join(sorted(_COMPARED))}, once"
                )
            for value in values:
                given = {**self.setting.training.model_dump(), name: value}
                parse(TrainingConfig, given, "search.fields: training")
            found[name] = tuple(dict.fromkeys(values))
        return found

    @cached_property
    def _axes(self) -> tuple[str, ...]:
        # Width follows from the other coordinates unless several are searched.
        if self.setting.space.widths != "largest":
            return AXES
        shapes = {tuple(getattr(a, n) for n in AXES[:-1]) for a in self.allocations}
        return AXES[:-1] if len(shapes) == len(self.allocations) else AXES

    @cached_property
    def _by_coordinates(self) -> dict[tuple[Any, ...], Allocation]:
        return {
            tuple(getattr(a, axis) for axis in self._axes): a for a in self.allocations
        }

    def plugins(self, allocation: Allocation) -> dict[str, str]:
        """The distribution and version of everything a trial uses."""
        used = {
            "task": self.setting.task_config["name"],
            "expert": allocation.expert,
            "aggregation": allocation.aggregation,
        }
        if not self.setting.task.builds_network:
            used = {"task": used["task"]}
        return {f"{k} {name}": find(k, name).origin for k, name in used.items()}


def plan(config: StudyConfig) -> list[Cell]:
    """Every cell of a study, arms alternating, with equal trials for both arms.

    Raises:
        AllocsearchError: as `resolve` and `Setting.allocations` raise.
        UnknownNameError: no such sampler.
        ConfigError: fewer trials than cells, or an arm without an expert.
    """
    settings = [resolve(config, budget) for budget in config.budgets]
    cells = []
    for setting in settings:
        arms = _arms(config, setting)
        pairs = [
            (expert, arm)
            for expert in setting.experts
            for arm in arms
            if arm in expert.arms
        ]
        shares = _shares(arms, setting, pairs, len(settings))
        for (expert, arm), share in zip(pairs, shares, strict=True):
            allocations = setting.allocations(expert, arm)
            n_trials = _whole_strata(setting, allocations, share)
            cell = Cell(setting, expert, arm, allocations, n_trials)
            if setting.search.mode == "sweep":
                cell = replace(cell, n_trials=min(share, len(cell.points)))
            make_sampler(*cell.sampler).check(cell.points)
            _check_search(cell)
            cells.append(cell)
    return cells


def _check_search(cell: Cell) -> None:
    """Refuse what does not go together, before anything is written."""
    search = cell.setting.search
    if search.mode != "search" and search.rungs != "none":
        raise ConfigError(
            f"search.rungs compares short trainings, which a {search.mode} must not: "
            "set search.rungs to none, or search.mode to search"
        )
    _ = cell.objectives, cell.rungs  # raise what is wrong with them


def _seeds(study_seed: int, purpose: str, numbers: range) -> tuple[int, ...]:
    return tuple(derive_seed(study_seed, purpose, i) % 2**31 for i in numbers)


def _arms(config: StudyConfig, setting: Setting) -> tuple[str, ...]:
    """The arms of a study; results to replay may be of one only."""
    if setting.task.builds_network or "arms" in config.model_fields_set:
        return config.arms
    known = {arm for expert in setting.experts for arm in expert.arms}
    return tuple(arm for arm in config.arms if arm in known)


def _shares(
    arms: Sequence[str],
    setting: Setting,
    pairs: list[tuple[ExpertConfig, str]],
    n_settings: int,
) -> list[int]:
    per_arm = {arm: sum(a == arm for _, a in pairs) for arm in arms}
    for arm, n in per_arm.items():
        if n == 0:
            raise ConfigError(
                f"no expert is meant for the {arm} arm: set `arms` of one of them, or "
                "leave that arm out"
            )
    if setting.search.mode == "sweep" and setting.search.n_trials is None:
        return [sys.maxsize for _ in pairs]  # every point, see `plan`
    total = setting.search.n_trials or DEFAULT_N_TRIALS
    arm_share = total // (n_settings * len(arms))
    shares = [arm_share // per_arm[arm] for _, arm in pairs]
    if min(shares) == 0:
        raise ConfigError(
            f"{total} trials are too few for {n_settings} budgets × "
            f"{len(pairs)} pairs of expert and arm: give at least "
            f"{n_settings * len(arms) * max(per_arm.values())}"
        )
    return shares


def _whole_strata(
    setting: Setting, allocations: tuple[Allocation, ...], share: int
) -> int:
    if setting.search.mode != "claim":
        return share
    n_depths = len({allocation.depth for allocation in allocations})
    if share < n_depths:
        raise ConfigError(
            f"a claim needs as many trials at every depth, but {share} trials per arm "
            f"are fewer than {n_depths} depths: raise search.n_trials or set "
            "space.depths"
        )
    return share - share % n_depths


def _points(
    allocations: tuple[Allocation, ...],
    names: tuple[str, ...],
    fields: Mapping[str, tuple[Scalar, ...]],
) -> Points:
    columns = {name: [getattr(a, name) for a in allocations] for name in names}
    axes = [
        Axis(name, _ordered(column), ordinal=name != "aggregation")
        for name, column in columns.items()
    ]
    rows = [
        tuple(axis.values.index(value) for axis, value in zip(axes, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]
    for name, values in fields.items():
        axes.append(Axis(name, values, ordinal=not isinstance(values[0], str)))
        rows = [(*row, i) for row in rows for i in range(len(values))]
    return Points(tuple(axes), tuple(rows))


def _ordered(column: list[Any]) -> tuple[Any, ...]:
    def position(value: int | str) -> tuple[int, Any]:
        return (1, 0) if value == "full" else (0, value)

    return tuple(sorted(set(column), key=position))


def warnings_of(cells: Sequence[Cell]) -> list[str]:
    """What a user should know of some cells: each once, though several give it."""
    return list(dict.fromkeys(w for cell in cells for w in cell.setting.warnings))
