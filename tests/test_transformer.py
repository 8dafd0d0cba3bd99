"""The transformer's forms agree: stepped, in windows, at once; and its options."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch.allocation import Allocation
from allocsearch.errors import ConfigError
from allocsearch.experts.attention import rotate
from allocsearch.network import ParallelExperts

WINDOW = 6
N_STEPS = 20
RESET = jnp.arange(N_STEPS) == 15
NEVER = jnp.zeros(N_STEPS, bool)
CASES = {
    "one expert": {"n_experts": 1, "depth": 1},
    "shared": {},
    "own caches": {"kv_cache": "per_expert"},
    "radius": {"kv_cache": "per_expert", "radius": 1},
    "no radius": {"kv_cache": "per_expert", "radius": 0},
    "input once": {"reinject_embedding": False},
    "mean": {"aggregation": "mean"},
    "softmax_gated": {"aggregation": "softmax_gated"},
    "l2_softmax_gated": {"aggregation": "l2_softmax_gated"},
    "replace": {"update": "replace", "depth": 1},
}
FIELDS = ("depth", "n_experts", "width", "radius", "aggregation")


def build(recurrent, canonical=False, **changes):
    base = {"depth": 2, "n_experts": 3, "width": 8}
    fields = {k: v for k, v in changes.items() if k in FIELDS}
    options = {k: v for k, v in changes.items() if k not in FIELDS}
    options = {"window": WINDOW, "head_width": 4, **options}
    allocation = Allocation(
        "transformer", recurrent, **{**base, **fields}, options=tuple(options.items())
    )
    return eqx.filter_jit(
        lambda: ParallelExperts(
            allocation, (), key=jax.random.key(0), canonical=canonical
        )
    )()


def stream(n_steps=N_STEPS, key=1, width=8):
    return jax.random.normal(jax.random.key(key), (n_steps, width))


@eqx.filter_jit
def stepped(network, carry, z, reset):
    return jax.lax.scan(lambda c, x: network.step(c, *x), carry, (z, reset))


@eqx.filter_jit
def unrolled(network, carry, z, reset):
    return network.unroll(carry, z, reset)


def assert_close(found, expected, tolerance=1e-5):
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("case", "recurrent"),
    [(case, True) for case in CASES]
    + [(case, False) for case in ("shared", "own caches", "radius", "input once")],
)
def test_windows_are_steps(case, recurrent):
    """At most a window, more than one, after a carried window, with a reset."""
    plain = build(recurrent, canonical=True, **CASES[case])
    fast = build(recurrent, **CASES[case])
    z, start = stream(), plain.init_carry()
    carry, expected = stepped(plain, start, z, RESET)
    found_carry, found = unrolled(fast, start, z, RESET)
    assert_close(found, expected)
    assert_close(found_carry.state, carry.state)
    # The caches may differ in rows that can no longer be seen, so they are compared
    # by what follows.
    more = stream(5, key=2)
    follows = stepped(plain, carry, more, NEVER[:5])[1]
    assert_close(stepped(fast, found_carry, more, NEVER[:5])[1], follows)


@pytest.mark.parametrize(
    ("window", "recurrent"), [(1, True), (5, True), (1, False), (5, False), (32, False)]
)
def test_any_window_and_any_cut(window, recurrent):
    network = build(recurrent, window=window, n_experts=2)
    z = stream(40)
    reset = jnp.arange(40) == 33
    expected = stepped(network, network.init_carry(), z, reset)[1]
    for length in (40, 17, 1):
        carry, parts = network.init_carry(), []
        for i in range(0, 40, length):
            carry, out = unrolled(
                network, carry, z[i : i + length], reset[i : i + length]
            )
            parts.append(out)
        assert_close(jnp.concatenate(parts), expected)


@pytest.mark.parametrize(
    ("case", "recurrent", "n_steps"),
    [
        *(("shared", False, n_steps) for n_steps in (3, 40, 70)),
        *((case, False, 40) for case in ("own caches", "radius", "input once")),
        ("shared", True, 40),
    ],
)
def test_from_the_start_is_a_fresh_carry(case, recurrent, n_steps):
    """Shorter than a part, several parts of which the last is short, over a window."""
    network = build(recurrent, window=48, **CASES[case])
    z = stream(n_steps)
    reset = jnp.arange(n_steps) == 2 * n_steps // 3

    def loss(network, run):
        return jnp.sum(stream(n_steps, key=7) * run(network))

    def from_start(network):
        return network.unroll_from_start(z, reset)

    def plain(network):
        return network.unroll(network.init_carry(), z, reset)[1]

    gradient = eqx.filter_jit(eqx.filter_value_and_grad(loss))
    found, expected = gradient(network, from_start), gradient(network, plain)
    assert_close(found, expected, 1e-4)
    assert max(jnp.abs(g).max() for g in jax.tree.leaves(found[1])) > 0.01


def test_without_feedback_the_recurrent_form_is_the_parallel_one():
    """The gain on the carried state is what feeds back: at zero, nothing does."""
    recurrent, parallel = build(True), build(False)
    cut = eqx.tree_at(lambda n: n.carry_scale, recurrent, jnp.zeros(8))
    z = stream()
    carried = unrolled(parallel, parallel.init_carry(), stream(9, key=3), NEVER[:9])[0]
    with_state = cut.init_carry()
    with_state = eqx.tree_at(lambda c: c.context, with_state, carried.context)
    found = unrolled(cut, with_state, z, RESET)[1]
    assert_close(found, unrolled(parallel, carried, z, RESET)[1])
    assert jnp.abs(found - unrolled(recurrent, with_state, z, RESET)[1]).max() > 0.01


def gradients(network, run, carry, z, reset):
    """By parameters, carry and input, of a loss on outputs and on the last carry."""
    weights = stream(key=5)[: len(z)]
    parts = [eqx.partition(x, eqx.is_inexact_array) for x in (network, carry)]
    dynamic, static = zip(*parts, strict=True)

    @jax.jit
    @jax.grad
    def gradient(dynamic_and_z):
        *dynamic, z = dynamic_and_z
        network, carry = eqx.combine(tuple(dynamic), static)
        carry, out = run(network, carry, z, reset)
        following = stepped(network, carry, stream(3, key=6), NEVER[:3])[1]
        return jnp.sum(weights * out) + jnp.sum(jnp.sin(following))

    return gradient((*dynamic, z))


@pytest.mark.parametrize(
    ("case", "recurrent"),
    [
        ("one expert", True),
        ("shared", True),
        ("radius", True),
        ("input once", True),
        ("shared", False),
    ],
)
def test_lean_gradients_are_those_of_the_plain_scan(case, recurrent):
    plain = build(recurrent, canonical=True, **CASES[case])
    fast = build(recurrent, **CASES[case])
    carry = stepped(plain, plain.init_carry(), stream(4, key=3), NEVER[:4])[0]
    z = stream()
    expected = gradients(plain, stepped, carry, z, RESET)
    found = gradients(fast, unrolled, carry, z, RESET)
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    for a, b in pairs:
        scale = jnp.abs(b).max()
        assert jnp.abs(a - b).max() <= 1e-5 * scale
        assert scale > 0


def test_lean_gradients_of_a_batch_need_no_cache_for_every_step():
    """Streams reset at different steps; less memory than the windows alone take."""
    n_steps, n_streams, window = 64, 2, 64
    network = build(True, depth=1, n_experts=1, window=window, width=32)
    plain = build(True, canonical=True, depth=1, n_experts=1, window=window, width=32)
    z = jnp.stack([stream(n_steps, key, 32) for key in range(n_streams)])
    reset = jnp.arange(n_steps) == jnp.array([[20], [50]])

    def loss(network, run):
        carry = network.init_carry()
        each = jax.vmap(lambda z, r: run(network, carry, z, r)[1])
        return jnp.sum(jnp.sin(each(z, reset)))

    def compiled(network, run):
        gradient = jax.jit(jax.grad(lambda n: loss(n, run)))
        return gradient.lower(network).compile()

    lean, full = compiled(network, unrolled), compiled(plain, stepped)
    for a, b in zip(*map(jax.tree.leaves, (lean(network), full(plain))), strict=True):
        assert jnp.abs(a - b).max() <= 1e-5 * jnp.abs(b).max()
    caches = n_streams * n_steps * window * 2 * 32 * 4
    sizes = [c.memory_analysis().temp_size_in_bytes for c in (lean, full)]
    assert sizes[0] < caches < sizes[1]


def test_attention_sees_the_window_and_no_further():
    """One level without feedback: an output depends on `WINDOW` inputs exactly."""
    network = build(False, depth=1, n_experts=1)
    z = stream()
    run = jax.jit(lambda z: network.unroll(network.init_carry(), z, RESET)[1])
    seen = jnp.abs(jax.jacobian(run)(z)).sum(axis=(1, 3)) > 1e-7
    t, s = np.indices((N_STEPS, N_STEPS))
    same_stream = (t < 15) == (s < 15)
    np.testing.assert_array_equal(seen, (s <= t) & (s > t - WINDOW) & same_stream)


def test_rotation_against_complex_numbers():
    x = np.asarray(jax.random.normal(jax.random.key(0), (2, 3, 8)))
    position = np.array([0, 5, 3_000_000])
    pairs = x[..., :4] + 1j * x[..., 4:]
    angle = position[:, None].astype(np.float64) * 10_000.0 ** -(np.arange(4) / 4)
    turned = pairs * np.exp(1j * angle)
    expected = np.concatenate([turned.real, turned.imag], axis=-1)
    np.testing.assert_allclose(rotate(x, jnp.asarray(position)), expected, atol=5e-3)


def test_input_once_is_read_by_the_first_level_alone():
    network = build(False, reinject_embedding=False, depth=3)
    experts = network.levels.experts
    assert network.first.experts.reads_input
    assert not experts.reads_input
    assert jax.tree.leaves(experts)[0].shape[:2] == (2, 3)


def test_bad_options_say_so():
    with pytest.raises(ConfigError, match="'kv_cache' is 'both': use one of shared"):
        build(True, kv_cache="both")
    with pytest.raises(ConfigError, match="'window' is 0: give a positive number"):
        build(True, window=0)
