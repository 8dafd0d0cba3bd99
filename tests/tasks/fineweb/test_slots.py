"""Batch slots: against plain loops, over shards and epochs."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocsearch.errors import AllocsearchError
from allocsearch.tasks.fineweb.corpus import Corpus
from allocsearch.tasks.fineweb.shards import ArrayShard
from allocsearch.tasks.fineweb.slots import SlotStream
from allocsearch.tasks.fineweb.tokenization import Bytes

END = 256


def corpus_of(*shards):
    return Corpus(Bytes(), tuple(map(ArrayShard, shards)), "a test")


def numbered(*counts):
    """Shards whose tokens are all different, and their tokens."""
    ends = np.cumsum(counts)
    shards = [np.arange(e - c, e) for e, c in zip(ends, counts, strict=True)]
    return corpus_of(*shards), shards


def plain_windows(shards, n_slots, window):
    """Every window of an epoch, token by token."""
    found = []
    for shard in shards:
        run = (len(shard) - 1) // n_slots // window * window
        for first in range(0, run, window):
            slots = []
            for slot in range(n_slots):
                start = slot * run + first
                slots.append([int(shard[start + i]) for i in range(window + 1)])
            found.append((slots, first == 0))
    return found


COUNTS = st.lists(st.integers(0, 60), min_size=1, max_size=4)


@given(
    COUNTS, st.integers(1, 4), st.integers(1, 6), st.integers(0, 40), st.integers(1, 9)
)
def test_every_position_is_that_of_a_plain_loop(counts, n_slots, window, start, n):
    corpus, shards = numbered(*counts)
    expected = plain_windows(shards, n_slots, window)
    if not expected:
        with pytest.raises(AllocsearchError, match="need a shard of"):
            SlotStream(corpus, n_slots, window)
        return
    stream = SlotStream(corpus, n_slots, window)
    assert stream.n_windows == len(expected)
    windows = stream.windows(start, n)
    assert windows.tokens.shape == (n, n_slots, window + 1)
    assert windows.reset.shape == (n, n_slots, window)
    assert (windows.tokens.dtype, windows.reset.dtype) == (np.int32, np.bool_)
    for i in range(n):
        tokens, fresh = expected[(start + i) % len(expected)]
        assert windows.tokens[i].tolist() == tokens
        assert windows.reset[i, :, 0].all() == fresh
        assert not windows.reset[i, :, 1:].any()


@given(COUNTS, st.integers(1, 4), st.integers(1, 6))
def test_a_pass_reads_no_token_twice_and_leaves_less_than_a_window(
    counts, n_slots, window
):
    corpus, shards = numbered(*counts)
    if not plain_windows(shards, n_slots, window):
        return
    stream = SlotStream(corpus, n_slots, window)
    tokens = stream.windows(0, stream.n_windows).tokens
    for part in (tokens[..., :-1], tokens[..., 1:]):
        assert len(np.unique(part)) == part.size
    used = set(tokens[..., :-1].ravel().tolist())
    for shard in shards:
        left = [int(token) for token in shard[:-1] if int(token) not in used]
        assert len(left) < n_slots * window
        assert left == shard[len(shard) - 1 - len(left) : -1].tolist()


def test_the_last_target_is_the_first_input_of_the_next_window():
    corpus, _ = numbered(101, 57)
    stream = SlotStream(corpus, 3, 4)
    windows = stream.windows(0, 3 * stream.n_windows)
    n_continued = 0
    for i, j in pairwise(range(len(windows.tokens))):
        if windows.reset[j].any():
            assert windows.reset[j, :, 0].all()
        else:
            n_continued += 1
            np.testing.assert_array_equal(
                windows.tokens[i, :, -1], windows.tokens[j, :, 0]
            )
    # One shard gives 8 windows and the other 4, each of which begins anew.
    assert stream.n_windows == 8 + 4
    assert n_continued == 3 * (7 + 3)


def test_pieces_are_the_whole():
    corpus, _ = numbered(101, 57, 4)
    stream = SlotStream(corpus, 3, 4, reset_at_documents=True)
    whole = stream.windows(5, 30)
    for cut in (1, 7, 8, 19, 29):
        first, second = stream.windows(5, cut), stream.windows(5 + cut, 30 - cut)
        for name in ("tokens", "reset"):
            parts = [getattr(first, name), getattr(second, name)]
            np.testing.assert_array_equal(np.concatenate(parts), getattr(whole, name))
    assert stream.windows(3, 0).tokens.shape == (0, 3, 5)


def test_documents_begin_anew_where_asked():
    text = [END, 1, 2, END, 3, END, END, 4, 5, 6, END, 7, 8]
    stream = SlotStream(corpus_of(np.array(text)), 2, 3, reset_at_documents=True)
    windows = stream.windows(0, 2)
    for i in range(2):
        for slot in range(2):
            for t in range(3):
                place = slot * 6 + 3 * i + t
                assert windows.tokens[i, slot, t] == text[place]
                fresh = text[place] == END or (i == 0 and t == 0)
                assert windows.reset[i, slot, t] == fresh
    plain = SlotStream(corpus_of(np.array(text)), 2, 3).windows(0, 2)
    assert plain.reset.sum() == 2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: SlotStream(c, 0, 4), "at least 1, received 0 and 4"),
        (lambda c: SlotStream(c, 2, 0), "at least 1, received 2 and 0"),
        (lambda c: SlotStream(c, 2, 50), "need a shard of 101 tokens, but .* has 30"),
        (lambda c: SlotStream(c, 2, 4).windows(-1, 1), "0 or more, received -1"),
    ],
)
def test_what_gives_no_windows(call, words):
    with pytest.raises(AllocsearchError, match=words):
        call(numbered(30)[0])
