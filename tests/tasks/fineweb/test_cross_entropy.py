"""The loss in chunks against plain formulas, and what it keeps in memory."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch.tasks.fineweb.cross_entropy import mean_loss, token_losses
from allocsearch.tasks.fineweb.modules import Embedding, EmbeddingHead, Head
from allocsearch.work import Work


def case(b=3, t=8, d=5, vocab=11, tied=False):
    keys = jax.random.split(jax.random.key(0), 3)
    features = jax.random.normal(keys[0], (b, t, d))
    targets = jax.random.randint(keys[1], (b, t), 0, vocab)
    if tied:
        head = EmbeddingHead().tied(Embedding(vocab, d, key=keys[2]))
    else:
        head = Head(d, vocab, key=keys[2])
        head = eqx.tree_at(lambda h: h.weight, head, 10 * head.weight)
    return head, features, targets


@pytest.mark.parametrize("chunk", [1, 6, 100])
def test_token_losses_are_minus_log_softmax(chunk):
    head, features, targets = case()
    losses = token_losses(head, features, targets, chunk)
    for b in range(3):
        for t in range(8):
            logits = np.asarray(features[b, t]) @ np.asarray(head.weight)
            p = np.exp(logits) / np.exp(logits).sum()
            expected = -np.log(p[targets[b, t]])
            assert float(losses[b, t]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("chunk", [1, 6, 100])
def test_the_gradient_is_that_of_all_logits_at_once(chunk, tied):
    head, features, targets = case(tied=tied)

    def plain(head_and_features):
        head, features = head_and_features
        logits = jax.vmap(jax.vmap(head))(features)
        p = jax.nn.softmax(logits)
        rows = jnp.arange(24)
        chosen = p.reshape(24, -1)[rows, targets.reshape(-1)]
        return 3 * -jnp.log(chosen).mean()

    def chunked(head_and_features):
        return 3 * mean_loss(*head_and_features, targets, chunk)

    expected, by_plain = eqx.filter_value_and_grad(plain)((head, features))
    value, by_chunks = eqx.filter_value_and_grad(chunked)((head, features))
    assert float(value) == pytest.approx(float(expected), rel=1e-6)
    pairs = zip(jax.tree.leaves(by_chunks), jax.tree.leaves(by_plain), strict=True)
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_no_more_logits_are_kept_than_a_chunk_of_them():
    b, t, vocab, chunk = 8, 64, 2000, 64
    head, features, targets = case(b, t, 8, vocab)

    def temporary(chunk):
        gradient = eqx.filter_grad(lambda x: mean_loss(*x, targets, chunk))
        compiled = jax.jit(lambda x: gradient((head, x))[1]).lower(features).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporary(chunk) < 4 * chunk * vocab * 4
    assert temporary(b * t) > b * t * vocab * 4


def test_a_head_of_another_precision_has_its_gradient_in_it():
    head, features, targets = case()
    low = eqx.tree_at(lambda h: h.weight, head, head.weight.astype(jnp.bfloat16))
    gradient = eqx.filter_grad(
        lambda h: mean_loss(h, features.astype(jnp.bfloat16), targets, 6)
    )(low)
    exact = eqx.filter_grad(lambda h: mean_loss(h, features, targets, 6))(head)
    assert gradient.weight.dtype == jnp.bfloat16
    np.testing.assert_allclose(
        gradient.weight.astype(jnp.float32), exact.weight, atol=2e-3
    )


def test_work_of_the_head_is_the_same_tied_or_not():
    from allocsearch.parsing import parse
    from allocsearch.tasks.fineweb import FineWeb
    from allocsearch.tasks.fineweb.config import FineWebConfig
    from allocsearch.tasks.resolve import task_overhead

    fields = {"tokenizer": "bytes"}
    for tie in (False, True):
        task = FineWeb(parse(FineWebConfig, {**fields, "tie": tie}))
        assert task_overhead(task, 24) == Work(core=0, head=2 * 24 * 257)
