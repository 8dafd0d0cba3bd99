"""Budgets are exact integers, and what the user writes is read as meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocsearch.errors import BudgetError
from allocsearch.work import Budget, Work, format_flops, parse_flops


@pytest.mark.parametrize(
    ("text", "flops"),
    [
        ("250M", 250_000_000),
        ("1.5 GFLOP", 1_500_000_000),
        ("2e6", 2_000_000),
        ("117_964_800", 117_964_800),
        (98304, 98304),
        ("0.3k", 300),
        ("1tflops", 10**12),
    ],
)
def test_budgets_are_read_exactly(text, flops):
    assert parse_flops(text) == flops


@pytest.mark.parametrize("text", ["-5M", "0", "many", "", "1e99", "nan", "5X", "1..2M"])
def test_what_is_no_budget_is_refused(text):
    with pytest.raises(BudgetError):
        parse_flops(text)


@given(st.integers(1, 10**15), st.sampled_from([0.0, 0.1, 0.2, 0.999]))
def test_the_band_is_exact(flops, tolerance):
    budget = Budget(flops, "b", tolerance=tolerance)
    assert budget.admits(flops)
    assert not budget.admits(flops + 1)
    assert budget.admits(budget.least)
    assert not budget.admits(budget.least - 1)
    # 1000·least is at least 1000·(1 − tolerance)·flops, in integers alone.
    share = round((1 - tolerance) * 1000)
    assert 1000 * budget.least >= share * flops > 1000 * (budget.least - 1)


def test_scope_decides_what_binds():
    work = Work(core=3, encoder=4, head=5)
    assert work.total == 12
    assert work.within("core") == 3
    assert work.within("total") == 12


@pytest.mark.parametrize(
    ("flops", "text"),
    [(2_073_600, "2.07 MFLOP"), (117_964_800, "118 MFLOP"), (512, "512 FLOP")],
)
def test_short_form(flops, text):
    assert format_flops(flops) == text


@pytest.mark.parametrize(
    "wrong", [{"flops": 0}, {"tolerance": 1.0}, {"tolerance": -0.1}, {"granule": 0}]
)
def test_budget_refuses(wrong):
    with pytest.raises(BudgetError):
        Budget(**{"flops": 10, "name": "b", **wrong})
