"""Titles, authors and saved solutions in level files, and whether they solve."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocsearch.errors import DataError
from allocsearch.parsing import parse
from allocsearch.tasks.sokoban import Sokoban
from allocsearch.tasks.sokoban.config import SokobanConfig
from allocsearch.tasks.sokoban.inspection import inspect_levels
from allocsearch.tasks.sokoban.level_files import read_levels
from allocsearch.tasks.sokoban.level_notes import LevelNotes, Solution
from allocsearch.tasks.sokoban.level_packs import load_levels
from allocsearch.tasks.sokoban.levels import LevelSet, parse_levels
from allocsearch.tasks.sokoban.saved_solutions import fault_of

SOK = """\
:: A collection in SOK form
Author: A. Nyone
Collection: Two rooms

Lull

#####
#@$.#
#####
Title: First room
Comment:
Author: nobody, this is a comment
R
Comment-End:

Solution/pushes 1
R

Second room

######
#@ $.#
######
Author: B. Else

Solution
2r2lrR

Snapshot
rr
"""
XSB = """\
Title: One
Author: X. Sb

#####
#@$.#
#####

Title: Two
######
#@ $.#
######
rR

Three

#######
#@  $.#
#######

dull
"""


def test_sok():
    first, second = parse_levels(SOK, origin="a.sok").notes
    assert first == LevelNotes("First room", "A. Nyone", (Solution(17, "R"),))
    assert second.title == "Second room"
    assert second.author == "B. Else"
    assert second.solutions == (Solution(27, "rrllrR"),)
    assert second.name == "Second room by B. Else"


def test_xsb_with_titles_above():
    """Above the first board they are the file's; `dull` is no solution."""
    one, two, three = parse_levels(XSB, origin="a.xsb").notes
    assert one == LevelNotes("", "X. Sb")
    assert two == LevelNotes("Two", "X. Sb", (Solution(12, "rR"),))
    assert three == LevelNotes("Three", "X. Sb")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_make_no_difference(end):
    data = SOK.replace("\n", end).encode("latin-1")
    assert parse_levels(data, origin="a").notes == parse_levels(SOK, origin="a").notes


@pytest.mark.parametrize(
    ("below", "solutions"),
    [
        ("Solution: rrR", ["rrR"]),
        ("Solution 1: rr\nR", ["rrR"]),
        ("SOLUTION\nrr\nR\n\nSolution\nrrR", ["rrR", "rrR"]),
        ("Solution\nrrr\nthat was it", ["rrr"]),
        ("rr R", ["rrR"]),
        ("rrr", []),
        ("Snapshot: rrR", []),
        ("Solution\n9999999r", []),
        ("Solution: see the web", []),
    ],
)
def test_what_counts_as_a_solution(below, solutions):
    text = f"#######\n#@  $.#\n#######\n\n{below}\n"
    levels = parse_levels(text, origin="a")
    found = levels.notes[0].solutions if levels.notes else ()
    assert [one.moves for one in found] == solutions


def test_boards_alone_have_no_notes():
    assert parse_levels("; 1\n\n#####\n#@$.#\n#####\n", origin="a").notes == ()


def test_notes_stay_with_their_levels():
    levels = parse_levels(XSB, origin="a")
    one, two, three = levels.notes
    assert levels.subset([2, 0]).notes == (three, one)
    assert levels.subset(slice(1, None)).notes == (two, three)
    assert levels.subset(np.array([False, True, False])).notes == (two,)
    assert levels.interior().notes == levels.padded((5, 9)).notes == levels.notes
    assert levels.padded((5, 9)).cropped((4, 8)).notes == levels.notes
    with pytest.raises(DataError, match="all 3 levels"):
        LevelSet(levels.boards, levels.players, "a", (one,))


def test_notes_are_packed(tmp_path):
    (tmp_path / "a.sok").write_text(SOK)
    (tmp_path / "b.txt").write_text("#####\n#@$.#\n#####\n")
    read = read_levels(tmp_path)
    assert read.notes == (*parse_levels(SOK, origin="a").notes, LevelNotes())
    load_levels(tmp_path, min_bytes=0)
    packed = load_levels(tmp_path)
    assert packed.notes == read.notes
    assert packed.digest() == read.digest()
    assert load_levels(tmp_path, max_levels=1).notes == read.notes[:1]


BOARD = "#######\n#@  $.#\n#  $ .#\n#######\n"


@pytest.mark.parametrize(
    ("moves", "fault"),
    [
        ("rrRlldrR", None),
        ("RRRLLDRR", None),
        ("rrRlldrRuuu", None),
        ("rrRu", "move 4 of 4, 'u', runs into a wall"),
        ("rrRr", "move 4 of 4, 'r', pushes a box that cannot move"),
        ("drrrr", "move 5 of 5, 'r', pushes a box that cannot move"),
        ("lrrR", "move 1 of 4, 'l', runs into a wall"),
        ("rrR", "after all 3 moves 1 of 2 boxes are not on goals"),
    ],
)
def test_faults(moves, fault):
    levels = parse_levels(BOARD, origin="a")
    assert fault_of(levels.codes_with_player()[0], moves) == fault


@given(moves=st.text("udlrUDLR", max_size=40))
@settings(max_examples=200, deadline=None)
def test_replay_agrees_with_rules_written_apart(reference, moves):
    levels = parse_levels(BOARD, origin="a")
    board = reference(levels.text(0).split("\n"))
    solved = stuck = False
    for move in moves:
        _, moved, _ = board.move(move)
        stuck = not moved
        solved = board.solved
        if solved or stuck:
            break
    fault = fault_of(levels.codes_with_player()[0], moves)
    assert (fault is None) == solved
    assert (fault is not None and fault.startswith("move")) == stuck


def test_inspection_names_wrong_solutions_by_file_and_line(tmp_path):
    path = tmp_path / "a.sok"
    path.write_text(SOK.replace("2r2lrR", "rL"))
    report = inspect_levels(path)
    assert report.problems == (
        f"{path}, line 27: a saved solution must solve its level, but after all 2 "
        "moves 1 of 1 boxes are not on goals",
    )
    part = report.parts["a.sok"]
    assert (part["titles"], part["solutions"], part["problems"]) == (2, 2, 1)
    first, second = report.details["levels"]
    assert first["title"] == "First room"
    assert second["level"] == f"{path}, level 2"
    assert second["solutions"] == ({"line": 27, "moves": "rL"},)
    # The levels themselves are sound.
    assert report.details["packs"]["a.sok"]["bytes"] > 0
    path.write_text(SOK)
    assert inspect_levels(path).problems == ()


def test_a_level_is_shown_with_its_name(tmp_path):
    path = tmp_path / "a.sok"
    path.write_text(SOK)
    shown = Sokoban(parse(SokobanConfig, {"data": str(path)})).show_item(1, label="")
    assert shown.name == "Second room by B. Else"
    assert (shown.details["title"], shown.details["author"]) == (
        "Second room",
        "B. Else",
    )
