"""What to read from where, and into which folder of shards."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from allocsearch.errors import ConfigError, DataError
from allocsearch.tasks.caching import cache_directory
from allocsearch.tasks.fineweb.documents import LocalFiles, ignore
from allocsearch.tasks.fineweb.files import TEXT_ENDINGS, divided, text_files
from allocsearch.tasks.fineweb.hub import FINEWEB, FINEWEB_CONFIG, StreamedDataset
from allocsearch.tasks.fineweb.ingest_state import read_manifest
from allocsearch.tasks.fineweb.ingestion import (
    SHARD_TOKENS,
    Part,
    Progress,
    Section,
    ingest,
    recipe_of,
)
from allocsearch.tasks.fineweb.tokenization import Tokenizer

_BYTES_PER_VALIDATION_TOKEN = 40
"""In a single file: about a tenth of it with GPT-2's tokens, less with smaller ones."""


def local_sections(
    path: Path,
    *,
    column: str = "text",
    max_tokens: int | None = None,
    valid_tokens: int | None = None,
    shard_tokens: int = SHARD_TOKENS,
) -> tuple[Section, ...]:
    """The documents of a file or directory, split by file names where they tell.

    Otherwise the first of several files validates, or the first tokens of a single
    one.

    Args:
        path: Parquet, JSON lines or text, or a directory of them.
        column: where the text is.
        max_tokens: to train on, at most.
        valid_tokens: to validate on, at most.
        shard_tokens: tokens of a full shard.

    Raises:
        DataError: there are none.
    """
    files = text_files(path)
    if not files:
        raise DataError(f"{path}: holds no text files ({', '.join(TEXT_ENDINGS)})")
    splits = divided(files, path)
    if "valid" not in splits:
        (file,) = splits["train"]
        if valid_tokens is None:
            n_bytes = file.stat().st_size
            most = max(1, min(n_bytes // _BYTES_PER_VALIDATION_TOKEN, shard_tokens))
            valid_tokens = _default_valid_tokens(most, max_tokens)
        parts = (Part("valid", valid_tokens), Part("train", max_tokens))
        return (Section(LocalFiles([file], path, column), parts),)
    most = {"valid": valid_tokens, "train": max_tokens}
    return tuple(
        Section(LocalFiles(splits[name], path, column), (Part(name, most[name]),))
        for name in ("valid", "train")
    )


def streamed_sections(
    dataset: str | None,
    config: str | None,
    folder: Path,
    *,
    column: str = "text",
    max_tokens: int | None = None,
    valid_tokens: int | None = None,
    shard_tokens: int = SHARD_TOKENS,
    notify: Callable[[str], None] = ignore,
) -> tuple[Section, ...]:
    """The documents of a dataset, whose first tokens validate.

    Args:
        dataset: FineWeb if left out.
        config: a sample of ten billion tokens of FineWeb if left out, or the default
            of another dataset.
        folder: where a manifest may tell which commit was begun with.
        column: where the text is.
        max_tokens: to train on, at most.
        valid_tokens: to validate on: a full shard if left out, but no more than a
            tenth of `max_tokens`.
        shard_tokens: tokens of a full shard.
        notify: is told of failures of the network.

    Raises:
        DataError, ConfigError: as `StreamedDataset`.
    """
    if dataset is None:
        dataset, config = FINEWEB, config or FINEWEB_CONFIG
    begun = read_manifest(folder)
    source: dict = begun.recipe["sections"][0]["source"] if begun else {}
    same = source.get("dataset") == dataset and source.get("config") == config
    revision = source.get("revision") if same else None
    if valid_tokens is None:
        valid_tokens = _default_valid_tokens(shard_tokens, max_tokens)
    streamed = StreamedDataset(
        dataset, config, column=column, revision=revision, notify=notify
    )
    return (
        Section(streamed, (Part("valid", valid_tokens), Part("train", max_tokens))),
    )


def cached_shards(
    path: Path,
    tokenizer: Tokenizer,
    *,
    column: str = "text",
    processes: int = 1,
    progress: Callable[[Progress], None] = ignore,
) -> Path:
    """The folder of a path's text as shards, made in the cache where it is missing.

    Changed files or another tokenizer lead to another folder.

    Raises:
        DataError: there is no text, it cannot be read, or the cache not be written.
    """
    sections = local_sections(path, column=column)
    recipe = recipe_of(sections, tokenizer, SHARD_TOKENS, "text")
    key = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()
    folder = cache_directory() / "shards" / key[:32]
    ingest(
        sections,
        tokenizer,
        folder,
        processes=processes,
        name="text",
        wait=True,
        progress=progress,
    )
    return folder


def check_counts(**counts: int | None) -> None:
    """Refuse numbers of tokens below 1.

    Raises:
        ConfigError: one is.
    """
    for name, value in counts.items():
        if value is not None and value < 1:
            words = name.replace("_", " ")
            raise ConfigError(f"{words} must be at least 1, received {value}")


def _default_valid_tokens(most: int, max_tokens: int | None) -> int:
    return most if max_tokens is None else max(1, min(most, max_tokens // 10))
