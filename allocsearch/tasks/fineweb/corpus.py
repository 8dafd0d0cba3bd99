"""Tokens to train, search and test on, from shards, text files or the built-in text."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from allocsearch.errors import DataError
from allocsearch.tasks.fineweb.builtin_text import stories
from allocsearch.tasks.fineweb.files import (
    SHARD_ENDINGS,
    TEXT_ENDINGS,
    divided,
    files_of,
    text_files,
)
from allocsearch.tasks.fineweb.ingest_state import (
    Manifest,
    check_shards,
    read_manifest,
)
from allocsearch.tasks.fineweb.ingestion import TOKENIZER_FILE
from allocsearch.tasks.fineweb.preparation import cached_shards
from allocsearch.tasks.fineweb.scans import scan_shard, scan_tokens
from allocsearch.tasks.fineweb.shards import (
    ArrayShard,
    MappedShard,
    PartOfShard,
    Shard,
)
from allocsearch.tasks.fineweb.tokenization import Tokenizer, load_tokenizer


@dataclass(frozen=True, eq=False)
class Corpus:
    """The tokens of one split.

    Attributes:
        tokenizer: what the ids mean.
        shards: the tokens, in order.
        source: where they come from, for a user to read.
        details: a mapping for each shard, with its name, size and digest.
        made_from: the files or datasets that were tokenised, where that is known.
    """

    tokenizer: Tokenizer
    shards: tuple[Shard, ...]
    source: str
    details: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    made_from: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    @property
    def n_tokens(self) -> int:
        """Tokens in all shards."""
        return sum(shard.n_tokens for shard in self.shards)

    def read(self, shard: int, start: int, n: int) -> np.ndarray:
        """Tokens `start` to `start + n` of a shard, int32 [n].

        Raises:
            DataError: the shard ends before that.
        """
        tokens = self.shards[shard].read(start, n)
        if len(tokens) != n:
            raise DataError(
                f"{self.source}: shard {shard} has {self.shards[shard].n_tokens} "
                f"tokens, so tokens {start} to {start + n} cannot be read"
            )
        return tokens

    def describe(self) -> dict[str, Any]:
        """Source, sizes, hashes and tokenizer, JSON-ready."""
        return {
            "source": self.source,
            "n_tokens": self.n_tokens,
            "tokenizer": {
                "name": self.tokenizer.name,
                "vocab_size": self.tokenizer.vocab_size,
                "sha256": self.tokenizer.digest(),
            },
            "shards": [dict(shard) for shard in self.details],
            "made_from": [dict(source) for source in self.made_from],
        }


def load_corpora(
    data: str | None, tokenizer: str | None, *, n_valid: int, n_test: int
) -> dict[str, Corpus]:
    """The corpora of a task: "train", "valid" to search by and "test" for the end.

    The last two are disjoint: the first `n_valid` tokens of the validation split, and
    the `n_test` tokens after them.

    Args:
        data: a directory of shards that `allocsearch data` made; shards of llm.c or
            modded-nanogpt (``*_train_*.bin``, ``*_val_*.bin``); Parquet, JSON lines
            or text, which is then tokenised once into the cache directory; or None
            for a small built-in text. Where no file name tells what validates, it is
            the first shard or file.
        tokenizer: for `load_tokenizer`. If left out, the one that the shards were
            made with, "gpt2" for other shards and files, "bytes" for the built-in
            text.
        n_valid: tokens to search by.
        n_test: tokens for the end.

    Raises:
        DataError: data are missing, broken, of another tokenizer, or too few.
        ConfigError: there is no such tokenizer, or a package is missing.
    """
    if data is None:
        splits = _builtin(load_tokenizer(tokenizer or "bytes"))
    else:
        splits = _read(Path(data).expanduser(), tokenizer)
    valid = splits["valid"]
    return {
        "train": splits["train"],
        "valid": _part(valid, 0, n_valid, "valid"),
        "test": _part(valid, n_valid, n_test, "test"),
    }


def encode_documents(texts: Sequence[str], tokenizer: Tokenizer) -> np.ndarray:
    """Documents as tokens, int32 [n]: the end of text, then the text, of each."""
    end = tokenizer.end_of_text
    parts = ([end, *tokenizer.encode(text)] for text in texts)
    return np.fromiter(itertools.chain.from_iterable(parts), np.int32)


def _builtin(tokenizer: Tokenizer) -> dict[str, Corpus]:
    corpora = {}
    for split in ("train", "valid"):
        tokens = encode_documents(stories(split), tokenizer)
        scan = scan_tokens(tokens)
        detail = {"name": "built-in", "n_tokens": len(tokens), "sha256": scan.sha256}
        source = (
            f"built-in {split} text, stories made from templates (no data was given)"
        )
        corpora[split] = Corpus(tokenizer, (ArrayShard(tokens),), source, (detail,))
    return corpora


def _read(path: Path, tokenizer: str | None) -> dict[str, Corpus]:
    if path.is_dir():
        manifest = read_manifest(path)
        if manifest is not None:
            return _own(path, path, manifest, tokenizer)
    shards = files_of(path, SHARD_ENDINGS)
    if shards:
        return _foreign(path, shards, load_tokenizer(tokenizer or "gpt2"))
    if not text_files(path):
        raise DataError(
            f"{path}: holds no shards ({', '.join(SHARD_ENDINGS)}) and no text "
            f"({', '.join(TEXT_ENDINGS)})"
        )
    folder = cached_shards(path, load_tokenizer(tokenizer or "gpt2"))
    made = read_manifest(folder)
    if made is None:
        raise DataError(f"{folder}: has just been removed; run again")
    return _own(path, folder, made, tokenizer)


def _own(
    path: Path, folder: Path, manifest: Manifest, tokenizer: str | None
) -> dict[str, Corpus]:
    """Shards with a manifest, in `folder`, of the data that `path` names."""
    if not manifest.complete:
        raise DataError(
            f"{folder}: making these shards was interrupted after "
            f"{len(manifest.shards)}: repeat the `allocsearch data` command that began "
            "it, which goes on from there"
        )
    check_shards(folder, manifest)
    used = tokenizer_of(folder, manifest, tokenizer)
    corpora = {}
    for split in ("train", "valid"):
        records = [shard for shard in manifest.shards if shard.split == split]
        details = tuple(
            {"name": shard.name, "n_tokens": shard.n_tokens, "sha256": shard.sha256}
            for shard in records
        )
        files = [folder / shard.name for shard in records]
        for file in files:
            check_ids(file, scan_shard(file).largest_token, used)
        shards = tuple(MappedShard(file) for file in files)
        sources = tuple(s["source"] for s in manifest.recipe["sections"])
        corpora[split] = Corpus(used, shards, f"{path} ({split})", details, sources)
    return corpora


def tokenizer_of(folder: Path, manifest: Manifest, name: str | None) -> Tokenizer:
    """The tokenizer of a folder of shards, which may be asked for by name.

    Raises:
        DataError: the named one is not the one that made them, or that one is gone.
    """
    made_with = manifest.tokenizer["name"]
    kept = folder / TOKENIZER_FILE
    tokenizer = load_tokenizer(name or (str(kept) if kept.exists() else made_with))
    if tokenizer.digest() != manifest.tokenizer["sha256"]:
        raise DataError(
            f"{folder}: its shards were made with the tokenizer {made_with}, not with "
            f"{tokenizer.name} (their vocabularies differ): name that one, or make "
            "the shards again"
        )
    return tokenizer


def _foreign(
    path: Path, files: Sequence[Path], tokenizer: Tokenizer
) -> dict[str, Corpus]:
    """Shards without a manifest."""
    splits = divided(files, path)
    if "valid" not in splits:
        raise DataError(
            f"{path}: one shard, and nothing to validate on: give a directory with "
            "another, named as in fineweb_val_000000.bin"
        )
    return {
        split: corpus_of(path, split, of_split, tokenizer)
        for split, of_split in splits.items()
    }


def corpus_of(
    path: Path, split: str, files: Sequence[Path], tokenizer: Tokenizer
) -> Corpus:
    """A corpus of shard files, each of which is read once and checked.

    Raises:
        DataError: a shard is broken, or has ids that the tokenizer lacks.
    """
    shards = tuple(MappedShard(file) for file in files)
    details = []
    for file, shard in zip(files, shards, strict=True):
        scan = scan_shard(file)
        check_ids(file, scan.largest_token, tokenizer)
        name = file.name if file == path else file.relative_to(path).as_posix()
        detail = {"name": name, "n_tokens": shard.n_tokens, "sha256": scan.sha256}
        details.append(detail)
    return Corpus(tokenizer, shards, f"{path} ({split})", tuple(details))


def check_ids(file: Path, largest: int, tokenizer: Tokenizer) -> None:
    """Refuse ids outside the vocabulary.

    Raises:
        DataError: there are some.
    """
    if largest >= tokenizer.vocab_size:
        raise DataError(
            f"{file}: token id {largest} is outside the vocabulary of "
            f"{tokenizer.name}, which has {tokenizer.vocab_size} ids: another "
            "tokenizer made this shard, name that one"
        )


def _part(whole: Corpus, start: int, n_tokens: int, name: str) -> Corpus:
    """Consecutive tokens of a corpus, as parts of its shards."""
    if start + n_tokens > whole.n_tokens:
        raise DataError(
            f"{whole.source}: the validation split has {whole.n_tokens} tokens, fewer "
            f"than the {start + n_tokens} that valid and test together ask for: ask "
            "for fewer, or give more"
        )
    shards, details = [], []
    first = 0
    for shard, detail in zip(whole.shards, whole.details, strict=True):
        begin = max(start - first, 0)
        end = min(start + n_tokens - first, shard.n_tokens)
        if begin < end:
            shards.append(PartOfShard(shard, begin, end - begin))
            details.append({**detail, "tokens": [begin, end]})
        first += shard.n_tokens
    source = f"{whole.source}, tokens {start} to {start + n_tokens} for {name}"
    return Corpus(
        whole.tokenizer, tuple(shards), source, tuple(details), whole.made_from
    )
