"""A level, or an episode on it, to look at: captions around boards."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.text import Text

from allocsearch.tasks.pictures import captioned
from allocsearch.tasks.records import Showing
from allocsearch.tasks.sokoban.board_text import render_codes
from allocsearch.tasks.sokoban.drawing import board_text, draw_board, framed
from allocsearch.tasks.sokoban.playback import Episode

_LEAST_WIDTH = 184
_MOST_PIXELS = 640
_LEAST_SQUARE, _MOST_SQUARE = 8, 24


def show_level(codes: np.ndarray, label: str) -> Showing:
    """A level as it begins.

    Args:
        codes: uint8 `[H, W]` bit codes, the player's among them.
        label: stands above it.
    """
    return _showing(codes[None], label, [()], {})


def show_episode(
    episode: Episode, label: str, actions: Sequence[str], reward_scale: float
) -> Showing:
    """An episode step by step: value and action to come, and how it ended.

    Thinking steps come first, each with the first board and the likeliest action.

    Args:
        episode: what was played.
        label: names the network.
        actions: what each action does.
        reward_scale: values are divided by it, to be in units of reward.
    """
    names = [actions[action] for action in episode.actions]
    values = [float(value) / reward_scale for value in episode.values]
    taken = np.take_along_axis(episode.probabilities, episode.actions[:, None], axis=1)
    rows, thought_values = episode.thoughts
    thoughts = [float(value) / reward_scale for value in thought_values]
    total = float(episode.rewards.sum())
    captions = [
        *(
            (
                f"thinking {k}   value {value:.2f}",
                f"likeliest: {actions[int(row.argmax())]} {row.max():.0%}",
            )
            for k, (value, row) in enumerate(zip(thoughts, rows, strict=True))
        ),
        *(
            (f"step {t}   value {value:.2f}", f"next: {name} {p:.0%}")
            for t, (value, name, p) in enumerate(
                zip(values, names, taken[:, 0], strict=True)
            )
        ),
        (
            f"step {len(episode)}   return {total:.1f}",
            "solved" if episode.solved else "not solved in time",
        ),
    ]
    details = {
        "solved": episode.solved,
        "return": total,
        "thoughts": [
            {"value": value, "probabilities": _named(actions, row)}
            for value, row in zip(thoughts, rows, strict=True)
        ],
        "steps": [
            {
                "action": name,
                "reward": float(reward),
                "value": value,
                "probabilities": _named(actions, row),
            }
            for name, reward, value, row in zip(
                names, episode.rewards, values, episode.probabilities, strict=True
            )
        ],
    }
    return _showing(episode.boards, label, captions, details)


def _named(actions: Sequence[str], probabilities: np.ndarray) -> dict[str, float]:
    return dict(zip(actions, map(float, probabilities), strict=True))


def _showing(
    boards: np.ndarray,
    label: str,
    captions: Sequence[tuple[str, ...]],
    details: dict[str, Any],
) -> Showing:
    """A board for every caption; the first stays while there are more captions."""
    shown = framed(boards)
    n_before = len(captions) - len(shown)
    paired = [*zip([*[shown[0]] * n_before, *shown], captions, strict=True)]
    square = int(
        np.clip(_MOST_PIXELS // max(shown.shape[1:]), _LEAST_SQUARE, _MOST_SQUARE)
    )
    return Showing(
        item=render_codes(shown[0]),
        texts=tuple(
            Text("\n").join([board_text(board), *map(Text, lines)])
            for board, lines in paired
        ),
        frames=tuple(
            captioned(draw_board(board, square), (label, *lines), _LEAST_WIDTH)
            for board, lines in paired
        ),
        details={
            "boards": [render_codes(board).split("\n") for board in shown],
            **details,
        },
    )
