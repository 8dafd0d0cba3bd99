"""Which files a path holds, and which of them train and which validate."""

import re
from collections.abc import Sequence
from pathlib import Path

from allocsearch.errors import DataError

SHARD_ENDINGS = (".bin",)
TEXT_ENDINGS = (".parquet", ".jsonl", ".json", ".txt", ".text", ".md")
SPLITS = ("train", "valid")

_WORDS = {
    "train": "train",
    "training": "train",
    "val": "valid",
    "valid": "valid",
    "validation": "valid",
    "dev": "valid",
    "test": "test",
}


def files_of(path: Path, endings: Sequence[str]) -> list[Path]:
    """The file itself, or all files of a directory with these endings, sorted.

    Raises:
        DataError: there is no such path, or it cannot be listed.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file or directory")
    if path.is_file():
        return [path] if path.suffix.lower() in endings else []
    try:
        found = [p for p in path.rglob("*") if p.suffix.lower() in endings]
        inside = [(p.relative_to(path).parts, p) for p in found if p.is_file()]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    hidden = [parts for parts, _ in inside if any(x.startswith(".") for x in parts)]
    return [p for parts, p in sorted(inside) if parts not in hidden]


def split_of(path: Path, root: Path) -> str | None:
    """ "train", "valid" or "test", as a file's name or the folders above it tell.

    In ``fineweb_val_000000.bin`` it is a word of the name, in ``train/00.parquet`` the
    folder; the last word that tells decides.
    """
    parts = [path.name] if path == root else path.relative_to(root).parts
    for part in reversed(parts):
        words = re.split(r"[^a-z]+", part.lower())
        told = [_WORDS[word] for word in words if word in _WORDS]
        if told:
            return told[-1]
    return None


def named_splits(files: Sequence[Path], root: Path) -> dict[str, list[Path]] | None:
    """Files of "train" and "valid", where names tell; None where none validates.

    Files whose names tell nothing train; those of a test split are left alone.
    """
    told = {file: split_of(file, root) for file in files}
    valid = [file for file in files if told[file] == "valid"]
    train = [file for file in files if told[file] in ("train", None)]
    return {"train": train, "valid": valid} if train and valid else None
