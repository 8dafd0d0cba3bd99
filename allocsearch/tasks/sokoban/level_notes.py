"""What level files say about their levels: titles, authors and saved solutions.

Between two boards, ``Key: value`` lines and solutions belong to the board above, as in
SOK files. Keys that stand directly on top of a board, with a blank line above them,
belong to it, as in many XSB files; and so does a line of text that is the last before a
board and touches neither the board above nor a key. Keys above a file's first board, a
blank line between, are about the whole file: its author is that of every level that
names none.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

_KEY_NAME = re.compile(r"[A-Za-z][\w /-]*")
_HEADING = re.compile(r"\s*(solution|snapshot)\b", re.IGNORECASE)
_MOVES = re.compile(r"\s*(?:[0-9]*[udlrUDLR]\s*)+")
_RUN = re.compile(r"([0-9]*)([udlrUDLR])")
_MOST_MOVES = 10**6
_MOST_TITLE = 80

Line = tuple[int, str]


@dataclass(frozen=True)
class Solution:
    """Saved moves, `udlr`, pushes in capitals, and the line where they begin."""

    line: int
    moves: str


@dataclass(frozen=True)
class LevelNotes:
    """What a file says about a level.

    Attributes:
        title: its name, or empty.
        author: who made it, or empty.
        solutions: as they are saved; not necessarily right.
    """

    title: str = ""
    author: str = ""
    solutions: tuple[Solution, ...] = ()

    @property
    def name(self) -> str:
        """Title and author as far as they are known."""
        return " by ".join(filter(None, [self.title, self.author]))


def noted(notes: Sequence[LevelNotes]) -> tuple[LevelNotes, ...]:
    """The notes, or none at all where not one of them says anything."""
    return tuple(notes) if any(one != LevelNotes() for one in notes) else ()


def together(
    parts: Sequence[tuple[tuple[LevelNotes, ...], int]],
) -> tuple[LevelNotes, ...]:
    """The notes of several sets of levels in a row, each given with its size."""
    if not any(notes for notes, _ in parts):
        return ()
    blank = (LevelNotes(),)
    return tuple(one for notes, n in parts for one in notes or blank * n)


def notes_of(
    lines: Sequence[str], boards: Sequence[tuple[int, int]], skipped: set[int]
) -> list[LevelNotes]:
    """What the lines around boards say about each.

    Args:
        lines: of the whole file.
        boards: numbers of the first and the last line of each board, from 1.
        skipped: numbers of lines that say nothing, as within comments.
    """
    notes = [LevelNotes() for _ in boards]
    ends = [(0, 0), *boards, (len(lines) + 1, 0)]
    common = LevelNotes()
    for index, ((_, last), (first, _)) in enumerate(pairwise(ends)):
        between = [
            (number, "" if number in skipped else lines[number - 1])
            for number in range(last + 1, first)
        ]
        above = notes[index - 1] if index else common
        below = notes[index] if index < len(boards) else LevelNotes()
        above, below = _between(between, above, below)
        if index:
            notes[index - 1] = above
        else:
            common = above
        if index < len(boards):
            notes[index] = below
    return [one if one.author else replace(one, author=common.author) for one in notes]


def _between(
    lines: Sequence[Line], above: LevelNotes, below: LevelNotes
) -> tuple[LevelNotes, LevelNotes]:
    """Both with what the lines between them say."""
    paragraphs = list(_paragraphs(lines))
    # Blank lines at both ends stand where a paragraph touches no board.
    on_top = bool(lines and lines[-1][1].strip())
    beneath = bool(lines and lines[0][1].strip())
    for index, paragraph in enumerate(paragraphs):
        keys = [key for _, text in paragraph if (key := _key_of(text))]
        is_last, touches = index == len(paragraphs) - 1, index == 0 and beneath
        if keys and is_last and on_top and not touches:
            below = _with_keys(below, keys)
        else:
            above = _with_keys(above, keys)
            if is_last and not keys and not touches:
                below = _with_title(below, paragraph[-1][1])
    found = tuple(_solutions(lines))
    return replace(above, solutions=above.solutions + found), below


def _paragraphs(lines: Sequence[Line]) -> Iterator[list[Line]]:
    paragraph: list[Line] = []
    for number, text in [*lines, (0, "")]:
        if text.strip():
            paragraph.append((number, text))
        elif paragraph:
            yield paragraph
            paragraph = []


def _key_of(text: str) -> tuple[str, str] | None:
    """The name, in small letters, and the value of a ``Key: value`` line."""
    name, colon, value = text.partition(":")
    name = name.strip()
    if not colon or not _KEY_NAME.fullmatch(name):
        return None
    return name.lower(), value.strip()


def _with_keys(notes: LevelNotes, keys: Sequence[tuple[str, str]]) -> LevelNotes:
    known = {name: value for name, value in keys if name in ("title", "author")}
    return replace(notes, **known)


def _with_title(notes: LevelNotes, text: str) -> LevelNotes:
    text = text.strip()
    is_text = not text.startswith((";", "::")) and any(map(str.isalnum, text))
    if notes.title or not is_text or len(text) > _MOST_TITLE:
        return notes
    if _HEADING.match(text) or _MOVES.fullmatch(text):
        return notes
    return replace(notes, title=text)


def _solutions(lines: Sequence[Line]) -> Iterator[Solution]:
    """Moves below a heading, or by themselves where they end with a push."""
    heading, moves, begin = "", "", 0
    for number, text in [*lines, (0, "")]:
        title, _, rest = text.partition(":")
        found = _HEADING.match(title)
        part = rest if found else text
        if _MOVES.fullmatch(part):
            begin = begin or number
            moves += "".join(part.split())
            heading = found[1].lower() if found else heading
            continue
        if moves and (heading == "solution" or (not heading and moves[-1].isupper())):
            expanded = _expanded(moves)
            if expanded:
                yield Solution(begin, expanded)
        if found:
            heading = found[1].lower()
        elif moves or text.strip():
            heading = ""
        moves, begin = "", 0


def _expanded(moves: str) -> str:
    """Moves with their run lengths written out; empty if that is absurdly long."""
    runs = [(int(n[:7] or 1), move) for n, move in _RUN.findall(moves)]
    if sum(n for n, _ in runs) > _MOST_MOVES:
        return ""
    return "".join(n * move for n, move in runs)
