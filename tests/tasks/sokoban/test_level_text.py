"""Texts of levels: what is read, and that whatever breaks a rule is named."""

import hashlib
import random

import numpy as np
import pytest

from allocsearch.errors import DataError
from allocsearch.tasks.sokoban.generator import generate_levels
from allocsearch.tasks.sokoban.level_text import parse_boards
from allocsearch.tasks.sokoban.levels import LevelSet, parse_levels

FIRST = ["######", "#@ $.#", "# #  #", "######"]
SECOND = ["######", "# *+ #", "#  $ #", "######"]
TWO = "\n".join(["; 0", *FIRST, "", "; 1", *SECOND, "", ""])

SOK = """:: Sokoban, SOK 0.19 ::
:: ------------------- ::

Collection: Two to begin with
Author: Ren\u00e9e
Comment:
######
this is no level
######
Comment-End:

Level 1
######
#@_$.#
#-#--#
######
Title: First
Solution/Moves
rR
Snapshot
r

Level 2: "#2"

######
# *+ #
#  $ #
######
Solution: 2(lurd)3r
LLddrr
"""


def drawn(levels: LevelSet) -> list[list[str]]:
    return [levels.text(index).split("\n") for index in range(len(levels))]


def read(text: str | bytes) -> list[list[str]]:
    return drawn(parse_levels(text, origin="here"))


@pytest.mark.parametrize(
    "text",
    [
        TWO,
        TWO.rstrip("\n"),
        TWO.replace("\n", "\r\n"),
        TWO.replace("\n", "\r"),
        TWO.replace("\n", "\r\n", 5),
        "\n\n" + TWO + "\n\n",
        TWO.replace("; 1\n", ""),
        TWO.replace("; 0", "; a title \u2603"),
        TWO.replace("\n\n", "\n   \n"),
        TWO.replace("\n\n", "\n\t\n"),
        TWO.replace("\n\n; 1", "\n; 1"),
        TWO.replace("\n\n; 1", "\nLevel 2"),
        TWO.replace("; 1", "Title: #2 of 2\nAuthor: ####"),
        TWO.replace("; 1", "Title: ##########"),
        TWO.replace("; 1", "2"),
        TWO.replace("; 1", "2."),
        TWO.replace("; 1", "2.\n"),
        TWO.replace("; 1", "*** two ***"),
        TWO.replace("; 1", "......\n"),
        TWO.replace("; 1", "by someone@somewhere.org, $5 for #2"),
        TWO.replace("; 1", "---"),
        TWO.replace("\n\n; 1", "\n---"),
        TWO.replace("\n\n; 1", "\n______"),
        TWO.replace("; 1", "  ; ####\n:: ####"),
        TWO.replace("; 1", "Comment: says #@$.#"),
        TWO.replace("; 1", "comment:\n#@$x#\nCOMMENT-END:"),
        TWO.replace("; 1", "Solution: 3(rR)\nudlrUDLR\n4u2R"),
        TWO.replace("#\n", "#  \n"),
        TWO.replace("\n#", "\n   #"),
        TWO.replace("@ $", "@-$").replace("#  #", "#_-#"),
        TWO.replace("# #  #", "# #2 #"),
        TWO.replace("######", "6#"),
        TWO.replace("\n".join(FIRST), "6#|#@ $.#|# # -#|6#|"),
        TWO.replace("\n".join(FIRST), "6#|#@ $.#|# #2-#|6#"),
        TWO.replace("\n".join(FIRST), "|6#|#@ $.#|\n# #2_#\n6#2|"),
        SOK,
        SOK.replace("\n", "\r\n"),
    ],
)
def test_layouts_that_mean_the_same(text):
    assert read(text) == [FIRST, SECOND]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_encodings_of_titles(encoding):
    for title in ("; d\u00e9j\u00e0 vu", "d\u00e9j\u00e0 vu"):
        assert read(TWO.replace("; 1", title).encode(encoding)) == [FIRST, SECOND]


def test_rows_that_begin_with_spaces_and_outside_that_is_wall():
    text = "  ####\n###  #\n#@ $.#\n#  ##\n####"
    assert read(text) == [["######", "###  #", "#@ $.#", "#  ###", "######"]]
    # Floor that nobody can reach stays floor.
    text = "#######\n#@$.# #\n#######"
    assert read(text) == [text.split("\n")]


def test_boards_of_other_shapes_and_sizes_in_one_file():
    wide, high = "#######\n#@ $ .#\n#######", "###\n#@#\n# #\n#$#\n#.#\n###"
    levels = parse_levels(f"{wide}\n\n{high}\n\n{wide}", origin="here")
    assert levels.shape == (6, 7)
    assert drawn(levels)[0] == [*wide.split("\n"), *["#######"] * 3]
    assert drawn(levels)[1] == [row + "####" for row in high.split("\n")]
    assert drawn(levels)[2] == drawn(levels)[0]
    assert levels.players.tolist() == [8, 8, 8]


def test_a_player_on_a_goal_and_boxes_on_goals():
    levels = parse_levels("\n".join(SECOND), origin="here")
    assert np.argwhere(levels.goals[0]).tolist() == [[1, 2], [1, 3]]
    assert np.argwhere(levels.boxes[0]).tolist() == [[1, 2], [2, 3]]
    assert levels.players.tolist() == [9]


def test_both_parsers_agree():
    made = generate_levels(200, interior=(4, 6), n_boxes=2, seed=3)
    boards = ["\n".join(rows) for rows in drawn(made)]
    regular = parse_boards("\n\n".join(boards).encode(), "here")
    careful = parse_boards("\n\n".join([*boards, "Title: end"]).encode(), "here")
    for parsed in (regular, careful):
        assert parsed.problems == ()
        (stack,) = parsed.stacks
        np.testing.assert_array_equal(stack, made.codes_with_player())


def run_length(rows: list[str], floor: str) -> str:
    """Rows on one line, every run of characters as a count."""
    line = "|".join(rows).replace(" ", floor)
    runs, last = [], 0
    for at in range(1, len(line) + 1):
        if at == len(line) or line[at] != line[last]:
            runs.append((at - last, line[last]))
            last = at
    return "".join(f"{n}{char}" if n > 1 else char for n, char in runs)


@pytest.mark.parametrize("ending", ["", "\n"])
@pytest.mark.parametrize("form", ["boxoban", "xsb", "ragged", "run lengths", "sok"])
def test_round_trips(form, ending):
    made = generate_levels(60, interior=(5, 7), n_boxes=3, seed=8)
    boards = drawn(made)
    texts = {
        "boxoban": [f"; {i}\n" + "\n".join(rows) for i, rows in enumerate(boards)],
        "xsb": ["\n".join(rows).replace(" ", "-") for rows in boards],
        "ragged": [
            "\n".join("  " + row + i % 3 * " " for i, row in enumerate(rows))
            for rows in boards
        ],
        "run lengths": [run_length(rows, "-") + "|" for rows in boards],
        "sok": [
            f"Level {i}\n\n" + "\n".join(rows) + "\nAuthor: x\n\nSolution\nudLR"
            for i, rows in enumerate(boards)
        ],
    }[form]
    levels = parse_levels("\n\n".join(texts) + ending, origin="here")
    assert drawn(levels) == boards
    assert levels.digest() == made.digest()


def with_row(index: int, row: str) -> str:
    """TWO with one row of its second level replaced; its rows are lines 8 to 11."""
    rows = [*SECOND]
    rows[index] = row
    return "\n".join(["; 0", *FIRST, "", "; 1", *rows, ""])


BROKEN = {
    "unknown character": (with_row(2, "#  $x#"), 10, "may hold only .* 'x'"),
    "tab": (with_row(2, "#\t $ #"), 10, r"may hold only .* '\\t'"),
    "not ASCII": (with_row(2, "#  $ \u00e9"), 10, "may hold only"),
    "begins with something else": (with_row(2, "x  $ #"), 10, "may hold only .* 'x'"),
    "text after a row": (with_row(2, "#  $ # hard"), 10, "may hold only .* 'h'"),
    "goals after the last row": (with_row(3, "###### 2."), 8, "boxes as goals"),
    "other walls": (TWO + "%%%%%\n%@$.%\n%%%%%\n", 14, "may hold only .* '%'"),
    "no player": (with_row(1, "# *. #"), 8, "exactly one player, but this has 0"),
    "two players": (with_row(2, "#@ $ #"), 8, "exactly one player, but this has 2"),
    "more boxes": (with_row(2, "#$ $ #"), 8, "as many boxes .* this has 3 and 2"),
    "more goals": (with_row(2, "#    #"), 8, "as many boxes .* this has 1 and 2"),
    "open at the side": (with_row(1, "# *+  "), 8, "enclosed by walls"),
    "open at the top": (with_row(0, "### ##"), 8, "enclosed by walls"),
    "a row that ends early": (with_row(1, "# *+"), 8, "enclosed by walls"),
    "no last row": (with_row(3, ""), 8, "enclosed by walls"),
    "box in place of a wall": (with_row(0, "##*###"), 8, "enclosed by walls"),
    "a row that is text": (with_row(1, "wall"), 8, "exactly one player, but .* 0"),
    "a row that is floor": (with_row(1, "------"), 8, "exactly one player, .* 0"),
    "boxes outside": (
        "; 0\n####### *\n#@ $. #\n#######",
        2,
        "must lie within the walls",
    ),
    "a row without walls": ("  *\n" + "\n".join(FIRST), 1, "must lie within"),
    "solved": ("; 0\n#####\n#@* #\n##*##\n#####", 2, "solved at the start"),
    "no box": ("####\n#@ #\n####", 1, "solved at the start"),
    "no wall": ("\n@$.", 2, "enclosed by walls"),
    "last level, broken": (TWO + "#####\n#@$ #\n#####", 13, "boxes as goals"),
    "run of nothing": (with_row(2, "#2 $ 0#"), 10, "run length must be from 1 to 256"),
    "long run": (with_row(2, "#99999999999 $#"), 10, "run length .* 99999999999"),
    "run without end": (with_row(2, "# $ #3"), 10, "followed by what it repeats"),
    "wide": (with_row(0, "#" * 257), 8, "at most 256x256, but this has a row of 257"),
    "wide by runs": (with_row(0, "200#200#"), 8, "at most 256x256"),
    "high": ("#\n" * 257, 1, "at most 256x256, but this has 257 rows"),
    "high by runs": ("#200|200|#", 1, "at most 256x256"),
    "empty": ("", 1, "at least one level"),
    "titles alone": ("; 0\n\nTitle: x\n1.\n", 1, "at least one level"),
    "UTF-16": (TWO.encode("utf-16").decode("latin-1"), 1, "zero bytes"),
}


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("case", BROKEN)
def test_broken_levels_name_file_line_and_rule(case, ends):
    text, line, rule = BROKEN[case]
    with pytest.raises(DataError, match=rf"^some/file, line {line}: .*{rule}") as error:
        parse_levels(text.replace("\n", ends), origin="some/file")
    assert "\n" not in str(error.value)


def test_every_problem_of_a_file_is_found():
    text = "\n\n".join(["#####\n#@$x#\n#####", "\n".join(FIRST), "#####\n#@$ #\n#####"])
    parsed = parse_boards(text.encode(), "here")
    assert [problem.line for problem in parsed.problems] == [2, 10]
    assert [len(stack) for stack in parsed.stacks] == [1]
    with pytest.raises(DataError, match=r"^here, line 2: .* \(and 1 more\)$"):
        parse_levels(text, origin="here")


def obeys_the_rules(rows: list[str]) -> bool:
    """Counts of a drawn level, and a walk from its player that meets no edge."""
    text = "".join(rows)
    at = {(i, j): char for i, row in enumerate(rows) for j, char in enumerate(row)}
    queue = [square for square, char in at.items() if char in "@+"]
    seen = set(queue)
    while queue:
        i, j = queue.pop()
        for near in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)):
            if near not in at:
                return False
            if at[near] != "#" and near not in seen:
                seen.add(near)
                queue.append(near)
    n_boxes = text.count("$") + text.count("*")
    n_goals = sum(map(text.count, ".*+"))
    n_players = text.count("@") + text.count("+")
    return n_players == 1 and n_boxes == n_goals and "$" in text


def mutated(data: bytes, choices: random.Random) -> bytes:
    """A text with a few bytes or lines changed, dropped, doubled or swapped."""
    for _ in range(choices.randint(1, 6)):
        lines = data.split(b"\n")
        at = choices.randrange(len(data))
        line, other = (choices.randrange(len(lines)) for _ in range(2))
        kind = choices.randrange(5)
        if kind == 0:
            byte = bytes([choices.choice(b"#@$.*+ -_|0123456789;:\r\n\t\xff\xc3\0aC")])
            data = data[:at] + byte + data[at + choices.randint(0, 1) :]
        elif kind == 1:
            data = data[:at] + data[at + choices.randint(1, 40) :] or b"#"
        elif kind == 2:
            lines[line], lines[other] = lines[other], lines[line]
            data = b"\n".join(lines)
        elif kind == 3:
            data = b"\n".join([*lines[:line], lines[other], *lines[line:]])
        else:
            noise = bytes(choices.randrange(256) for _ in range(choices.randint(1, 9)))
            data = data[:at] + noise + data[at:]
    return data


def boards_or_error(data: bytes) -> list[list[str]] | str:
    try:
        return drawn(parse_levels(data, origin="fuzz"))
    except DataError as error:
        return str(error)


def test_no_mutation_of_a_file_breaks_the_parser_or_slips_through():
    choices = random.Random(0)
    n_read = n_refused = 0
    for _ in range(3000):
        start = choices.choice([TWO, SOK, "6#|#@ $.#|# #2-#|6#|\n" + TWO])
        data = mutated(start.encode(), choices)
        found = boards_or_error(data)
        if isinstance(found, str):
            n_refused += 1
            assert found.startswith("fuzz, line ")
        else:
            n_read += 1
            assert all(map(obeys_the_rules, found))
    assert min(n_read, n_refused) > 300


def test_bytes_that_are_no_levels_at_all():
    choices = random.Random(1)
    for length in range(600):
        data = bytes(choices.choice(b"#@$.*+ -_|3\n\r9a;") for _ in range(length % 90))
        for noise in (data, choices.randbytes(length)):
            found = boards_or_error(noise)
            if isinstance(found, str):
                assert found.startswith("fuzz, line ")
            else:
                assert all(map(obeys_the_rules, found))


@pytest.mark.real_data
def test_every_real_level_is_read_as_written(boxoban):
    for file in [*boxoban.glob("unfiltered/*/*.txt"), *boxoban.glob("hard/*.txt")]:
        text = file.read_text()
        blocks = [block.split("\n")[1:] for block in text.strip().split("\n\n")]
        levels = parse_levels(text, origin=str(file))
        assert len(levels) == len(blocks) == 1000
        assert levels.shape == (10, 10)
        written = hashlib.sha256(repr(blocks).encode()).hexdigest()
        assert hashlib.sha256(repr(drawn(levels)).encode()).hexdigest() == written
        assert levels.interior().boxes.sum() == 4 * len(levels)
