"""Checkpoints come back whole, or are refused with a reason."""

import json
import random

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch import checkpoint
from allocsearch.errors import CheckpointError, StudyError


class Tree(eqx.Module):
    weight: jax.Array
    half: jax.Array
    key: jax.Array
    count: jax.Array
    name: str = eqx.field(static=True)
    empty: None = None


def tree(seed=0, width=3):
    values = np.random.default_rng(seed).normal(size=(2, width))
    return Tree(
        weight=jnp.asarray(values, jnp.float32),
        half=jnp.asarray(values, jnp.bfloat16),
        key=jax.random.key(seed),
        count=jnp.asarray(seed, jnp.int32),
        name="kept from the template",
    )


def equal(a, b):
    same_key = jnp.all(jax.random.key_data(a.key) == jax.random.key_data(b.key))
    rest = all(
        np.array_equal(getattr(a, n), getattr(b, n))
        for n in ("weight", "half", "count")
    )
    return bool(same_key) and rest


def test_what_is_saved_comes_back_bit_for_bit(tmp_path):
    checkpoint.save(tmp_path / "c", tree(7), {"n_done": 3})
    again = checkpoint.load(tmp_path / "c", tree(0))
    assert equal(again, tree(7))
    assert again.half.dtype == jnp.bfloat16
    assert again.name == "kept from the template"
    assert checkpoint.read_manifest(tmp_path / "c")["metadata"] == {"n_done": 3}


def test_saving_again_replaces(tmp_path):
    for seed in (1, 2):
        checkpoint.save(tmp_path / "c", tree(seed), {})
    assert equal(checkpoint.load(tmp_path / "c", tree(0)), tree(2))
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_a_kill_while_saving_leaves_the_old_one(tmp_path):
    place = tmp_path / "c"
    checkpoint.save(place, tree(1), {})
    # killed before the rename: an unfinished folder beside it
    (tmp_path / "c.new").mkdir()
    (tmp_path / "c.new" / "arrays.npz").write_bytes(b"half")
    assert equal(checkpoint.load(place, tree(0)), tree(1))
    # killed between the two renames: only the old one under its other name
    place.rename(tmp_path / "c.old")
    assert checkpoint.exists(place)
    assert equal(checkpoint.load(place, tree(0)), tree(1))
    checkpoint.save(place, tree(2), {})
    assert equal(checkpoint.load(place, tree(0)), tree(2))


def test_another_network_is_refused(tmp_path):
    checkpoint.save(tmp_path / "c", tree(1), {})
    with pytest.raises(CheckpointError, match=r"another network: \.weight is float32"):
        checkpoint.load(tmp_path / "c", tree(0, width=4))
    with pytest.raises(CheckpointError, match="they differ at"):
        checkpoint.load(tmp_path / "c", {"weight": jnp.zeros(3)})


def test_missing_and_other_formats_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        checkpoint.load(tmp_path / "c", tree(0))
    checkpoint.save(tmp_path / "c", tree(1), {})
    path = tmp_path / "c" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(CheckpointError, match="another format"):
        checkpoint.load(tmp_path / "c", tree(0))


def test_any_damage_is_refused(tmp_path):
    """Random bits, cuts and swapped fields: never wrong values, never another error."""
    draw = random.Random(0)
    place = tmp_path / "c"
    checkpoint.save(place, tree(1), {"n_done": 3})
    files = {p: p.read_bytes() for p in place.iterdir()}
    refused = 0
    for _ in range(500):
        for path, data in files.items():
            path.write_bytes(data)
        path = draw.choice(sorted(files))
        path.write_bytes(_damaged(draw, files[path]))
        try:
            again = checkpoint.load(place, tree(0))
        except CheckpointError:
            refused += 1
        else:  # a bit of the archive that means nothing, or of blank space
            assert equal(again, tree(1))
    assert refused > 300


def _damaged(draw, data):
    kind = draw.randrange(3)
    at = draw.randrange(len(data))
    if kind == 0:
        return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    other = draw.randrange(len(data))
    changed = bytearray(data)
    changed[at], changed[other] = changed[other], changed[at]
    return bytes(changed)


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch):
    checkpoint.save(tmp_path / "c", tree(1), {})

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.np, "savez", full)
    with pytest.raises(StudyError, match="cannot be written: No space left"):
        checkpoint.save(tmp_path / "c", tree(2), {})
    assert equal(checkpoint.load(tmp_path / "c", tree(0)), tree(1))
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
