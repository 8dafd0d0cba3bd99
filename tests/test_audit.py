"""Counted work against closed forms and against loops written out by hand."""

import itertools
import random

import jax
import jax.numpy as jnp
import pytest

from allocsearch.allocation import Allocation
from allocsearch.audit import count_flops, trace_core
from allocsearch.errors import AuditError
from allocsearch.space import core_flops

GRID = {
    "conv_lstm": (4, 3),
    "conv_glu": (4, 3),
    "gru": (),
    "mlp": (),
    "transformer": (),
}
AGGREGATIONS = ("mean", "sqrt_sum", "softmax_gated", "l2_softmax_gated")


def matmul(n_in, n_out):
    """Multiply-adds of a matrix product, one at a time."""
    return sum(1 for _ in range(n_in) for _ in range(n_out))


def convolution(grid, n_in, n_out):
    """Multiply-adds of a 3×3 convolution: every tap of every position."""
    h, w = grid
    return sum(
        matmul(n_in, n_out) for _ in range(h) for _ in range(w) for _ in range(9)
    )


def by_hand(expert, grid, d, *, reads_state, has_memory, window=64):
    """Multiply-adds of one expert at one level, contraction by contraction."""
    c = 2 * d if reads_state else d
    if expert == "conv_lstm":
        return convolution(grid, c, (4 if has_memory else 3) * d)
    if expert == "conv_glu":
        return convolution(grid, c, 2 * d)
    if expert == "mlp":
        return matmul(c, 4 * d) + matmul(4 * d, d)
    if expert == "gru":
        hidden = matmul(d, 3 * d) if has_memory else 0
        return matmul(c, (3 if has_memory else 2) * d) + hidden + matmul(d, d)
    attention = sum(matmul(d, d) for _ in range(4)) + 2 * matmul(window, d)
    return attention + matmul(d, 4 * d) + matmul(4 * d, d)


def network_by_hand(allocation, grid):
    total = 0
    for level in range(allocation.depth):
        for _ in range(allocation.n_experts):
            total += by_hand(
                allocation.expert,
                grid,
                allocation.width,
                reads_state=not (allocation.trimmed and level == 0),
                has_memory=not allocation.trimmed,
            )
    return 2 * total


@pytest.mark.parametrize("expert", sorted(GRID))
@pytest.mark.parametrize("radius", ["full", 0, 1, 2])
def test_traced_work_is_the_closed_form(expert, radius):
    own = {"kv_cache": "per_expert"} if expert == "transformer" else {}
    for aggregation, arm in itertools.product(AGGREGATIONS, range(3)):
        options = {**own, "nonrecurrent_form": ("source", "source", "trimmed")[arm]}
        allocation = Allocation(
            expert, arm == 0, 2, 4, 4, radius, aggregation, tuple(options.items())
        )
        traced = trace_core(allocation, GRID[expert]).contractions
        assert traced == core_flops(allocation, GRID[expert]), allocation.label


@pytest.mark.parametrize("expert", sorted(GRID))
def test_closed_form_is_the_count_by_hand(expert):
    draw = random.Random(expert)
    for _ in range(20):
        grid = tuple(draw.randint(1, 6) for _ in GRID[expert])
        trimmed = draw.random() < 0.5
        allocation = Allocation(
            expert,
            recurrent=not trimmed,
            depth=draw.randint(1, 4),
            n_experts=draw.randint(1, 4),
            width=2 * draw.randint(1, 8),
            options={"nonrecurrent_form": "trimmed"},
        )
        assert core_flops(allocation, grid) == network_by_hand(allocation, grid)


def test_reference_figures():
    def conv_lstm(depth, width, grid):
        return core_flops(Allocation("conv_lstm", True, depth, 1, width), grid)

    assert conv_lstm(8, 32, (10, 10)) == 117_964_800
    assert conv_lstm(4, 12, (5, 5)) == 2_073_600
    mlp = Allocation("mlp", True, 1, 1, 64)
    gru = Allocation("gru", True, 1, 1, 64)
    assert (core_flops(mlp, ()), core_flops(gru, ())) == (98_304, 81_920)
    transformer = Allocation("transformer", False, 16, 1, 512, options={"window": 512})
    assert core_flops(transformer, ()) == 117_440_512


def test_loops_branches_and_products_are_counted():
    a, b = jnp.ones((3, 4)), jnp.ones((4, 5))

    def loop(a, b):
        return jax.lax.scan(lambda c, _: (c, a @ b), 0.0, None, length=7)[1]

    def branch(flag, a, b):
        return jax.lax.cond(flag, lambda: a @ b, lambda: jnp.ones((3, 5)))

    assert count_flops(jnp.matmul, a, b).contractions == 2 * 3 * 4 * 5
    assert count_flops(loop, a, b).contractions == 7 * 2 * 3 * 4 * 5
    assert count_flops(branch, True, a, b).contractions == 2 * 3 * 4 * 5
    batched = count_flops(
        jax.vmap(jnp.matmul), a[None].repeat(6, 0), b[None].repeat(6, 0)
    )
    assert batched.contractions == 6 * 2 * 3 * 4 * 5
    assert count_flops(jax.checkpoint(jnp.matmul), a, b).contractions == 2 * 3 * 4 * 5
    jitted = count_flops(jax.jit(lambda a, b: jnp.tanh(a @ b)), a, b)
    assert (jitted.contractions, jitted.elementwise) == (2 * 3 * 4 * 5, 15)
    fixed = count_flops(
        lambda a, b: jax.lax.fori_loop(0, 5, lambda _, c: c + a @ b, a @ b), a, b
    )
    assert fixed.contractions == 6 * 2 * 3 * 4 * 5


def test_grouped_and_strided_convolutions_are_counted():
    x, w = jnp.ones((1, 6, 6, 4)), jnp.ones((3, 3, 2, 8))

    def grouped(x, w):
        return jax.lax.conv_general_dilated(
            x,
            w,
            (2, 2),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=2,
        )

    # 3×3 positions, 8 outputs, each reads 9 taps of 2 channels.
    assert count_flops(grouped, x, w).contractions == 2 * 9 * 8 * 9 * 2


def test_gradient_of_a_product_costs_its_two_products():
    a, b = jnp.ones((3, 4)), jnp.ones((4, 5))
    both = jax.value_and_grad(lambda a, b: (a @ b).sum(), argnums=(0, 1))
    # the value itself is a sum, so its product is dead in neither part
    assert count_flops(both, a, b).contractions == 3 * 2 * 3 * 4 * 5


def test_what_cannot_be_counted_is_an_error():
    def unbounded(x):
        return jax.lax.while_loop(lambda x: x.sum() < 9, lambda x: x @ x, x)

    with pytest.raises(AuditError, match="loop whose length is not fixed"):
        count_flops(unbounded, jnp.ones((2, 2)))
    with pytest.raises(AuditError, match="'fft'"):
        count_flops(jnp.fft.fft, jnp.ones(8))


def test_radius_costs_nothing():
    shared = Allocation("conv_lstm", True, 2, 4, 4)
    ring = Allocation("conv_lstm", True, 2, 4, 4, radius=1)
    assert (
        trace_core(shared, (4, 3)).contractions == trace_core(ring, (4, 3)).contractions
    )
