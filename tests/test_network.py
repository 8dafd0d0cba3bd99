"""Laws of the network: communication, recurrence, resets, and a bounded carry."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch.allocation import Allocation
from allocsearch.errors import ConfigError
from allocsearch.network import ParallelExperts
from allocsearch.testing import carry_rms

GRID = {
    "conv_lstm": (4, 3),
    "conv_glu": (4, 3),
    "gru": (),
    "mlp": (),
    "transformer": (),
}
VECTOR_AND_BOARD = ("gru", "conv_lstm")


def allocation(expert, **changes):
    base = {"recurrent": True, "depth": 2, "n_experts": 4, "width": 6}
    return Allocation(expert, **{**base, **changes})


def network(allocation, key=0):
    build = eqx.filter_jit(
        lambda: ParallelExperts(
            allocation, GRID[allocation.expert], key=jax.random.key(key)
        )
    )
    return build()


def stream(network, n_steps, key=1):
    shape = (n_steps, *network.grid, network.allocation.width)
    return jax.random.normal(jax.random.key(key), shape)


@eqx.filter_jit
def outputs(network, z, reset):
    return network.unroll(network.init_carry(), z, reset)[1]


def never(n_steps):
    return jnp.zeros(n_steps, bool)


@pytest.mark.parametrize("expert", VECTOR_AND_BOARD)
def test_a_ring_that_reaches_everyone_is_full_communication(expert):
    """Radius E − 1, which the canonical form would turn into full, forced through."""
    full = network(allocation(expert, aggregation="l2_softmax_gated"))
    ring = allocation(expert, aggregation="l2_softmax_gated")
    object.__setattr__(ring, "radius", ring.n_experts - 1)
    wide = network(ring)
    z = stream(full, 5)
    assert wide.init_carry().state.shape[0] == 4
    np.testing.assert_allclose(
        outputs(full, z, never(5)), outputs(wide, z, never(5)), rtol=2e-4, atol=2e-5
    )


@pytest.mark.parametrize("expert", VECTOR_AND_BOARD)
def test_experts_out_of_reach_are_not_heard(expert):
    """With radius 0 the state of an expert depends on that expert alone."""
    lone = network(allocation(expert, radius=0))

    def last_states(network, scale):
        experts = jax.tree.map(
            lambda x: x.at[:, 1].multiply(scale), network.levels.experts
        )
        changed = eqx.tree_at(lambda n: n.levels.experts, network, experts)
        carry, _ = changed.unroll(changed.init_carry(), z, never(4))
        return carry.state

    z = stream(lone, 4)
    before, after = last_states(lone, 1.0), last_states(lone, 3.0)
    moved = jnp.abs(before - after).reshape(4, -1).max(axis=1)
    assert moved[1] > 1e-3
    assert jnp.all(moved[jnp.array([0, 2, 3])] == 0)


@pytest.mark.parametrize("expert", VECTOR_AND_BOARD)
@pytest.mark.parametrize(
    ("gated", "plain"), [("softmax_gated", "mean"), ("l2_softmax_gated", "sqrt_sum")]
)
@pytest.mark.parametrize("radius", ["full", 1])
def test_equal_gates_are_the_plain_aggregation(expert, gated, plain, radius):
    one = network(allocation(expert, aggregation=gated, radius=radius))
    other = network(allocation(expert, aggregation=plain, radius=radius))
    z = stream(one, 4)
    np.testing.assert_allclose(
        outputs(one, z, never(4)), outputs(other, z, never(4)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("expert", sorted(GRID))
@pytest.mark.parametrize("recurrent", [True, False])
def test_unroll_is_step_after_step_and_reset_starts_anew(expert, recurrent):
    net = network(allocation(expert, recurrent=recurrent, n_experts=2))
    z = stream(net, 7)
    reset = jnp.arange(7) == 4
    whole = outputs(net, z, reset)
    first = outputs(net, z[:4], never(4))
    second = outputs(net, z[4:], never(3))
    np.testing.assert_allclose(
        whole, jnp.concatenate([first, second]), rtol=1e-4, atol=1e-5
    )
    step = eqx.filter_jit(lambda n, c, x, r: n.step(c, x, r))
    carry, one_by_one = net.init_carry(), []
    for t in range(7):
        carry, out = step(net, carry, z[t], reset[t])
        one_by_one.append(out)
    np.testing.assert_allclose(whole, jnp.stack(one_by_one), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("expert", sorted(GRID))
def test_half_precision_is_kept_from_step_to_step(expert):
    """In bfloat16, with its two to three digits, whatever an expert computes in."""
    net = network(allocation(expert, n_experts=2))
    half = jax.tree.map(
        lambda x: x.astype(jnp.bfloat16) if eqx.is_inexact_array(x) else x, net
    )
    z = stream(net, 5)
    reset = jnp.arange(5) == 3
    expected = outputs(net, z, reset)
    found = outputs(half, z.astype(jnp.bfloat16), reset)
    assert found.dtype == jnp.bfloat16
    error = jnp.sqrt(jnp.mean(jnp.square(found.astype(jnp.float32) - expected)))
    assert error < 0.05 * jnp.sqrt(jnp.mean(jnp.square(expected)))


@pytest.mark.parametrize("expert", ["gru", "mlp", "conv_lstm", "conv_glu"])
@pytest.mark.parametrize("form", ["source", "trimmed"])
def test_without_recurrence_a_step_forgets_the_last(expert, form):
    net = network(
        allocation(expert, recurrent=False, options={"nonrecurrent_form": form})
    )
    z = stream(net, 3)
    alone = outputs(net, z[2:], never(1))
    after_others = outputs(net, z, never(3))[2:]
    np.testing.assert_allclose(alone, after_others, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("expert", sorted(GRID))
def test_with_recurrence_the_past_is_felt(expert):
    net = network(allocation(expert, n_experts=2))
    z = stream(net, 6)
    changed = z.at[0].add(1.0)
    difference = outputs(net, z, never(6)) - outputs(net, changed, never(6))
    assert jnp.abs(difference[5]).max() > 1e-4


@pytest.mark.parametrize("expert", ["gru", "conv_lstm", "conv_glu", "mlp"])
@pytest.mark.parametrize("depth", [1, 2])
def test_live_work_is_that_of_weights_that_can_move(expert, depth):
    """Weights of a non-recurrent network with no gradient are those trimming drops."""
    base = allocation(expert, recurrent=False, depth=depth, n_experts=1)
    net = network(base)
    z = stream(net, 1)

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(net):
        return jnp.sum(jnp.sin(net.step(net.init_carry(), z[0], False)[1]))

    moved = sum(
        int((leaf != 0).sum())
        for leaf in jax.tree.leaves(gradient(net).levels.experts)
        if leaf.ndim >= 4
    )
    trimmed = replace(base, options={"nonrecurrent_form": "trimmed"})
    other = network(trimmed)
    parts = [(p.experts, n) for p, n in ((other.first, 3), (other.levels, 4)) if p]
    kept = sum(
        leaf.size
        for part, least in parts
        for leaf in jax.tree.leaves(part)
        if leaf.ndim >= least
    )
    assert moved == kept


@pytest.mark.parametrize("expert", sorted(GRID))
@pytest.mark.parametrize("depth", [1, 8])
def test_the_carry_stays_bounded(expert, depth):
    n_steps = 10_000 if expert in ("gru", "mlp") else 2_000
    net = network(allocation(expert, depth=depth, n_experts=2, width=4))
    rms = np.asarray(carry_rms(net, n_steps))
    assert np.isfinite(rms).all()
    early, late = rms[100:300].max(), rms[-200:].max()
    assert late < 20
    assert late < 1.5 * early


@pytest.mark.parametrize("expert", ["gru", "conv_lstm", "conv_glu", "mlp"])
@pytest.mark.parametrize("depth", [1, 8])
def test_the_state_stays_sensitive_to_the_input(expert, depth):
    net = network(allocation(expert, depth=depth, n_experts=2, width=4))
    z = stream(net, 400)

    @eqx.filter_jit
    def sensitivity(carry, x):
        def out(x):
            return net.step(carry, x, False)[1]

        probe = jax.random.normal(jax.random.key(5), x.shape)
        return jnp.linalg.norm(jax.jvp(out, (x,), (probe,))[1])

    run = eqx.filter_jit(lambda z: net.unroll(net.init_carry(), z, never(len(z)))[0])
    early = np.mean([sensitivity(run(z[:n]), z[n]) for n in (5, 6, 7)])
    late = np.mean([sensitivity(run(z[:n]), z[n]) for n in (395, 396, 397)])
    assert late > 0.3 * early


def test_update_replace_is_not_residual():
    residual = network(allocation("conv_lstm", depth=2))
    replaced = network(allocation("conv_lstm", depth=2, options={"update": "replace"}))
    z = stream(residual, 3)
    assert not jnp.allclose(
        outputs(residual, z, never(3)), outputs(replaced, z, never(3)), atol=1e-3
    )
    # One level from a zero state adds to nothing: both updates are the same.
    shallow = [
        allocation("mlp", depth=1, options=o) for o in ({}, {"update": "replace"})
    ]
    one, other = (network(a) for a in shallow)
    np.testing.assert_allclose(
        outputs(one, stream(one, 1), never(1)), outputs(other, stream(one, 1), never(1))
    )


def test_depth_does_not_make_the_program_longer():
    def n_equations(depth):
        net = network(allocation("mlp", depth=depth))
        z = stream(net, 1)[0]
        jaxpr = jax.make_jaxpr(lambda z: net.step(net.init_carry(), z, False)[1])(z)
        return len(str(jaxpr).splitlines())

    assert n_equations(8) == n_equations(2)


def test_an_expert_that_cannot_work_on_the_grid_says_so():
    with pytest.raises(ConfigError, match="'mlp' works on a vector, but this task"):
        ParallelExperts(allocation("mlp"), (4, 3), key=jax.random.key(0))
    with pytest.raises(ConfigError, match="shared K/V cache"):
        ParallelExperts(allocation("transformer", radius=1), (), key=jax.random.key(0))
