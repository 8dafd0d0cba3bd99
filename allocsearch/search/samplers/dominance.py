"""Which results beat which in every objective, and how crowded a front is."""

import numpy as np


def ranks(losses: np.ndarray, enough: int | None = None) -> np.ndarray:
    """The front that each result is on: 0 for those that none dominates.

    One result dominates another that it is nowhere worse than and somewhere better.

    Args:
        losses: `[n, n_objectives]`, less is better, finite.
        enough: how many results need a rank; those beyond share the next one.

    Returns:
        `[n]` integers.
    """
    n = len(losses)
    if losses.shape[1] == 1:
        return np.unique(losses[:, 0], return_inverse=True)[1].reshape(n)
    found = np.full(n, -1)
    left, rank = np.arange(n), 0
    while len(left) and n - len(left) < (n if enough is None else enough):
        front = _first_front(losses[left])
        found[left[front]] = rank
        left, rank = left[~front], rank + 1
    found[left] = rank
    return found


def _first_front(losses: np.ndarray) -> np.ndarray:
    """A mask of the results that none dominates; each is held against the front."""
    order = np.lexsort(losses.T[::-1])  # a dominating result comes first
    member = np.zeros(len(losses), dtype=bool)
    front = np.empty((0, losses.shape[1]))
    for i in order:
        worse = (front <= losses[i]).all(axis=1) & (front < losses[i]).any(axis=1)
        if not worse.any():
            member[i] = True
            front = np.vstack([front, losses[i]])
    return member


def crowding(losses: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """How far each result's neighbours on its front are apart; ends are infinite.

    Args:
        losses: `[n, n_objectives]`.
        ranks: the front of each.

    Returns:
        `[n]`: the sum over objectives of the gap between both neighbours, as a share
        of the front's extent.
    """
    found = np.zeros(len(losses))
    for rank in np.unique(ranks):
        members = np.flatnonzero(ranks == rank)
        for column in losses[members].T:
            order = np.argsort(column, kind="stable")
            extent = column[order[-1]] - column[order[0]]
            found[members[order[[0, -1]]]] = np.inf
            if extent > 0:
                gaps = column[order[2:]] - column[order[:-2]]
                found[members[order[1:-1]]] += gaps / extent
    return found
