"""Generated levels: solvable, distinct, repeatable, and as hard as they say."""

import random
import subprocess
import sys

import numpy as np
import pytest

from allocsearch.errors import ConfigError
from allocsearch.tasks.sokoban.generator import (
    disjoint_splits,
    generate_levels,
)
from allocsearch.tasks.sokoban.levels import LevelSet, parse_levels, render_text
from allocsearch.tasks.sokoban.solver import solve
from allocsearch.tasks.sokoban.symmetry import canonical_keys


def drawn(levels: LevelSet, index: int) -> list[str]:
    return render_text(
        levels.walls[index],
        levels.goals[index],
        levels.boxes[index],
        levels.players[index],
    ).split("\n")


def solution_of(levels: LevelSet, index: int) -> str | None:
    return solve(
        levels.walls[index],
        levels.goals[index],
        levels.boxes[index],
        int(levels.players[index]),
    )


def all_views(rows: list[str]) -> set[tuple[str, ...]]:
    """A board under the eight symmetries of the square."""
    views, board = set(), tuple(rows)
    for _ in range(4):
        board = tuple("".join(column) for column in zip(*board[::-1], strict=True))
        views |= {board, board[::-1]}
    return views


def representatives(levels: LevelSet) -> list[tuple[str, ...]]:
    return [min(all_views(drawn(levels, index))) for index in range(len(levels))]


@pytest.mark.parametrize(
    ("interior", "n_boxes", "n"),
    [
        ((5, 5), 1, 150),
        ((4, 7), 3, 40),
        ((6, 6), 2, 40),
        ((3, 4), 1, 20),
    ],
)
def test_every_level_is_solved_by_the_solver(reference, interior, n_boxes, n):
    levels = generate_levels(n, interior=interior, n_boxes=n_boxes, seed=4)
    assert len(levels) == n
    assert levels.shape == (interior[0] + 2, interior[1] + 2)
    for index in range(n):
        board = reference(drawn(levels, index))
        assert len(board.boxes) == len(board.goals) == n_boxes
        assert not board.solved
        solution = solution_of(levels, index)
        assert solution is not None
        for letter in solution:
            _, moved, pushed = board.move(letter)
            assert moved
            assert pushed == letter.isupper()
        assert board.solved


@pytest.mark.parametrize("min_pushes", [1, 3, 5])
def test_min_pushes_bounds_the_shortest_solution(min_pushes):
    levels = generate_levels(60, seed=1, min_pushes=min_pushes)
    pushes = [
        sum(map(str.isupper, solution_of(levels, index) or "")) for index in range(60)
    ]
    assert min(pushes) >= min_pushes
    assert len(set(pushes)) > 2


@pytest.mark.parametrize("interior", [(1, 3), (3, 1)])
def test_the_one_level_of_the_smallest_board(interior):
    levels = generate_levels(1, interior=interior, seed=0, min_pushes=1)
    solution = solution_of(levels, 0)
    assert solution is not None
    assert len(solution) == 1


def test_boards_and_box_counts_of_any_size():
    for interior, n_boxes in [((20, 18), 6), ((3, 30), 2), ((5, 5), 12), ((4, 4), 1)]:
        levels = generate_levels(5, interior=interior, n_boxes=n_boxes, seed=0)
        assert levels.shape == (interior[0] + 2, interior[1] + 2)
        assert levels.boxes.sum() == levels.goals.sum() == 5 * n_boxes


def test_generated_levels_obey_the_rules_of_level_files():
    levels = generate_levels(300, interior=(8, 8), n_boxes=4, seed=0)
    text = "\n\n".join("\n".join(drawn(levels, index)) for index in range(300))
    assert parse_levels(text, origin="generated").digest() == levels.digest()
    assert levels.interior().shape == (8, 8)
    assert levels.source == "generated: 8x8 interior, 4 boxes, seed 0"


def test_a_seed_means_the_same_levels_in_every_process():
    program = (
        "from allocsearch.tasks.sokoban.generator import generate_levels as g;"
        "print(g(300, seed=7).digest());"
        "print(g(50, interior=(6, 8), n_boxes=3, seed=7).digest())"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    here = (
        generate_levels(300, seed=7).digest(),
        generate_levels(50, interior=(6, 8), n_boxes=3, seed=7).digest(),
    )
    assert tuple(run.stdout.split()) == here


def test_a_smaller_set_is_the_start_of_a_larger_one():
    larger = generate_levels(5000, seed=3)
    for n in (1, 100, 4500):
        assert generate_levels(n, seed=3).digest() == larger.subset(slice(n)).digest()


def test_no_two_levels_are_alike_even_turned_or_mirrored():
    levels = generate_levels(1500, interior=(4, 4), seed=0, wall_density=0.2)
    seen = representatives(levels)
    assert len(set(seen)) == len(seen)
    oblong = generate_levels(300, interior=(3, 5), seed=0, min_pushes=1)
    seen = representatives(oblong)
    assert len(set(seen)) == len(seen)


def test_canonical_keys_do_not_change_when_a_level_is_turned_or_mirrored():
    levels = generate_levels(5, seed=0)
    for index in range(5):
        views = sorted(all_views(drawn(levels, index)))
        turned = parse_levels("\n\n".join(map("\n".join, views)), origin="turned")
        assert len(set(canonical_keys(turned))) == 1
    assert len(set(canonical_keys(levels))) == 5


def test_other_seeds_give_other_levels():
    one, other = (set(representatives(generate_levels(2000, seed=s))) for s in (0, 1))
    assert len(one & other) < 40


def test_splits_share_no_level():
    sizes = {"train": 400, "valid": 100, "test": 150}
    splits = disjoint_splits(sizes, interior=(4, 4), seed=0, wall_density=0.2)
    assert list(splits) == ["train", "valid", "test"]
    seen = [key for split in splits.values() for key in representatives(split)]
    assert len(set(seen)) == len(seen) == 650
    assert splits["train"].source.endswith("1 box, seed 0, split train")


def test_held_out_splits_stay_when_the_training_set_grows():
    small = disjoint_splits({"train": 300, "valid": 50, "test": 60}, seed=2)
    large = disjoint_splits({"train": 900, "valid": 50, "test": 60}, seed=2)
    for name in ("valid", "test"):
        assert small[name].digest() == large[name].digest()


def test_goals_boxes_and_players_are_found_on_every_square():
    levels = generate_levels(2000, seed=0).interior()
    for plane in (levels.goals, levels.walls):
        assert plane.any(axis=0).all()
    # A box in a corner never leaves it, and none lies there unless on a goal.
    assert not levels.boxes[:, [0, 0, -1, -1], [0, -1, 0, -1]].any()
    assert set(levels.players.tolist()) == set(range(25))


def test_a_random_policy_solves_about_a_tenth(reference):
    levels = generate_levels(1500, seed=11)
    choices = random.Random(0)
    n_solved = 0
    for index in range(len(levels)):
        board = reference(drawn(levels, index))
        for _ in range(60):
            board.move(choices.choice("udlr"))
            if board.solved:
                n_solved += 1
                break
    assert 0.06 < n_solved / len(levels) < 0.13


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "number of levels must be at least 1"),
        ({"n_boxes": 0}, "n_boxes must be at least 1"),
        ({"seed": -1}, "seed must be a non-negative integer"),
        ({"min_pushes": 0}, "min_pushes must be at least 1"),
        ({"wall_density": 1.0}, r"wall_density must be in \[0, 1\)"),
        ({"wall_density": -0.1}, r"wall_density must be in \[0, 1\)"),
        ({"max_pulls": 1}, "max_pulls must be at least min_pushes"),
        ({"interior": (2, 2)}, "no room to push"),
        ({"interior": (0, 5)}, "no room to push"),
        ({"interior": (3, 3), "n_boxes": 8}, "3x3 interior has no room to push 8 box"),
        ({"interior": (3, 3), "min_pushes": 9}, "found only 0 of 3 distinct levels"),
        ({"interior": (1, 3), "min_pushes": 1}, "found only 1 of 3 distinct levels"),
    ],
)
def test_requests_that_cannot_be_met(arguments, message):
    with pytest.raises(ConfigError, match=message) as error:
        generate_levels(**{"n": 3, "seed": 0, **arguments})
    assert "\n" not in str(error.value)


def test_levels_of_the_brief_are_varied_in_difficulty():
    levels = generate_levels(200, seed=0)
    pushes = [sum(map(str.isupper, solution_of(levels, i) or "")) for i in range(200)]
    assert np.std(pushes) > 0.7
    assert max(pushes) >= 5
