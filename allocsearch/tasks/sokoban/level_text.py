"""Level files as text: Boxoban, XSB and SOK, which one grammar reads.

A board is a run of lines of board characters, with ``-`` and ``_`` for floor as well
as spaces, plain or run-length encoded (``3#|#.@|``). Between boards stand blank lines,
lines of ``-`` or ``_`` alone, comments that begin with ``;`` or ``::``, blocks from
``Comment:`` to ``Comment-End:``, and text: titles, ``Key: value`` and saved solutions.
A line that looks like a spoilt row of a board is never taken for text.

A file in Boxoban's form (every board the same size, a closed border) is read with
array operations; anything else goes line by line.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from allocsearch.tasks.sokoban.board_text import (
    CHARACTERS,
    CODE_TABLE,
    MAX_SIDE,
    WALL,
    all_are_levels,
    board_of_rows,
    broken_rule,
    outside,
    size,
)
from allocsearch.tasks.sokoban.level_notes import LevelNotes, noted, notes_of

_PLAIN = frozenset(CHARACTERS)
_ROW_CHARACTERS = _PLAIN | frozenset("0123456789|")
_FLOOR = " -_"
_KEY = re.compile(r"\s*[A-Za-z][\w /-]*:")
_COMMENT_BEGIN = re.compile(r"\s*comment\s*:", re.IGNORECASE)
_COMMENT_END = re.compile(r"\s*comment[ -]?end\s*:?", re.IGNORECASE)
_NUMBER = re.compile(r"\s*[0-9]+\.\s*")
_RUN = re.compile(r"([0-9]*)([^0-9])")


@dataclass(frozen=True)
class Problem:
    """A rule that a file breaks, and where."""

    origin: str
    line: int
    rule: str

    def __str__(self) -> str:
        return f"{self.origin}, line {self.line}: {self.rule}"


@dataclass(frozen=True)
class Parsed:
    """What a text holds.

    Attributes:
        stacks: boards in order as uint8 `[n, H, W]` bit codes, the player's among
            them; consecutive boards of one size share a stack. What lies outside the
            walls is wall.
        problems: every broken rule; its board is in no stack.
        notes: what the text says about each board; none where it has only boards.
    """

    stacks: tuple[np.ndarray, ...]
    problems: tuple[Problem, ...]
    notes: tuple[LevelNotes, ...] = ()


def parse_boards(data: bytes, origin: str) -> Parsed:
    """The boards of a file's content.

    Args:
        data: text in UTF-8 or Latin-1; line ends may be LF, CRLF or CR.
        origin: what problems call the file.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    regular = _regular_boards(data)
    if regular is not None:
        return Parsed((regular,), ())
    if b"\0" in data:
        rule = "a level file must be text in UTF-8 or Latin-1, but this has zero bytes"
        return Parsed((), (Problem(origin, 1, rule),))
    return _parse_lines(_decode(data).split("\n"), origin)


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _regular_boards(data: bytes) -> np.ndarray | None:
    """uint8 `[N, H, W]` when all boards share a size and obey every rule, or None."""
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    if len(text) and text[-1] != ord("\n"):
        ends = np.append(ends, len(text))
    if not len(ends):
        return None
    starts = np.concatenate([[0], ends[:-1] + 1])
    is_row = (ends > starts) & (text[np.minimum(starts, len(text) - 1)] != ord(";"))
    rows = np.flatnonzero(is_row)
    first = rows[~is_row[rows - 1] | (rows == 0)]
    if not len(first) or len(rows) % len(first):
        return None
    n_levels, height = len(first), len(rows) // len(first)
    widths = (ends - starts)[rows]
    if np.any(rows[::height] != first) or np.any(widths != widths[0]):
        return None
    squares = starts[rows][:, None] + np.arange(widths[0])
    boards = CODE_TABLE[text[squares]].reshape(n_levels, height, widths[0])
    return boards if all_are_levels(boards) else None


def _parse_lines(lines: Sequence[str], origin: str) -> Parsed:
    boards: list[np.ndarray] = []
    problems: list[Problem] = []
    commented = _lines_in_comments(lines)
    blocks = list(_blocks(lines, commented))
    places = [(block[0][0], block[-1][0]) for block in blocks]
    notes: list[LevelNotes] = []
    about = notes_of(lines, places, commented)
    for block, said in zip(blocks, about, strict=True):
        found = _board_of(block, origin)
        if isinstance(found, Problem):
            problems.append(found)
        else:
            boards.append(found)
            notes.append(said)
    if not boards and not problems:
        rule = "a level file must hold at least one level"
        problems.append(Problem(origin, 1, rule))
    stacks = [np.stack(list(same)) for _, same in groupby(boards, lambda b: b.shape)]
    return Parsed(tuple(stacks), tuple(problems), noted(notes))


def _blocks(
    lines: Sequence[str], commented: set[int]
) -> Iterator[list[tuple[int, str]]]:
    """The numbered lines of each board: runs of rows, at least one of them certain."""
    block: list[tuple[int, str]] = []
    certain = False
    for number, line in enumerate([*lines, ""], start=1):
        kind = "text" if number in commented else _kind(line)
        if kind == "text":
            if certain:
                yield block
            block, certain = [], False
        else:
            block.append((number, line))
            certain |= kind == "row"


def _kind(line: str) -> str:
    """``"row"``, ``"perhaps"`` where boxes or goals alone may be a rule, or ``"text"``.

    A row with a character too many is a row, so that its fault is found.
    """
    bare = line.strip()
    if not bare.strip(_FLOOR) or bare.startswith((";", "::")):
        return "text"
    if _KEY.match(line) or _NUMBER.fullmatch(line):
        return "text"
    solid = bare.translate(_WITHOUT_FLOOR)
    if _ROW_CHARACTERS.issuperset(line.rstrip()):
        if any(char in solid for char in "#@$+"):
            return "row"
        return "perhaps" if any(char in solid for char in "*.") else "text"
    n_board = sum(char in "#@$+*." for char in solid)
    spoilt = solid.startswith("#") or 2 * n_board >= len(solid)
    return "row" if spoilt and any(char in solid for char in "#@$") else "text"


_WITHOUT_FLOOR = str.maketrans("", "", _FLOOR + "\t")


def _lines_in_comments(lines: Sequence[str]) -> set[int]:
    """Numbers of the lines from ``Comment:`` to ``Comment-End:``, where both are."""
    commented: set[int] = set()
    begin = None
    for number, line in enumerate(lines, start=1):
        if _COMMENT_BEGIN.match(line):
            begin = number
        elif begin is not None and _COMMENT_END.match(line):
            commented.update(range(begin, number + 1))
            begin = None
    return commented


def _board_of(block: Sequence[tuple[int, str]], origin: str) -> np.ndarray | Problem:
    """The bit codes `[H, W]` of one board, or what is wrong with it."""
    rows: list[str] = []
    for number, line in block:
        found = _rows_of(line)
        if isinstance(found, _Fault):
            return Problem(origin, number, found.rule)
        rows += found
    if len(rows) > MAX_SIDE:
        return Problem(origin, block[0][0], _too_large(f"{len(rows)} rows"))
    board = board_of_rows(rows)
    beyond = outside(board)
    broken = broken_rule(board, beyond)
    if broken:
        return Problem(origin, block[0][0], broken)
    board[beyond] = WALL
    return board


def _too_large(what: str) -> str:
    side = size((MAX_SIDE, MAX_SIDE))
    return f"a board may be at most {side}, but this has {what}"


@dataclass(frozen=True)
class _Fault:
    rule: str


def _rows_of(line: str) -> list[str] | _Fault:
    """The rows that a line stands for: one, or several that ``|`` ends."""
    line = line.rstrip()
    if len(line) <= MAX_SIDE and _PLAIN.issuperset(line):
        return [line]
    for char in line:
        if char not in _ROW_CHARACTERS:
            return _Fault(
                f"a level may hold only {CHARACTERS!r}, but this row has {char!r}: "
                "begin lines of text with ';'"
            )
    if line[-1:].isdigit():
        return _Fault("a run length must be followed by what it repeats, as in 3#")
    rows, row = [], ""
    for count, what in _RUN.findall(line):
        n = int(count[:6]) if count else 1
        if not 1 <= n <= MAX_SIDE:
            return _Fault(
                f"a run length must be from 1 to {MAX_SIDE}, but this row has {count}"
            )
        if what == "|":
            rows += [row, *[""] * (n - 1)]
            row = ""
        else:
            row += what * n
        if len(row) > MAX_SIDE:
            return _Fault(_too_large(f"a row of {len(row)} squares"))
        if len(rows) > MAX_SIDE:
            return _Fault(_too_large(f"{len(rows)} rows"))
    return [*rows, row] if row or not rows else rows
