"""A level, or an episode on it, to look at: captions around boards."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.text import Text

from allocsearch.tasks.pictures import captioned
from allocsearch.tasks.protocol import Showing
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
    """An episode step by step: value and likeliest action, and how it ended.

    Args:
        episode: what was played.
        label: names the network.
        actions: what each action does.
        reward_scale: values are divided by it, to be in units of reward.
    """
    values = episode.values / reward_scale
    names = [actions[action] for action in episode.actions]
    likeliest = episode.probabilities.max(axis=1)
    captions = [
        (f"step {t}   value {value:.2f}", f"next: {name} {p:.0%}")
        for t, (value, name, p) in enumerate(zip(values, names, likeliest, strict=True))
    ]
    total = float(episode.rewards.sum())
    end = "solved" if episode.solved else "not solved in time"
    captions.append((f"step {len(episode)}   return {total:.1f}", end))
    details = {
        "solved": episode.solved,
        "return": total,
        "steps": [
            {
                "action": name,
                "reward": float(reward),
                "value": float(value),
                "probabilities": dict(zip(actions, map(float, row), strict=True)),
            }
            for name, reward, value, row in zip(
                names, episode.rewards, values, episode.probabilities, strict=True
            )
        ],
    }
    return _showing(episode.boards, label, captions, details)


def _showing(
    boards: np.ndarray,
    label: str,
    captions: Sequence[tuple[str, ...]],
    details: dict[str, Any],
) -> Showing:
    shown = framed(boards)
    square = int(
        np.clip(_MOST_PIXELS // max(shown.shape[1:]), _LEAST_SQUARE, _MOST_SQUARE)
    )
    return Showing(
        item=render_codes(shown[0]),
        texts=tuple(
            Text("\n").join([board_text(board), *map(Text, lines)])
            for board, lines in zip(shown, captions, strict=True)
        ),
        frames=tuple(
            captioned(draw_board(board, square), (label, *lines), _LEAST_WIDTH)
            for board, lines in zip(shown, captions, strict=True)
        ),
        details={
            "boards": [render_codes(board).split("\n") for board in shown],
            **details,
        },
    )
