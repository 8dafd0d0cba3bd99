"""What `data` of the config may name, and the splits that come of it."""

from pathlib import Path

import pytest

from allocsearch.errors import DataError
from allocsearch.parsing import parse
from allocsearch.tasks.sokoban import data
from allocsearch.tasks.sokoban.config import SokobanConfig
from allocsearch.tasks.sokoban.data import Splits, describe, load_splits
from allocsearch.tasks.sokoban.generator import disjoint_splits, generate_levels
from allocsearch.tasks.sokoban.level_packs import load_levels
from allocsearch.tasks.sokoban.levels import LevelSet


def write(path: Path, n_levels: int, seed: int, interior=(3, 4)) -> LevelSet:
    path.parent.mkdir(parents=True, exist_ok=True)
    levels = generate_levels(n_levels, interior=interior, seed=seed)
    path.write_text("\n\n".join(map(levels.text, range(n_levels))))
    return levels


def splits_of(root: Path, **fields) -> Splits:
    return load_splits(parse(SokobanConfig, {"data": str(root), **fields}))


def test_splits_of_several_formats_and_sizes_share_one_board(tmp_path):
    train = [
        write(tmp_path / "train/deep/0.txt", 3, seed=0),
        write(tmp_path / "train/more.sok", 2, seed=1, interior=(6, 3)),
    ]
    valid = write(tmp_path / "valid.xsb", 4, seed=2, interior=(3, 7))
    splits = splits_of(tmp_path)
    assert list(splits) == ["train", "valid"]
    assert {levels.shape for levels in splits.values()} == {(8, 9)}
    assert splits["valid"].digest() == valid.padded((8, 9)).digest()
    for indices, part in zip([[0, 1, 2], [3, 4]], train, strict=True):
        padded = part.padded((8, 9))
        assert splits["train"].subset(indices).digest() == padded.digest()
    inner = splits_of(tmp_path, environment={"keep_border": False})
    assert {levels.shape for levels in inner.values()} == {(6, 7)}
    described = describe(splits)
    assert described["train"]["source"].startswith("levels:")
    assert described["train"]["board"] == [8, 9]
    assert described["valid"]["n_boxes"] == [1]


def test_only_as_many_levels_as_asked_for(tmp_path):
    for seed, name in enumerate(("train", "valid", "test")):
        write(tmp_path / name / "0.txt", 5, seed=seed)
        write(tmp_path / name / "1.txt", 5, seed=seed + 10)
    splits = splits_of(tmp_path, levels={"n_train": 7, "n_valid": 2, "n_test": 50})
    assert {name: len(levels) for name, levels in splits.items()} == {
        "train": 7,
        "valid": 2,
        "test": 10,
    }


@pytest.mark.parametrize("name", ["some.xsb", "flat"])
def test_a_file_or_a_directory_without_splits_is_for_tests(tmp_path, name):
    file = tmp_path / "some.xsb" if name == "some.xsb" else tmp_path / "flat/0.txt"
    levels = write(file, 3, seed=0)
    (found,) = splits_of(tmp_path / name).items()
    assert found[0] == "test"
    assert found[1].digest() == levels.digest()


def test_generated_splits_do_not_depend_on_what_is_asked_for_first():
    """Also against all splits drawn at once."""
    sizes = {"n_train": 30, "n_valid": 9, "n_test": 6}
    config = parse(SokobanConfig, {"levels": {"interior": [3, 4], **sizes}})
    levels = config.levels
    recipe = {"interior": (3, 4), "n_boxes": levels.n_boxes, "seed": levels.seed}
    together = disjoint_splits(
        {"valid": 9, "test": 6}, min_pushes=levels.min_pushes, **recipe
    )
    for order in (("train", "valid", "test"), ("test", "valid", "train")):
        splits = load_splits(config)
        found = {name: splits[name].digest() for name in order}
        assert splits.shape == splits["train"].shape == (5, 6)
        for name, expected in together.items():
            assert found[name] == expected.digest()
        assert found["train"] == load_splits(config)["train"].digest()
    assert len(splits["train"]) == 30


def test_a_packed_split_is_read_only_when_asked_for(tmp_path, monkeypatch):
    write(tmp_path / "train/0.txt", 5, seed=0, interior=(5, 6))
    write(tmp_path / "valid/0.txt", 3, seed=1)
    whole = {name: levels.digest() for name, levels in splits_of(tmp_path).items()}
    for name in ("train", "valid"):
        load_levels(tmp_path / name, min_bytes=0)  # leaves a pack
    read = []

    def load(path, **options):
        read.append(path.name)
        return load_levels(path, **options)

    monkeypatch.setattr(data, "load_levels", load)
    splits = splits_of(tmp_path)
    assert (splits.shape, read) == ((7, 8), [])
    assert splits["valid"].digest() == whole["valid"]
    assert read == ["valid"]
    assert splits["train"].digest() == whole["train"]
    few = splits_of(tmp_path, levels={"n_train": 2})
    assert few.shape == few["train"].shape == (7, 8)


def test_training_needs_train_and_valid(tmp_path):
    write(tmp_path / "valid/0.txt", 3, seed=0)
    with pytest.raises(DataError, match=r"no 'train' split \(found valid\)"):
        splits_of(tmp_path)
    (tmp_path / "valid").rename(tmp_path / "train")
    with pytest.raises(DataError, match=r"no 'valid' split \(found train\)"):
        splits_of(tmp_path)


def test_a_broken_level_is_named(tmp_path):
    write(tmp_path / "valid/0.txt", 3, seed=0)
    write(tmp_path / "train/0.txt", 3, seed=1)
    (tmp_path / "train/1.txt").write_text("; 0\n#####\n#@$x#\n#####")
    with pytest.raises(DataError, match=r"train/1\.txt, line 3: .* 'x'"):
        splits_of(tmp_path)
