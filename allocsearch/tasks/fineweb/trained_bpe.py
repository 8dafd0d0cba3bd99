"""A byte-level BPE of one's own, trained and run by the library `tokenizers`."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocsearch.errors import ConfigError, DataError
from allocsearch.tasks.fineweb.gpt2 import bytes_by_letter
from allocsearch.tasks.fineweb.shards import LARGEST_VOCABULARY
from allocsearch.tasks.fineweb.tokenization import (
    END_OF_TEXT,
    Tokenizer,
    needs,
    well_formed,
)

if TYPE_CHECKING:
    import tokenizers


class TrainedBPE(Tokenizer):
    """A byte-level BPE from a file of `tokenizers`."""

    def __init__(self, path: Path, loaded: "tokenizers.Tokenizer"):
        """From a file as it was loaded.

        Raises:
            DataError: it is no byte-level BPE with an end of text.
        """
        self.name = str(path)
        self._tokenizer = loaded
        # Otherwise a text that contains "<|endoftext|>" would end there.
        loaded.encode_special_tokens = True
        end = loaded.token_to_id(END_OF_TEXT)
        if end is None:
            raise DataError(f"{path}: it has no token {END_OF_TEXT}")
        self.end_of_text = end
        vocabulary = loaded.get_vocab(with_added_tokens=True)
        self.pieces = _pieces(path, vocabulary, end)
        description: dict[str, Any] = json.loads(loaded.to_str())
        parts = (description["model"].get("merges"), description["pre_tokenizer"])
        self.rules = json.dumps([*parts, description["normalizer"]]).encode()

    def encode(self, text: str) -> list[int]:
        """See `Tokenizer.encode`."""
        return self._tokenizer.encode(well_formed(text), add_special_tokens=False).ids


def load_bpe(path: Path) -> TrainedBPE:
    """Read a file that `train` wrote, or another byte-level BPE of `tokenizers`.

    Raises:
        ConfigError: `tokenizers` is missing.
        DataError: the file holds no byte-level BPE with an end of text.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise needs("tokenizers", error) from error
    try:
        loaded = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise DataError(f"{path}: no tokenizer file: {error}") from error
    return TrainedBPE(path, loaded)


def train(texts: Iterable[str], vocab_size: int, path: Path) -> TrainedBPE:
    """See `tokenization.train_bpe`."""
    if not 257 <= vocab_size <= LARGEST_VOCABULARY:
        raise ConfigError(
            f"a vocabulary must have 257 to {LARGEST_VOCABULARY} ids, "
            f"received {vocab_size}"
        )
    try:
        from tokenizers import Tokenizer as Tokenization
        from tokenizers import decoders, models, pre_tokenizers, trainers
    except ImportError as error:
        raise needs("tokenizers", error) from error
    made = Tokenization(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(  # type: ignore[assignment]
        add_prefix_space=False
    )
    made.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(map(well_formed, texts), trainer)
    path.parent.mkdir(parents=True, exist_ok=True)
    made.save(str(path))
    return load_bpe(path)


def _pieces(path: Path, vocabulary: dict[str, int], end: int) -> tuple[bytes, ...]:
    byte_of = bytes_by_letter()
    pieces: dict[int, bytes] = {end: b""}
    for letters, token in vocabulary.items():
        if token != end:
            try:
                pieces[token] = bytes(byte_of[letter] for letter in letters)
            except KeyError:
                raise DataError(
                    f"{path}: token {letters!r} is not spelt in bytes, so this is no "
                    "byte-level BPE: make one with train_bpe"
                ) from None
    if sorted(pieces) != list(range(len(pieces))):
        raise DataError(f"{path}: its ids do not count from 0 without gaps")
    if len(pieces) > LARGEST_VOCABULARY:
        raise DataError(
            f"{path}: {len(pieces)} ids, but shards hold ids of two bytes: a "
            f"vocabulary may have {LARGEST_VOCABULARY} at most"
        )
    missing = 256 - len({piece for piece in pieces.values() if len(piece) == 1})
    if missing:
        raise DataError(
            f"{path}: {missing} of the 256 bytes are no token, so that not every text "
            "has ids: make one with train_bpe"
        )
    return tuple(pieces[token] for token in range(len(pieces)))
