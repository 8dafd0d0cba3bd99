"""Saved solutions, played to see whether they solve their levels."""

import numpy as np

from allocsearch.tasks.sokoban.board_text import BOX, GOAL, PLAYER, WALL

_STEPS = {"u": (-1, 0), "d": (1, 0), "l": (0, -1), "r": (0, 1)}


def fault_of(board: np.ndarray, moves: str) -> str | None:
    """Why moves do not solve a level; None if they do.

    A level that is solved before the last move counts as solved.

    Args:
        board: uint8 `[H, W]` bit codes, the player's among them.
        moves: letters of `udlr`, in capitals or not.
    """
    ((row, column),) = np.argwhere(board & PLAYER)
    codes = {tuple(at): int(board[tuple(at)]) for at in np.argwhere(board >= 0)}
    at = (int(row), int(column))

    def blocked(square: tuple[int, int], by: int) -> bool:
        return bool(codes.get(square, WALL) & by)

    for number, move in enumerate(moves, start=1):
        rows, columns = _STEPS[move.lower()]
        near = at[0] + rows, at[1] + columns
        beyond = near[0] + rows, near[1] + columns
        where = f"move {number} of {len(moves)}, {move!r},"
        if blocked(near, WALL):
            return f"{where} runs into a wall"
        if blocked(near, BOX):
            if blocked(beyond, WALL | BOX):
                return f"{where} pushes a box that cannot move"
            codes[near] -= BOX
            codes[beyond] += BOX
            if all(code & GOAL for code in codes.values() if code & BOX):
                return None
        at = near
    boxes = [code for code in codes.values() if code & BOX]
    n_off = sum(not code & GOAL for code in boxes)
    return (
        f"after all {len(moves)} moves {n_off} of {len(boxes)} boxes are not on goals"
    )
