"""gym-sokoban 0.0.6 on levels of one's own, to compare the environment with.

gym-sokoban makes a new room at every reset, in seconds and from Python's and NumPy's
global generators. Here its environment is built without a room and given one. Needs
``pip install 'allocsearch[gym-sokoban]'``.
"""

import importlib
from typing import Any

import numpy as np

from allocsearch.errors import DataError, PluginError
from allocsearch.tasks.sokoban.board_text import (
    BOX,
    GOAL,
    PLAYER,
    WALL,
    border_is_wall,
)
from allocsearch.tasks.sokoban.levels import LevelSet

# gym-sokoban's numbers for squares, at the bit codes that they stand for.
_ROOM_OF_CODE = np.zeros(16, np.uint8)
_ROOM_OF_CODE[[WALL, 0, GOAL, BOX | GOAL, BOX, PLAYER]] = range(6)
_ROOM_OF_CODE[PLAYER | GOAL] = _ROOM_OF_CODE[PLAYER]
_CODE_OF_ROOM = np.array([WALL, 0, GOAL, BOX | GOAL, BOX, PLAYER], np.uint8)


def at_level(levels: LevelSet, index: int, *, step_limit: int = 120) -> Any:
    """gym-sokoban's `SokobanEnv` at the start of a level.

    Unlike after a reset of its own, boxes that begin on goals count as placed: its
    first step would reward them.

    Args:
        levels: closed by a border of walls, as gym-sokoban does not look for the
            edge of the board.
        index: of the level.
        step_limit: the step at which it says done.

    Returns:
        The environment; call ``step(action, observation_mode="tiny_rgb_array")``.

    Raises:
        PluginError: gym-sokoban, or what it needs, is not installed.
        DataError: the border has a gap.
    """
    try:
        sokoban = importlib.import_module("gym_sokoban.envs.sokoban_env")
    except ImportError as error:
        raise PluginError(
            f"gym-sokoban cannot be imported ({error}): "
            "pip install 'allocsearch[gym-sokoban]'"
        ) from error
    if not border_is_wall(levels.walls[[index]])[0]:
        raise DataError(
            f"{levels.source}: gym-sokoban needs a closed border of walls, but that "
            f"of level {index} has a gap"
        )
    codes = levels.subset([index]).codes_with_player()[0]
    n_boxes = int(levels.boxes[index].sum())
    env = sokoban.SokobanEnv(levels.shape, step_limit, n_boxes, reset=False)
    env.room_state = _ROOM_OF_CODE[codes]
    env.room_fixed = _ROOM_OF_CODE[codes & (WALL | GOAL)]
    env.player_position = np.argwhere(codes & PLAYER)[0]
    env.boxes_on_target = int((levels.boxes[index] & levels.goals[index]).sum())
    env.num_env_steps = 0
    env.reward_last = 0
    return env


def board(env: Any) -> np.ndarray:
    """Its board as it now stands: uint8 `[H, W]` bit codes, the player's included."""
    goal = _CODE_OF_ROOM[env.room_fixed] & GOAL
    return _CODE_OF_ROOM[env.room_state] | goal
