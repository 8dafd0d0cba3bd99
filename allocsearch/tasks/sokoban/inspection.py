"""What level files hold: counts, broken rules and duplicates, for a user to read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from allocsearch.tasks.records import DataReport
from allocsearch.tasks.sokoban.board_text import size
from allocsearch.tasks.sokoban.level_files import (
    SPLITS,
    FileEntry,
    entry_of,
    level_files,
    parse_file,
    source_of,
)
from allocsearch.tasks.sokoban.level_notes import LevelNotes, together
from allocsearch.tasks.sokoban.level_packs import fingerprint, pack_path, write_pack
from allocsearch.tasks.sokoban.level_text import Parsed, Problem
from allocsearch.tasks.sokoban.levels import (
    LevelSet,
    largest,
    level_set_from_codes,
    pad_together,
)
from allocsearch.tasks.sokoban.saved_solutions import fault_of
from allocsearch.tasks.sokoban.symmetry import Overlap, find_overlaps


@dataclass(frozen=True)
class _Group:
    """One split, or one directory of levels, as it was read."""

    files: tuple[Path, ...]
    entries: tuple[FileEntry, ...]
    levels: LevelSet | None
    shapes: tuple[tuple[int, int], ...]
    problems: tuple[Problem, ...]
    packed: Mapping[str, Any]
    n_solutions: int

    @property
    def notes(self) -> tuple[LevelNotes, ...]:
        """What its files say about its levels, one each or none."""
        return self.levels.notes if self.levels is not None else ()

    def name_of(self, index: int) -> str:
        """The file of a level, and its place in it, counted from 1."""
        ends = np.cumsum([entry.n_levels for entry in self.entries])
        file = int(np.searchsorted(ends, index, side="right"))
        before = int(ends[file - 1]) if file else 0
        return f"{self.files[file]}, level {index - before + 1}"


def inspect_levels(path: Path) -> DataReport:
    """Read all level files of a path, and pack those of each split for next time.

    Args:
        path: a level file, or a directory with splits, collections or files.

    Raises:
        DataError: the path is missing, holds no level files, or cannot be read.
    """
    groups = {name: _read_group(files, path) for name, files in _grouped(path).items()}
    sets = {
        name: group.levels for name, group in groups.items() if group.levels is not None
    }
    overlaps = find_overlaps(sets)
    problems = [problem for group in groups.values() for problem in group.problems]
    sentences = [_sentence(overlap, groups) for overlap in overlaps]
    return DataReport(
        parts={name: _summary(group) for name, group in groups.items()},
        notes=(*sentences, *_packing(groups)),
        problems=tuple(map(str, problems)),
        details={
            "duplicates": [_described(overlap, groups) for overlap in overlaps],
            "packs": {name: dict(group.packed) for name, group in groups.items()},
            "levels": [
                described
                for name, group in groups.items()
                for described in _noted_levels(name, group)
            ],
        },
    )


def _grouped(path: Path) -> dict[str, list[Path]]:
    """Files by split where there are splits, otherwise by directory."""
    groups: dict[str, list[Path]] = {}
    for file in level_files(path):
        groups.setdefault(_group_of(file, path), []).append(file)
    return dict(sorted(groups.items(), key=lambda item: _order(item[0])))


def _group_of(file: Path, path: Path) -> str:
    if path.is_file():
        return file.name
    parts = file.relative_to(path).parts
    for index, part in enumerate(parts[:-1], start=1):
        if part in SPLITS:
            return "/".join(parts[:index])
    if file.stem in SPLITS:
        return "/".join([*parts[:-1], file.stem])
    return "/".join(parts[:-1]) or "."


def _order(name: str) -> tuple[str, int]:
    head, _, last = name.rpartition("/")
    return (head, SPLITS.index(last)) if last in SPLITS else (name, -1)


def _read_group(files: Sequence[Path], path: Path) -> _Group:
    key = fingerprint(files)
    stacks: list[np.ndarray] = []
    entries: list[FileEntry] = []
    problems: list[Problem] = []
    unsolved: list[Problem] = []
    notes: list[tuple[tuple[LevelNotes, ...], int]] = []
    for file in files:
        parsed = parse_file(file)
        stacks += parsed.stacks
        problems += parsed.problems
        unsolved += _wrong_solutions(parsed, str(file))
        notes.append((parsed.notes, sum(map(len, parsed.stacks))))
        entries.append(
            entry_of(parsed.stacks) if parsed.stacks else FileEntry(0, (0, 0))
        )
    levels = None
    if stacks:
        source = source_of(path, files)
        shape = largest([stack.shape for stack in stacks])
        codes = pad_together(stacks, shape, source)
        levels = level_set_from_codes(codes, source, together(notes))
    packed: Mapping[str, Any] = {}
    if levels is not None and not problems:
        packed = _packed(files, key, levels, entries)
    return _Group(
        files=tuple(files),
        entries=tuple(entries),
        levels=levels,
        shapes=tuple(sorted({stack.shape[1:] for stack in stacks})),
        problems=(*problems, *unsolved),
        packed=packed,
        n_solutions=sum(len(one.solutions) for some, _ in notes for one in some),
    )


def _wrong_solutions(parsed: Parsed, origin: str) -> Iterator[Problem]:
    """The saved solutions of a file that do not solve their levels."""
    boards = [board for stack in parsed.stacks for board in stack]
    for board, notes in zip(boards, parsed.notes, strict=False):
        for saved in notes.solutions:
            fault = fault_of(board, saved.moves)
            if fault is not None:
                rule = f"a saved solution must solve its level, but {fault}"
                yield Problem(origin, saved.line, rule)


def _noted_levels(part: str, group: _Group) -> Iterator[dict[str, Any]]:
    """Levels that have a title, an author or a solution."""
    for index, notes in enumerate(group.notes):
        if notes != LevelNotes():
            yield {"part": part, "level": group.name_of(index), **asdict(notes)}


def _packed(
    files: Sequence[Path], key: str, levels: LevelSet, entries: Sequence[FileEntry]
) -> dict[str, Any]:
    try:
        write_pack(files, key, levels, entries)
    except OSError as error:
        return {"error": f"{error.strerror}: {error.filename}"}
    n_bytes = pack_path(files).stat().st_size
    return {"path": str(pack_path(files)), "bytes": n_bytes}


def _summary(group: _Group) -> dict[str, Any]:
    levels = group.levels
    found = {
        "files": len(group.files),
        "levels": 0 if levels is None else len(levels),
        "boards": [size(shape) for shape in group.shapes],
        "boxes": [] if levels is None else levels.box_counts(),
    }
    if group.notes:
        found["titles"] = sum(bool(notes.title) for notes in group.notes)
        found["solutions"] = group.n_solutions
    return {**found, "problems": len(group.problems)}


def _packing(groups: Mapping[str, _Group]) -> list[str]:
    """Where packs are and how large, or why there are none."""
    packs = [group.packed for group in groups.values() if group.packed]
    errors = [pack["error"] for pack in packs if "error" in pack]
    if errors:
        return [f"Not packed: {errors[0]}."]
    if not packs:
        return []
    n_bytes = sum(pack["bytes"] for pack in packs)
    folder = Path(packs[0]["path"]).parent
    return [f"Packed for fast loading: {n_bytes / 1e6:.3g} MB in {folder}."]


def _examples(overlap: Overlap, groups: Mapping[str, _Group]) -> list[list[str]]:
    earlier, later = groups[overlap.earlier], groups[overlap.later]
    return [[earlier.name_of(i), later.name_of(j)] for i, j in overlap.examples]


def _described(overlap: Overlap, groups: Mapping[str, _Group]) -> dict[str, Any]:
    return {
        "earlier": overlap.earlier,
        "later": overlap.later,
        "n_levels": overlap.n_levels,
        "identical": overlap.n_identical,
        "symmetric": overlap.n_symmetric,
        "examples": _examples(overlap, groups),
    }


def _sentence(overlap: Overlap, groups: Mapping[str, _Group]) -> str:
    where = f"are also in {overlap.earlier}"
    if overlap.earlier == overlap.later:
        where = "repeat an earlier one"
    earlier, later = _examples(overlap, groups)[0]
    return (
        f"{overlap.later}: {overlap.n_identical + overlap.n_symmetric} of "
        f"{overlap.n_levels} levels {where} ({overlap.n_identical} identical, "
        f"{overlap.n_symmetric} turned or mirrored), such as {later} and {earlier}."
    )
