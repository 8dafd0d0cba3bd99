"""From a study's config to a task under one budget, every default filled in."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from allocsearch.allocation import Allocation, Scalar
from allocsearch.audit import count_flops
from allocsearch.config import (
    EXTENDED,
    ExpertConfig,
    SearchConfig,
    SpaceConfig,
    StudyConfig,
    TrainingConfig,
)
from allocsearch.errors import BudgetError, ConfigError, UnknownNameError, unknown_name
from allocsearch.model import readout
from allocsearch.parsing import merge, parse
from allocsearch.registry import check_limits, find, limited_to, load, names
from allocsearch.space import core_flops, feasible_space, work_of
from allocsearch.tasks.protocol import Task
from allocsearch.tasks.records import NamedBudget, Recipe
from allocsearch.tasks.replay import ReplayTask
from allocsearch.work import Budget, Work, format_flops, parse_flops

SEARCHED_RADII = (0, 1, 2, 4, 8, 16, 32, "full")


@dataclass(frozen=True)
class Setting:
    """One budget of a study: what is trained, for how long, and what is searched.

    Attributes:
        task: the task, its data loaded.
        task_config: the task's own fields, as JSON-ready values.
        budget: the limit.
        training: every field set.
        search: every field set but `n_trials`, which may stay None.
        space: every field set.
        experts: kinds of experts, at least one.
        warnings: what a user who compares allocations should know, one sentence each.
        heavy: whether a run on a CPU should ask first.
    """

    task: Task
    task_config: dict[str, Any]
    budget: Budget
    training: TrainingConfig
    search: SearchConfig
    space: SpaceConfig
    experts: tuple[ExpertConfig, ...]
    warnings: tuple[str, ...]
    heavy: bool

    def overhead(self, width: int) -> Work:
        """Encoder and head work at a width; core is 0."""
        return task_overhead(self.task, width)

    def work(self, allocation: Allocation) -> Work:
        """Core, encoder and head work of an allocation, nothing built."""
        if isinstance(self.task, ReplayTask):
            return Work(core=self.task.costs[allocation])
        return work_of(allocation, self.task.positions, self.overhead)

    def options_of(self, expert: ExpertConfig) -> tuple[tuple[str, Scalar], ...]:
        """The options of an expert and of the network, as an allocation holds them."""
        own = {
            "update": self.space.update,
            "nonrecurrent_form": self.space.nonrecurrent_form,
        }
        usual = self.task.expert_options(expert.name)
        return tuple({**own, **usual, **expert.options}.items())

    def allocations(self, expert: ExpertConfig, arm: str) -> tuple[Allocation, ...]:
        """The feasible set of one expert and arm.

        Raises:
            BudgetError: nothing fits.
            ConfigError: the expert or its options do not suit the task.
        """
        if isinstance(self.task, ReplayTask):
            return _replayable(self.task, expert.name, arm, self.budget)
        return feasible_space(
            expert.name,
            recurrent=arm == "recurrent",
            budget=self.budget,
            positions=self.task.positions,
            axes=self.space,
            options=self.options_of(expert),
            overhead=self.overhead,
            matched=self.matched,
        )

    @property
    def matched(self) -> bool:
        """Whether every trial must spend the budget; a sweep only stays below it."""
        return self.search.mode != "sweep"

    def describe(self) -> dict[str, Any]:
        """Everything that decides results, JSON-ready; stored with the study."""
        return {
            "task": self.task_config,
            "budget": self.budget.__dict__,
            "training": self.training.model_dump(mode="json"),
            "search": self.search.model_dump(mode="json", exclude=EXTENDED),
            "space": self.space.model_dump(mode="json"),
            "experts": [expert.model_dump(mode="json") for expert in self.experts],
        }


def resolve(config: StudyConfig, budget_name: str) -> Setting:
    """Fill in what a study leaves open, from the task's values for the budget.

    Args:
        config: what the user asks for.
        budget_name: one of `config.budgets`: a name of the task's, or FLOPs.

    Raises:
        UnknownNameError, PluginError: no such task or expert.
        ConfigError: a field of the task or of the budget's values is wrong.
        BudgetError: the budget is neither a name nor a positive number.
        DataError: the task's data are missing or broken.
    """
    with limited_to(config.plugins_only):
        check_limits()
        return _resolve(config, budget_name)


def _resolve(config: StudyConfig, budget_name: str) -> Setting:
    kind = load("task", config.task["name"])
    if "budgets" not in config.model_fields_set and budget_name not in kind.budgets:
        budget_name = next(iter(kind.budgets))  # the task's own default
    named, flops = _named_budget(kind, config.task["name"], budget_name)
    given = config.model_dump(exclude_unset=True)
    recipe = _recipe(kind, config)
    fields = {k: v for k, v in config.task.items() if k != "name"}
    own = merge(named.task, recipe.task, fields)
    task, task_config = build_task(config.task["name"], own)
    replayed = {"horizon": task.horizon} if isinstance(task, ReplayTask) else {}
    training = merge(
        named.training, replayed, recipe.training, given.get("training", {})
    )
    search = merge(named.search, given.get("search", {}))
    mode = search.get("mode", "search")
    axes = merge(_searched(mode), named.space, given.get("space", {}))
    space = parse(SpaceConfig, axes, "space")
    _check_names("aggregation", space.aggregations)
    training = parse(TrainingConfig, training, "training")
    task.check_training(training)
    experts = config.experts or task.experts
    if task.builds_network:
        _check_names("expert", [expert.name for expert in experts])
    return Setting(
        task=task,
        task_config=task_config,
        budget=_budget(task, named, flops, budget_name, space),
        training=training,
        search=parse(SearchConfig, search, "search"),
        space=space,
        experts=tuple(experts),
        warnings=_warnings(recipe, named, budget_name, training, kind.unit),
        heavy=named.heavy,
    )


def _warnings(
    recipe: Recipe,
    named: NamedBudget,
    budget_name: str,
    training: TrainingConfig,
    unit: str,
) -> tuple[str, ...]:
    warnings = [recipe.warning] if recipe.warning else []
    meant, given = named.training.get("horizon"), training.horizon
    if meant is not None and given is not None and given < meant:
        warnings.append(
            f"the horizon of {given:,} {unit} is shorter than the {meant:,} that "
            f"budget {budget_name} is meant for: short horizons favour shallow networks"
        )
    return tuple(warnings)


def _recipe(kind: type[Task], config: StudyConfig) -> Recipe:
    if config.recipe is None:
        return Recipe()
    if config.recipe not in kind.recipes:
        name = config.task["name"]
        raise unknown_name(f"recipe of task {name!r}", config.recipe, kind.recipes)
    return kind.recipes[config.recipe]


def build_task(name: str, fields: Mapping[str, Any]) -> tuple[Task, dict[str, Any]]:
    """A task with its data, and its name and every field, JSON-ready.

    Args:
        name: an installed task.
        fields: its own fields; those left out take the defaults of its `Config`.

    Raises:
        UnknownNameError, PluginError: no such task.
        ConfigError: a field is wrong.
        DataError: its data are missing or broken.
    """
    kind = load("task", name)
    config = parse(kind.Config, fields, "task")
    return kind(config), {"name": name, **config.model_dump(mode="json")}


@functools.lru_cache(maxsize=4096)
def task_overhead(task: Task, width: int) -> Work:
    """Encoder and head work of a task at a width, traced."""
    key = jax.random.key(0)
    encoder = eqx.filter_eval_shape(lambda: task.encoder(width, key=key))
    head = eqx.filter_eval_shape(lambda: task.head(width, key=key))
    features = jax.ShapeDtypeStruct((*task.positions, width), jnp.float32)
    return Work(
        core=0,
        encoder=count_flops(encoder, task.observation).contractions,
        head=count_flops(readout(encoder, head), features).contractions,
    )


def _searched(mode: str) -> dict[str, Any]:
    # A claim is about depth, and a sweep varies what its user says: radius and
    # aggregation stay at the source's values.
    if mode != "search":
        return {}
    return {"radii": SEARCHED_RADII, "aggregations": names("aggregation")}


def _check_names(kind: str, wanted: Any) -> None:
    known = names(kind)
    for name in wanted:
        if name not in known:
            find(kind, name)  # says why not


def _named_budget(
    kind: type[Task], task_name: str, text: str
) -> tuple[NamedBudget, int | None]:
    if text in kind.budgets:
        return kind.budgets[text], None
    try:
        flops = parse_flops(text)
    except BudgetError as error:
        if any(c.isdigit() for c in text):
            raise
        unknown = unknown_name(f"budget of task {task_name!r}", text, kind.budgets)
        raise UnknownNameError(f"{unknown} Or give FLOPs, as in 250M.") from error
    return next(iter(kind.budgets.values())), flops


def _budget(
    task: Task, named: NamedBudget, flops: int | None, text: str, space: SpaceConfig
) -> Budget:
    if flops is None and isinstance(task, ReplayTask):
        flops = max(task.costs.values())
    elif flops is None:
        reference = _reference(task, named)
        work = Work(core_flops(reference, task.positions))
        if space.scope == "total":
            overhead = functools.partial(task_overhead, task)
            work = work_of(reference, task.positions, overhead)
        flops = named.multiple * work.within(space.scope)
    tolerance = named.tolerance if space.tolerance is None else space.tolerance
    budget = Budget(flops, name=text, tolerance=tolerance, scope=space.scope)
    return replace(budget, granule=space.granule or named.granule)


def _reference(task: Task, named: NamedBudget) -> Allocation:
    """The allocation whose work a budget is, with the options it has on this task."""
    options = task.expert_options(named.reference.expert)
    own = tuple({**options, **dict(named.reference.options)}.items())
    return replace(named.reference, options=own)


def _replayable(
    task: ReplayTask, expert: str, arm: str, budget: Budget
) -> tuple[Allocation, ...]:
    known = {a: c for a, c in task.costs.items() if a.expert == expert and a.arm == arm}
    if not known:
        found = ", ".join(dict.fromkeys(f"{a.expert} {a.arm}" for a in task.costs))
        raise ConfigError(f"there are no results of {expert} {arm}; there are: {found}")
    feasible = tuple(a for a, cost in known.items() if budget.admits(cost))
    if not feasible:
        nearest = min(known, key=lambda a: abs(known[a] - budget.flops))
        raise BudgetError(
            f"0 of {len(known)} {expert} {arm} allocations fit budget {budget.name!r} "
            f"({format_flops(budget.least)} to {format_flops(budget.flops)}): the "
            f"nearest is {nearest.label} at {format_flops(known[nearest])}"
        )
    return feasible
