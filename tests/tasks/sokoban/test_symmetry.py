"""Duplicates: found when turned, mirrored or walled in, and only then."""

import random

import pytest

from allocsearch.tasks.sokoban.generator import generate_levels
from allocsearch.tasks.sokoban.levels import LevelSet, parse_levels
from allocsearch.tasks.sokoban.symmetry import (
    Overlap,
    canonical_keys,
    find_overlaps,
    trimmed_keys,
)


def rows_of(levels: LevelSet) -> list[list[str]]:
    return [levels.text(index).split("\n") for index in range(len(levels))]


def turned(rows: list[str], n_turns: int, mirror: bool) -> list[str]:
    for _ in range(n_turns):
        rows = ["".join(column) for column in zip(*rows[::-1], strict=True)]
    return rows[::-1] if mirror else rows


def walled(rows: list[str], before: int, after: int) -> list[str]:
    wall = "#" * (len(rows[0]) + before + after)
    inner = ["#" * before + row + "#" * after for row in rows]
    return [wall] * before + inner + [wall] * after


def as_set(boards: list[list[str]]) -> LevelSet:
    return parse_levels("\n\n".join(map("\n".join, boards)), origin="here")


VIEWS = [(n, mirror) for n in range(4) for mirror in (False, True)]


@pytest.mark.parametrize("interior", [(5, 5), (3, 6), (8, 8)])
def test_keys_do_not_change_when_a_level_is_turned_or_mirrored(interior):
    levels = generate_levels(40, interior=interior, n_boxes=2, seed=1)
    # Square boards are turned among themselves, oblong ones in sets of their own.
    keys = set(canonical_keys(levels))
    assert len(keys) == 40
    for n_turns, mirror in VIEWS:
        views = as_set([turned(rows, n_turns, mirror) for rows in rows_of(levels)])
        assert set(canonical_keys(views)) == keys


def test_keys_differ_where_one_square_does():
    levels = generate_levels(1, interior=(4, 4), seed=0)
    (rows,) = rows_of(levels)
    (key,) = trimmed_keys(levels, symmetries=True)
    changes = 0
    for i in range(1, 5):
        for j in range(1, 5):
            if rows[i][j] in "# ":
                other = {"#": " ", " ": "#"}[rows[i][j]]
                row = rows[i][:j] + other + rows[i][j + 1 :]
                changed = as_set([[*rows[:i], row, *rows[i + 1 :]]])
                assert trimmed_keys(changed, symmetries=True) != [key]
                changes += 1
    assert changes > 8


@pytest.mark.parametrize("interior", [(5, 5), (3, 6)])
def test_outer_walls_and_the_size_of_the_set_play_no_part(interior):
    levels = generate_levels(30, interior=interior, seed=2)
    keys = trimmed_keys(levels, symmetries=True)
    assert len(set(keys)) == 30
    choices = random.Random(0)
    views = []
    for rows in rows_of(levels):
        n_turns, mirror = choices.choice(VIEWS)
        around = choices.randrange(3), choices.randrange(3)
        views.append(walled(turned(rows, n_turns, mirror), *around))
    assert trimmed_keys(as_set(views), symmetries=True) == keys
    assert trimmed_keys(levels.padded((20, 11)), symmetries=False) == trimmed_keys(
        levels, symmetries=False
    )


def test_overlaps_by_hand():
    levels = generate_levels(12, interior=(4, 5), n_boxes=2, seed=3)
    boards = rows_of(levels)
    train = as_set([*boards[:8], boards[2], turned(boards[3], 2, False)])
    valid = as_set([boards[8], turned(boards[1], 1, True), walled(boards[0], 1, 0)])
    test = as_set([boards[9], boards[10]])
    sets = {"train": train, "valid": valid, "test": test}
    assert find_overlaps(sets) == [
        Overlap("train", "train", 10, 1, 1, ((2, 8), (3, 9))),
        Overlap("train", "valid", 3, 1, 1, ((1, 1), (0, 2))),
    ]
    assert find_overlaps({"test": test}) == []


def test_a_level_repeated_both_ways_is_counted_once():
    (rows,) = rows_of(generate_levels(1, interior=(4, 5), n_boxes=2, seed=0))
    views = as_set([rows, turned(rows, 0, True), rows, turned(rows, 0, True)])
    (overlap,) = find_overlaps({"all": views})
    assert (overlap.n_identical, overlap.n_symmetric) == (2, 1)
    assert overlap.examples == ((0, 1), (0, 2), (0, 3))
