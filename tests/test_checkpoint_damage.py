"""Whatever happens to a checkpoint's files: the right values, or a refusal."""

import itertools
import json
import random
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch import checkpoint
from allocsearch.checkpoint.format import _digest_json
from allocsearch.errors import CheckpointError

N_CASES = 600


def tree(seed):
    draw = np.random.default_rng(seed)
    return {
        "a": jnp.asarray(draw.normal(size=(3, 2)), jnp.float32),
        "b": jnp.asarray(draw.normal(size=(3, 2)), jnp.float32),
        "half": jnp.asarray(draw.normal(size=4), jnp.bfloat16),
        "n": jnp.asarray(seed, jnp.int32),
    }


def same(a, b):
    return all(np.array_equal(a[name], b[name]) for name in b)


@pytest.fixture
def place(tmp_path):
    """Two steps, of seeds 1 and 2; another checkpoint beside them, of seed 3."""
    place = tmp_path / "c"
    for seed in (1, 2):
        checkpoint.save(place, tree(seed), {"seed": seed, "n_done": seed})
    checkpoint.save(tmp_path / "other", tree(3), {"seed": 3, "n_done": 3})
    return place


def newest(place):
    return max(place.iterdir())


def flip(draw, step, _):
    path = draw.choice(sorted(step.iterdir()))
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 1, 5])):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(bytes(data))


def truncate(draw, step, _):
    path = draw.choice(sorted(step.iterdir()))
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data))])


def lose_a_file(draw, step, _):
    draw.choice(sorted(step.iterdir())).unlink()


def become_a_folder(draw, step, _):
    path = draw.choice(sorted(step.iterdir()))
    path.unlink()
    path.mkdir()


def swap_file(draw, step, other):
    """A file of another checkpoint in the place of its own."""
    name = draw.choice(["arrays.bin", "manifest.json"])
    shutil.copy(newest(other) / name, step / name)


def add_files(draw, step, _):
    (step / f"extra{draw.randrange(9)}.npy").write_bytes(draw.randbytes(20))
    (step / "arrays.npz").write_bytes(draw.randbytes(20))


def append_bytes(draw, step, _):
    path = draw.choice(sorted(step.iterdir()))
    path.write_bytes(path.read_bytes() + draw.randbytes(3))


def change_manifest(draw, step, _):
    """Any value replaced by any other, with a hash that is right or wrong."""
    path = step / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest.pop("manifest_sha256")
    target = manifest
    while True:
        key = draw.choice(sorted(target))
        if not isinstance(target[key], dict) or draw.random() < 0.3:
            break
        target = target[key]
    if draw.random() < 0.3:
        del target[key]
    else:
        odd = (None, -1, 0, 10**30, 2.5, "", "x", [], [[]], {}, True, "../../etc")
        target[key] = draw.choice(odd)
    # Rehashed where that cannot be told from a checkpoint that was meant to be so.
    if target is not manifest.get("metadata") and draw.random() < 0.7:
        manifest["manifest_sha256"] = _digest_json(manifest)
    path.write_text(json.dumps(manifest))


def swap_fields(draw, step, _):
    path = step / "manifest.json"
    manifest = json.loads(path.read_text())
    leaves = manifest["leaves"]
    one, two = draw.sample(sorted(leaves), 2)
    field = draw.choice(["shape", "dtype", "offset", "nbytes", "sha256"])
    if leaves[one][field] == leaves[two][field]:
        field = "sha256"
    leaves[one][field], leaves[two][field] = leaves[two][field], leaves[one][field]
    if draw.random() < 0.5:
        body = {k: v for k, v in manifest.items() if k != "manifest_sha256"}
        manifest["manifest_sha256"] = _digest_json(body)
    path.write_text(json.dumps(manifest))


def nest_deeply(_, step, __):
    (step / "manifest.json").write_text("[" * 100_000)


DAMAGES = (
    flip,
    truncate,
    lose_a_file,
    become_a_folder,
    swap_file,
    add_files,
    append_bytes,
    change_manifest,
    swap_fields,
    nest_deeply,
)


def test_any_damage_is_refused_and_the_step_before_it_used(place, tmp_path):
    """Also with both damaged: then nothing is read at all."""
    draw = random.Random(0)
    kept = tmp_path / "kept"
    shutil.copytree(place, kept)
    counts = {damage: [0, 0] for damage in DAMAGES}
    for i, damage in zip(range(N_CASES), itertools.cycle(DAMAGES)):
        shutil.rmtree(place)
        shutil.copytree(kept, place)
        both = i // len(DAMAGES) % 4 == 0
        for step in sorted(place.iterdir())[0 if both else 1 :]:
            damage(draw, step, tmp_path / "other")
        notes = []
        try:
            found = checkpoint.latest(place, note=notes.append)
            values = found.restore(tree(0))
        except CheckpointError:
            counts[damage][0] += 1
            continue
        seed = found.metadata["seed"]
        assert same(values, tree(seed)), damage
        assert seed == 2 or (len(notes) == 1 and newest(place).name in notes[0])
        counts[damage][1] += seed == 1
    never_harmless = {*DAMAGES} - {flip, add_files, append_bytes, change_manifest}
    for damage in never_harmless:
        n = N_CASES // len(DAMAGES)
        assert sum(counts[damage]) == n, (damage, counts[damage])
    assert counts[add_files] == [0, 0]


def test_a_foreign_step_is_passed_over(place):
    def check(metadata):
        if metadata["seed"] != 1:
            raise CheckpointError("of another trial")

    notes = []
    found = checkpoint.latest(place, check=check, note=notes.append)
    assert found.metadata["seed"] == 1
    assert "of another trial" in notes[0]

    def refuse(_):
        raise CheckpointError("not this one")

    with pytest.raises(CheckpointError, match=r"not this one \(1 before it refused"):
        checkpoint.latest(place, check=refuse)
