"""The solver against a plain search over single moves."""

from collections import deque

import pytest

from allocsearch.errors import AllocsearchError
from allocsearch.tasks.sokoban.generator import generate_levels
from allocsearch.tasks.sokoban.levels import parse_levels, render_text
from allocsearch.tasks.sokoban.solver import SolverLimitError, solve


def solution(*rows: str, **options) -> str | None:
    levels = parse_levels("\n".join(rows), origin="drawn in the test")
    planes = (levels.walls[0], levels.goals[0], levels.boxes[0])
    return solve(*planes, int(levels.players[0]), **options)


def fewest_pushes(board) -> int | None:
    """Breadth-first by pushes over every (player, boxes) state of the reference."""
    start = (board.player, frozenset(board.boxes))
    n_pushes = {start: 0}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if state[1] == board.goals:
            return n_pushes[state]
        for letter in "udlr":
            board.player, board.boxes = state[0], set(state[1])
            _, moved, pushed = board.move(letter)
            following = (board.player, frozenset(board.boxes))
            total = n_pushes[state] + pushed
            if moved and total < n_pushes.get(following, total + 1):
                n_pushes[following] = total
                (queue.append if pushed else queue.appendleft)(following)
    return None


def test_solutions_by_hand():
    assert solution("#####", "#@$.#", "#####") == "R"
    assert solution("#####", "#.$ #", "#@  #", "#####") == "rruL"
    two = solution("#######", "#@$ . #", "# $ . #", "#######")
    assert two is not None
    assert sum(map(str.isupper, two)) == 4


def test_levels_proven_unsolvable():
    assert solution("#####", "#$ @#", "#  .#", "#####") is None
    assert solution("######", "#@ #.#", "# $  #", "#  # #", "######") is None
    # Each box alone could reach a goal, but they block each other.
    assert solution("########", "#@$$ ..#", "########") is None


@pytest.mark.parametrize(
    ("interior", "n_boxes"), [((3, 4), 1), ((3, 4), 2), ((4, 4), 3)]
)
def test_pushes_are_fewest(reference, interior, n_boxes):
    levels = generate_levels(25, interior=interior, n_boxes=n_boxes, seed=0)
    for index in range(len(levels)):
        planes = (levels.walls[index], levels.goals[index], levels.boxes[index])
        player = int(levels.players[index])
        found = solve(*planes, player)
        assert found is not None
        board = reference(render_text(*planes, player).split("\n"))
        assert sum(map(str.isupper, found)) == fewest_pushes(board)


@pytest.mark.parametrize(("interior", "n_boxes"), [((3, 4), 1), ((3, 4), 2)])
def test_solvable_or_not_is_told_apart(reference, interior, n_boxes):
    levels = generate_levels(40, interior=interior, n_boxes=n_boxes, seed=1)
    answers = []
    for index in range(1, len(levels)):
        # The goals of one level with the boxes of another: often unsolvable.
        walls = levels.walls[index] & False
        walls[[0, -1], :] = walls[:, [0, -1]] = True
        goals, boxes = levels.goals[index - 1], levels.boxes[index]
        walls[1, 1] = not (goals[1, 1] or boxes[1, 1] or levels.players[index] == 7)
        player = int(levels.players[index])
        found = solve(walls, goals, boxes, player)
        board = reference(render_text(walls, goals, boxes, player).split("\n"))
        answers.append(found is None)
        assert (found is None) == (fewest_pushes(board) is None)
    assert any(answers)
    assert not all(answers)


def test_a_search_cut_short_says_so():
    rows = ["########", "#@ $  .#", "#  $  .#", "#      #", "########"]
    with pytest.raises(SolverLimitError, match="undecided after 2 states") as error:
        solution(*rows, max_states=2)
    assert isinstance(error.value, AllocsearchError)
