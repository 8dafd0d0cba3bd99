"""Level files: what is read, and that whatever breaks a rule is named."""

import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest

from allocsearch.errors import DataError
from allocsearch.tasks.sokoban.generator import generate_levels
from allocsearch.tasks.sokoban.levels import (
    LevelSet,
    boxoban_split,
    parse_boxoban,
    read_boxoban,
    render_text,
)

FIRST = ["######", "#@ $.#", "# #  #", "######"]
SECOND = ["######", "# *+ #", "#  $ #", "######"]
TWO = "\n".join(["; 0", *FIRST, "", "; 1", *SECOND, "", ""])


def squares(plane: np.ndarray) -> set[tuple[int, int]]:
    return {(int(row), int(column)) for row, column in np.argwhere(plane)}


def drawn(levels: LevelSet, index: int) -> list[str]:
    return render_text(
        levels.walls[index],
        levels.goals[index],
        levels.boxes[index],
        levels.players[index],
    ).split("\n")


def assert_same(one: LevelSet, other: LevelSet) -> None:
    assert one.digest() == other.digest()
    for name in ("walls", "goals", "boxes", "players"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_planes_of_a_text_drawn_by_hand():
    levels = parse_boxoban(TWO, origin="here")
    assert len(levels) == 2
    assert levels.shape == (4, 6)
    assert levels.source == "here"
    assert squares(levels.goals[0]) == {(1, 4)}
    assert squares(levels.boxes[0]) == {(1, 3)}
    assert squares(~levels.walls[0]) == {(1, j) for j in range(1, 5)} | {
        (2, 1),
        (2, 3),
        (2, 4),
    }
    assert squares(levels.goals[1]) == {(1, 2), (1, 3)}
    assert squares(levels.boxes[1]) == {(1, 2), (2, 3)}
    assert levels.players.tolist() == [7, 9]
    assert levels.players.dtype == np.int32
    assert {p.dtype for p in (levels.walls, levels.goals, levels.boxes)} == {
        np.dtype(bool)
    }
    assert [drawn(levels, 0), drawn(levels, 1)] == [FIRST, SECOND]


@pytest.mark.parametrize(
    "text",
    [
        TWO.rstrip("\n"),
        TWO.replace("\n", "\r\n"),
        TWO.replace("\n", "\r"),
        "\n\n" + TWO + "\n\n",
        TWO.replace("; 1\n", ""),
        TWO.replace("; 0", "; a title \u2603"),
        TWO.replace("\n\n", "\n   \n"),
        TWO.replace("\n\n; 1", "\n; 1"),
    ],
    ids=[
        "no final newline",
        "CRLF",
        "CR only",
        "blank lines around",
        "no header",
        "title",
        "blanks that are spaces",
        "header alone divides",
    ],
)
def test_layouts_that_mean_the_same(text):
    assert_same(parse_boxoban(text, origin="here"), parse_boxoban(TWO, origin="here"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_encodings_of_titles(tmp_path, encoding):
    file = tmp_path / "a.txt"
    file.write_bytes(TWO.replace("; 1", "; déjà vu").encode(encoding))
    assert_same(read_boxoban(file), parse_boxoban(TWO, origin="here"))


def test_rows_that_begin_with_spaces_are_kept():
    rows = ["  ####", "###  #", "#@ $.#", "######"]
    levels = parse_boxoban("\n".join(rows), origin="here")
    assert drawn(levels, 0) == rows


def test_both_parsers_agree():
    made = generate_levels(200, interior=(4, 6), n_boxes=2, seed=3)
    regular = "\n\n".join("\n".join(drawn(made, i)) for i in range(len(made)))
    # A border square that is floor, but out of reach, needs the careful parser.
    opened = [" #######", *["########"] * 3, "##@$.###", "########"]
    careful = parse_boxoban(regular + "\n\n" + "\n".join(opened), origin="here")
    assert_same(parse_boxoban(regular, origin="here"), made)
    assert_same(careful.subset(slice(200)), made)


def with_row(index: int, row: str) -> str:
    """TWO with one row of its second level replaced; its rows are lines 8 to 11."""
    rows = [*SECOND]
    rows[index] = row
    return "\n".join(["; 0", *FIRST, "", "; 1", *rows, ""])


@pytest.mark.parametrize(
    ("text", "line", "rule"),
    [
        (with_row(2, "#  $x#"), 10, "may hold only .* 'x'"),
        (with_row(2, "#\t $ #"), 10, "may hold only"),
        (with_row(2, "#  $ \u00e9"), 10, "may hold only"),
        (with_row(1, "# *+ ##"), 9, "one length, but this has 7 squares .* 6"),
        (with_row(3, "#####"), 11, "one length"),
        (with_row(1, "# *. #"), 8, "exactly one player, but this has 0"),
        (with_row(2, "#@ $ #"), 8, "exactly one player, but this has 2"),
        (with_row(2, "#$ $ #"), 8, "as many boxes as goals, but this has 3 and 2"),
        (with_row(2, "#    #"), 8, "as many boxes as goals, but this has 1 and 2"),
        (with_row(1, "#$*+  "), 8, "boxes as goals"),
        (with_row(1, "# *+  "), 8, "enclosed by walls"),
        (with_row(0, "### ##"), 8, "enclosed by walls"),
        ("; 0\n#####\n#@*.#\n##*##\n#####".replace(".", " "), 2, "solved at the start"),
        ("####\n#@ #\n####", 1, "solved at the start"),
        (TWO + "#####\n#@$.#\n#####\n", 13, "must have one size, but this is 3x5"),
        ("", 1, "at least one level"),
        ("; 0\n\n; 1\n", 1, "at least one level"),
    ],
)
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_broken_levels_name_file_line_and_rule(text, line, rule, ends):
    with pytest.raises(DataError, match=rf"^some/file, line {line}: .*{rule}") as error:
        parse_boxoban(text.replace("\n", ends), origin="some/file")
    assert "\n" not in str(error.value)


def write_levels(path, n_levels, seed=0, interior=(3, 4)):
    path.parent.mkdir(parents=True, exist_ok=True)
    levels = generate_levels(n_levels, interior=interior, seed=seed)
    boards = ("\n".join(drawn(levels, index)) for index in range(n_levels))
    path.write_text("\n\n".join(boards))
    return levels


def test_a_directory_is_read_in_the_order_of_names(tmp_path):
    second = write_levels(tmp_path / "set/train/001.txt", 3, seed=1)
    first = write_levels(tmp_path / "set/train/000.txt", 2, seed=0)
    levels = read_boxoban(tmp_path / "set/train")
    assert len(levels) == 5
    assert levels.source == "boxoban:set/train (2 files)"
    assert_same(levels.subset([0, 1]), first)
    assert_same(levels.subset(np.array([2, 3, 4])), second)
    assert_same(
        read_boxoban(str(tmp_path / "set/train"), max_levels=1), first.subset([0])
    )
    assert len(read_boxoban(tmp_path / "set/train", max_levels=4)) == 4


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="no such file or directory"):
        read_boxoban(tmp_path / "absent")
    with pytest.raises(DataError, match=r"no \.txt level files"):
        read_boxoban(tmp_path)
    write_levels(tmp_path / "000.txt", 2)
    write_levels(tmp_path / "001.txt", 2, interior=(5, 5))
    with pytest.raises(DataError, match=r"001\.txt: boards are 7x7, but 5x6"):
        read_boxoban(tmp_path)
    with pytest.raises(DataError, match="max_levels"):
        read_boxoban(tmp_path, max_levels=0)


def test_splits(tmp_path):
    for name in ("unfiltered/train", "unfiltered/test", "medium/train", "medium/valid"):
        write_levels(tmp_path / name / "000.txt", 1)
    write_levels(tmp_path / "hard/000.txt", 1)
    (tmp_path / "empty").mkdir()
    train = boxoban_split(str(tmp_path / "unfiltered"), "train")
    assert train == tmp_path / "unfiltered/train"
    assert boxoban_split(tmp_path / "hard", "test") == tmp_path / "hard"
    for root, split, message in [
        ("hard", "train", "flat directory .* test split only"),
        ("medium", "test", r"no 'test' split \(found train, valid\): add"),
        ("unfiltered", "valid", "no 'valid' split"),
        ("empty", "train", "found nothing"),
        ("absent", "train", "no such directory"),
        (".", "train", "name one collection, such as"),
    ]:
        with pytest.raises(DataError, match=message):
            boxoban_split(tmp_path / root, split)


def test_interior_is_the_board_without_its_border():
    levels = parse_boxoban(TWO, origin="here")
    inner = levels.interior()
    assert inner.shape == (2, 4)
    assert drawn(inner, 0) == ["@ $.", " #  "]
    assert drawn(inner, 1) == [" *+ ", "  $ "]
    larger = generate_levels(1, interior=(5, 5), seed=0, wall_density=0.0).interior()
    with pytest.raises(DataError, match="border of level 0 is not all wall"):
        larger.interior()
    with pytest.raises(DataError, match="no interior"):
        inner.interior()


def test_digest_follows_content_only():
    levels = parse_boxoban(TWO, origin="here")
    assert re.fullmatch("[0-9a-f]{64}", levels.digest())
    assert replace(levels, source="there").digest() == levels.digest()
    others = [
        levels.subset([1, 0]),
        levels.subset([0]),
        replace(levels, players=np.array([8, 9], np.int32)),
        replace(levels, goals=np.roll(levels.goals, 1, axis=1) & ~levels.walls),
        levels.interior(),
    ]
    assert len({other.digest() for other in [levels, *others]}) == 6


def test_level_sets_refuse_what_is_no_board():
    levels = parse_boxoban(TWO, origin="here")
    with pytest.raises(DataError, match="share one shape"):
        replace(levels, goals=levels.goals[:, 1:])
    with pytest.raises(DataError, match="players must have shape"):
        replace(levels, players=levels.players[:1])
    with pytest.raises(DataError, match="flat index"):
        replace(levels, players=np.array([7, 24], np.int32))
    with pytest.raises(DataError, match="level 1 has a square with two"):
        replace(levels, players=np.array([7, 0], np.int32))
    with pytest.raises(DataError, match="cannot take these indices of 2"):
        levels.subset([2])


@pytest.mark.real_data
def test_every_real_level_is_read_as_written(boxoban):
    for name in ("unfiltered/train", "unfiltered/test", "medium/valid", "hard"):
        levels = read_boxoban(boxoban / name, max_levels=3000)
        text = "".join(f.read_text() for f in sorted((boxoban / name).glob("*.txt")))
        blocks = [block.split("\n")[1:] for block in text.strip().split("\n\n")]
        assert len(levels) == min(len(blocks), 3000)
        assert levels.shape == (10, 10)
        written = hashlib.sha256(repr(blocks[:3000]).encode()).hexdigest()
        read = [drawn(levels, index) for index in range(len(levels))]
        assert hashlib.sha256(repr(read).encode()).hexdigest() == written
        assert levels.interior().boxes.sum() == 4 * len(levels)


@pytest.mark.real_data
def test_the_splits_of_real_directories(boxoban):
    for root, split in [("unfiltered", "train"), ("medium", "valid"), ("hard", "test")]:
        assert (
            len(read_boxoban(boxoban_split(boxoban / root, split), max_levels=10)) == 10
        )
    with pytest.raises(DataError, match="no 'test' split"):
        boxoban_split(boxoban / "medium", "test")
