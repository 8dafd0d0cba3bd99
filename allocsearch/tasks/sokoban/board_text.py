"""Sokoban boards as text: rows of XSB characters to bit codes and back.

A text in the common form (every board the same size, a closed border) is read with
array operations; anything else goes through a line-by-line parser whose errors name
the file, the line and the rule that the level breaks.
"""

from collections.abc import Iterator

import numpy as np

from allocsearch.errors import DataError

WALL, GOAL, BOX, PLAYER = 1, 2, 4, 8

_CODE_OF_CHARACTER = {
    " ": 0,
    "#": WALL,
    ".": GOAL,
    "$": BOX,
    "*": BOX | GOAL,
    "@": PLAYER,
    "+": PLAYER | GOAL,
}
_CHARACTER_OF_CODE = {code: char for char, code in _CODE_OF_CHARACTER.items()}
_UNKNOWN = 255
_CODE_TABLE = np.full(256, _UNKNOWN, np.uint8)
for _character, _code in _CODE_OF_CHARACTER.items():
    _CODE_TABLE[ord(_character)] = _code


def parse_codes(text: str, origin: str) -> np.ndarray:
    """The boards of a text, as uint8 `[N, H, W]` bit codes.

    Args:
        text: boards divided by blank lines or lines that begin with ``;``; line ends
            may be LF, CRLF or CR.
        origin: what error messages call the text.

    Raises:
        DataError: there is no board, or one breaks a rule.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    codes = _codes_of_regular_text(text)
    return _codes_line_by_line(text, origin) if codes is None else codes


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


def size(shape: tuple[int, int]) -> str:
    """A board's height and width, as messages give them."""
    return f"{shape[0]}x{shape[1]}"


def border_is_wall(walls: np.ndarray) -> np.ndarray:
    """bool `[N]`: whether every border square of a board is a wall."""
    rows = np.all(walls[:, [0, -1], :], axis=(1, 2))
    columns = np.all(walls[:, :, [0, -1]], axis=(1, 2))
    return np.logical_and(rows, columns)


def _codes_of_regular_text(text: str) -> np.ndarray | None:
    """uint8 `[N, H, W]` when all boards share a size and obey every rule, or None."""
    try:
        data = np.frombuffer(text.encode("latin-1"), np.uint8)
    except UnicodeEncodeError:
        return None
    ends = np.flatnonzero(data == ord("\n"))
    if len(data) and data[-1] != ord("\n"):
        ends = np.append(ends, len(data))
    starts = np.concatenate([[0], ends[:-1] + 1])[: len(ends)]
    is_row = (ends > starts) & (data[starts] != ord(";"))
    rows = np.flatnonzero(is_row)
    first = rows[~is_row[rows - 1] | (rows == 0)]
    if not len(first) or len(rows) % len(first):
        return None
    n_levels, height = len(first), len(rows) // len(first)
    widths = (ends - starts)[rows]
    if np.any(rows[::height] != first) or np.any(widths != widths[0]):
        return None
    squares = starts[rows][:, None] + np.arange(widths[0])
    codes = _CODE_TABLE[data[squares]].reshape(n_levels, height, widths[0])
    return codes if _obeys_every_rule(codes) else None


def _obeys_every_rule(codes: np.ndarray) -> bool:
    if np.any(codes == _UNKNOWN):
        return False
    counts = [((codes & bit) != 0).sum(axis=(1, 2)) for bit in (PLAYER, BOX, GOAL)]
    n_players, n_boxes, n_goals = counts
    unsolved = ((codes & (BOX | GOAL)) == BOX).any(axis=(1, 2))
    closed = border_is_wall((codes & WALL) != 0)
    return bool(
        np.all((n_players == 1) & (n_boxes == n_goals) & unsolved & closed),
    )


def _codes_line_by_line(text: str, origin: str) -> np.ndarray:
    boards: list[np.ndarray] = []
    for number, rows in _blocks(text):
        board = _checked_board(rows, number, origin)
        if boards and board.shape != boards[0].shape:
            raise DataError(
                f"{origin}, line {number}: every level of a file must have one size, "
                f"but this is {size(board.shape)} after {size(boards[0].shape)}"
            )
        boards.append(board)
    if not boards:
        raise DataError(f"{origin}, line 1: a level file must hold at least one level")
    return np.stack(boards)


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Each level's first line number (from 1) and its rows."""
    rows: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        if line.strip() and not line.startswith(";"):
            rows.append(line)
        elif rows:
            yield number - len(rows), rows
            rows = []


def _checked_board(rows: list[str], number: int, origin: str) -> np.ndarray:
    """The codes `[H, W]` of one level whose first row is line `number`."""
    for line, row in enumerate(rows, start=number):
        for character in row:
            if character not in _CODE_OF_CHARACTER:
                raise DataError(
                    f"{origin}, line {line}: a level may hold only '# @$.*+', "
                    f"but this row has {character!r}"
                )
        if len(row) != len(rows[0]):
            raise DataError(
                f"{origin}, line {line}: all rows of a level must have one length, "
                f"but this has {len(row)} squares after rows of {len(rows[0])}"
            )
    board = np.array([[_CODE_OF_CHARACTER[char] for char in row] for row in rows])
    broken = _broken_rule(board)
    if broken:
        raise DataError(f"{origin}, line {number}: {broken}")
    return board.astype(np.uint8)


def _broken_rule(board: np.ndarray) -> str | None:
    n_players, n_boxes, n_goals = (
        int(((board & bit) != 0).sum()) for bit in (PLAYER, BOX, GOAL)
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
    if not _is_enclosed(board):
        return "the player must be enclosed by walls, but can reach the board's edge"
    return None


def _is_enclosed(board: np.ndarray) -> bool:
    """Whether walls alone keep the player from every edge square."""
    height, width = board.shape
    frontier = [tuple(int(i) for i in np.argwhere(board & PLAYER)[0])]
    seen = set(frontier)
    while frontier:
        row, column = frontier.pop()
        if row in (0, height - 1) or column in (0, width - 1):
            return False
        for near in _neighbours(row, column):
            if near not in seen and not board[near] & WALL:
                seen.add(near)
                frontier.append(near)
    return True


def _neighbours(row: int, column: int) -> list[tuple[int, int]]:
    return [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
