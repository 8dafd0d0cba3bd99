"""Boards to look at: pictures of simple tiles, and text for terminals.

Squares differ in shape and in lightness as well as in colour, of the palette of Okabe
and Ito (2008), which readers with any kind of colour vision can tell apart.
"""

from functools import cache

import numpy as np
from rich.text import Text

from allocsearch.errors import DataError
from allocsearch.tasks.sokoban.board_text import (
    BOX,
    GOAL,
    PLAYER,
    WALL,
    render_codes,
)

KINDS = (WALL, 0, GOAL, BOX, BOX | GOAL, PLAYER, PLAYER | GOAL)
"""The bit codes that a square can have."""

_N_CODES = 16
_OVERSAMPLING = 4

_STONE, _MORTAR = (74, 78, 84), (112, 117, 124)
_FLOOR = (246, 243, 236)
_INK = (30, 30, 30)
_GOAL = (213, 94, 0)
_BOX, _BOX_ON_GOAL = (230, 159, 0), (0, 158, 115)
_PLAYER = (0, 114, 178)
_WHITE = (255, 255, 255)

_STYLES = {
    WALL: "grey42 on grey27",
    0: "",
    GOAL: "bold dark_orange3",
    BOX: "bold black on orange1",
    BOX | GOAL: "bold white on spring_green4",
    PLAYER: "bold white on deep_sky_blue4",
    PLAYER | GOAL: "bold orange1 on deep_sky_blue4",
}


def draw_board(codes: np.ndarray, square: int = 24) -> np.ndarray:
    """A picture of a board.

    Args:
        codes: uint8 `[H, W]` bit codes, the player's among them.
        square: pixels per side of a square, 8 at least; legible from 16.

    Returns:
        uint8 `[H * square, W * square, 3]`, red, green and blue.

    Raises:
        DataError: a square holds what cannot share a square.
    """
    if not np.isin(codes, KINDS).all():
        raise DataError(
            "a square holds two of wall, box and player, or a goal in a wall"
        )
    height, width = codes.shape
    pixels = _tiles(square)[codes].swapaxes(1, 2)
    return np.ascontiguousarray(pixels.reshape(height * square, width * square, 3))


def board_text(codes: np.ndarray) -> Text:
    """A board in XSB characters, coloured where the terminal shows colours.

    Args:
        codes: uint8 `[H, W]` bit codes, the player's among them.

    Raises:
        DataError: a square holds what cannot share a square.
    """
    text = Text(no_wrap=True)
    for i, (row, characters) in enumerate(
        zip(codes, render_codes(codes).split("\n"), strict=True)
    ):
        text.append("\n" if i else "")
        for code, character in zip(row, characters, strict=True):
            text.append(character, _STYLES[int(code)])
    return text


def framed(codes: np.ndarray) -> np.ndarray:
    """Boards with one border of walls, whatever border they had.

    Args:
        codes: uint8 `[..., H, W]` bit codes of boards with the same walls.
    """
    rows, columns = np.nonzero(codes.reshape(-1, *codes.shape[-2:])[0] != WALL)
    inside = codes[..., rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    around = [(0, 0)] * (codes.ndim - 2) + [(1, 1)] * 2
    return np.pad(inside, around, constant_values=WALL)


@cache
def _tiles(square: int) -> np.ndarray:
    """Pictures of every bit code, uint8 `[16, square, square, 3]`."""
    tiles = np.zeros((_N_CODES, square, square, 3), np.uint8)
    for code in KINDS:
        tiles[code] = _tile(code, square)
    return tiles


def _tile(code: int, square: int) -> np.ndarray:
    """One picture, drawn large and averaged down, so that edges are smooth."""
    n = square * _OVERSAMPLING
    # Coordinates of pixel centres, from -1 to 1 across the square.
    y, x = np.meshgrid(*[(np.arange(n) + 0.5) / n * 2 - 1] * 2, indexing="ij")
    large = np.empty((n, n, 3))
    large[:] = _FLOOR
    if code == WALL:
        _paint_wall(large, x, y)
    elif code & BOX:
        _paint_box(large, x, y, on_goal=bool(code & GOAL))
    else:
        if code & GOAL:
            _paint_goal(large, x, y)
        if code & PLAYER:
            _paint_player(large, x, y, on_goal=bool(code & GOAL))
    parts = large.reshape(square, _OVERSAMPLING, square, _OVERSAMPLING, 3)
    return np.rint(parts.mean(axis=(1, 3))).astype(np.uint8)


def _paint_wall(large: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """Two courses of bricks, half a brick apart."""
    large[:] = _STONE
    upright = np.where(y < 0, np.abs(x), 1 - np.abs(x))
    joints = (np.abs(y) < 0.06) | (y > 0.94) | (y < -0.94) | (upright < 0.06)
    large[joints] = _MORTAR


def _paint_goal(large: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """A hollow diamond."""
    distance = np.abs(x) + np.abs(y)
    large[(distance < 0.8) & (distance > 0.4)] = _GOAL


def _paint_box(large: np.ndarray, x: np.ndarray, y: np.ndarray, on_goal: bool) -> None:
    """A crate with a cross, or on a goal a filled diamond."""
    reach = np.maximum(np.abs(x), np.abs(y))
    large[reach < 0.84] = _INK
    large[reach < 0.70] = _BOX_ON_GOAL if on_goal else _BOX
    if on_goal:
        large[np.abs(x) + np.abs(y) < 0.55] = _WHITE
    else:
        crossed = np.abs(np.abs(x) - np.abs(y)) < 0.13
        large[crossed & (reach < 0.70)] = _INK


def _paint_player(
    large: np.ndarray, x: np.ndarray, y: np.ndarray, on_goal: bool
) -> None:
    """A disc with two eyes; on a goal the tips of the diamond stand out behind it."""
    if on_goal:
        distance = np.abs(x) + np.abs(y)
        large[distance < 1.0] = _GOAL
    radius = 0.58 if on_goal else 0.72
    large[np.hypot(x, y) < radius] = _PLAYER
    eyes = np.hypot(np.abs(x) - 0.25, y + 0.12) < 0.15
    large[eyes] = _WHITE
