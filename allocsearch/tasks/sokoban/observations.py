"""What is seen of a square: one-hot planes, or gym-sokoban's colours.

A table has a row for every bit code that a square can have, so that to observe a board
is to look up its squares. On CPU that is several times faster than comparing codes.
"""

from types import MappingProxyType

import numpy as np

from allocsearch.tasks.sokoban.board_text import BOX, GOAL, PLAYER, WALL

OBSERVATION_PLANES = (
    "wall",
    "empty",
    "box",
    "box on goal",
    "player",
    "player on goal",
    "goal",
)
_CODE_OF_PLANE = (WALL, 0, BOX, BOX | GOAL, PLAYER, PLAYER | GOAL, GOAL)
_N_CODES = 16
# Red, green and blue, in the order of the planes; a wall is black.
_COLORS = (
    (0, 0, 0),
    (243, 248, 238),
    (142, 121, 56),
    (254, 95, 56),
    (160, 212, 56),
    (219, 212, 56),
    (254, 126, 125),
)


def _table(rows: np.ndarray) -> np.ndarray:
    table = np.zeros((_N_CODES, rows.shape[1]), rows.dtype)
    table[list(_CODE_OF_PLANE)] = rows
    table.flags.writeable = False
    return table


OBSERVATIONS = MappingProxyType(
    {
        "planes": _table(np.eye(len(OBSERVATION_PLANES), dtype=np.float32)),
        "tiny_rgb": _table(np.array(_COLORS, np.uint8)),
    }
)
"""By name, what is seen of each bit code: `[16, channels]`."""
