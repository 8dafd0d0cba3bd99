import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from allocsearch.search.samplers.dominance import crowding, ranks

LOSSES = st.integers(1, 3).flatmap(
    lambda m: st.lists(
        st.tuples(*[st.integers(0, 4).map(float)] * m), min_size=1, max_size=12
    )
)


def plain_ranks(losses: list[tuple[float, ...]]) -> list[int]:
    """Peel fronts off, every pair compared."""
    found, left, rank = [0] * len(losses), set(range(len(losses))), 0
    while left:
        front = {
            i
            for i in left
            if not any(
                all(a <= b for a, b in zip(losses[j], losses[i], strict=True))
                and losses[j] != losses[i]
                for j in left
            )
        }
        for i in front:
            found[i] = rank
        left, rank = left - front, rank + 1
    return found


@given(LOSSES)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_ranks_are_those_of_peeling(losses):
    assert ranks(np.array(losses)).tolist() == plain_ranks(losses)


@given(LOSSES, st.integers(1, 12))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_enough_ranks_are_exact_and_the_rest_share_one(losses, enough):
    exact, found = plain_ranks(losses), ranks(np.array(losses), enough)
    cut = sorted(exact)[min(enough, len(losses)) - 1]
    assert [r for r, e in zip(found, exact, strict=True) if e <= cut] == [
        e for e in exact if e <= cut
    ]
    if len(losses[0]) > 1:
        assert {int(r) for r, e in zip(found, exact, strict=True) if e > cut} <= {
            cut + 1
        }


def test_crowding_of_a_front_by_hand():
    losses = np.array([[0.0, 4.0], [1.0, 3.0], [3.0, 1.0], [4.0, 0.0], [9.0, 9.0]])
    found = crowding(losses, np.array([0, 0, 0, 0, 1]))
    # Second: (3 - 0) / 4 + (4 - 1) / 4; the third mirrors it. Ends are infinite.
    assert found.tolist() == [np.inf, 1.5, 1.5, np.inf, np.inf]
