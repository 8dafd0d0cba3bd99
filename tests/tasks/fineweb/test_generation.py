"""Text by the step that a network is trained with."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch.allocation import Allocation
from allocsearch.config import TrainingConfig
from allocsearch.errors import ConfigError
from allocsearch.parsing import parse
from allocsearch.tasks.fineweb import FineWeb
from allocsearch.tasks.fineweb.config import FineWebConfig
from allocsearch.tasks.records import Prompt
from allocsearch.tasks.trained import Run

FIELDS = {"window": 4, "evaluation": {"n_valid": 65, "n_test": 65, "n_slots": 2}}
# In the non-recurrent arm it writes beyond the reach of its cache.
PARALLEL = Allocation(
    "transformer", False, 1, 1, 4, options=(("window", 4), ("ratio", 1))
)
GRU = Allocation("gru", True, 1, 1, 4)


@pytest.fixture(scope="module")
def task():
    return FineWeb(parse(FineWebConfig, FIELDS))


def network(task, allocation):
    """A network whose logits are far from uniform."""
    model = task.init_trained(allocation, TrainingConfig(), (0,))[1][0].model
    return eqx.tree_at(lambda m: m.head.weight, model, 40 * model.head.weight)


def asked(task, model, **fields):
    return task.generate((None, (Run(model, None, None),)), Prompt(**fields))


@pytest.mark.parametrize("allocation", [GRU, PARALLEL], ids=lambda a: a.arm)
def test_greedy_text_is_the_likeliest_token_after_all_before(task, allocation):
    model = network(task, allocation)
    made = asked(task, model, text="ab", n_steps=6, temperature=0.0)
    tokens = made.details["tokens"]
    read = jnp.asarray([256, *b"ab", *tokens])
    reset = jnp.zeros(len(read), bool)
    _, logits = eqx.filter_jit(model.unroll)(model.init_carry(), read, reset)
    assert np.argmax(logits[2:-1], axis=-1).tolist() == tokens


def test_the_seed_decides_what_is_drawn(task):
    model = network(task, GRU)
    first, again, other = (
        asked(task, model, text="a", n_steps=8, seed=seed).details["tokens"]
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_top_1_is_greedy_at_any_temperature(task):
    model = network(task, GRU)
    greedy = asked(task, model, n_steps=8, temperature=0.0)
    assert asked(task, model, n_steps=8, temperature=5.0, top_k=1) == greedy


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"n_steps": 0}, "at least 1"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": 0}, "top-k"),
    ],
)
def test_what_cannot_be_drawn_is_refused(fields, words):
    with pytest.raises(ConfigError, match=words):
        Prompt(**fields)
