"""Sokoban boards as bit codes: their characters, and the rules that a level obeys."""

from collections.abc import Sequence

import numpy as np

from allocsearch.errors import DataError

WALL, GOAL, BOX, PLAYER = 1, 2, 4, 8

MAX_SIDE = 256
"""No board may be wider or higher."""

_CODE_OF_CHARACTER = {
    "#": WALL,
    " ": 0,
    "-": 0,
    "_": 0,
    "@": PLAYER,
    "+": PLAYER | GOAL,
    "$": BOX,
    "*": BOX | GOAL,
    ".": GOAL,
}
CHARACTERS = "".join(_CODE_OF_CHARACTER)
_CHARACTER_OF_CODE = {
    code: char for char, code in _CODE_OF_CHARACTER.items() if char not in "-_"
}
UNKNOWN = 255
CODE_TABLE = np.full(256, UNKNOWN, np.uint8)
"""The bit code of every byte, or `UNKNOWN`."""
for _character, _code in _CODE_OF_CHARACTER.items():
    CODE_TABLE[ord(_character)] = _code


def render_codes(codes: np.ndarray) -> str:
    """One board of bit codes `[H, W]` as rows of XSB characters.

    Raises:
        DataError: a square holds what cannot share a square.
    """
    try:
        return "\n".join(
            "".join(_CHARACTER_OF_CODE[int(code)] for code in row) for row in codes
        )
    except KeyError as error:
        raise DataError(
            "a square holds two of wall, box and player, or a goal in a wall"
        ) from error


def size(shape: tuple[int, ...]) -> str:
    """A board's height and width, as messages give them."""
    return f"{shape[0]}x{shape[1]}"


def border_is_wall(walls: np.ndarray) -> np.ndarray:
    """bool `[N]`: whether every border square of a board is a wall."""
    rows = np.all(walls[:, [0, -1], :], axis=(1, 2))
    columns = np.all(walls[:, :, [0, -1]], axis=(1, 2))
    return np.logical_and(rows, columns)


def board_of_rows(rows: Sequence[str]) -> np.ndarray:
    """Rows of `CHARACTERS` as bit codes `[H, W]`.

    Rows that end early go on with floor; floor around the board is cut off.
    """
    width = max(map(len, rows))
    text = "".join(row.ljust(width) for row in rows).encode("ascii")
    codes = CODE_TABLE[np.frombuffer(text, np.uint8)].reshape(len(rows), width)
    used_rows = np.flatnonzero(codes.any(axis=1))
    used_columns = np.flatnonzero(codes.any(axis=0))
    if not len(used_rows):
        return codes[:0, :0]
    return codes[
        used_rows[0] : used_rows[-1] + 1, used_columns[0] : used_columns[-1] + 1
    ]


def outside(board: np.ndarray) -> np.ndarray:
    """bool `[H, W]`: squares that are joined to the edge without crossing a wall."""
    free = (board & WALL) == 0
    reached = np.zeros_like(free)
    reached[[0, -1]] = free[[0, -1]]
    reached[:, [0, -1]] |= free[:, [0, -1]]
    n_reached = -1
    while n_reached != (n_now := np.count_nonzero(reached)):
        n_reached = n_now
        reached[1:] |= reached[:-1] & free[1:]
        reached[:-1] |= reached[1:] & free[:-1]
        reached[:, 1:] |= reached[:, :-1] & free[:, 1:]
        reached[:, :-1] |= reached[:, 1:] & free[:, :-1]
    return reached


def broken_rule(board: np.ndarray, beyond: np.ndarray) -> str | None:
    """Why a board of bit codes `[H, W]` is no level, or None.

    Args:
        board: the board.
        beyond: bool `[H, W]`, what is `outside` of it.
    """
    n_players, n_boxes, n_goals = (
        int(np.count_nonzero(board & bit)) for bit in (PLAYER, BOX, GOAL)
    )
    if n_players != 1:
        return f"a level must have exactly one player, but this has {n_players}"
    if n_boxes != n_goals:
        return (
            "a level must have as many boxes as goals, "
            f"but this has {n_boxes} and {n_goals}"
        )
    if not np.any((board & (BOX | GOAL)) == BOX):
        return "a level must not be solved at the start, but every box is on a goal"
    if np.any(board[beyond] & PLAYER):
        return "the player must be enclosed by walls, but can reach the board's edge"
    if np.any(board[beyond]):
        return "boxes and goals must lie within the walls, but one lies outside"
    return None


def all_are_levels(boards: np.ndarray) -> bool:
    """Whether all boards `[N, H, W]` have a border of walls and break no rule."""
    if np.any(boards == UNKNOWN) or max(boards.shape[1:]) > MAX_SIDE:
        return False
    n_players, n_boxes, n_goals = (
        np.count_nonzero(boards & bit, axis=(1, 2)) for bit in (PLAYER, BOX, GOAL)
    )
    unsolved = ((boards & (BOX | GOAL)) == BOX).any(axis=(1, 2))
    closed = border_is_wall((boards & WALL) != 0)
    return bool(np.all((n_players == 1) & (n_boxes == n_goals) & unsolved & closed))
