"""Files of a study's folder: written whole or not at all, and one driver at a time."""

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from allocsearch.errors import StudyError

STUDY_FORMAT = 1


def write_text(path: Path, text: str) -> None:
    """Write a file beside its place and rename it into it.

    Raises:
        StudyError: the folder cannot be written or the disk is full.
    """
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(fresh, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise StudyError(
            f"{path} cannot be written: {error.strerror or error}"
        ) from error


def write_json(path: Path, values: Any) -> None:
    """`write_text` of indented JSON."""
    write_text(path, json.dumps(values, indent=1) + "\n")


def read_json(path: Path) -> Any:
    """What `write_json` wrote.

    Raises:
        StudyError: missing or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StudyError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise StudyError(f"{path} is damaged: it is not JSON") from error


def read_manifest(directory: Path) -> dict[str, Any]:
    """A study's `study.json`, all its parts there and of the right kind.

    Raises:
        StudyError: it is missing, damaged or of another version.
    """
    manifest = read_json(directory / "study.json")
    if not isinstance(manifest, dict) or manifest.get("format") != STUDY_FORMAT:
        raise StudyError(
            f"study {directory} was made by a version that this one cannot read"
        )
    damaged = StudyError(
        f"study {directory} is damaged: its study.json lacks what one must have"
    )
    parts = {"name": str, "config": dict, "seed": int, "cells": list}
    parts |= dict.fromkeys(("n_trials", "settings", "data", "environment"), dict)
    if not all(isinstance(manifest.get(part), kind) for part, kind in parts.items()):
        raise damaged
    cells, planned = manifest["cells"], manifest["n_trials"]
    if not all(isinstance(c, str) and c.count("/") == 2 for c in cells):
        raise damaged
    if {*planned} != {*cells} or not all(type(n) is int for n in planned.values()):
        raise damaged
    inner = (*manifest["settings"].values(), *manifest["data"].values())
    if not all(isinstance(value, dict) for value in inner):
        raise damaged
    return manifest


def is_held(path: Path) -> bool:
    """Whether a process drives the study of this lock now."""
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


class Lock:
    """Held by the one process that drives a study; freed when it ends, however."""

    def __init__(self, path: Path, what: str):
        """A lock on a file, not yet held.

        Args:
            path: the file; made if missing.
            what: what it guards, for the message.
        """
        self._path, self._what = path, what

    def __enter__(self) -> Self:
        try:
            self._file = open(self._path, "a+")
        except OSError as error:
            raise StudyError(
                f"{self._path} cannot be opened: {error.strerror}"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise StudyError(
                f"{self._what} is being run by another process: wait for it, or stop "
                "it first"
            ) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
