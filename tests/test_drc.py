"""DRC(D, N) as one allocation, against the published cell and its figures."""

import functools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch.allocation import Allocation
from allocsearch.audit import trace_core
from allocsearch.errors import ConfigError
from allocsearch.experts import LevelShape, Read, layers, spec_of
from allocsearch.experts.conv_lstm import CellState, ConvLSTM
from allocsearch.network import ParallelExperts
from allocsearch.parsing import parse
from allocsearch.space import core_flops
from allocsearch.tasks.sokoban.config import SokobanConfig
from allocsearch.tasks.sokoban.task import Sokoban
from allocsearch.testing import carry_rms

NETWORK = {"update": "replace", "norm": "none", "skip": "encoder"}
FAR = {
    "forget_bias": 0.0,
    "output_gate": "tanh",
    "own_state": True,
    "pool": "channel",
    "boundary": "beyond",
    **NETWORK,
}
GUEZ = {"own_state": True, "pool": "linear", "boundary": "edge", **NETWORK}
SHARED_POOL = {"own_state": False, "pool": "linear", "boundary": "edge"}
GRID = (4, 3)


def allocation(options, **changes):
    base = {"recurrent": True, "depth": 2, "n_experts": 1, "width": 4}
    return Allocation("conv_lstm", options=options, **{**base, **changes})


@functools.cache
def network(allocation, grid=GRID):
    key = jax.random.key(0)
    return eqx.filter_jit(lambda: ParallelExperts(allocation, grid, key=key))()


def stream(network, n_steps):
    shape = (n_steps, *network.grid, network.allocation.width)
    return jax.random.normal(jax.random.key(1), shape)


@eqx.filter_jit
def outputs(network, z, reset):
    return network.unroll(network.init_carry(), z, reset)[1]


def never(n_steps):
    return jnp.zeros(n_steps, bool)


# The cell of Taufeeque et al. (2024) with plain loops, channels last.


def convolution(x, weight):
    k = weight.shape[0]
    h, w, _ = x.shape
    out = np.zeros((h, w, weight.shape[3]))
    for row, column, i, j in np.ndindex(h, w, k, k):
        y, at = row + i - (k - 1) // 2, column + j - (k - 1) // 2
        if 0 <= y < h and 0 <= at < w:
            out[row, column] += x[y, at] @ weight[i, j]
    return out


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def drc_cell(parts, z, below, hidden, cell):
    """One cell once; `parts` are its weights by name."""
    h, w, d = z.shape
    pooled = parts["pool"][0] * hidden.max((0, 1)) + parts["pool"][1] * hidden.mean(
        (0, 1)
    )
    everywhere = np.broadcast_to(pooled, (h, w, d))
    gates = convolution(np.concatenate([below, z], -1), parts["weight"])
    gates += convolution(np.concatenate([hidden, everywhere], -1), parts["own"])
    # A frame of ones around the board, seen by every tap that leaves it.
    for row, column, i, j in np.ndindex(h, w, 3, 3):
        y, x = row + i - 1, column + j - 1
        if not (0 <= y < h and 0 <= x < w):
            gates[row, column] += parts["boundary"][i, j, 0]
    gates += parts["bias"].reshape(-1)
    j, i, o, f = np.split(gates, 4, axis=-1)
    cell = sigmoid(f) * cell + np.tanh(i) * sigmoid(j)
    return np.tanh(o) * np.tanh(cell), cell


def drc(network, z, resets, n_ticks):
    """What the head reads at every step of DRC(D, N)."""
    experts = jax.tree.map(lambda x: np.asarray(x, float)[:, 0], network.levels.experts)
    cells = [
        {
            "weight": experts.weight[level],
            "own": experts.own.weight[level],
            "pool": experts.own.pool[level],
            "boundary": experts.boundary[level],
            "bias": experts.bias[level],
        }
        for level in range(len(experts.weight))
    ]
    outs = []
    for z_t, reset in zip(np.asarray(z, float), resets, strict=True):
        if reset:
            hidden = [np.zeros_like(z_t) for _ in cells]
            memory = [np.zeros_like(z_t) for _ in cells]
        for _ in range(n_ticks):
            below = hidden[-1]
            for level, parts in enumerate(cells):
                below, memory[level] = drc_cell(
                    parts, z_t, below, hidden[level], memory[level]
                )
                hidden[level] = below
        outs.append(hidden[-1] + z_t)
    return np.stack(outs)


@pytest.mark.parametrize(("depth", "n_ticks"), [(3, 3), (1, 1)])
def test_network_is_the_published_drc(depth, n_ticks):
    net = network(allocation({**FAR, "ticks": n_ticks}, depth=depth, width=3))
    # Biases and forget gates start at zero: move all weights off their start.
    arrays, static = eqx.partition(net, eqx.is_array)
    noise = jax.tree.map(
        lambda x: x + 0.3 * np.random.default_rng(x.size).normal(size=x.shape), arrays
    )
    net = eqx.combine(jax.tree.map(jnp.float32, noise), static)
    z, resets = stream(net, 4), [True, False, True, False]
    np.testing.assert_allclose(
        outputs(net, z, jnp.array(resets)),
        drc(net, z, resets, n_ticks),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("options", [FAR, GUEZ, SHARED_POOL])
@pytest.mark.parametrize("radius", ["full", 1])
def test_traced_work_is_the_closed_form(options, radius):
    for recurrent, form, n_ticks in [
        (True, "source", 1),
        (True, "source", 3),
        (False, "source", 1),
        (False, "source", 3),
        (False, "trimmed", 1),
    ]:
        own = {**options, "nonrecurrent_form": form, "ticks": n_ticks}
        built = allocation(own, recurrent=recurrent, n_experts=4, radius=radius)
        traced = trace_core(built, GRID).contractions
        assert traced == core_flops(built, GRID), built.label


@pytest.mark.parametrize("kernel", [2, 3, 4])
def test_even_kernels_are_centred_alike_in_both_forms(kernel):
    x = jax.random.normal(jax.random.key(1), (5, 4, 2))
    weight = jax.random.normal(jax.random.key(2), (kernel, kernel, 2, 3))
    by_hand = convolution(np.asarray(x), np.asarray(weight))
    for form in ("conv", "patches"):
        np.testing.assert_allclose(layers.conv(x, weight, form), by_hand, atol=1e-5)


def test_a_stacked_encoder_is_one_convolution_after_the_other():
    fields = {"network": {"encoder_kernel": 4, "encoder_layers": 2}}
    task = Sokoban(parse(SokobanConfig, fields))
    encoder = task.encoder(3, key=jax.random.key(0))
    planes = jax.nn.one_hot(jnp.arange(20).reshape(5, 4) % 7, 7)
    z = np.asarray(encoder.first(planes))
    assert encoder.weights.shape == (1, 4, 4, 3, 3)
    np.testing.assert_allclose(
        encoder(planes), convolution(z, np.asarray(encoder.weights[0])), atol=1e-5
    )


@pytest.mark.parametrize(("options", "form"), [(FAR, "conv"), (SHARED_POOL, "patches")])
def test_experts_side_by_side_are_those_one_by_one(options, form):
    spec, level = spec_of(allocation(options)), LevelShape(4, GRID, form=form)
    keys = jax.random.split(jax.random.key(0), 3)
    experts = eqx.filter_vmap(lambda k: spec.build(level, key=k))(keys)
    draw = jax.random.normal
    read = Read(draw(keys[0], (*GRID, 4)), draw(keys[1], (*GRID, 4)))
    memory = draw(keys[2], (3, *GRID, 4))
    if options["own_state"]:
        memory = CellState(memory, 2 * memory)
    apart = jax.vmap(lambda e, m: e(read, m))(experts, memory)
    wide = experts.widened()
    u, kept = wide.fused(read, wide.gathered(memory))
    beside = u, wide.spread(kept)
    for one, other in zip(*map(jax.tree.leaves, (apart, beside)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_default_options_add_nothing():
    plain = allocation({})
    level = network(plain).levels
    assert level.experts.own is None
    assert level.experts.boundary is None
    assert core_flops(plain, GRID) == 2 * 2 * 9 * 12 * 8 * 16
    explicit = {"output_gate": "sigmoid", "own_state": False, "ticks": 1}
    same = network(allocation({**explicit, "norm": "rms", "skip": "none"})).levels
    np.testing.assert_array_equal(level.experts.weight, same.experts.weight)


def test_ticks_are_steps_that_see_the_same():
    """Three ticks on z are three recurrent steps on z, whatever is kept after them."""
    options = {"own_state": True, "pool": "linear"}
    once = network(allocation(options, depth=1))
    z = stream(once, 3)
    for recurrent in (True, False):
        ticks = allocation({**options, "ticks": 3}, depth=1, recurrent=recurrent)
        begins = jnp.arange(9) % (9 if recurrent else 3) == 0
        np.testing.assert_allclose(
            outputs(network(ticks), z, never(3)),
            outputs(once, jnp.repeat(z, 3, axis=0), begins)[2::3],
            rtol=1e-4,
            atol=1e-5,
        )


def test_experts_that_hear_nobody_are_drcs_of_their_own():
    two = network(allocation(FAR, n_experts=2, radius=0, depth=1))
    z = stream(two, 3)

    def lone(i):
        one = network(allocation(FAR, depth=1))
        own = jax.tree.map(lambda x: x[:, i : i + 1], two.levels.experts)
        one = eqx.tree_at(lambda n: n.levels.experts, one, own)
        return outputs(one, z, never(3))

    np.testing.assert_allclose(
        outputs(two, z, never(3)), (lone(0) + lone(1)) / 2, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("options", [FAR, SHARED_POOL])
def test_trimming_leaves_out_what_cannot_move(options):
    """Of a network without recurrence, at one tick."""
    base = allocation(options, recurrent=False)
    net = network(base)
    trimmed = replace(base, options={**options, "nonrecurrent_form": "trimmed"})
    small = eqx.filter_eval_shape(
        lambda: ParallelExperts(trimmed, GRID, key=jax.random.key(0))
    )
    z = stream(net, 1)

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(net):
        return jnp.sum(jnp.sin(net.step(net.init_carry(), z[0], False)[1]))

    moved = sum(int((x != 0).sum()) for x in weights(gradient(net).levels))
    kept = sum(x.size for x in weights(small.first) + weights(small.levels))
    # The centre tap of a plane off the board is always on it: 3 gates, 4 channels.
    off_board = options["boundary"] == "beyond"
    assert moved == kept - off_board * base.depth * 3 * 4


def weights(level):
    """The leaves of a level's experts that are not biases of the gates."""
    bias = level.experts.bias
    return [x for x in jax.tree.leaves(level.experts) if x is not bias]


def test_the_boundary_is_where_it_is_said_to_be():
    """The plane tells squares apart that the input does not."""
    for where in ("edge", "beyond"):
        net = network(allocation({"boundary": where}, depth=1), (5, 5))
        experts = net.levels.experts
        blind = eqx.tree_at(
            lambda n: n.levels.experts.weight, net, jnp.zeros_like(experts.weight)
        )
        out = outputs(blind, jnp.zeros((1, 5, 5, 4)), never(1))[0]
        reached = np.abs(np.asarray(out)).max(axis=-1) > 0
        ring = np.ones((5, 5), bool)
        ring[1:-1, 1:-1] = False
        inner = np.zeros((5, 5), bool)
        inner[2, 2] = True
        expected = ring if where == "beyond" else ~inner
        np.testing.assert_array_equal(reached, expected)


def test_the_carry_without_norm_stays_bounded():
    rms = np.asarray(carry_rms(network(allocation({**FAR, "ticks": 2}, depth=3)), 500))
    assert np.isfinite(rms).all()
    assert rms.max() < 20
    assert rms[-100:].max() < 1.5 * rms[50:150].max()


def test_what_may_be_searched_can_be_built():
    for name, values in ConvLSTM.searchable.items():
        for value in values:
            spec = ConvLSTM.from_options("conv_lstm", {name: value})
            assert getattr(spec, name) == value
        assert getattr(ConvLSTM(), name) in values


@pytest.mark.parametrize(
    ("expert", "options", "message"),
    [
        ("conv_lstm", {"norm": "none"}, "unless update=replace"),
        ("conv_glu", {"norm": "none", "update": "replace"}, "proposals are bounded"),
        ("conv_lstm", {"boundary": "beyond", "kernel": 1}, "out of reach of kernel=1"),
        ("conv_lstm", {"pool": "max"}, "option 'pool' is 'max': use one of none, chan"),
        ("conv_lstm", {"output_gate": "relu"}, "use one of sigmoid, tanh"),
        ("conv_lstm", {"boundary": "wall"}, "use one of none, edge, beyond"),
        ("transformer", {"ticks": 2}, "more than once a step: set ticks=1"),
    ],
)
def test_what_makes_no_sense_is_refused(expert, options, message):
    with pytest.raises(ConfigError, match=message):
        spec_of(Allocation(expert, True, 1, 1, 4, options=options))
