"""Tables, labels and reset masks, against plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch_statetrack.groups import GROUPS, Group
from allocsearch_statetrack.streams import (
    held_out_tokens,
    reset_mask,
    running_products,
    sample_tokens,
)


def after(g, h):
    """The permutation that does h, then g."""
    return tuple(g[h[i]] for i in range(len(h)))


def reachable(group: Group) -> set:
    found, frontier = set(), {tuple(range(group.degree))}
    while frontier:
        found |= frontier
        frontier = {after(g, e) for g in group.generators for e in frontier} - found
    return found


@pytest.mark.parametrize(("name", "order"), [("s3", 6), ("s5", 120)])
def test_generators_reach_the_whole_group(name, order):
    group = GROUPS[name]
    assert len(reachable(group)) == order == len(set(group.elements))


@pytest.mark.parametrize("name", GROUPS)
def test_generators_are_even_and_odd_and_have_their_inverses(name):
    generators = GROUPS[name].generators
    identity = tuple(range(GROUPS[name].degree))
    swaps = [
        sum(g[i] > g[j] for j in range(len(g)) for i in range(j)) for g in generators
    ]
    assert {n % 2 for n in swaps} == {0, 1}
    assert all(any(after(g, h) == identity for h in generators) for g in generators)


@pytest.mark.parametrize("name", GROUPS)
def test_the_table_composes_permutations(name):
    group = GROUPS[name]
    elements, table = group.elements, group.table
    assert elements[0] == tuple(range(group.degree))
    for g, generator in enumerate(group.generators):
        for e, element in enumerate(elements):
            assert elements[table[g, e]] == after(generator, element)


def test_reset_mask_marks_every_start():
    assert reset_mask(8, 4).tolist() == [True, False, False, False] * 2
    assert np.flatnonzero(reset_mask(10, 4)).tolist() == [0, 4, 8]
    assert np.flatnonzero(reset_mask(10, 32)).tolist() == [0]


@pytest.mark.parametrize("length", [1, 4, 12])
def test_labels_are_running_products(length):
    group = GROUPS["s5"]
    tokens = held_out_tokens(4, (3, 12), (7, 0))
    labels = running_products(group.table, jnp.asarray(tokens), reset_mask(12, length))
    for row, told in zip(tokens, np.asarray(labels), strict=True):
        product = tuple(range(5))
        for t, token in enumerate(row):
            if t % length == 0:
                product = tuple(range(5))
            product = after(group.generators[token], product)
            assert group.elements[told[t]] == product


def test_tokens_are_uniform():
    tokens = sample_tokens(4, (100, 100), key=jax.random.key(0))
    counts = np.bincount(np.asarray(tokens).ravel(), minlength=4)
    assert counts.shape == (4,)
    assert np.abs(counts - 2500).max() < 200


def test_long_products_are_nearly_uniform():
    group = GROUPS["s5"]
    chance = np.zeros(120)
    chance[0] = 1.0
    for _ in range(32):
        after_one = np.zeros(120)
        for row in group.table:
            np.add.at(after_one, row, chance / len(group.table))
        chance = after_one
    assert 120 * chance.max() < 1.03
