"""Sokoban levels: the value that holds them, and how texts become one."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allocsearch.errors import DataError
from allocsearch.tasks.sokoban.board_text import (
    BOX,
    GOAL,
    PLAYER,
    WALL,
    border_is_wall,
    render_codes,
    size,
)
from allocsearch.tasks.sokoban.level_notes import LevelNotes
from allocsearch.tasks.sokoban.level_text import Problem, parse_boards

_MOST_PADDED_BYTES = 2**32
_MOST_CODE = GOAL | BOX


@dataclass(frozen=True, eq=False)
class LevelSet:
    """Levels of one board size, as bit codes: a byte a square.

    Args:
        boards: uint8 `[N, H, W]` of WALL | GOAL | BOX bits.
        players: int32 `[N]`, flat index ``row * W + column``.
        source: where the levels come from, for messages and manifests.
        notes: what files say about each level, or nothing about any.

    Raises:
        DataError: the arrays or the notes disagree in number or shape, a player is off
            the board, or a square holds two of wall, box and player, or a goal in a
            wall.
    """

    boards: np.ndarray
    players: np.ndarray
    source: str
    notes: tuple[LevelNotes, ...] = ()

    def __post_init__(self):
        shape = self.boards.shape
        if self.notes and len(self.notes) != len(self.boards):
            raise DataError(
                f"{self.source}: there must be notes on all {len(self.boards)} levels "
                f"or on none, got {len(self.notes)}"
            )
        if len(shape) != 3 or self.boards.dtype != np.uint8:
            raise DataError(
                f"{self.source}: boards must be uint8 of shape [N, H, W], got "
                f"{self.boards.dtype} of shape {shape}"
            )
        if self.players.shape != shape[:1]:
            raise DataError(
                f"{self.source}: players must have shape ({shape[0]},), "
                f"got {self.players.shape}"
            )
        n_squares = shape[1] * shape[2]
        if np.any((self.players < 0) | (self.players >= n_squares)):
            raise DataError(
                f"{self.source}: a player's flat index must be in [0, {n_squares})"
            )
        flat = self.boards.reshape(len(self), n_squares)
        on = flat[np.arange(len(self)), self.players]
        bad = (on & (WALL | BOX)) != 0
        in_walls = (flat & WALL) & (flat > WALL)
        if np.max(flat, initial=0) > _MOST_CODE or np.any(in_walls):
            bad |= np.any(in_walls | (flat > _MOST_CODE), axis=1)
        if np.any(bad):
            raise DataError(
                f"{self.source}: level {int(np.argmax(bad))} has a square with two "
                "of wall, box and player, or with a goal in a wall"
            )

    def __len__(self) -> int:
        return self.boards.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """Board height and width."""
        return (self.boards.shape[1], self.boards.shape[2])

    @cached_property
    def walls(self) -> np.ndarray:
        """bool `[N, H, W]`, computed on first use."""
        return (self.boards & WALL) != 0

    @cached_property
    def goals(self) -> np.ndarray:
        """bool `[N, H, W]`, computed on first use."""
        return (self.boards & GOAL) != 0

    @cached_property
    def boxes(self) -> np.ndarray:
        """bool `[N, H, W]`, computed on first use."""
        return (self.boards & BOX) != 0

    def codes_with_player(self) -> np.ndarray:
        """A copy of the boards with the PLAYER bit set on the player's square."""
        codes = self.boards.copy()
        flat = codes.reshape(len(self), -1)
        flat[np.arange(len(self)), self.players] |= PLAYER
        return codes

    def box_counts(self) -> list[int]:
        """How many boxes a level may have, in ascending order."""
        counts = np.count_nonzero(self.boards & BOX, axis=(1, 2))
        return [int(n) for n in np.unique(counts)]

    def text(self, index: int) -> str:
        """One level as rows of XSB characters."""
        return render_codes(self.subset([index]).codes_with_player()[0])

    def digest(self) -> str:
        """SHA-256 of the content in order, as hex; the source plays no part."""
        content = hashlib.sha256(repr(self.boards.shape).encode())
        content.update(self.codes_with_player().data)
        return content.hexdigest()

    def subset(self, indices: np.ndarray | Sequence[int] | slice) -> "LevelSet":
        """The levels at `indices`, in that order.

        Raises:
            DataError: an index is out of range.
        """
        if not isinstance(indices, slice):
            indices = np.asarray(indices)
            if indices.dtype != bool:
                indices = indices.astype(np.int64)
        try:
            places = np.arange(len(self))[indices] if self.notes else ()
            return LevelSet(
                self.boards[indices],
                self.players[indices],
                self.source,
                tuple(self.notes[i] for i in places),
            )
        except IndexError as error:
            raise DataError(
                f"{self.source}: cannot take these indices of {len(self)} levels: "
                f"{error}"
            ) from error

    def interior(self) -> "LevelSet":
        """The same levels with the closed border of walls cut off.

        Raises:
            DataError: some border square is not a wall, or nothing lies within.
        """
        if min(self.shape) < 3:
            raise DataError(f"{self.source}: a board of {self.shape} has no interior")
        closed = border_is_wall((self.boards & WALL) != 0)
        if not np.all(closed):
            bad = int(np.argmin(closed))
            raise DataError(
                f"{self.source}: the border of level {bad} is not all wall, "
                "so it cannot be cut off"
            )
        width = self.shape[1]
        rows, columns = np.divmod(self.players, width)
        players = (rows - 1) * (width - 2) + columns - 1
        return LevelSet(
            np.ascontiguousarray(self.boards[:, 1:-1, 1:-1]),
            players.astype(np.int32),
            self.source,
            self.notes,
        )

    def padded(self, shape: tuple[int, int]) -> "LevelSet":
        """The same levels on larger boards, with walls to the right and below.

        Raises:
            DataError: `shape` is smaller than the boards, or takes gigabytes.
        """
        if shape == self.shape:
            return self
        boards = pad_together([self.boards], shape, self.source)
        return LevelSet(boards, self._players_on(shape[1]), self.source, self.notes)

    def cropped(self, shape: tuple[int, int]) -> "LevelSet":
        """The upper left of the boards, which undoes `padded`.

        Raises:
            DataError: something but wall would be cut off.
        """
        height, width = shape
        if shape == self.shape:
            return self
        cut = (self.boards[:, height:], self.boards[:, :, width:])
        if any(np.any(squares != WALL) for squares in cut):
            raise DataError(f"{self.source}: boards hold more than {size(shape)}")
        boards = np.ascontiguousarray(self.boards[:, :height, :width])
        return LevelSet(boards, self._players_on(width), self.source, self.notes)

    def _players_on(self, width: int) -> np.ndarray:
        """The players' flat indices on boards of another width."""
        rows, columns = np.divmod(self.players, self.shape[1])
        return (rows * width + columns).astype(np.int32)


def level_set_from_codes(
    codes: np.ndarray, source: str, notes: tuple[LevelNotes, ...] = ()
) -> LevelSet:
    """The levels of uint8 `[N, H, W]` bit codes with one PLAYER bit each."""
    players = (codes.reshape(len(codes), -1) & PLAYER).astype(bool).argmax(axis=1)
    boards = codes & np.uint8(WALL | GOAL | BOX)
    return LevelSet(boards, players.astype(np.int32), source, notes)


def pad_together(
    stacks: Sequence[np.ndarray], shape: tuple[int, int], source: str
) -> np.ndarray:
    """Boards of all stacks `[n, h, w]` as one `[N, H, W]`, walls right and below.

    Raises:
        DataError: `shape` is smaller than a board, or the result takes gigabytes.
    """
    n_levels = sum(map(len, stacks))
    n_bytes = n_levels * shape[0] * shape[1]
    if n_bytes > _MOST_PADDED_BYTES:
        raise DataError(
            f"{source}: {n_levels} levels padded to the largest board, {size(shape)}, "
            f"take {n_bytes / 2**30:.0f} GiB: put the large boards in a set of their "
            "own"
        )
    boards = np.full((n_levels, *shape), WALL, np.uint8)
    start = 0
    for stack in stacks:
        n, height, width = stack.shape
        if height > shape[0] or width > shape[1]:
            raise DataError(
                f"{source}: a board of {size((height, width))} does not fit in "
                f"{size(shape)}"
            )
        boards[start : start + n, :height, :width] = stack
        start += n
    return boards


def largest(shapes: Sequence[tuple[int, ...]]) -> tuple[int, int]:
    """The height and the width that hold boards of every shape ``(…, H, W)``."""
    return max(s[-2] for s in shapes), max(s[-1] for s in shapes)


def render_text(
    walls: np.ndarray,
    goals: np.ndarray,
    boxes: np.ndarray,
    player: int | np.integer,
) -> str:
    """One level as rows of XSB characters.

    Args:
        walls, goals, boxes: bool `[H, W]`.
        player: flat index of the player's square.

    Raises:
        DataError: a square holds what cannot share a square (a box in a wall, …).
    """
    codes = walls * np.uint8(WALL) | goals * np.uint8(GOAL) | boxes * np.uint8(BOX)
    codes.reshape(-1)[player] |= PLAYER
    return render_codes(codes)


def parse_levels(data: str | bytes, *, origin: str) -> LevelSet:
    """The levels of one text in Boxoban, XSB or SOK form.

    Boards smaller than the largest are padded with walls.

    Args:
        data: the content of a file.
        origin: what error messages call it, usually its path.

    Raises:
        DataError: there is no level, or a level breaks a rule; nothing is skipped.
    """
    data = data.encode(errors="surrogatepass") if isinstance(data, str) else data
    parsed = parse_boards(data, origin)
    refuse(parsed.problems)
    shape = largest([stack.shape for stack in parsed.stacks])
    codes = pad_together(parsed.stacks, shape, origin)
    return level_set_from_codes(codes, origin, parsed.notes)


def refuse(problems: Sequence[Problem]) -> None:
    """Raise the first problem, if there is one.

    Raises:
        DataError: file, line and rule, and how many more problems there are.
    """
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise DataError(f"{problems[0]}{more}")
