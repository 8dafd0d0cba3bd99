"""Shards as contiguous batch slots, and windows along them at integer positions.

Within each shard slot b runs through its own stretch of the tokens, as in
Transformer-XL. A shard of n tokens in B slots gives each m = (n − 1) // B, cut to whole
windows; slot b then reads tokens b·m to (b+1)·m and predicts b·m + 1 to (b+1)·m + 1.
What is left over at the end of a shard, less than B windows and one token, is not used.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from allocsearch.errors import ConfigError, DataError
from allocsearch.tasks.fineweb.corpus import Corpus


@dataclass(frozen=True)
class Windows:
    """Consecutive windows of every slot.

    Attributes:
        tokens: int32 [n, n_slots, window + 1]. All but the last of a window are
            inputs, all but the first are targets; the last is the first of the slot's
            next window.
        reset: bool [n, n_slots, window], true where a stream starts anew: carry and
            caches must be empty before that input is read.
    """

    tokens: np.ndarray
    reset: np.ndarray


@dataclass(frozen=True)
class SlotStream:
    """A corpus as windows of batch slots, over and over.

    Attributes:
        corpus: where tokens are read.
        n_slots: streams side by side, the batch size.
        window: inputs in a window.
        reset_at_documents: whether streams also start anew at each document, that is
            where the end-of-text token before it is read.

    Raises:
        ConfigError: there are no slots or no window.
        DataError: no shard is long enough for one window in each slot.
    """

    corpus: Corpus
    n_slots: int
    window: int
    reset_at_documents: bool = False

    def __post_init__(self) -> None:
        """Refuse what gives no window."""
        if self.n_slots < 1 or self.window < 1:
            raise ConfigError(
                "slots and window must be at least 1, received "
                f"{self.n_slots} and {self.window}"
            )
        if self.n_windows == 0:
            largest = max(shard.n_tokens for shard in self.corpus.shards)
            raise DataError(
                f"{self.corpus.source}: {self.n_slots} slots of {self.window} tokens "
                f"need a shard of {self.n_slots * self.window + 1} tokens, but the "
                f"largest has {largest}: use fewer slots, a shorter window or more text"
            )

    @property
    def n_windows(self) -> int:
        """Windows in one epoch: once over all shards."""
        return int(self._ends[-1])

    def windows(self, position: int, n: int) -> Windows:
        """`n` windows from `position` on, counted from 0 and on over all epochs.

        The same position always gives the same windows.
        """
        if position < 0:
            raise ConfigError(f"a position must be 0 or more, received {position}")
        tokens = np.empty((n, self.n_slots, self.window + 1), np.int32)
        reset = np.zeros((n, self.n_slots, self.window), np.bool_)
        done = 0
        for shard, first, count in self._runs(position, n):
            here = slice(done, done + count)
            rows = self._rows(shard, first, count)
            inputs = rows[:, :-1].reshape(self.n_slots, count, self.window)
            tokens[here, :, :-1] = inputs.swapaxes(0, 1)
            tokens[here, :, -1] = rows[:, self.window :: self.window].T
            if first == 0:
                reset[done, :, 0] = True
            done += count
        if self.reset_at_documents:
            reset |= tokens[..., :-1] == self.corpus.tokenizer.end_of_text
        return Windows(tokens, reset)

    def _runs(self, position: int, n: int) -> Iterator[tuple[int, int, int]]:
        """Shard, first window in it, and count of windows, until there are n."""
        while n > 0:
            place = position % self.n_windows
            shard = int(np.searchsorted(self._ends, place, side="right"))
            first = place - int(self._ends[shard] - self._per_shard[shard])
            count = min(n, int(self._ends[shard]) - place)
            yield shard, first, count
            position, n = position + count, n - count

    def _rows(self, shard: int, first: int, count: int) -> np.ndarray:
        """What each slot reads, int32 [n_slots, count * window + 1]."""
        start, n = first * self.window, count * self.window + 1
        stride = int(self._per_shard[shard]) * self.window
        return self.corpus.shards[shard].rows(start, stride, self.n_slots, n)

    @functools.cached_property
    def _per_shard(self) -> np.ndarray:
        """Windows of one slot in each shard."""
        counts = np.array([shard.n_tokens for shard in self.corpus.shards], np.int64)
        return np.maximum(counts - 1, 0) // self.n_slots // self.window

    @functools.cached_property
    def _ends(self) -> np.ndarray:
        """Windows before the end of each shard."""
        return np.cumsum(self._per_shard)
