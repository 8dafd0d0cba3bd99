"""Documents of local Parquet, JSON-lines and text files, in order and resumable.

A row of Parquet or a line of JSON is a document. A text file is one, or several with a
line ``<|endoftext|>`` between them. Nothing is skipped: what is no text is an error
with its file and row or line.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from allocsearch.errors import DataError
from allocsearch.tasks.fineweb.scans import scan_file
from allocsearch.tasks.fineweb.tokenization import END_OF_TEXT, needs

State = dict[str, Any]
"""Where to read on: JSON-ready, and of no meaning but to the source it is from."""

_LONGEST_PIECE = 2**20


def ignore(event: object) -> None:
    """Where nobody wants to be told."""
    del event


class Piece(NamedTuple):
    """A document, or part of a long one.

    Attributes:
        text: what it says.
        begins: whether a document begins here.
    """

    text: str
    begins: bool = True


class Reader(Protocol):
    """Pieces one after another."""

    def __iter__(self) -> Iterator[Piece]:
        """Itself."""
        ...

    def __next__(self) -> Piece:
        """The next piece."""
        ...

    def state(self) -> State:
        """Where the next piece is."""
        ...


class Source(Protocol):
    """Documents in an order that never changes."""

    def describe(self) -> dict[str, Any]:
        """What decides the documents and their order, JSON-ready."""
        ...

    def open(self, state: State | None = None) -> Reader:
        """Read from the beginning, or on from a reader's state."""
        ...


class LocalFiles:
    """The documents of files, one file after another."""

    def __init__(self, files: Sequence[Path], root: Path, column: str = "text"):
        """From files with a known ending, in the order they are to be read.

        Args:
            files: Parquet, JSON lines or text.
            root: names are told relative to it.
            column: where Parquet and JSON lines have their text.
        """
        self.files, self.column = tuple(files), column
        self._root = root

    def describe(self) -> dict[str, Any]:
        """See `Source.describe`."""
        listed = []
        for file in self.files:
            scan = scan_file(file)
            name = relative_name(file, self._root)
            listed.append({"name": name, "bytes": scan.n_bytes, "sha256": scan.sha256})
        return {
            "files": listed,
            "column": self.column,
            "longest_piece": _LONGEST_PIECE,
        }

    def open(self, state: State | None = None) -> "_LocalReader":
        """See `Source.open`."""
        return _LocalReader(self, **(state or {"file": 0, "n_read": 0}))


class _LocalReader:
    """A place in local files: the file's index, and pieces of it already read."""

    def __init__(self, source: LocalFiles, file: int, n_read: int):
        self._source, self._file, self._n_read = source, file, n_read
        self._pieces = self._open()

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        while (piece := next(self._pieces, None)) is None:
            if self._file >= len(self._source.files):
                raise StopIteration
            self._file, self._n_read = self._file + 1, 0
            self._pieces = self._open()
        self._n_read += 1
        return piece

    def state(self) -> State:
        return {"file": self._file, "n_read": self._n_read}

    def _open(self) -> Iterator[Piece]:
        if self._file >= len(self._source.files):
            return iter(())
        file = self._source.files[self._file]
        return read_pieces(file, self._source.column, self._n_read)


def relative_name(file: Path, root: Path) -> str:
    """A file's name below a root, or its own where it is the root."""
    return file.name if file == root else file.relative_to(root).as_posix()


def read_pieces(path: Path, column: str, skip: int = 0) -> Iterator[Piece]:
    """The pieces of a file.

    Args:
        path: a file with a known ending.
        column: where Parquet and JSON lines have their text.
        skip: leave out that many of the first pieces.

    Raises:
        DataError: the file is empty, broken, or has no such column.
        ConfigError: Parquet needs a package that is missing.
    """
    try:
        if path.stat().st_size == 0:
            raise DataError(f"{path}: an empty file")
        ending = path.suffix.lower()
        if ending == ".parquet":
            yield from _parquet(path, column, skip)
        elif ending in (".jsonl", ".json"):
            yield from islice(_json_lines(path, column), skip, None)
        else:
            yield from islice(_text(path), skip, None)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _parquet(path: Path, column: str, skip: int) -> Iterator[Piece]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise needs("pyarrow", error) from error
    row = 0
    try:
        with parquet.ParquetFile(path) as file:
            _check_columns(path, column, file.schema_arrow.names)
            for group in range(file.num_row_groups):
                n_rows = file.metadata.row_group(group).num_rows
                if row + n_rows <= skip:
                    row += n_rows
                    continue
                batches = file.iter_batches(256, [group], [column])
                for text in (value for batch in batches for value in batch[0]):
                    row += 1
                    if row > skip:
                        yield Piece(_checked(text.as_py(), column, path, f"row {row}"))
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{path}: no sound Parquet file: {error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, row {row}: not UTF-8: {error.reason}") from error
    if row == 0:
        raise DataError(f"{path}: has no rows")


def _json_lines(path: Path, column: str) -> Iterator[Piece]:
    found = False
    for number, line in _lines(path):
        if not line.strip():
            continue
        found = True
        where = f"line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}, {where}: no JSON: {error}") from error
        if not isinstance(row, dict):
            raise DataError(
                f'{path}, {where}: a line must be an object as {{"{column}": …}}'
            )
        _check_columns(path, column, list(row), where)
        yield Piece(_checked(row[column], column, path, where))
    if not found:
        raise DataError(f"{path}: has no lines")


def _text(path: Path) -> Iterator[Piece]:
    """Documents, those of more than a million characters in pieces of whole lines."""
    kept: list[str] = []
    length, begins, found = 0, True, False
    for _, line in _lines(path):
        ends = line.strip() == END_OF_TEXT
        if kept and (ends or length >= _LONGEST_PIECE):
            yield Piece("".join(kept), begins)
            kept, length, begins, found = [], 0, False, True
        if ends:
            begins = True
        else:
            kept.append(line)
            length += len(line)
    if kept:
        yield Piece("".join(kept), begins)
    elif not found:
        raise DataError(f"{path}: has no text")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their ends, "\\n" whatever they were, and numbers from 1."""
    number = 0
    with open(path, encoding="utf-8-sig") as file:
        try:
            for line in file:
                number += 1
                yield number, line
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}, after line {number}: not UTF-8 ({error.reason}): "
                "save the file as UTF-8"
            ) from error


def _check_columns(
    path: Path, column: str, columns: Sequence[str], where: str = ""
) -> None:
    if column not in columns:
        place = f"{path}, {where}" if where else str(path)
        raise missing_column(place, column, columns)


def missing_column(place: str, column: str, columns: Sequence[str]) -> DataError:
    """The error where documents lack the column of their text."""
    listed = ", ".join(columns) or "none"
    return DataError(
        f"{place}: no column {column!r}; there is {listed}: name the one that holds "
        "the text"
    )


def _checked(value: Any, column: str, path: Path, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(
            f"{path}, {where}: {column!r} must be text, received "
            f"{'nothing' if value is None else type(value).__name__}"
        )
    return value
