"""Directories of level files: which files, in which order, and which split."""

from pathlib import Path

import numpy as np
import pytest

from allocsearch.errors import DataError
from allocsearch.tasks.sokoban.generator import generate_levels
from allocsearch.tasks.sokoban.level_files import read_levels, split_path
from allocsearch.tasks.sokoban.levels import LevelSet


def write_levels(path: Path, n_levels: int, seed=0, interior=(3, 4)) -> LevelSet:
    path.parent.mkdir(parents=True, exist_ok=True)
    levels = generate_levels(n_levels, interior=interior, seed=seed)
    path.write_text("\n\n".join(map(levels.text, range(n_levels))))
    return levels


def same(one: LevelSet, other: LevelSet) -> bool:
    return one.digest() == other.digest()


def test_a_directory_is_read_in_the_order_of_names(tmp_path):
    second = write_levels(tmp_path / "set/train/001.txt", 3, seed=1)
    first = write_levels(tmp_path / "set/train/000.txt", 2, seed=0)
    levels = read_levels(tmp_path / "set/train")
    assert len(levels) == 5
    assert levels.source == "boxoban:set/train (2 files)"
    assert same(levels.subset([0, 1]), first)
    assert same(levels.subset(np.array([2, 3, 4])), second)
    few = read_levels(str(tmp_path / "set/train"), max_levels=1)
    assert same(few, first.subset([0]))
    assert few.source == "boxoban:set/train (1 files)"
    assert len(read_levels(tmp_path / "set/train", max_levels=4)) == 4
    assert len(read_levels(tmp_path / "set/train", max_levels=9)) == 5


def test_files_of_every_format_at_any_depth(tmp_path):
    names = ["a/deep/er.XSB", "a/x.txt", "b.sok", "c.txt"]
    sets = [write_levels(tmp_path / n, 2, seed=i) for i, n in enumerate(names)]
    for name in (".hidden/0.txt", ".swap.txt", "notes.md", "a/LICENSE"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("no level")
    levels = read_levels(tmp_path)
    assert len(levels) == 8
    assert levels.source == f"levels:{tmp_path.parent.name}/{tmp_path.name} (4 files)"
    for index, part in enumerate(sets):
        assert same(levels.subset(slice(2 * index, 2 * index + 2)), part)
    assert same(read_levels(tmp_path / "b.sok"), sets[2])
    assert read_levels(tmp_path / "b.sok").source.startswith("levels:")


def test_boards_of_other_sizes_are_padded_to_the_largest_read(tmp_path):
    small = write_levels(tmp_path / "0.txt", 2, interior=(3, 4))
    high = write_levels(tmp_path / "1.txt", 2, interior=(6, 3))
    levels = read_levels(tmp_path)
    assert levels.shape == (8, 6)
    assert same(levels.subset([0, 1]), small.padded((8, 6)))
    assert same(levels.subset([2, 3]), high.padded((8, 6)))
    assert read_levels(tmp_path, max_levels=2).shape == (5, 6)
    assert read_levels(tmp_path, max_levels=3).shape == (8, 6)


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="no such file or directory"):
        read_levels(tmp_path / "absent")
    with pytest.raises(DataError, match=r"no level files \(\.txt, \.xsb, \.sok\)"):
        read_levels(tmp_path)
    write_levels(tmp_path / "000.txt", 2)
    (tmp_path / "001.txt").write_text("###")
    with pytest.raises(DataError, match=r"001\.txt, line 1: .* exactly one player"):
        read_levels(tmp_path)
    assert len(read_levels(tmp_path, max_levels=2)) == 2
    with pytest.raises(DataError, match="max_levels"):
        read_levels(tmp_path, max_levels=0)
    (tmp_path / "001.txt").unlink()
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"gone\.txt: cannot be read: No such file"):
        read_levels(tmp_path)


def test_links_to_directories_are_followed_once(tmp_path):
    levels = write_levels(tmp_path / "elsewhere/more/0.txt", 3)
    (tmp_path / "set").mkdir()
    (tmp_path / "set/train").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/more/loop").symlink_to(tmp_path / "elsewhere")
    for path in ("set", "set/train"):
        assert same(read_levels(tmp_path / path), levels)


def test_splits(tmp_path):
    for name in ("unfiltered/train", "unfiltered/test", "medium/train", "medium/valid"):
        write_levels(tmp_path / name / "000.txt", 1)
    for name in ("hard/000.txt", "one.xsb", "files/train.sok", "files/valid.xsb"):
        write_levels(tmp_path / name, 1)
    write_levels(tmp_path / "twice/train/000.txt", 1)
    write_levels(tmp_path / "twice/train.txt", 1)
    (tmp_path / "empty").mkdir()
    for root, split, path in [
        ("unfiltered", "train", "unfiltered/train"),
        ("files", "train", "files/train.sok"),
        ("files", "valid", "files/valid.xsb"),
        ("hard", "test", "hard"),
        ("one.xsb", "test", "one.xsb"),
    ]:
        assert split_path(str(tmp_path / root), split) == tmp_path / path
    for root, split, message in [
        ("hard", "train", "without splits are a test split only, not 'train': put"),
        ("one.xsb", "valid", "test split only"),
        ("medium", "test", r"no 'test' split \(found train, valid\): add"),
        ("unfiltered", "valid", "no 'valid' split"),
        ("empty", "train", "found nothing"),
        ("absent", "train", "no such file or directory"),
        (".", "train", "name one collection, such as"),
        ("twice", "train", r"both train and train\.txt"),
    ]:
        with pytest.raises(DataError, match=message):
            split_path(tmp_path / root, split)


@pytest.mark.real_data
def test_the_splits_of_real_directories(boxoban):
    for root, split in [("unfiltered", "train"), ("medium", "valid"), ("hard", "test")]:
        path = split_path(boxoban / root, split)
        assert len(read_levels(path, max_levels=10)) == 10
    with pytest.raises(DataError, match="no 'test' split"):
        split_path(boxoban / "medium", "test")
