"""Tokenizers: bytes, GPT-2's, or a byte-level BPE trained on a user's own text.

Each lists the bytes that its ids stand for; vocabulary size, decoding, bytes of text
and the digest that is stored with shards all follow from that list.
"""

import abc
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from allocsearch.errors import ConfigError

END_OF_TEXT = "<|endoftext|>"
"""How the token before each document is written."""


class Tokenizer(abc.ABC):
    """Text to token ids and back.

    Attributes:
        name: what `load_tokenizer` finds it by.
        pieces: for every id the bytes it stands for; none for the end of text.
        end_of_text: the id before each document.
        rules: what else decides the ids of a text, for the digest.
    """

    name: str
    pieces: tuple[bytes, ...]
    end_of_text: int
    rules: bytes

    @abc.abstractmethod
    def encode(self, text: str) -> list[int]:
        """Ids of a text; what looks like a special token in it is ordinary text."""

    @property
    def vocab_size(self) -> int:
        """Ids are below it."""
        return len(self.pieces)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; bytes that are not UTF-8 become U+FFFD.

        Raises:
            ConfigError: an id is outside the vocabulary.
        """
        return b"".join(map(self._shown, ids)).decode("utf-8", errors="replace")

    def digest(self) -> str:
        """SHA-256 of the vocabulary and its rules, in hexadecimal."""
        content = hashlib.sha256(f"{self.end_of_text}\n".encode())
        for part in (*self.pieces, self.rules):
            content.update(len(part).to_bytes(8, "little") + part)
        return content.hexdigest()

    def n_bytes(self, ids: np.ndarray) -> np.ndarray:
        """UTF-8 bytes of each id, int32 of the same shape; 0 for the end of text."""
        return self._lengths[ids]

    @functools.cached_property
    def _lengths(self) -> np.ndarray:
        return np.array([len(piece) for piece in self.pieces], np.int32)

    def _shown(self, token: int) -> bytes:
        if not 0 <= token < self.vocab_size:
            raise ConfigError(
                f"token id {token} is outside the vocabulary of {self.name}, which "
                f"has {self.vocab_size} ids"
            )
        return END_OF_TEXT.encode() if token == self.end_of_text else self.pieces[token]


class Bytes(Tokenizer):
    """Every byte of UTF-8 is a token; id 256 is the end of text."""

    name = "bytes"
    pieces = (*(bytes([value]) for value in range(256)), b"")
    end_of_text = 256
    rules = b"bytes"

    def encode(self, text: str) -> list[int]:
        """See `Tokenizer.encode`."""
        return list(utf8(text))


def load_tokenizer(name: str) -> Tokenizer:
    """A tokenizer by name.

    Args:
        name: "bytes", "gpt2", or the path of a file that `train_bpe` wrote.

    Raises:
        ConfigError: there is no such tokenizer, or what it takes is not installed.
        DataError: the file holds no byte-level BPE.
    """
    if name == "bytes":
        return Bytes()
    if name == "gpt2":
        from allocsearch.tasks.fineweb.gpt2 import load_gpt2

        return load_gpt2()
    if Path(name).is_file():
        from allocsearch.tasks.fineweb.trained_bpe import load_bpe

        return load_bpe(Path(name))
    raise ConfigError(
        f"unknown tokenizer {name!r}: give bytes, gpt2, or the path of a tokenizer file"
    )


def train_bpe(texts: Iterable[str], vocab_size: int, path: Path | str) -> Tokenizer:
    """Train a byte-level BPE and write it to a file for `load_tokenizer`.

    Args:
        texts: documents.
        vocab_size: ids in all, the 256 bytes and the end of text among them.
        path: the file to write.

    Raises:
        ConfigError: a vocabulary below 257 or above 65 536 ids.
    """
    from allocsearch.tasks.fineweb import trained_bpe

    return trained_bpe.train(texts, vocab_size, Path(path))


def utf8(text: str) -> bytes:
    """UTF-8 of any string; a lone surrogate, which has none, becomes U+FFFD."""
    return well_formed(text).encode()


def well_formed(text: str) -> str:
    """The text with pairs of surrogates joined, and lone ones replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def needs(package: str, error: ImportError) -> ConfigError:
    """The error where a package of the extra is missing."""
    return ConfigError(
        f"{package} cannot be imported ({error}): "
        "install it with `pip install 'allocsearch[fineweb]'`"
    )
