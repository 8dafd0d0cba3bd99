"""Pictures and text of boards."""

from itertools import combinations

import numpy as np
import pytest
from rich.console import Console

from allocsearch.errors import DataError
from allocsearch.tasks.sokoban.board_text import (
    BOX,
    GOAL,
    PLAYER,
    WALL,
    board_of_rows,
    render_codes,
)
from allocsearch.tasks.sokoban.drawing import (
    KINDS,
    board_text,
    draw_board,
    framed,
)

ROWS = ["#######", "#@ $.*#", "#######"]


def lightness(pixels):
    """What is left of colours without colour vision, 0 to 255."""
    return pixels @ np.array([0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("square", [8, 16, 24, 32])
def test_all_kinds_of_squares_look_different(square):
    tiles = [draw_board(np.array([[kind]], np.uint8), square) for kind in KINDS]
    assert len(tiles) == 7
    for one, other in combinations(tiles, 2):
        assert one.shape == (square, square, 3)
        assert one.dtype == np.uint8
        # Without colour as well, over a tenth of the square at least.
        differs = np.abs(lightness(one) - lightness(other)) > 25
        assert differs.mean() > 0.1


def test_every_square_is_where_it_belongs():
    codes = board_of_rows(ROWS)
    picture = draw_board(codes, 16)
    assert picture.shape == (48, 112, 3)
    for row, column in np.ndindex(codes.shape):
        tile = draw_board(codes[row : row + 1, column : column + 1], 16)
        shown = picture[16 * row : 16 * row + 16, 16 * column : 16 * column + 16]
        np.testing.assert_array_equal(shown, tile)


@pytest.mark.parametrize("code", [WALL | GOAL, WALL | BOX, BOX | PLAYER, 16])
@pytest.mark.parametrize("draw", [draw_board, board_text])
def test_squares_that_cannot_be_are_refused(draw, code):
    with pytest.raises(DataError, match="two of wall, box and player"):
        draw(np.array([[code]], np.uint8))


def test_text_is_xsb_and_coloured_only_where_colours_show():
    codes = board_of_rows([*ROWS[:2], "#+ #  #", ROWS[2]])
    text = board_text(codes)
    assert text.plain == render_codes(codes)
    plain, coloured = (
        Console(width=40),
        Console(width=40, force_terminal=True, color_system="256"),
    )
    for console, has_codes in ((plain, False), (coloured, True)):
        with console.capture() as capture:
            console.print(text)
        assert ("\x1b[" in capture.get()) == has_codes


def test_one_border_of_walls_around_whatever_border():
    bare = board_of_rows(ROWS)[1:-1, 1:-1]
    thick = np.pad(bare, ((1, 4), (1, 9)), constant_values=WALL)
    for codes in (bare, thick, board_of_rows(ROWS)):
        assert render_codes(framed(codes)).split("\n") == ROWS
    both = np.stack([thick, thick])
    assert framed(both).shape == (2, 3, 7)
