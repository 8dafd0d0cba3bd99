"""From a config to the cells of a study: one search per budget, expert and arm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from allocsearch.allocation import Allocation
from allocsearch.config import ExpertConfig, StudyConfig, TrainingConfig
from allocsearch.errors import ConfigError
from allocsearch.registry import find
from allocsearch.search import Axis, Points, make_sampler
from allocsearch.search.seeds import derive_seed
from allocsearch.tasks.resolve import Setting, resolve
from allocsearch.trial import Candidate

DEFAULT_N_TRIALS = 40
AXES = ("depth", "n_experts", "radius", "aggregation", "width")


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
        rates = tuple(sorted(set(self.setting.search.learning_rates)))
        return _points(self.allocations, self._axes, rates)

    @property
    def sampler(self) -> tuple[str, dict[str, Any]]:
        """The sampler's name and options."""
        if self.setting.search.mode == "claim":
            return "stratified", {"by": "depth", "strict": True}
        return self.setting.search.sampler, dict(self.setting.search.sampler_options)

    def candidate(self, values: Mapping[str, Any], study_seed: int) -> Candidate:
        """What to train at a point.

        Args:
            values: a value for every axis of `points`.
            study_seed: decides the training seeds, the same for every candidate.
        """
        coordinates = tuple(values[axis] for axis in self._axes)
        allocation = self._by_coordinates[coordinates]
        training = self.setting.training
        if "learning_rate" in values:
            training = TrainingConfig(
                **{**training.model_dump(), "learning_rate": values["learning_rate"]}
            )
        seeds = tuple(
            derive_seed(study_seed, "training", i) % 2**31
            for i in range(training.n_seeds)
        )
        return Candidate(allocation, training, seeds, self.setting.task_config)

    @cached_property
    def _axes(self) -> tuple[str, ...]:
        # Width follows from the other coordinates unless several fit.
        if self.setting.space.widths == "all":
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
            make_sampler(*cell.sampler).check(cell.points)
            cells.append(cell)
    return cells


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
    learning_rates: tuple[float, ...],
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
    if learning_rates:
        axes.append(Axis("learning_rate", learning_rates))
        rows = [(*row, i) for row in rows for i in range(len(learning_rates))]
    return Points(tuple(axes), tuple(rows))


def _ordered(column: list[Any]) -> tuple[Any, ...]:
    def position(value: int | str) -> tuple[int, Any]:
        return (1, 0) if value == "full" else (0, value)

    return tuple(sorted(set(column), key=position))


def warnings_of(cells: Sequence[Cell]) -> list[str]:
    """What a user should know of some cells: each once, though several give it."""
    return list(dict.fromkeys(w for cell in cells for w in cell.setting.warnings))
