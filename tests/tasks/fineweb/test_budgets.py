"""The named budgets: what they cost, and what fits them."""

import pytest

from allocsearch.config import load_config
from allocsearch.tasks.fineweb.budgets import BUDGETS
from allocsearch.tasks.resolve import resolve


def setting(budget, *settings):
    config = load_config(None, settings, {"task": "fineweb", "budgets": budget})
    return resolve(config, budget)


def by_depth(budget, arm, *settings):
    found = setting(budget, *settings)
    (expert,) = found.experts
    n_experts = {}
    for allocation in found.allocations(expert, arm):
        n_experts.setdefault(allocation.depth, set()).add(allocation.n_experts)
    return n_experts


@pytest.mark.parametrize(
    ("budget", "flops"),
    [
        ("tiny", 4 * (24 * 64**2 + 4 * 64 * 64)),
        ("small", 16 * (24 * 512**2 + 4 * 512 * 512)),  # 117.4 MFLOP
        ("medium", 4 * 117_440_512),
        ("large", 16 * 117_440_512),
    ],
)
def test_the_budget_is_its_references_core_work(budget, flops):
    assert setting(budget).budget.flops == flops


@pytest.mark.parametrize("arm", ["recurrent", "nonrecurrent"])
@pytest.mark.parametrize("budget", BUDGETS)
def test_shallow_and_deep_networks_have_several_experts_to_choose_from(budget, arm):
    found = by_depth(budget, arm)
    assert all(len(found[depth]) >= 3 for depth in (1, 2, 4, 8)), found


@pytest.mark.parametrize("budget", ["small", "medium", "large"])
def test_depths_reach_from_1_to_32(budget):
    assert set(by_depth(budget, "recurrent")) == {1, 2, 4, 8, 16, 32}


def test_attention_looks_back_as_far_as_a_window_of_training():
    found = setting("tiny", "task.window=32")
    assert found.budget.flops == 4 * (24 * 64**2 + 4 * 32 * 64)
    (expert,) = found.experts
    assert dict(found.options_of(expert))["window"] == 32
    given = "experts=[{name: transformer, options: {window: 16}}]"
    (expert,) = setting("tiny", given).experts
    assert dict(found.options_of(expert))["window"] == 16


def test_budgets_ask_on_a_cpu_except_the_first():
    assert [b.heavy for b in BUDGETS.values()] == [False, True, True, True]
    assert all(b.training["horizon"] for b in BUDGETS.values())
