"""Where a checkpoint's steps are kept: a local folder, or any place fsspec reaches.

A store holds numbered steps, each a few files that are written whole or not at all:
locally a folder that is renamed into place, elsewhere files of which the last one
written makes the step count.
"""

import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

from allocsearch.errors import CheckpointError, StudyError, redacted

Place = Path | str
"""A local folder, or a URL such as ``s3://bucket/folder``."""

Write = Callable[[IO[bytes]], None]

_STEP = re.compile(r"(\d{6,})-[0-9a-f]{8}")
_UNFINISHED = ".new"
_STALE_SECONDS = 3600.0


def as_place(text: str | Path) -> Place:
    """A path as a `Path`, a URL as it stands."""
    return text if isinstance(text, str) and "://" in text else Path(text)


def below(place: Place, name: str) -> Place:
    """A place inside another one."""
    return place / name if isinstance(place, Path) else f"{place.rstrip('/')}/{name}"


def next_step(steps: Sequence[str]) -> str:
    """A name that comes after those of `steps` and that no other writer chooses."""
    last = _number(steps[-1]) if steps else 0
    return f"{last + 1:06d}-{secrets.token_hex(4)}"


class Store(Protocol):
    """The steps of one checkpoint.

    Attributes:
        name: what messages call it.
    """

    name: str

    def children(self) -> list[str]:
        """The names of all that is there, in any order."""
        ...

    def steps(self) -> list[str]:
        """The names of the steps, oldest first; whole ones and damaged ones."""
        ...

    def nbytes(self) -> int:
        """How much all of it takes."""
        ...

    def holds(self, name: str) -> bool:
        """Whether there is a file of this name beside the steps."""
        ...

    def write(self, step: str, files: Mapping[str, Write]) -> None:
        """Write a step's files in order; a kill leaves all of them or no step."""
        ...

    def open(self, step: str, name: str) -> IO[bytes]:
        """A file of a step, for reading."""
        ...

    def remove(self, step: str) -> None:
        """Remove a step if it is there."""
        ...

    def clear(self) -> None:
        """Remove everything."""
        ...

    def set_aside(self) -> None:
        """Rename everything, so that the place is free; keeps the last such one."""
        ...

    def free_bytes(self) -> int | None:
        """What may still be written, None where nobody says."""
        ...


def open_store(place: Place) -> Store:
    """The store at a place, which need not exist yet.

    Raises:
        StudyError: a URL of a kind that is not installed or does not exist.
    """
    place = as_place(place)
    return LocalStore(place) if isinstance(place, Path) else _RemoteStore(place)


@contextmanager
def writing(store: Store) -> Iterator[None]:
    """Turn what a disk or a network throws into a StudyError that names the place."""
    try:
        yield
    except StudyError:
        raise
    except Exception as error:  # a file system of fsspec may raise anything
        reason = error.strerror if isinstance(error, OSError) else None
        text = reason or redacted(" ".join(str(error).split())) or type(error).__name__
        raise StudyError(
            f"checkpoint {store.name} cannot be written: {text}"
        ) from error


class LocalStore:
    """Steps in a folder of this machine, or of a file system that it mounts."""

    def __init__(self, path: Path) -> None:
        """The steps in the folder `path`."""
        self.name = str(path)
        self._path = path

    def children(self) -> list[str]:
        """See `Store.children`."""
        try:
            return os.listdir(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {self.name} cannot be read: {error.strerror}"
            ) from error

    def steps(self) -> list[str]:
        """See `Store.steps`."""
        return _steps(self.children())

    def nbytes(self) -> int:
        """See `Store.nbytes`."""
        total = 0
        for path in self._path.rglob("*"):
            with suppress(OSError):  # another process may be deleting it
                total += path.stat().st_size if path.is_file() else 0
        return total

    def holds(self, name: str) -> bool:
        """See `Store.holds`."""
        return (self._path / name).exists()

    def write(self, step: str, files: Mapping[str, Write]) -> None:
        """See `Store.write`."""
        fresh = self._path / f"{step}{_UNFINISHED}"
        self._path.mkdir(parents=True, exist_ok=True)
        self._sweep()
        try:
            fresh.mkdir()
            for name, write in files.items():
                with open(fresh / name, "wb") as file:
                    write(file)
                    file.flush()
                    os.fsync(file.fileno())
            _sync(fresh)
            fresh.rename(self._path / step)
            _sync(self._path)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise

    def open(self, step: str, name: str) -> IO[bytes]:
        """See `Store.open`."""
        return open(self._path / step / name, "rb")

    def remove(self, step: str) -> None:
        """See `Store.remove`."""
        shutil.rmtree(self._path / step, ignore_errors=True)

    def clear(self) -> None:
        """See `Store.clear`."""
        shutil.rmtree(self._path, ignore_errors=True)

    def set_aside(self) -> None:
        """See `Store.set_aside`."""
        aside = self._path.with_name(self._path.name + ".damaged")
        shutil.rmtree(aside, ignore_errors=True)
        if self._path.exists():
            self._path.rename(aside)

    def free_bytes(self) -> int | None:
        """See `Store.free_bytes`."""
        present = self._path.absolute()
        while not present.exists() and present != present.parent:
            present = present.parent
        try:
            return shutil.disk_usage(present).free
        except OSError:
            return None

    def _sweep(self) -> None:
        """Remove what killed processes left half-written."""
        for left in self._path.glob(f"*{_UNFINISHED}"):
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                    shutil.rmtree(left)


class _RemoteStore:
    """Steps below a URL; a step counts once its last file is there."""

    def __init__(self, url: str) -> None:
        """The steps below `url`."""
        self.name = redacted(url)
        self._fs, self._root = _file_system(url, self.name)

    def children(self) -> list[str]:
        """See `Store.children`."""
        try:
            self._fs.invalidate_cache()
            return [n.rstrip("/").rpartition("/")[2] for n in self._list()]
        except Exception as error:  # a file system of fsspec may raise anything
            raise CheckpointError(
                f"checkpoint {self.name} cannot be read: "
                f"{redacted(str(error)) or type(error).__name__}"
            ) from error

    def steps(self) -> list[str]:
        """See `Store.steps`."""
        return _steps(self.children())

    def nbytes(self) -> int:
        """See `Store.nbytes`."""
        try:
            return self._fs.du(self._root)
        except FileNotFoundError:
            return 0

    def _list(self) -> list[str]:
        try:
            return self._fs.ls(self._root, detail=False)
        except FileNotFoundError:
            return []

    def holds(self, name: str) -> bool:
        """See `Store.holds`."""
        return self._fs.exists(f"{self._root}/{name}")

    def write(self, step: str, files: Mapping[str, Write]) -> None:
        """See `Store.write`."""
        self._fs.makedirs(f"{self._root}/{step}", exist_ok=True)
        for name, write in files.items():
            with self._fs.open(f"{self._root}/{step}/{name}", "wb") as file:
                write(file)

    def open(self, step: str, name: str) -> IO[bytes]:
        """See `Store.open`."""
        return self._fs.open(f"{self._root}/{step}/{name}", "rb")

    def remove(self, step: str) -> None:
        """See `Store.remove`."""
        self._remove(f"{self._root}/{step}")

    def clear(self) -> None:
        """See `Store.clear`."""
        self._remove(self._root)

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm(path, recursive=True)

    def set_aside(self) -> None:
        """See `Store.set_aside`."""
        if self._fs.exists(self._root):
            self._remove(f"{self._root}.damaged")
            self._fs.mv(self._root, f"{self._root}.damaged", recursive=True)

    def free_bytes(self) -> int | None:
        """See `Store.free_bytes`."""
        return None


def _file_system(url: str, label: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise StudyError(
            f"checkpoints at {label} need fsspec: pip install 'allocsearch[remote]'"
        ) from error
    try:
        fs, root = fsspec.url_to_fs(url)
    except Exception as error:  # unknown protocol, or its package is not installed
        raise StudyError(
            f"checkpoints at {label} cannot be reached: {redacted(str(error))}"
        ) from error
    return fs, root.rstrip("/")


def _steps(names: Iterable[str]) -> list[str]:
    """Those of some names that are steps', in order."""
    return sorted(filter(_STEP.fullmatch, names), key=lambda n: (_number(n), n))


def _number(step: str) -> int:
    return int(step.partition("-")[0])


def _sync(folder: Path) -> None:
    """Make a rename in a folder last, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
