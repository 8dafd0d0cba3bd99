"""Which levels are one level turned, mirrored, or with more wall around it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from allocsearch.tasks.sokoban.board_text import WALL
from allocsearch.tasks.sokoban.levels import LevelSet

_LEVELS_AT_ONCE = 2**15
_MOST_EXAMPLES = 10


@dataclass(frozen=True)
class Overlap:
    """Levels that occur more than once.

    Attributes:
        earlier, later: the sets that share levels; the same name if one repeats its
            own.
        n_levels: size of the later set.
        n_identical: levels of the later set that occur before, as they are.
        n_symmetric: levels that do so only turned or mirrored.
        examples: pairs of indices, of a level in the earlier set and one in the later.
    """

    earlier: str
    later: str
    n_levels: int
    n_identical: int
    n_symmetric: int
    examples: tuple[tuple[int, int], ...]


def canonical_keys(levels: LevelSet) -> list[bytes]:
    """One key a level, equal for levels that are rotations or reflections."""
    return keys_of(levels.codes_with_player(), symmetries=True)


def keys_of(codes: np.ndarray, *, symmetries: bool) -> list[bytes]:
    """One key a board, equal for equal boards.

    Args:
        codes: uint8 `[N, H, W]` bit codes below 16.
        symmetries: whether rotations and reflections are to have equal keys too.
    """
    if symmetries and codes.shape[1] > codes.shape[2]:
        codes = codes.transpose(0, 2, 1)
    prefix = repr(codes.shape[1:]).encode()
    keys: list[bytes] = []
    for start in range(0, len(codes), _LEVELS_AT_ONCE):
        some = codes[start : start + _LEVELS_AT_ONCE]
        words = _smallest_words(some) if symmetries else _words(some)
        n_bytes = words.shape[1] * 8
        raw = words.tobytes()
        keys += [prefix + raw[i : i + n_bytes] for i in range(0, len(raw), n_bytes)]
    return keys


def find_overlaps(sets: Mapping[str, LevelSet]) -> list[Overlap]:
    """Duplicates within every set and between every two, where there are any."""
    turned = {name: trimmed_keys(s, symmetries=True) for name, s in sets.items()}
    exact = {name: trimmed_keys(s, symmetries=False) for name, s in sets.items()}
    overlaps = []
    for first, last in combinations_with_replacement(sets, 2):
        pairs = _repeats(turned[first], turned[last], within=first == last)
        identical = _repeats(exact[first], exact[last], within=first == last)
        if pairs:
            overlaps.append(
                Overlap(
                    earlier=first,
                    later=last,
                    n_levels=len(sets[last]),
                    n_identical=len(identical),
                    n_symmetric=len(pairs) - len(identical),
                    examples=tuple(pairs[:_MOST_EXAMPLES]),
                )
            )
    return overlaps


def _repeats(
    earlier: list[bytes], later: list[bytes], *, within: bool
) -> list[tuple[int, int]]:
    """Where a key of `later` was first met in `earlier`, and where it is.

    Args:
        earlier: keys of one set.
        later: keys of another, or of the same.
        within: whether it is the same, and a level no repeat of itself.
    """
    # From the end, so that the first index of each key stays.
    first = {earlier[i]: i for i in reversed(range(len(earlier)))}
    found = [(first[key], j) for j, key in enumerate(later) if key in first]
    return [(i, j) for i, j in found if not within or i != j]


def trimmed_keys(levels: LevelSet, *, symmetries: bool) -> list[bytes]:
    """As `keys_of`, of what lies within the outer walls, however thick they are."""
    codes = levels.codes_with_player()
    keys = np.empty(len(levels), object)
    for indices, box in _bounding_boxes(codes != WALL):
        keys[indices] = keys_of(codes[(indices, *box)], symmetries=symmetries)
    return keys.tolist()


def _bounding_boxes(
    open_: np.ndarray,
) -> Iterator[tuple[np.ndarray, tuple[slice, slice]]]:
    """Indices of boards `[N, H, W]` by the box around their open squares."""
    edges = []
    for axis in (2, 1):
        used: np.ndarray = np.any(open_, axis=axis)
        edges += [used.argmax(axis=1), used.shape[1] - used[:, ::-1].argmax(axis=1)]
    side = max(open_.shape[1:]) + 1
    names = np.ravel_multi_index(edges, (side,) * 4)
    boxes, which, counts = np.unique(names, return_inverse=True, return_counts=True)
    order = np.argsort(which, kind="stable")
    groups = np.split(order, np.cumsum(counts)[:-1])
    corners = np.stack(np.unravel_index(boxes, (side,) * 4), axis=1).tolist()
    for (top, bottom, left, right), indices in zip(corners, groups, strict=True):
        yield indices, (slice(top, bottom), slice(left, right))


def _smallest_words(codes: np.ndarray) -> np.ndarray:
    """`_words` of the view that comes first among those of the board's shape."""
    views = [codes, codes[:, ::-1], codes[:, :, ::-1], codes[:, ::-1, ::-1]]
    if codes.shape[1] == codes.shape[2]:
        views += [view.transpose(0, 2, 1) for view in views]
    best = _words(views[0])
    rows = np.arange(len(codes))
    for view in views[1:]:
        words = _words(view)
        first = np.argmax(words != best, axis=1)
        smaller = words[rows, first] < best[rows, first]
        best[smaller] = words[smaller]
    return best


def _words(codes: np.ndarray) -> np.ndarray:
    """Boards as uint64 `[N, words]`, four bits a square."""
    n_levels, n_squares = len(codes), codes.shape[1] * codes.shape[2]
    flat = np.zeros((n_levels, -(-n_squares // 16) * 16), np.uint8)
    flat[:, :n_squares] = codes.reshape(n_levels, n_squares)
    return (flat[:, ::2] << 4 | flat[:, 1::2]).view(np.uint64)
