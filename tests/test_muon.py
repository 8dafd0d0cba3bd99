"""Muon: which axes are matrices, and steps against singular vectors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch import muon
from allocsearch.allocation import Allocation
from allocsearch.config import TrainingConfig
from allocsearch.model import Model
from allocsearch.network import ParallelExperts
from allocsearch.scaling import Optimizer
from allocsearch.tasks.fineweb.modules import Embedding, Head


@pytest.fixture(scope="module")
def model():
    allocation = Allocation("transformer", True, 2, 3, 4, aggregation="softmax_gated")
    keys = jax.random.split(jax.random.key(0), 3)
    build = eqx.filter_jit(lambda: ParallelExperts(allocation, (), key=keys[0]))
    return Model(Embedding(7, 4, key=keys[1]), build(), Head(4, 7, key=keys[2]))


def gradients_like(model):
    arrays = eqx.filter(model, eqx.is_array)
    leaves, tree = jax.tree.flatten(arrays)
    generator = np.random.default_rng(0)
    return jax.tree.unflatten(
        tree, [jnp.asarray(generator.normal(size=x.shape), x.dtype) for x in leaves]
    )


def updated(model, gradients, **fields):
    """How far every parameter moves at the first update, by its path."""
    training = TrainingConfig(learning_rate=1.0, warmup=0, cooldown=0, **fields)
    optimizer = Optimizer(training)
    state = optimizer.init(model, 10)
    moved, _ = eqx.filter_jit(optimizer.update)(gradients, state, model)
    before, after = (
        jax.tree_util.tree_leaves_with_path(eqx.filter(m, eqx.is_array))
        for m in (model, moved)
    )
    return {
        jax.tree_util.keystr(path): np.asarray(x - y)
        for (path, x), (_, y) in zip(before, after, strict=True)
    }


def test_each_matrix_of_each_expert_moves_along_its_own_singular_vectors(model):
    gradients = gradients_like(model)
    steps = updated(model, gradients, optimizer="muon", max_grad_norm=1e9)
    own = gradients.core.levels.experts
    n_checked = 0
    for name in ("weight_query", "weight_mlp_in", "weight_mlp_out"):
        g, step = np.asarray(getattr(own, name)), steps[f".core.levels.experts.{name}"]
        n_in, n_out = g.shape[-2:]
        # 0.2·√64·√(outputs / inputs) / √(E·L)
        scale = 0.2 * 8 * (n_out / n_in) ** 0.5 / 6**0.5
        for place in np.ndindex(*g.shape[:-2]):
            u, _, vt = np.linalg.svd(g[place], full_matrices=False)
            inner = u.T @ step[place] @ vt.T / scale
            values = np.diag(inner)
            # The iteration leaves singular values of about one.
            assert ((values > 0.5) & (values < 1.4)).all()
            assert np.abs(inner - np.diag(values)).max() < 1e-3
            n_checked += 1
    assert n_checked == 3 * 2 * 3


def test_everything_but_matrices_of_experts_moves_as_under_adam(model):
    gradients = gradients_like(model)
    ours = updated(model, gradients, optimizer="muon")
    adam = updated(model, gradients)
    alike = {path for path in ours if np.array_equal(ours[path], adam[path])}
    matrices = {path for path in ours if ".experts." in path}
    assert alike == set(ours) - matrices
    assert any("aggregation" in path for path in alike)


def test_what_muon_leaves_may_have_a_rate_of_its_own(model):
    gradients = gradients_like(model)
    usual = updated(model, gradients, optimizer="muon")
    own = updated(model, gradients, optimizer="muon", adam_learning_rate=0.5)
    for path, step in usual.items():
        factor = 1.0 if ".experts." in path else 0.5
        np.testing.assert_allclose(own[path], factor * step, rtol=1e-4, atol=1e-6)


class Layered(eqx.Module):
    """A level whose experts are made of Equinox's own layers."""

    experts: eqx.Module


def test_outputs_of_equinox_layers_are_on_their_first_axis():
    keys = jax.random.split(jax.random.key(0), 3)
    layers = eqx.filter_vmap(lambda k: eqx.nn.Linear(5, 2, key=k))(keys)
    dims = muon._of_level(Layered(layers), 1)
    assert (dims.weight.reduction_axis, dims.weight.output_axis) == ((2,), 1)
    assert dims.bias is None
    conv = eqx.filter_vmap(lambda k: eqx.nn.Conv2d(5, 2, 3, key=k))(keys)
    dims = muon._of_level(Layered(conv), 1)
    assert (dims.weight.reduction_axis, dims.weight.output_axis) == ((2, 3, 4), 1)
    plain = muon._of_level(Layered({"w": jnp.zeros((3, 3, 3, 5, 2))}), 1)
    assert plain["w"].reduction_axis == (1, 2, 3)
    assert plain["w"].output_axis == 4
