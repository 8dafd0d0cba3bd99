"""Sokoban levels: the value that holds them and the Boxoban files they come from."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from allocsearch.errors import DataError
from allocsearch.tasks.sokoban.board_text import (
    BOX,
    GOAL,
    PLAYER,
    WALL,
    border_is_wall,
    parse_codes,
    render_codes,
    size,
)


@dataclass(frozen=True, eq=False)
class LevelSet:
    """Levels of one board size, as boolean planes.

    Args:
        walls: bool `[N, H, W]`.
        goals: bool `[N, H, W]`.
        boxes: bool `[N, H, W]`.
        players: int32 `[N]`, flat index ``row * W + column``.
        source: where the levels come from, for messages and manifests.

    Raises:
        DataError: the planes disagree in shape, a player is off the board, or a
            square holds two of wall, box and player, or a goal in a wall.
    """

    walls: np.ndarray
    goals: np.ndarray
    boxes: np.ndarray
    players: np.ndarray
    source: str

    def __post_init__(self):
        shape = self.walls.shape
        planes = (self.walls, self.goals, self.boxes)
        if len(shape) != 3 or any(plane.shape != shape for plane in planes):
            shapes = ", ".join(str(plane.shape) for plane in planes)
            raise DataError(
                f"{self.source}: walls, goals and boxes must share one shape "
                f"[N, H, W], got {shapes}"
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
        solid = self.walls | self.boxes
        on_solid = solid.reshape(len(self), -1)[np.arange(len(self)), self.players]
        shared = np.any(self.walls & (self.goals | self.boxes), axis=(1, 2)) | on_solid
        if np.any(shared):
            raise DataError(
                f"{self.source}: level {int(np.argmax(shared))} has a square with two "
                "of wall, box and player, or with a goal in a wall"
            )

    def __len__(self) -> int:
        return self.walls.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """Board height and width."""
        return (self.walls.shape[1], self.walls.shape[2])

    def codes(self) -> np.ndarray:
        """The static planes in one: uint8 `[N, H, W]` of WALL | GOAL | BOX bits."""
        codes = self.walls * np.uint8(WALL)
        codes |= self.goals * np.uint8(GOAL)
        codes |= self.boxes * np.uint8(BOX)
        return codes

    def codes_with_player(self) -> np.ndarray:
        """As `codes`, with the PLAYER bit set on the player's square."""
        codes = self.codes()
        flat = codes.reshape(len(self), -1)
        flat[np.arange(len(self)), self.players] |= PLAYER
        return codes

    def digest(self) -> str:
        """SHA-256 of the content in order, as hex; the source plays no part."""
        content = hashlib.sha256(repr(self.walls.shape).encode())
        content.update(self.codes_with_player().tobytes())
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
            return LevelSet(
                walls=self.walls[indices],
                goals=self.goals[indices],
                boxes=self.boxes[indices],
                players=self.players[indices],
                source=self.source,
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
        closed = border_is_wall(self.walls)
        if not np.all(closed):
            bad = int(np.argmin(closed))
            raise DataError(
                f"{self.source}: the border of level {bad} is not all wall, "
                "so it cannot be cut off"
            )
        width = self.shape[1]
        rows, columns = np.divmod(self.players, width)
        inner = np.s_[:, 1:-1, 1:-1]
        return LevelSet(
            walls=np.ascontiguousarray(self.walls[inner]),
            goals=np.ascontiguousarray(self.goals[inner]),
            boxes=np.ascontiguousarray(self.boxes[inner]),
            players=((rows - 1) * (width - 2) + columns - 1).astype(np.int32),
            source=self.source,
        )


def level_set_from_codes(codes: np.ndarray, source: str) -> LevelSet:
    """The levels of uint8 `[N, H, W]` bit codes with one PLAYER bit each."""
    flat = codes.reshape(len(codes), -1)
    return LevelSet(
        walls=(codes & WALL) != 0,
        goals=(codes & GOAL) != 0,
        boxes=(codes & BOX) != 0,
        players=np.argmax(flat & PLAYER, axis=1).astype(np.int32),
        source=source,
    )


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


def parse_boxoban(text: str, *, origin: str) -> LevelSet:
    """The levels of one Boxoban text.

    Levels are rows of ``# @$.*+``, divided by blank lines or by lines that begin
    with ``;``. Line ends may be LF, CRLF or CR.

    Args:
        text: the content of a file.
        origin: what error messages call it, usually its path.

    Raises:
        DataError: there is no level, or a level breaks a rule; nothing is skipped.
    """
    return level_set_from_codes(parse_codes(text, origin), origin)


def read_boxoban(path: Path | str, *, max_levels: int | None = None) -> LevelSet:
    """The levels of a Boxoban file, or of all ``.txt`` files of a directory in order.

    Args:
        path: a file or a directory.
        max_levels: stop after this many levels; all of them when None.

    Raises:
        DataError: the path is missing, holds no level files, mixes board sizes, or
            a level is broken.
    """
    path = Path(path)
    if max_levels is not None and max_levels < 1:
        raise DataError(f"max_levels must be at least 1, got {max_levels}")
    parts: list[LevelSet] = []
    n_levels = 0
    for file in _level_files(path):
        part = _read_file(file)
        if parts and part.shape != parts[0].shape:
            raise DataError(
                f"{file}: boards are {size(part.shape)}, but {size(parts[0].shape)} in "
                f"{parts[0].source}: keep each board size in its own directory"
            )
        parts.append(part)
        n_levels += len(part)
        if max_levels is not None and n_levels >= max_levels:
            break
    levels = _concatenate(parts, _source(path, len(parts)))
    return levels if max_levels is None else levels.subset(slice(max_levels))


def boxoban_split(root: Path | str, split: str) -> Path:
    """The directory under `root` that holds the levels of `split`.

    A `root` that is itself a flat directory of level files (Boxoban's ``hard``)
    serves as its own ``test`` split and has no other.

    Args:
        root: a directory such as ``boxoban-levels/unfiltered``.
        split: ``train``, ``valid`` or ``test``.

    Raises:
        DataError: what is missing, and what to do about it.
    """
    root = Path(root)
    if not root.is_dir():
        raise DataError(f"{root}: no such directory of levels")
    path = root / split
    if path.is_dir():
        return path
    present = sorted(child.name for child in root.iterdir() if child.is_dir())
    if not present and any(root.glob("*.txt")):
        if split == "test":
            return root
        raise DataError(
            f"{root}: a flat directory of level files has a test split only, not "
            f"{split!r}: put files in {path} to train on them"
        )
    collections = [name for name in present if (root / name / "train").is_dir()]
    if collections:
        raise DataError(
            f"{root}: no {split!r} split here: name one collection, such as "
            f"{root / collections[-1]}"
        )
    found = ", ".join(present) if present else "nothing"
    hint = f"add level files as {path / '000.txt'} or choose another collection"
    raise DataError(f"{root}: no {split!r} split (found {found}): {hint}")


def _level_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"{path}: no such file or directory of levels")
    files = sorted(path.glob("*.txt"))
    if not files:
        raise DataError(f"{path}: this directory holds no .txt level files")
    return files


def _read_file(file: Path) -> LevelSet:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    return parse_boxoban(text, origin=str(file))


def _source(path: Path, n_files: int) -> str:
    names = path.resolve().parts
    if path.is_file():
        return "boxoban:" + "/".join(names[-3:])
    return f"boxoban:{'/'.join(names[-2:])} ({n_files} files)"


def _concatenate(parts: Sequence[LevelSet], source: str) -> LevelSet:
    return LevelSet(
        walls=np.concatenate([part.walls for part in parts]),
        goals=np.concatenate([part.goals for part in parts]),
        boxes=np.concatenate([part.boxes for part in parts]),
        players=np.concatenate([part.players for part in parts]),
        source=source,
    )
