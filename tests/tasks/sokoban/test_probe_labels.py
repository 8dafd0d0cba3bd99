"""Labels of squares against plain Python loops and episodes worked out by hand."""

import numpy as np
import pytest

from allocsearch.tasks.sokoban.levels import BOX
from allocsearch.tasks.sokoban.probe_labels import (
    CLASSES,
    NEVER,
    next_entries,
    next_pushes,
)

ROOM = """\
#######
#     #
# @ $.#
#     #
#######"""


def episode(reference, text, letters):
    """Players and boards of moves played by rules written apart, with a batch axis."""
    board = reference(text.split("\n"))
    width = board.size[1]
    players, boards = [], []

    def record():
        players.append(board.player[0] * width + board.player[1])
        plane = np.zeros(board.size, np.uint8)
        plane[tuple(zip(*board.boxes, strict=True))] = BOX
        boards.append(plane.reshape(-1))

    record()
    for letter in letters:
        board.move(letter)
        record()
    return np.array([players]), np.array([boards]), np.array([len(letters)]), width


def test_an_episode_by_hand(reference):
    # From (2, 2): right, push right, up, left, down, left.
    parts = episode(reference, ROOM, "rruldl")
    agent, box = next_entries(*parts), next_pushes(*parts)
    assert agent.shape == box.shape == (1, 6, 35)
    named = [[CLASSES[x] for x in step] for step in agent[0]]
    at = {(i, j): i * 7 + j for i in range(5) for j in range(7)}
    # Before the first step: what it will do first on each square.
    told = {square: named[0][k] for square, k in at.items() if named[0][k] != "never"}
    assert told == {
        (2, 3): "right",
        (2, 4): "right",
        (1, 4): "up",
        (1, 3): "left",
        (2, 2): "left",
    }
    # After the first, (2, 3) will next be entered from above.
    assert [named[t][at[2, 3]] for t in range(6)] == ["right", *["down"] * 4, "never"]
    assert [named[t][at[2, 2]] for t in range(6)] == ["left"] * 6
    # The box was pushed from (2, 4) to the goal at (2, 5), once.
    pushes = [(t, k, CLASSES[box[0, t, k]]) for t, k in np.argwhere(box[0] != NEVER)]
    assert pushes == [(0, at[2, 4], "right"), (1, at[2, 4], "right")]


def test_a_box_pushed_on_has_a_label_where_it_comes_to_lie(reference):
    text = "########\n#@ $  .#\n########"
    box = next_pushes(*episode(reference, text, "rrr"))[0]
    # Pushed from column 3 to 4 at step 1, and from 4 to 5 at step 2.
    where = {t: {int(k) - 8 for k in np.flatnonzero(box[t] != NEVER)} for t in range(3)}
    assert where == {0: {3, 4}, 1: {3, 4}, 2: {4}}


@pytest.mark.parametrize("width", [1, 2, 5])
def test_random_walks_against_a_plain_loop(width):
    """Walks with halts, boxes wherever; the loop looks ahead at every step."""
    rng = np.random.default_rng(width)
    height, n_episodes, n_steps = 4, 6, 15
    players = np.zeros((n_episodes, n_steps + 1), int)
    for b in range(n_episodes):
        i = j = 0
        for t in range(1, n_steps + 1):
            di, dj = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)][rng.integers(5)]
            if 0 <= i + di < height and 0 <= j + dj < width:
                i, j = i + di, j + dj
            players[b, t] = i * width + j
    boards = np.where(
        rng.random((n_episodes, n_steps + 1, height * width)) < 0.3, BOX, 0
    ).astype(np.uint8)
    lengths = rng.integers(1, n_steps + 1, n_episodes)
    found = {
        "agent": next_entries(players, boards, lengths, width),
        "box": next_pushes(players, boards, lengths, width),
    }
    for b in range(n_episodes):
        for t in range(n_steps):
            for k in range(height * width):
                agent = box = "never"
                for later in range(t, lengths[b]):
                    old, new = players[b, later], players[b, later + 1]
                    if new != k or old == new:
                        continue
                    (i0, j0), (i1, j1) = divmod(old, width), divmod(new, width)
                    moves = {(-1, 0): "up", (1, 0): "down", (0, -1): "left"}
                    direction = moves.get((i1 - i0, j1 - j0), "right")
                    agent = direction if agent == "never" else agent
                    if boards[b, later, k] & BOX and box == "never":
                        box = direction
                assert CLASSES[found["agent"][b, t, k]] == agent
                assert CLASSES[found["box"][b, t, k]] == box
