"""The value that holds levels: its planes, its laws, and what it refuses."""

import re
from dataclasses import replace

import numpy as np
import pytest

from allocsearch.errors import DataError
from allocsearch.tasks.sokoban.generator import generate_levels
from allocsearch.tasks.sokoban.levels import (
    BOX,
    GOAL,
    PLAYER,
    WALL,
    LevelSet,
    pad_together,
    parse_levels,
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


def test_planes_of_a_text_drawn_by_hand():
    levels = parse_levels(TWO, origin="here")
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
    assert [levels.text(i).split("\n") for i in (0, 1)] == [FIRST, SECOND]


def test_interior_is_the_board_without_its_border():
    levels = parse_levels(TWO, origin="here")
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
    levels = parse_levels(TWO, origin="here")
    assert re.fullmatch("[0-9a-f]{64}", levels.digest())
    assert replace(levels, source="there").digest() == levels.digest()
    others = [
        levels.subset([1, 0]),
        levels.subset([0]),
        replace(levels, players=np.array([8, 9], np.int32)),
        replace(levels, boards=levels.boards ^ (levels.boards & GOAL)),
        levels.interior(),
    ]
    assert len({other.digest() for other in [levels, *others]}) == 6


def test_padding_adds_walls_to_the_right_and_below():
    levels = parse_levels(TWO, origin="here")
    larger = levels.padded((6, 9))
    assert drawn(larger, 1) == [*(row + "###" for row in SECOND), *["#" * 9] * 2]
    assert larger.cropped((4, 6)).digest() == levels.digest()
    assert larger.interior().shape == (4, 7)
    with pytest.raises(DataError, match="does not fit"):
        levels.padded((4, 5))
    with pytest.raises(DataError, match="hold more than 4x4"):
        levels.cropped((4, 4))
    with pytest.raises(DataError, match="hold more than 2x6"):
        levels.cropped((2, 6))
    with pytest.raises(DataError, match=r"2 levels padded .* 65536x65536, take 8 GiB"):
        pad_together([levels.boards], (2**16, 2**16), "here")


def test_level_sets_refuse_what_is_no_board():
    levels = parse_levels(TWO, origin="here")
    with pytest.raises(DataError, match=r"shape \[N, H, W\]"):
        replace(levels, boards=levels.boards[0])
    with pytest.raises(DataError, match="uint8"):
        replace(levels, boards=levels.boards.astype(np.int32))
    with pytest.raises(DataError, match="players must have shape"):
        replace(levels, players=levels.players[:1])
    with pytest.raises(DataError, match="flat index"):
        replace(levels, players=np.array([7, 24], np.int32))
    with pytest.raises(DataError, match="level 1 has a square with two"):
        replace(levels, players=np.array([7, 0], np.int32))
    with pytest.raises(DataError, match="cannot take these indices of 2"):
        levels.subset([2])


@pytest.mark.parametrize("code", [WALL | GOAL, WALL | BOX, PLAYER, 255])
def test_no_square_holds_what_cannot_share_one(code):
    levels = parse_levels(TWO, origin="here")
    boards = levels.boards.copy()
    boards[1, 2, 4] = code
    with pytest.raises(DataError, match="level 1 has a square with two"):
        replace(levels, boards=boards)
