"""An exact Sokoban solver for small boards: A* over pushes.

Planes are Python integers with one bit a square, on a board with a border of walls,
so that a step in any direction is a shift. A search state is the boxes together with
the region that the player can reach, named by its lowest square.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from allocsearch.errors import AllocsearchError

_MOVES = "udlr"


class SolverLimitError(AllocsearchError, RuntimeError):
    """The search met its limit of states before it could decide."""


def solve(
    walls: np.ndarray,
    goals: np.ndarray,
    boxes: np.ndarray,
    player: int | np.integer,
    max_states: int = 200_000,
) -> str | None:
    """A solution with the fewest pushes, or None when there is provably none.

    Args:
        walls, goals, boxes: bool `[H, W]`; beyond the board counts as wall.
        player: flat index ``row * W + column``.
        max_states: how many states may be expanded.

    Returns:
        Moves ``udlr``, in capitals where they push a box; empty when solved.

    Raises:
        SolverLimitError: `max_states` were expanded and the answer is still open.
    """
    board = _Board.of(walls, goals)
    start = board.pad(boxes), board.pad_index(player)
    return board.search(*start, max_states)


@dataclass(frozen=True)
class _Board:
    """What stays the same during a search; planes are bit masks."""

    width: int
    floor: int
    goals: int
    goal_distance: dict[int, int]

    @classmethod
    def of(cls, walls: np.ndarray, goals: np.ndarray) -> "_Board":
        width = walls.shape[1] + 2
        bare = cls(width, 0, 0, {})
        floor, goal_mask = bare.pad(~walls.astype(bool)), bare.pad(goals)
        distance = _pull_distance(width, floor, goal_mask)
        return cls(width, floor, goal_mask, distance)

    @property
    def steps(self) -> tuple[int, int, int, int]:
        return (-self.width, self.width, -1, 1)

    def pad(self, plane: np.ndarray) -> int:
        rows, columns = np.nonzero(plane)
        return sum(1 << int(i) for i in (rows + 1) * self.width + columns + 1)

    def pad_index(self, index: int | np.integer) -> int:
        row, column = divmod(int(index), self.width - 2)
        return (row + 1) * self.width + column + 1

    def reach(self, player: int, free: int) -> int:
        region, width = 1 << player, self.width
        while True:
            grown = region | region << 1 | region >> 1
            grown = (grown | region << width | region >> width) & free
            if grown == region:
                return region
            region = grown

    def least_pushes(self, boxes: int) -> int | None:
        """A lower bound, or None when a box stands where it can never leave."""
        total = 0
        for square in _squares(boxes):
            distance = self.goal_distance.get(square)
            if distance is None:
                return None
            total += distance
        return total

    def search(self, boxes: int, player: int, max_states: int) -> str | None:
        bound = self.least_pushes(boxes)
        if bound is None:
            return None
        region = self.reach(player, self.floor & ~boxes)
        start = (boxes, region & -region)
        best = {start: 0}
        came: dict[tuple[int, int], tuple[tuple[int, int], int, int]] = {}
        queue = [(bound, bound, boxes, region)]
        n_expanded = 0
        while queue:
            total, bound, boxes, region = heapq.heappop(queue)
            state = (boxes, region & -region)
            n_pushes = total - bound
            if n_pushes > best[state]:
                continue
            if boxes == self.goals:
                return self._moves(came, state, player)
            if n_expanded == max_states:
                raise SolverLimitError(
                    f"undecided after {max_states} states: raise max_states or use a "
                    "smaller level"
                )
            n_expanded += 1
            for square, step, pushed in self._pushes(boxes, region):
                bound_next = self.least_pushes(pushed)
                if bound_next is None:
                    continue
                beyond = self.reach(square, self.floor & ~pushed)
                near = (pushed, beyond & -beyond)
                if n_pushes + 1 < best.get(near, n_pushes + 2):
                    best[near] = n_pushes + 1
                    came[near] = (state, square, step)
                    priority = n_pushes + 1 + bound_next
                    heapq.heappush(queue, (priority, bound_next, pushed, beyond))
        return None

    def _pushes(self, boxes: int, region: int) -> list[tuple[int, int, int]]:
        """Each push: the box's square, the step, and the boxes after it."""
        free = self.floor & ~boxes
        pushes = []
        for square in _squares(boxes):
            for step in self.steps:
                if region >> (square - step) & 1 and free >> (square + step) & 1:
                    pushed = boxes ^ (1 << square) ^ (1 << (square + step))
                    pushes.append((square, step, pushed))
        return pushes

    def _moves(
        self,
        came: dict[tuple[int, int], tuple[tuple[int, int], int, int]],
        state: tuple[int, int],
        player: int,
    ) -> str:
        pushes = []
        while state in came:
            state, square, step = came[state]
            pushes.append((state[0], square, step))
        moves = ""
        for boxes, square, step in reversed(pushes):
            moves += self._walk(player, square - step, self.floor & ~boxes)
            moves += _MOVES[self.steps.index(step)].upper()
            player = square
        return moves

    def _walk(self, start: int, end: int, free: int) -> str:
        """A shortest walk over free squares."""
        paths = {start: ""}
        frontier = [start]
        while end not in paths:
            following = []
            for square in frontier:
                for move, step in zip(_MOVES, self.steps, strict=True):
                    near = square + step
                    if free >> near & 1 and near not in paths:
                        paths[near] = paths[square] + move
                        following.append(near)
            frontier = following
        return paths[end]


def _squares(plane: int) -> list[int]:
    squares = []
    while plane:
        lowest = plane & -plane
        squares.append(lowest.bit_length() - 1)
        plane ^= lowest
    return squares


def _pull_distance(width: int, floor: int, goals: int) -> dict[int, int]:
    """Fewest pushes to some goal from each square, alone on the board."""
    distance = dict.fromkeys(_squares(goals), 0)
    frontier = list(distance)
    while frontier:
        following = []
        for square in frontier:
            for step in (-width, width, -1, 1):
                box, player = square + step, square + 2 * step
                if player < 0 or not (floor >> box & 1 and floor >> player & 1):
                    continue
                if box not in distance:
                    distance[box] = distance[square] + 1
                    following.append(box)
        frontier = following
    return distance
