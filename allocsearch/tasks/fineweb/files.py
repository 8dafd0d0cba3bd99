"""Which files a path holds, and which of them train and which validate."""

import re
from collections.abc import Sequence
from pathlib import Path

from allocsearch.errors import DataError

SHARD_ENDINGS = (".bin",)
TEXT_ENDINGS = (".parquet", ".jsonl", ".txt", ".text")
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


def text_files(path: Path) -> list[Path]:
    """Files of text of one kind; empty where there are none.

    Raises:
        DataError: as `files_of`; or kinds are mixed, as where notes on a dataset lie
            beside it.
    """
    files = files_of(path, TEXT_ENDINGS)
    kinds = {file.suffix.lower(): file for file in reversed(files)}
    if len(kinds) > 1:
        first, second = list(kinds.values())[:2]
        raise DataError(
            f"{path}: holds text of several kinds, such as {second.name} and "
            f"{first.name}: move what is not to be read elsewhere"
        )
    return files


def divided(files: Sequence[Path], root: Path) -> dict[str, list[Path]]:
    """Files by split: as names tell, or else the first validates.

    Files whose names tell nothing train; those of a test split are left alone. A
    single file is "train" alone, whatever its name.

    Args:
        files: one or more.
        root: where they were found.

    Raises:
        DataError: all of several files are there to validate or to test.
    """
    if len(files) == 1:
        return {"train": list(files)}
    told = {file: split_of(file, root) for file in files}
    valid = [file for file in files if told[file] == "valid"]
    train = [file for file in files if told[file] in ("train", None)]
    if not train:
        raise DataError(
            f"{root}: no file to train on: by their names all validate or test"
        )
    if valid:
        return {"train": train, "valid": valid}
    return {"train": train[1:], "valid": train[:1]} if train[1:] else {"train": train}
