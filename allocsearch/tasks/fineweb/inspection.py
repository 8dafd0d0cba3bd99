"""What shards and text files hold, and making shards, for a user at the terminal."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from allocsearch.errors import ConfigError, DataError
from allocsearch.tasks.fineweb.documents import read_pieces
from allocsearch.tasks.fineweb.files import (
    SHARD_ENDINGS,
    SPLITS,
    TEXT_ENDINGS,
    divided,
    files_of,
    split_of,
    text_files,
)
from allocsearch.tasks.fineweb.hub import FINEWEB, FINEWEB_CONFIG
from allocsearch.tasks.fineweb.ingest_state import (
    Manifest,
    ShardRecord,
    read_manifest,
    shard_problem,
)
from allocsearch.tasks.fineweb.ingestion import SHARD_TOKENS, Progress, ingest
from allocsearch.tasks.fineweb.preparation import (
    cached_shards,
    check_counts,
    local_sections,
    streamed_sections,
)
from allocsearch.tasks.fineweb.scans import scan_shard
from allocsearch.tasks.fineweb.shards import count_tokens
from allocsearch.tasks.fineweb.tokenization import load_tokenizer
from allocsearch.tasks.records import DataOptions, DataReport


def inspect(path: Path, column: str = "text") -> DataReport:
    """Read all shards or all text of a path, and tell what they hold.

    Args:
        path: a file or directory.
        column: where Parquet and JSON lines have their text.

    Raises:
        DataError: the path is missing, or holds neither.
    """
    manifest = read_manifest(path) if path.is_dir() else None
    if manifest is not None:
        return _of_manifest(path, manifest, check=True)
    shards = files_of(path, SHARD_ENDINGS)
    if shards:
        return _of_shards(path, shards)
    texts = text_files(path)
    if texts:
        return _of_text(path, texts, column)
    raise DataError(
        f"{path}: holds no shards ({', '.join(SHARD_ENDINGS)}) and no text "
        f"({', '.join(TEXT_ENDINGS)})"
    )


def prepare(
    path: Path | None,
    options: DataOptions,
    status: Callable[[str], None],
    note: Callable[[str], None],
) -> DataReport:
    """Make shards, or go on making them.

    Args:
        path: Parquet, JSON lines or text; None for a dataset of the hub.
        options: see `allocsearch data --help`.
        status: is told again and again how far it has got.
        note: is told what a user should know at once.

    Raises:
        ConfigError: options that do not go together or are out of range.
        DataError: as `ingest`.
    """
    check_counts(
        max_tokens=options.max_tokens,
        valid_tokens=options.valid_tokens,
        shard_tokens=options.shard_tokens,
        processes=options.processes,
    )
    tokenizer = load_tokenizer(options.tokenizer or "gpt2")
    processes = options.processes or _n_cores()
    counts = {
        "max_tokens": options.max_tokens,
        "valid_tokens": options.valid_tokens,
        "shard_tokens": options.shard_tokens or SHARD_TOKENS,
        "column": options.column,
    }

    def progress(so_far: Progress) -> None:
        status(_sentence(so_far, options.max_tokens))

    if path is None:
        named = options.config or (None if options.dataset else FINEWEB_CONFIG)
        dataset = options.dataset or FINEWEB
        folder = options.out or Path("-".join(_last_words(dataset, named)))
        note(f"shards of {dataset}, {named or 'its default config'}, go to {folder}")
        sections = streamed_sections(
            options.dataset, options.config, folder, notify=note, **counts
        )
        name = _last_words(dataset, None)[0]
    else:
        _check_local(path, options)
        name = "text"
        if options.out is None:
            folder = cached_shards(
                path,
                tokenizer,
                column=options.column,
                processes=processes,
                progress=progress,
            )
            return _of_manifest(folder, _finished(folder), check=False)
        folder = options.out
        sections = local_sections(path, **counts)
    manifest = ingest(
        sections,
        tokenizer,
        folder,
        shard_tokens=counts["shard_tokens"],
        processes=processes,
        name=name,
        progress=progress,
    )
    return _of_manifest(folder, manifest, check=False)


def _check_local(path: Path, options: DataOptions) -> None:
    if options.dataset or options.config:
        raise ConfigError("give a path or a dataset, not both")
    if not text_files(path) and files_of(path, SHARD_ENDINGS):
        raise ConfigError(f"{path}: holds shards, which are made already")
    sized = options.max_tokens or options.valid_tokens or options.shard_tokens
    if options.out is None and (sized or options.column != "text"):
        raise ConfigError("these options need a folder for the shards: give --out")


def _finished(folder: Path) -> Manifest:
    manifest = read_manifest(folder)
    if manifest is None:
        raise DataError(f"{folder}: has just been removed; run again")
    return manifest


def _of_manifest(folder: Path, manifest: Manifest, check: bool) -> DataReport:
    problems: dict[str, list[str]] = {split: [] for split in SPLITS}
    for shard in manifest.shards if check else ():
        problem = shard_problem(folder, shard, fresh=True)
        if problem:
            problems[shard.split].append(problem)
    tokenizer = manifest.tokenizer
    notes = [
        f"{manifest.n_documents} documents; tokenizer {tokenizer['name']}, "
        f"{tokenizer['vocab_size']} ids; in {folder}."
    ]
    if not manifest.complete:
        notes.append(
            "Making them was interrupted: repeat the command that began it to go on."
        )
    parts = {
        split: _summary(manifest.shards, split, len(problems[split]))
        for split in SPLITS
    }
    listed = tuple(problem for split in SPLITS for problem in problems[split])
    details = {"recipe": dict(manifest.recipe), "complete": manifest.complete}
    return DataReport(parts, tuple(notes), listed, details)


def _summary(
    shards: Sequence[ShardRecord], split: str, n_problems: int
) -> Mapping[str, Any]:
    counts = [shard.n_tokens for shard in shards if shard.split == split]
    return {"shards": len(counts), "tokens": sum(counts), "problems": n_problems}


def _of_shards(path: Path, files: Sequence[Path]) -> DataReport:
    splits, notes = _splits(path, files)
    parts, problems = {}, []
    for split, of_split in splits.items():
        n_tokens, largest, n_before = 0, -1, len(problems)
        for file in of_split:
            try:
                n_tokens += count_tokens(file)
                largest = max(largest, scan_shard(file, fresh=True).largest_token)
            except DataError as error:
                problems.append(str(error))
        parts[split] = {
            "shards": len(of_split),
            "tokens": n_tokens,
            "largest_id": largest,
            "problems": len(problems) - n_before,
        }
    notes.append("No manifest: which tokenizer made them is not known.")
    return DataReport(parts, tuple(notes), tuple(problems))


def _of_text(path: Path, files: Sequence[Path], column: str) -> DataReport:
    splits, notes = _splits(path, files)
    parts, problems = {}, []
    for split, of_split in splits.items():
        n_documents, n_characters, n_before = 0, 0, len(problems)
        for file in of_split:
            try:
                for piece in read_pieces(file, column):
                    n_documents += piece.begins
                    n_characters += len(piece.text)
            except DataError as error:
                problems.append(str(error))
        parts[split] = {
            "files": len(of_split),
            "documents": n_documents,
            "characters": n_characters,
            "problems": len(problems) - n_before,
        }
    notes.append("Text: it is tokenised when training first reads it, or by --out now.")
    return DataReport(parts, tuple(notes), tuple(problems))


def _splits(
    path: Path, files: Sequence[Path]
) -> tuple[Mapping[str, Sequence[Path]], list[str]]:
    """Files by split, and what to know about that."""
    splits = divided(files, path)
    notes = []
    if "valid" not in splits:
        splits = {splits["train"][0].name: splits["train"]}
    elif split_of(splits["valid"][0], path) is None:
        notes.append(f"No name tells what validates: {splits['valid'][0].name} does.")
    n_left = len(files) - sum(map(len, splits.values()))
    if n_left:
        notes.append(f"Left alone, by their names test files: {n_left}.")
    return splits, notes


def _sentence(so_far: Progress, max_tokens: int | None) -> str:
    rate = so_far.n_new_tokens / max(so_far.seconds, 1e-9)
    limit = f" of {max_tokens / 1e6:,.1f} M" if max_tokens else ""
    return (
        f"{so_far.n_tokens / 1e6:,.1f} M tokens{limit}, {so_far.n_documents:,} "
        f"documents, {so_far.n_shards} shards, {rate / 1e6:.2f} M tokens a second"
    )


def _last_words(dataset: str, config: str | None) -> list[str]:
    return [dataset.rstrip("/").rpartition("/")[2], *([config] if config else [])]


def _n_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
