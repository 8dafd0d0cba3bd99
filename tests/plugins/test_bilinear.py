"""The example of an expert from another package."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch.allocation import Allocation
from allocsearch.audit import trace_core
from allocsearch.errors import ConfigError
from allocsearch.experts import LevelShape, Read, spec_of
from allocsearch.space import core_flops
from allocsearch.testing import check_expert
from allocsearch_bilinear import Bilinear


def test_the_laws_of_an_expert_hold():
    check_expert("bilinear", widths=(4,), n_steps=2_000)


@pytest.mark.parametrize("radius", ["full", 1])
@pytest.mark.parametrize("form", ["source", "trimmed"])
@pytest.mark.parametrize("recurrent", [True, False])
def test_work_equals_the_traced_work(recurrent, form, radius):
    options = (("nonrecurrent_form", form), ("ratio", 3))
    allocation = Allocation("bilinear", recurrent, 3, 4, 10, radius, options=options)
    assert trace_core(allocation, ()).contractions == core_flops(allocation, ())


def test_it_multiplies_two_projections():
    d, hidden = 4, 8
    block = Bilinear(ratio=2).build(LevelShape(d), key=jax.random.key(0))
    state, z = np.arange(4.0), np.array([1.0, -1.0, 2.0, 0.5])
    u, memory = block(Read(jnp.asarray(state), jnp.asarray(z)), block.init_memory())
    r = [*state, *z]
    left, right, out = (np.asarray(w) for w in (block.left, block.right, block.out))
    expected = [
        sum(
            sum(r[i] * left[i, h] for i in range(2 * d))
            * sum(r[i] * right[i, h] for i in range(2 * d))
            * out[h, j]
            for h in range(hidden)
        )
        for j in range(d)
    ]
    np.testing.assert_allclose(u, expected, rtol=1e-5)
    assert memory == ()


def test_proposals_start_at_unit_scale():
    block = Bilinear().build(LevelShape(64), key=jax.random.key(0))
    draws = jax.random.normal(jax.random.key(1), (500, 2, 64))
    u = jax.vmap(lambda x: block(Read(x[0], x[1]), ())[0])(draws)
    assert 0.7 < float(jnp.sqrt(jnp.mean(u**2))) < 1.3


def test_options_are_checked():
    with pytest.raises(ConfigError, match="ratio"):
        spec_of(Allocation("bilinear", True, 1, 1, 4, options=(("ratio", 0),)))
