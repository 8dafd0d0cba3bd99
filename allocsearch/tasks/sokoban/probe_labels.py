"""What will happen on each square of a board in the rest of an episode."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from allocsearch.tasks.sokoban.environment import ACTIONS
from allocsearch.tasks.sokoban.levels import BOX

CLASSES = (*ACTIONS, "never")
NEVER = len(ACTIONS)


def next_entries(
    players: np.ndarray, boards: np.ndarray, lengths: np.ndarray, width: int
) -> np.ndarray:
    """The direction in which the agent will next step onto each square.

    That is the direction of its move: "up" where it comes from below. It counts from
    the step at hand on, to the end of the episode.

    Args:
        players: int `[B, T + 1]`, flat index of the agent before every step and after
            the last.
        boards: uint8 `[B, T + 1, squares]` bit codes at the same times.
        lengths: int `[B]`, steps of each episode; what comes later is not read.
        width: of the board.

    Returns:
        uint8 `[B, T, squares]`, indices of `CLASSES`; "never" beyond the end.
    """
    moves = _moves(players, lengths, width)
    return _next(moves, players[:, 1:], boards.shape[-1])


def next_pushes(
    players: np.ndarray, boards: np.ndarray, lengths: np.ndarray, width: int
) -> np.ndarray:
    """The direction in which a box will next be pushed off each square.

    Arguments and result are those of `next_entries`.
    """
    moves = _moves(players, lengths, width)
    # The agent steps onto a square with a box only by pushing the box off it.
    before = np.take_along_axis(boards[:, :-1], players[:, 1:, None], axis=2)[..., 0]
    pushes = np.where((before & BOX) != 0, moves, NEVER)
    return _next(pushes, players[:, 1:], boards.shape[-1])


TARGETS: Mapping = MappingProxyType({"agent": next_entries, "box": next_pushes})
"""By name, what probes may be fitted to tell."""


def _moves(players: np.ndarray, lengths: np.ndarray, width: int) -> np.ndarray:
    """uint8 `[B, T]`, directions, "never" where the agent stayed or play was over."""
    step = np.diff(players.astype(np.int64), axis=1)
    moves = np.full(step.shape, NEVER, np.uint8)
    # On boards one square wide a step down is one of 1 too.
    sideways = {} if width == 1 else {-1: "left", 1: "right"}
    for difference, name in {**sideways, -width: "up", width: "down"}.items():
        moves[step == difference] = ACTIONS.index(name)
    over = np.arange(step.shape[1]) >= lengths[:, None]
    return np.where(over, NEVER, moves).astype(np.uint8)


def _next(events: np.ndarray, squares: np.ndarray, n_squares: int) -> np.ndarray:
    """The next event of each square, from the last step backwards.

    Args:
        events: `[B, T]`, "never" where there is none.
        squares: `[B, T]`, where.
        n_squares: of the board.
    """
    n_episodes, n_steps = events.shape
    labels = np.full((n_episodes, n_steps, n_squares), NEVER, np.uint8)
    ahead = np.full((n_episodes, n_squares), NEVER, np.uint8)
    for t in reversed(range(n_steps)):
        found = np.flatnonzero(events[:, t] != NEVER)
        ahead[found, squares[found, t]] = events[found, t]
        labels[:, t] = ahead
    return labels
