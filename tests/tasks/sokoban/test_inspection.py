"""What a user is told about level files."""

from pathlib import Path

import pytest

from allocsearch.errors import DataError
from allocsearch.tasks.sokoban.generator import generate_levels
from allocsearch.tasks.sokoban.inspection import inspect_levels
from allocsearch.tasks.sokoban.level_packs import load_levels
from allocsearch.tasks.sokoban.levels import LevelSet


def write(path: Path, *sets: LevelSet) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    boards = [levels.text(index) for levels in sets for index in range(len(levels))]
    path.write_text("\n\n".join(boards))


@pytest.fixture
def folder(tmp_path) -> Path:
    """Training files that repeat a level, and a held-out file that has one of them."""
    levels = generate_levels(20, interior=(4, 5), n_boxes=2, seed=0)
    other = generate_levels(5, interior=(6, 6), seed=1)
    write(tmp_path / "set/train/000.txt", levels.subset(slice(6)))
    write(tmp_path / "set/train/001.txt", levels.subset([6, 7, 2]), other)
    write(tmp_path / "set/valid/a.xsb", levels.subset([8, 9, 7]))
    write(tmp_path / "set/test.sok", levels.subset([10]))
    return tmp_path / "set"


def test_counts_of_every_split(folder):
    report = inspect_levels(folder)
    assert list(report.parts) == ["train", "valid", "test"]
    assert report.parts["train"] == {
        "files": 2,
        "levels": 14,
        "boards": ["6x7", "8x8"],
        "boxes": [1, 2],
        "problems": 0,
    }
    assert [part["levels"] for part in report.parts.values()] == [14, 3, 1]
    assert report.parts["valid"]["boxes"] == [2]
    assert report.problems == ()


def test_duplicates_are_named_by_file_and_place(folder):
    report = inspect_levels(folder)
    within, across = report.details["duplicates"]
    assert (within["earlier"], within["later"]) == ("train", "train")
    assert (within["n_levels"], within["identical"], within["symmetric"]) == (14, 1, 0)
    first = f"{folder / 'train/000.txt'}, level 3"
    second = f"{folder / 'train/001.txt'}, level 3"
    assert within["examples"] == [[first, second]]
    assert (across["earlier"], across["later"], across["identical"]) == (
        "train",
        "valid",
        1,
    )
    first = f"{folder / 'train/001.txt'}, level 2"
    assert across["examples"] == [[first, f"{folder / 'valid/a.xsb'}, level 3"]]
    assert report.notes[0].startswith("train: 1 of 14 levels repeat an earlier one (1")
    assert report.notes[1].startswith("valid: 1 of 3 levels are also in train (1 ident")


def test_packs_are_those_that_loading_uses(folder, monkeypatch):
    report = inspect_levels(folder)
    assert set(report.details["packs"]) == {"train", "valid", "test"}
    assert "Packed for fast loading" in report.notes[-1]
    monkeypatch.setattr(
        "allocsearch.tasks.sokoban.level_packs.read_files", lambda *_: 1 / 0
    )
    assert len(load_levels(folder / "train")) == 14
    assert len(load_levels(folder / "test.sok", max_levels=5)) == 1


def test_a_cache_that_cannot_be_written_is_a_note(folder, cache):
    (cache / "levels").write_text("")
    report = inspect_levels(folder)
    assert report.notes[-1].startswith("Not packed: ")
    assert report.problems == ()


def test_every_problem_is_listed_and_nothing_is_packed(folder):
    (folder / "valid/b.txt").write_text("#####\n#@$x#\n#####\n\n####\n#@ #\n####")
    (folder / "valid/README.txt").write_text("Levels for everyone.")
    report = inspect_levels(folder)
    assert [text.partition(":")[0] for text in report.problems] == [
        f"{folder / 'valid/README.txt'}, line 1",
        f"{folder / 'valid/b.txt'}, line 2",
        f"{folder / 'valid/b.txt'}, line 5",
    ]
    assert report.parts["valid"]["problems"] == 3
    assert report.parts["valid"]["levels"] == 3
    assert report.details["packs"]["valid"] == {}
    assert report.details["packs"]["train"]["bytes"] > 0
    (folder / "valid/a.xsb").unlink()
    assert inspect_levels(folder).parts["valid"]["levels"] == 0


@pytest.mark.usefixtures("folder")
def test_files_collections_and_directories_without_splits(tmp_path):
    levels = generate_levels(3, seed=5)
    write(tmp_path / "hard/000.txt", levels)
    write(tmp_path / "hard/more/000.txt", levels)
    write(tmp_path / "alone.txt", levels)
    assert list(inspect_levels(tmp_path).parts) == [
        ".",
        "hard",
        "hard/more",
        "set/train",
        "set/valid",
        "set/test",
    ]
    assert list(inspect_levels(tmp_path / "alone.txt").parts) == ["alone.txt"]
    with pytest.raises(DataError, match="no such file"):
        inspect_levels(tmp_path / "absent")


@pytest.mark.real_data
def test_real_levels_are_sound_and_distinct(boxoban):
    report = inspect_levels(boxoban)
    assert report.problems == ()
    assert report.details["duplicates"] == []
    assert report.parts["unfiltered/train"]["levels"] == 30_000
    assert {tuple(part["boards"]) for part in report.parts.values()} == {("10x10",)}
    assert {tuple(part["boxes"]) for part in report.parts.values()} == {(4,)}
