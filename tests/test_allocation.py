"""An allocation is a value: canonical, hashable, and the same after JSON."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocsearch.allocation import Allocation
from allocsearch.errors import ConfigError

allocations = st.builds(
    Allocation,
    expert=st.sampled_from(["conv_lstm", "mlp", "a stranger's"]),
    recurrent=st.booleans(),
    depth=st.integers(1, 64),
    n_experts=st.integers(1, 64),
    width=st.integers(1, 4096),
    radius=st.one_of(st.just("full"), st.integers(0, 70)),
    aggregation=st.sampled_from(["mean", "sqrt_sum", "softmax_gated"]),
    options=st.dictionaries(
        st.sampled_from(["kernel", "bias", "on"]),
        st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    ),
)


@given(allocations)
def test_json_gives_an_equal_allocation(allocation):
    again = Allocation.from_json(allocation.to_json())
    assert again == allocation
    assert hash(again) == hash(allocation)
    assert again.digest == allocation.digest


@given(allocations)
def test_canonical_form_is_stable(allocation):
    assert Allocation(**allocation.to_dict()) == allocation
    if allocation.radius != "full":
        assert allocation.radius < allocation.n_experts - 1
    if allocation.n_experts == 1:
        assert allocation.radius == "full"
        assert allocation.aggregation == "sqrt_sum"
    if allocation.radius == 0:
        assert allocation.aggregation == "sqrt_sum"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"radius": 3}, {"radius": "full"}),
        ({"radius": 9}, {"radius": "full"}),
        ({"options": {"update": "residual"}}, {}),
        ({"options": {"norm": "rms", "skip": "none", "ticks": 1}}, {}),
        ({"options": {"nonrecurrent_form": "trimmed"}, "recurrent": True}, {}),
        ({"n_experts": 1, "aggregation": "mean"}, {"n_experts": 1}),
        ({"radius": 0, "aggregation": "mean"}, {"radius": 0}),
        ({"options": {"b": 1, "a": 2}}, {"options": {"a": 2, "b": 1}}),
    ],
)
def test_equal_networks_are_equal_values(a, b):
    base = {
        "expert": "conv_lstm",
        "recurrent": True,
        "depth": 2,
        "n_experts": 4,
        "width": 8,
    }
    assert Allocation(**{**base, **a}) == Allocation(**{**base, **b})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth": 0}, "depth is 0"),
        ({"n_experts": 1.5}, "n_experts is 1.5"),
        ({"width": True}, "width is True"),
        ({"radius": -1}, "radius is -1"),
        ({"radius": "half"}, "radius is 'half'"),
        ({"options": {"update": "add"}}, "use one of residual, replace"),
        ({"options": {"norm": "layer"}}, "use one of rms, none"),
        ({"options": {"ticks": 0}}, "option 'ticks' is 0"),
        ({"options": {"ticks": True}}, "option 'ticks' is True"),
        (
            {
                "recurrent": False,
                "options": {"ticks": 3, "nonrecurrent_form": "trimmed"},
            },
            "ticks=3 uses it at the next",
        ),
        ({"options": {"kernel": [3]}}, "options are numbers, text or booleans"),
    ],
)
def test_bad_values_say_what_to_give(change, message):
    good = {
        "expert": "mlp",
        "recurrent": True,
        "depth": 1,
        "n_experts": 4,
        "width": 8,
    }
    with pytest.raises(ConfigError, match=message):
        Allocation(**{**good, **change})


@pytest.mark.parametrize("text", ["[]", "{", '{"expert": "mlp"}', '{"colour": 1}'])
def test_bad_json_is_refused(text):
    with pytest.raises(ConfigError):
        Allocation.from_json(text)
