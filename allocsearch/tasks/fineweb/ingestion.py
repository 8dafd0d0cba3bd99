"""Documents to a folder of shards, resumable at any moment.

A shard is written whole, then the manifest beside it, with the place of the first
token that is not yet in a shard. Whatever interrupts the work, it loses at most the
unfinished shard, and what is made in the end is the same byte for byte.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from allocsearch.errors import ConfigError, DataError
from allocsearch.tasks.fineweb.documents import Source, ignore
from allocsearch.tasks.fineweb.encoding import Batch, Encoded, batches, encoding
from allocsearch.tasks.fineweb.ingest_state import (
    Manifest,
    ShardRecord,
    begin,
    discard,
    locked,
    write_manifest,
)
from allocsearch.tasks.fineweb.scans import scan_shard
from allocsearch.tasks.fineweb.shards import (
    LARGEST_VOCABULARY,
    write_shard,
    write_whole,
)
from allocsearch.tasks.fineweb.tokenization import Tokenizer

SHARD_TOKENS = 10**8
TOKENIZER_FILE = "tokenizer.json"
_MOST_SHARD_TOKENS = 10**9

_Encode = Callable[[Iterable[Batch]], Iterator[Encoded]]


@dataclass(frozen=True)
class Part:
    """A split, and how many tokens it takes at most.

    Attributes:
        split: "train" or "valid".
        most_tokens: None for all there are.
    """

    split: str
    most_tokens: int | None = None


@dataclass(frozen=True)
class Section:
    """One source, and the splits that it fills one after another."""

    source: Source
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Progress:
    """How far it has got.

    Attributes:
        n_tokens: in finished shards and the unfinished one.
        n_new_tokens: of them, those since this run began.
        n_documents: documents begun.
        n_shards: finished shards.
        seconds: since this run began.
    """

    n_tokens: int
    n_new_tokens: int
    n_documents: int
    n_shards: int
    seconds: float


def ingest(
    sections: Sequence[Section],
    tokenizer: Tokenizer,
    folder: Path,
    *,
    shard_tokens: int = SHARD_TOKENS,
    processes: int = 1,
    name: str = "fineweb",
    wait: bool = False,
    progress: Callable[[Progress], None] = ignore,
) -> Manifest:
    """Tokenise documents into shards, or go on where an earlier call was interrupted.

    The number of processes makes no difference to the shards.

    Args:
        sections: what to read, in order.
        tokenizer: encodes it.
        folder: where shards and manifest are put.
        shard_tokens: tokens in all shards but the last of each split.
        processes: that tokenise; with 1 it is done in this process.
        name: the first word of the shards' names.
        wait: whether to wait where another process writes into the folder.
        progress: called after each batch of documents.

    Raises:
        ConfigError: a number is out of range.
        DataError: a document cannot be read, the folder holds shards of other data or
            settings or cannot be written, or there are too few documents.
    """
    _check(tokenizer, shard_tokens, processes)
    recipe = recipe_of(sections, tokenizer, shard_tokens, name)
    try:
        with locked(folder, wait):
            manifest = begin(folder, recipe)
            if manifest.complete:
                return manifest
            _keep_tokenizer(tokenizer, folder)
            writer = _Writer(folder, manifest, sections, shard_tokens, name, progress)
            with encoding(tokenizer, processes) as encode:
                for index, section in enumerate(sections):
                    writer.write(index, section, encode)
            return writer.finish()
    except OSError as error:
        raise DataError(
            f"{error.filename or folder}: cannot be written: {error.strerror or error}"
        ) from error


def recipe_of(
    sections: Sequence[Section], tokenizer: Tokenizer, shard_tokens: int, name: str
) -> dict[str, Any]:
    """Everything that decides the tokens of every shard, JSON-ready."""
    return {
        "sections": [
            {
                "source": section.source.describe(),
                "parts": [[part.split, part.most_tokens] for part in section.parts],
            }
            for section in sections
        ],
        "order": "as listed",
        "shuffle_seed": None,
        "tokenizer": {
            "name": tokenizer.name,
            "vocab_size": tokenizer.vocab_size,
            "sha256": tokenizer.digest(),
        },
        "shard_tokens": shard_tokens,
        "name": name,
    }


class _Writer:
    """Cuts the tokens of sections into shards and keeps the manifest."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        sections: Sequence[Section],
        shard_tokens: int,
        name: str,
        progress: Callable[[Progress], None],
    ):
        self._folder, self._manifest, self._name = folder, manifest, name
        self._sections, self._progress = sections, progress
        self._buffer = np.empty(shard_tokens, np.uint16)
        self._n_buffered = 0
        self._target: tuple[str, int] | None = None
        self._n_documents = manifest.n_documents
        self._done_before = sum(shard.n_tokens for shard in manifest.shards)
        self._start = time.monotonic()

    def write(self, index: int, section: Section, encode: _Encode) -> None:
        """All shards of a section that are not written yet."""
        place = self._manifest.place or {"section": 0}
        self._target = self._next_shard(section)
        if index < place["section"] or self._target is None:
            return
        if index > place["section"] or "source" not in place:
            place = {"section": index, "source": None, "piece": 0, "token": 0}
        reader = section.source.open(place["source"])
        n_skipped, token = place["piece"], place["token"]
        for encoded in encode(batches(reader)):
            for number, tokens in enumerate(encoded.tokens):
                if n_skipped > 0:
                    n_skipped -= 1
                    continue
                state = {"source": encoded.batch.state, "piece": number}
                here = {"section": index, **state, "token": token}
                self._n_documents += encoded.batch.pieces[number].begins and not token
                if not self._add(section, tokens, here):
                    return
                token = 0
            self._report()
        self._end_section({"section": index + 1})

    def finish(self) -> Manifest:
        """The manifest of all shards."""
        for split in {part.split for s in self._sections for part in s.parts}:
            if self._manifest.n_tokens(split) == 0:
                discard(self._folder, self._manifest)
                raise DataError(
                    f"{self._folder}: the documents end before the {split} split "
                    "begins: give more text, or fewer tokens to validate on"
                )
        self._save(replace(self._manifest, complete=True))
        self._report()
        return self._manifest

    def _next_shard(self, section: Section) -> tuple[str, int] | None:
        """Split and size of the next shard; None if the section is full."""
        for part in section.parts:
            if part.most_tokens is None:
                return part.split, len(self._buffer)
            more = part.most_tokens - self._manifest.n_tokens(part.split)
            if more > 0:
                return part.split, min(more, len(self._buffer))
        return None

    def _add(
        self, section: Section, tokens: np.ndarray, place: Mapping[str, Any]
    ) -> bool:
        """Take the tokens of a piece; False once the section wants no more."""
        start = place["token"]
        while start < len(tokens) and self._target is not None:
            split, size = self._target
            taken = tokens[start : start + size - self._n_buffered]
            end = self._n_buffered + len(taken)
            self._buffer[self._n_buffered : end] = taken
            self._n_buffered, start = end, start + len(taken)
            if self._n_buffered == size:
                self._end_shard(split, {**place, "token": start})
                self._target = self._next_shard(section)
        return self._target is not None

    def _end_section(self, place: Mapping[str, Any]) -> None:
        if self._target is not None and self._n_buffered:
            self._end_shard(self._target[0], place)
        else:
            self._save(replace(self._manifest, place=place))

    def _end_shard(self, split: str, place: Mapping[str, Any]) -> None:
        number = len(self._manifest.shards)
        short = {"train": "train", "valid": "val"}[split]
        path = self._folder / f"{self._name}_{short}_{number:06}.bin"
        tokens = self._buffer[: self._n_buffered]
        write_shard(path, tokens)
        record = ShardRecord(path.name, split, len(tokens), scan_shard(path).sha256)
        self._n_buffered = 0
        self._save(
            replace(
                self._manifest,
                shards=(*self._manifest.shards, record),
                n_documents=self._n_documents,
                place=place,
            )
        )

    def _save(self, manifest: Manifest) -> None:
        write_manifest(self._folder, manifest)
        self._manifest = manifest

    def _report(self) -> None:
        n_finished = sum(shard.n_tokens for shard in self._manifest.shards)
        n_tokens = n_finished + self._n_buffered
        self._progress(
            Progress(
                n_tokens,
                n_tokens - self._done_before,
                self._n_documents,
                len(self._manifest.shards),
                time.monotonic() - self._start,
            )
        )


def _check(tokenizer: Tokenizer, shard_tokens: int, processes: int) -> None:
    if tokenizer.vocab_size > LARGEST_VOCABULARY:
        raise ConfigError(
            f"{tokenizer.name} has {tokenizer.vocab_size} ids, but shards hold two "
            f"bytes a token: a vocabulary may have {LARGEST_VOCABULARY} at most"
        )
    if not 1 <= shard_tokens <= _MOST_SHARD_TOKENS:
        raise ConfigError(
            f"a shard may have 1 to {_MOST_SHARD_TOKENS} tokens, received "
            f"{shard_tokens}"
        )
    if processes < 1:
        raise ConfigError(f"processes must be at least 1, received {processes}")


def _keep_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """A trained tokenizer's file is copied, so that the folder is complete."""
    path = Path(tokenizer.name)
    if path.is_file():
        write_whole(folder / TOKENIZER_FILE, path.read_bytes())
