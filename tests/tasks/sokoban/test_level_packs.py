"""Packed levels: how small, that nothing is lost, and that no bad pack is believed."""

import os
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest

from allocsearch.errors import DataError
from allocsearch.tasks.caching import cache_directory
from allocsearch.tasks.sokoban.generator import generate_levels
from allocsearch.tasks.sokoban.level_files import level_files, read_levels
from allocsearch.tasks.sokoban.level_packs import (
    fingerprint,
    load_levels,
    pack,
    pack_path,
    read_pack,
    unpack,
)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Three files of boards of three sizes, four levels each."""
    path = tmp_path / "set"
    path.mkdir()
    for index, interior in enumerate([(4, 4), (3, 7), (6, 3)]):
        levels = generate_levels(4, interior=interior, seed=index)
        text = "\n\n".join(map(levels.text, range(4)))
        (path / f"{index}.txt").write_text(text)
    return path


@pytest.mark.parametrize(
    ("interior", "n_boxes", "n_bytes"),
    [
        ((8, 8), 4, 25),
        ((5, 5), 1, 13),
        ((3, 9), 2, 13),
        ((16, 16), 3, 97),
        ((16, 17), 3, 104),
    ],
)
def test_levels_as_bits_and_back(interior, n_boxes, n_bytes):
    levels = generate_levels(50, interior=interior, n_boxes=n_boxes, seed=0)
    bits = pack(levels)
    assert bits.shape == (50, n_bytes)
    back = unpack(bits, levels.shape, "here")
    assert back.digest() == levels.digest()
    assert back.players.dtype == np.int32
    for index in (0, 49):
        assert pack(levels.subset([index])).tobytes() == bits[index].tobytes()


def test_bits_by_hand():
    levels = generate_levels(1, interior=(1, 3), seed=0, min_pushes=1)
    (bits,) = pack(levels)
    planes = [levels.walls, levels.goals, levels.boxes]
    expected = [
        int(f"{''.join(str(int(x)) for x in p[0, 1, 1:4])}00000", 2) for p in planes
    ]
    assert bits.tolist() == [*expected, levels.players[0] - 6]


def test_a_board_without_a_border_cannot_be_packed():
    levels = generate_levels(1, interior=(5, 5), seed=0, wall_density=0.0).interior()
    with pytest.raises(DataError, match="border of level 0"):
        pack(levels)


def packs(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*"))[1:]


@pytest.mark.parametrize("max_levels", [None, 1, 4, 5, 8, 11, 12, 50])
def test_a_pack_gives_what_the_files_give(folder, cache, max_levels):
    load_levels(folder, min_bytes=0)
    (path,) = packs(cache)
    files = level_files(folder)
    assert read_pack(path, fingerprint(files)) is not None
    expected = read_levels(folder, max_levels=max_levels)
    before = path.stat().st_mtime_ns
    levels = load_levels(folder, max_levels=max_levels, min_bytes=0)
    assert levels.digest() == expected.digest()
    assert levels.source == expected.source
    assert path.stat().st_mtime_ns == before


def test_files_are_not_read_where_there_is_a_pack(folder, monkeypatch):
    digest = load_levels(folder, min_bytes=0).digest()
    monkeypatch.setattr(
        "allocsearch.tasks.sokoban.level_packs.read_files", lambda *_: 1 / 0
    )
    assert load_levels(folder).digest() == digest


def test_small_sets_and_parts_of_sets_leave_no_pack(folder, cache):
    load_levels(folder)
    load_levels(folder, max_levels=2, min_bytes=0)
    assert not packs(cache)


@pytest.mark.parametrize("change", ["content", "time", "added", "removed"])
def test_changed_files_are_read_anew(folder, change):
    load_levels(folder, min_bytes=0)
    first = folder / "0.txt"
    if change == "content":
        first.write_text(first.read_text() + "\n\n" + "#####\n#@$.#\n#####")
    elif change == "time":
        # Another level in a text of the same size.
        turned = first.read_text().split("\n\n")[::-1]
        first.write_text("\n\n".join(turned))
        os.utime(first, ns=(0, 10**18))
    elif change == "added":
        (folder / "9.txt").write_text("#####\n#@$.#\n#####")
    else:
        first.unlink()
    fresh = load_levels(folder, min_bytes=0)
    assert fresh.digest() == read_levels(folder).digest()
    assert load_levels(folder).digest() == fresh.digest()


def test_a_damaged_pack_is_rebuilt(folder, cache):
    expected = load_levels(folder, min_bytes=0)
    (path,) = packs(cache)
    whole = path.read_bytes()
    choices = random.Random(0)
    damaged = [b"", b"\0" * len(whole), whole + b"\0", b"not a pack\n" * 30]
    damaged += [whole[: choices.randrange(len(whole))] for _ in range(20)]
    for _ in range(60):
        at = choices.randrange(len(whole))
        flipped = bytes([whole[at] ^ (1 << choices.randrange(8))])
        damaged.append(whole[:at] + flipped + whole[at + 1 :])
    for content in damaged:
        path.write_bytes(content)
        assert load_levels(folder, min_bytes=0).digest() == expected.digest()
        assert path.read_bytes() == whole
    assert packs(cache) == [path]


def test_a_cache_that_cannot_be_written_hinders_nothing(folder, cache, monkeypatch):
    expected = read_levels(folder).digest()
    (cache / "levels").write_text("a file where the directory would be")
    assert load_levels(folder, min_bytes=0).digest() == expected
    (cache / "levels").unlink()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert load_levels(folder, min_bytes=0).digest() == expected
    assert not packs(cache)


def test_where_packs_are(tmp_path, monkeypatch):
    assert cache_directory() == Path(os.environ["ALLOCSEARCH_CACHE_DIR"])
    monkeypatch.delenv("ALLOCSEARCH_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "allocsearch"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_directory() == tmp_path / "home/.cache/allocsearch"

    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", homeless)
    assert cache_directory() == Path(tempfile.gettempdir(), "allocsearch")
    assert pack_path([tmp_path / "a"]) != pack_path([tmp_path / "b"])


@pytest.mark.real_data
def test_boxoban_takes_25_bytes_a_level(boxoban, cache):
    levels = load_levels(boxoban / "unfiltered/train", min_bytes=0)
    (path,) = packs(cache)
    assert path.stat().st_size < 25.1 * len(levels)
    again = load_levels(boxoban / "unfiltered/train")
    assert again.digest() == levels.digest()
    assert again.digest() == read_levels(boxoban / "unfiltered/train").digest()
