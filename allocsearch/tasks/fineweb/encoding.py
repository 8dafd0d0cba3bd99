"""Pieces of text to tokens, over processes, in order."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np

from allocsearch.errors import DataError
from allocsearch.tasks.fineweb.documents import Piece, Reader, State
from allocsearch.tasks.fineweb.tokenization import Tokenizer, load_tokenizer

_MOST_PIECES = 512
_MOST_CHARACTERS = 2**20
_BATCHES_AHEAD = 3


@dataclass(frozen=True)
class Batch:
    """Consecutive pieces.

    Attributes:
        state: of the reader before the first.
        pieces: what was read.
    """

    state: State
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Encoded:
    """The tokens of a batch.

    Attributes:
        batch: what was encoded.
        tokens: of each piece, uint16; a piece that begins a document begins with the
            end of text.
    """

    batch: Batch
    tokens: tuple[np.ndarray, ...]


def batches(reader: Reader) -> Iterator[Batch]:
    """All pieces of a reader, in batches of about a megabyte."""
    while True:
        state = reader.state()
        pieces, length = [], 0
        for piece in islice(reader, _MOST_PIECES):
            pieces.append(piece)
            length += len(piece.text)
            if length >= _MOST_CHARACTERS:
                break
        if not pieces:
            return
        yield Batch(state, tuple(pieces))


@contextmanager
def encoding(
    tokenizer: Tokenizer, processes: int
) -> Iterator[Callable[[Iterable[Batch]], Iterator[Encoded]]]:
    """Processes that encode, as a function from batches to their tokens, in order.

    Args:
        tokenizer: found again by its name in other processes.
        processes: with 1, this process does it.

    Raises:
        DataError: a process died.
    """
    if processes <= 1:
        encode = _encoder(tokenizer)
        yield lambda batches: (
            Encoded(batch, encode(batch.pieces)) for batch in batches
        )
        return
    # Forking is unsafe beside the threads that JAX starts.
    executor = ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin_worker,
        initargs=(tokenizer.name,),
    )
    try:
        yield partial(_in_order, executor, processes + _BATCHES_AHEAD)
    except BrokenProcessPool as error:
        raise DataError(
            "a tokenising process died, perhaps for want of memory: finished shards "
            "are kept, so run the same command again, with fewer processes"
        ) from error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _in_order(
    executor: ProcessPoolExecutor, most_waiting: int, batches: Iterable[Batch]
) -> Iterator[Encoded]:
    waiting: deque[tuple[Batch, Future]] = deque()
    for batch in batches:
        waiting.append((batch, executor.submit(_work, batch.pieces)))
        if len(waiting) >= most_waiting:
            first, future = waiting.popleft()
            yield Encoded(first, future.result())
    for first, future in waiting:
        yield Encoded(first, future.result())


def _encoder(tokenizer: Tokenizer) -> Callable[..., tuple[np.ndarray, ...]]:
    end = tokenizer.end_of_text

    def encode(pieces: Iterable[Piece]) -> tuple[np.ndarray, ...]:
        arrays = []
        for text, begins in pieces:
            ids = tokenizer.encode(text)
            arrays.append(np.array([end, *ids] if begins else ids, np.uint16))
        return tuple(arrays)

    return encode


def _begin_worker(name: str) -> None:
    global _encode
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _encode = _encoder(load_tokenizer(name))


def _end_with_parent() -> None:
    """A killed parent cannot end its workers, who would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


_encode: Callable[..., tuple[np.ndarray, ...]]


def _work(pieces: tuple[Piece, ...]) -> tuple[np.ndarray, ...]:
    return _encode(pieces)
