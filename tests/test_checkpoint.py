"""Checkpoints come back whole, or are refused with a reason."""

import hashlib
import json
import os
import shutil

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


def steps(place):
    """The folders of a checkpoint's steps, oldest first."""
    return sorted(p for p in place.iterdir() if p.is_dir())


def test_the_last_two_stay_and_the_newest_counts(tmp_path):
    place = tmp_path / "c"
    for seed in (1, 2, 3):
        checkpoint.save(place, tree(seed), {"seed": seed})
    assert equal(checkpoint.load(place, tree(0)), tree(3))
    assert len(steps(place)) == 2
    manifests = [json.loads((s / "manifest.json").read_text()) for s in steps(place)]
    assert [m["metadata"]["seed"] for m in manifests] == [2, 3]
    checkpoint.save(place, tree(4), {}, keep=1)
    assert [p.name[:6] for p in place.iterdir()] == ["000004"]


def test_an_unfinished_step_counts_for_nothing(tmp_path):
    place = tmp_path / "c"
    checkpoint.save(place, tree(1), {})
    unfinished = place / "000002-0123abcd.new"
    unfinished.mkdir()
    (unfinished / "arrays.bin").write_bytes(b"half")
    assert equal(checkpoint.load(place, tree(0)), tree(1))
    checkpoint.save(place, tree(2), {})
    assert equal(checkpoint.load(place, tree(0)), tree(2))
    os.utime(unfinished, (0, 0))
    checkpoint.save(place, tree(3), {})
    assert not unfinished.exists()


def test_another_network_is_refused(tmp_path):
    checkpoint.save(tmp_path / "c", tree(1), {})
    with pytest.raises(CheckpointError, match=r"another network: \.weight is float32"):
        checkpoint.load(tmp_path / "c", tree(0, width=4))
    with pytest.raises(CheckpointError, match="they differ at"):
        checkpoint.load(tmp_path / "c", {"weight": jnp.zeros(3)})


def test_part_of_a_checkpoint_is_read(tmp_path):
    checkpoint.save(tmp_path / "c", {"a": jnp.arange(3), "b": jnp.ones(2)}, {})
    some = checkpoint.load(tmp_path / "c", {"b": jnp.zeros(2)}, partial=True)
    assert some["b"].tolist() == [1, 1]


@pytest.mark.parametrize(
    "leaf", [jnp.zeros((0, 3)), jnp.zeros(()), jnp.array([True, False])]
)
def test_odd_shapes_and_kinds(tmp_path, leaf):
    checkpoint.save(tmp_path / "c", [leaf], {})
    (again,) = checkpoint.load(tmp_path / "c", [jnp.zeros_like(leaf)])
    assert again.dtype == leaf.dtype
    assert np.array_equal(again, leaf)


def test_missing_and_other_formats_are_refused(tmp_path):
    place = tmp_path / "c"
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        checkpoint.load(place, tree(0))
    assert not checkpoint.exists(place)
    checkpoint.save(place, tree(1), {})
    (step,) = steps(place)
    path = step / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(CheckpointError, match="another format"):
        checkpoint.load(place, tree(0))


def test_the_format_before_this_one_is_refused_clearly(tmp_path):
    (tmp_path / "manifest.json").write_text('{"format": 1}')
    (tmp_path / "arrays.npz").write_bytes(b"")
    assert checkpoint.exists(tmp_path)
    with pytest.raises(CheckpointError, match=r"earlier development version.*again"):
        checkpoint.load(tmp_path, tree(0))


def test_the_hashes_in_a_manifest_are_those_of_the_arrays(tmp_path):
    """Against a plain reading of the two files."""
    place = tmp_path / "c"
    checkpoint.save(place, tree(5), {})
    (step,) = steps(place)
    leaves = json.loads((step / "manifest.json").read_text())["leaves"]
    data = (step / "arrays.bin").read_bytes()
    entry = leaves[".weight"]
    raw = data[entry["offset"] : entry["offset"] + entry["nbytes"]]
    assert hashlib.sha256(raw).hexdigest() == entry["sha256"]
    assert np.frombuffer(raw, "<f4").reshape(2, 3).tolist() == tree(5).weight.tolist()
    assert sum(e["nbytes"] for e in leaves.values()) == len(data)


def test_removing_and_setting_aside(tmp_path):
    place = tmp_path / "c"
    checkpoint.remove(place)
    checkpoint.save(place, tree(1), {})
    checkpoint.set_aside(place)
    assert not checkpoint.exists(place)
    assert equal(checkpoint.load(tmp_path / "c.damaged", tree(0)), tree(1))
    checkpoint.save(place, tree(2), {})
    checkpoint.set_aside(place)
    assert equal(checkpoint.load(tmp_path / "c.damaged", tree(0)), tree(2))
    checkpoint.remove(tmp_path / "c.damaged")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch):
    checkpoint.save(tmp_path / "c", tree(1), {})

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("allocsearch.checkpoint.format._write_manifest", full)
    with pytest.raises(StudyError, match="cannot be written: No space left"):
        checkpoint.save(tmp_path / "c", tree(2), {})
    assert equal(checkpoint.load(tmp_path / "c", tree(0)), tree(1))
    assert len(list((tmp_path / "c").iterdir())) == 1


def test_space_is_looked_for_before_writing(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(StudyError, match="but its disk has 100 B free: make room"):
        checkpoint.save(tmp_path / "c", tree(2), {})
    assert not list(tmp_path.iterdir())
