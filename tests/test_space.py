"""The feasible set is exactly what fits: nothing more, nothing less."""

import itertools
import random

import pytest

from allocsearch import registry
from allocsearch.allocation import Allocation
from allocsearch.config import SpaceConfig, StudyConfig
from allocsearch.errors import BudgetError
from allocsearch.space import core_flops, feasible_space
from allocsearch.tasks.resolve import resolve
from allocsearch.work import Budget, Work


def brute_force(expert, recurrent, budget, grid, axes):
    """Every allocation up to a width that cannot fit, tried one by one."""
    found = set()
    shapes = itertools.product(
        axes.depths, axes.n_experts, axes.radii, axes.aggregations
    )
    for depth, n_experts, radius, aggregation in shapes:
        best = None
        for width in range(budget.granule, 200, budget.granule):
            candidate = Allocation(
                expert, recurrent, depth, n_experts, width, radius, aggregation
            )
            flops = core_flops(candidate, grid)
            if flops <= budget.flops:
                best = candidate, flops
        if best and best[1] >= (1 - budget.tolerance) * budget.flops - 1e-6:
            found.add(best[0])
    return found


def test_the_set_is_what_brute_force_finds():
    draw = random.Random(0)
    axes = SpaceConfig(
        depths=(1, 2, 3, 5),
        n_experts=(1, 2, 6),
        radii=("full", 0, 2),
        aggregations="mean",
    )
    for expert, grid in (("conv_lstm", (3, 4)), ("mlp", ()), ("gru", ())):
        for recurrent in (True, False):
            budget = Budget(
                draw.randint(20_000, 400_000),
                "b",
                tolerance=0.3,
                granule=draw.choice([1, 2, 3]),
            )
            found = feasible_space(
                expert, recurrent=recurrent, budget=budget, positions=grid, axes=axes
            )
            assert len(set(found)) == len(found)
            assert set(found) == brute_force(expert, recurrent, budget, grid, axes)


def test_all_widths_are_those_of_the_band():
    axes = SpaceConfig(depths=(1, 2), n_experts=(1, 2), widths="all")
    budget = Budget(100_000, "b", tolerance=0.4)
    found = feasible_space("mlp", recurrent=True, budget=budget, axes=axes)
    wanted = {
        candidate
        for depth, n_experts, width in itertools.product((1, 2), (1, 2), range(1, 200))
        if budget.admits(
            core_flops(
                candidate := Allocation("mlp", True, depth, n_experts, width), ()
            )
        )
    }
    assert set(found) == wanted
    assert len(wanted) > 4


def test_total_scope_counts_encoder_and_head():
    budget = Budget(100_000, "b", tolerance=0.2, scope="total")
    axes = SpaceConfig(depths=1, n_experts=1)
    (bare,) = feasible_space("mlp", recurrent=True, budget=budget, axes=axes)
    (loaded,) = feasible_space(
        "mlp",
        recurrent=True,
        budget=budget,
        axes=axes,
        overhead=lambda width: Work(0, encoder=100 * width, head=200 * width),
    )
    assert loaded.width < bare.width
    assert core_flops(loaded, ()) + 300 * loaded.width <= 100_000
    wider = loaded.with_width(loaded.width + 1)
    assert core_flops(wider, ()) + 300 * wider.width > 100_000


def test_nothing_fits_names_the_nearest():
    with pytest.raises(BudgetError, match="nearest is mlp L1 E1 d1 at 24 FLOP"):
        feasible_space("mlp", recurrent=True, budget=Budget(10, "10"))


def test_a_shared_cache_is_kept_within_full_communication():
    axes = SpaceConfig(depths=1, n_experts=4, radii=(1, "full"))
    budget = Budget(200_000, "b", tolerance=0.9, granule=2)
    found = feasible_space("transformer", recurrent=True, budget=budget, axes=axes)
    assert {allocation.radius for allocation in found} == {"full"}
    own = {"kv_cache": "per_expert"}.items()
    found = feasible_space(
        "transformer", recurrent=True, budget=budget, axes=axes, options=tuple(own)
    )
    assert {allocation.radius for allocation in found} == {"full", 1}


@pytest.mark.parametrize("task", registry.names("task"))
def test_every_named_budget_offers_a_choice_of_experts(task):
    kind = registry.load("task", task)
    if not kind.builds_network:
        return  # what it offers is up to the user's own results
    for name in kind.budgets:
        setting = resolve(StudyConfig(task=task), name)
        for expert in setting.experts:
            for arm in expert.arms:
                allocations = setting.allocations(expert, arm)
                for allocation in allocations:
                    work = core_flops(allocation, setting.task.positions)
                    assert setting.budget.least <= work <= setting.budget.flops
                if task != "sokoban":
                    continue
                for depth in (1, 2, 4, 8):
                    experts = {a.n_experts for a in allocations if a.depth == depth}
                    assert len(experts) >= 3, (name, arm, depth)


def test_sokoban_budgets_are_the_reference_times_1_4_16():
    flops = {
        name: resolve(StudyConfig(task="sokoban"), name).budget.flops
        for name in ("tiny", "small", "medium", "large")
    }
    assert flops == {
        "tiny": 2_073_600,
        "small": 117_964_800,
        "medium": 4 * 117_964_800,
        "large": 16 * 117_964_800,
    }
