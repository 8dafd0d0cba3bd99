"""Seeded Sokoban levels that are solvable by construction.

A level is made by playing backwards: the boxes start on their goals and the player
pulls them away. Each pull undone is a push, so the reverse of the walk is a solution.
Many candidates are made at once; an array of planes has one column per candidate,
`[squares, B]`, on a board with a closed border, so that a step in any direction is a
shift by a constant number of rows.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from allocsearch.errors import ConfigError
from allocsearch.tasks.sokoban.levels import (
    BOX,
    GOAL,
    PLAYER,
    WALL,
    LevelSet,
    level_set_from_codes,
)
from allocsearch.tasks.sokoban.symmetry import keys_of

_SQUARES_PER_BATCH = 200_000
_BARREN_BATCHES = 30
_MOST_PULLS_PER_BOX = 32


@dataclass(frozen=True)
class _Recipe:
    """What every candidate of one request shares."""

    interior: tuple[int, int]
    n_boxes: int
    wall_density: float
    min_pushes: int
    max_pulls: int

    def __post_init__(self):
        height, width = self.interior
        if self.n_boxes < 1:
            raise ConfigError(f"n_boxes must be at least 1, got {self.n_boxes}")
        if self.min_pushes < 1:
            raise ConfigError(f"min_pushes must be at least 1, got {self.min_pushes}")
        if self.max_pulls < self.min_pushes:
            raise ConfigError(
                f"max_pulls must be at least min_pushes, got {self.max_pulls} and "
                f"{self.min_pushes}"
            )
        if not 0.0 <= self.wall_density < 1.0:
            raise ConfigError(
                f"wall_density must be in [0, 1), got {self.wall_density}"
            )
        if (
            min(height, width) < 1
            or max(height, width) < 3
            or (height * width < self.n_boxes + 2)
        ):
            raise ConfigError(
                f"a {height}x{width} interior has no room to push {self.n_boxes} "
                f"box(es): use a larger interior"
            )

    @property
    def shape(self) -> tuple[int, int]:
        return (self.interior[0] + 2, self.interior[1] + 2)

    @property
    def batch(self) -> int:
        n_squares = self.shape[0] * self.shape[1]
        return max(16, _SQUARES_PER_BATCH // n_squares)

    @property
    def steps(self) -> np.ndarray:
        """Flat index differences of up, down, left and right."""
        width = self.shape[1]
        return np.array([-width, width, -1, 1])

    def __str__(self) -> str:
        height, width = self.interior
        boxes = "1 box" if self.n_boxes == 1 else f"{self.n_boxes} boxes"
        return f"{height}x{width} interior, {boxes}"


def generate_levels(
    n: int,
    *,
    interior: tuple[int, int] = (5, 5),
    n_boxes: int = 1,
    seed: int,
    wall_density: float = 0.15,
    min_pushes: int = 2,
    max_pulls: int | None = None,
) -> LevelSet:
    """`n` distinct solvable levels, the same for the same arguments everywhere.

    No two levels are equal, not even up to rotation and reflection. With the
    defaults a uniformly random policy solves about a tenth within 60 steps.

    Args:
        n: number of levels.
        interior: height and width within the closed border.
        n_boxes: boxes, and goals, of a level.
        seed: a non-negative integer.
        wall_density: mean fraction of interior squares that are walls; each level
            draws its own density, from half of this to one and a half times it.
        min_pushes: a lower bound on the pushes that any solution needs.
        max_pulls: most pulls of the backward walk; grows with the board by default.

    Returns:
        Boards with their border, `[n, height + 2, width + 2]`.

    Raises:
        ConfigError: a value is out of range, or so many distinct levels are not
            to be had.
    """
    recipe = _recipe(interior, n_boxes, wall_density, min_pushes, max_pulls)
    levels, _ = _draw(n, recipe, _generator(seed), frozenset(), f"seed {seed}")
    return levels


def disjoint_splits(
    sizes: Mapping[str, int],
    *,
    interior: tuple[int, int] = (5, 5),
    n_boxes: int = 1,
    seed: int,
    wall_density: float = 0.15,
    min_pushes: int = 2,
    max_pulls: int | None = None,
) -> dict[str, LevelSet]:
    """Level sets of which no two share a level, up to rotation and reflection.

    Smaller sets are drawn first, so that held-out sets stay the same when the
    training set grows.

    Args:
        sizes: number of levels of each split, by name.

    The other arguments and the errors are those of `generate_levels`.
    """
    recipe = _recipe(interior, n_boxes, wall_density, min_pushes, max_pulls)
    taken: frozenset[bytes] = frozenset()
    splits: dict[str, LevelSet] = {}
    for name in sorted(sizes, key=lambda name: (sizes[name], name)):
        generator = _generator(seed, name)
        label = f"seed {seed}, split {name}"
        splits[name], keys = _draw(sizes[name], recipe, generator, taken, label)
        taken |= keys
    return {name: splits[name] for name in sizes}


def _recipe(
    interior: tuple[int, int],
    n_boxes: int,
    wall_density: float,
    min_pushes: int,
    max_pulls: int | None,
) -> _Recipe:
    if max_pulls is None:
        per_box = min(interior[0] * interior[1] // 2, _MOST_PULLS_PER_BOX)
        max_pulls = max(min_pushes, n_boxes * per_box)
    return _Recipe(interior, n_boxes, wall_density, min_pushes, max_pulls)


def _generator(seed: int, split: str = "") -> np.random.Generator:
    if seed < 0:
        raise ConfigError(f"seed must be a non-negative integer, got {seed}")
    return np.random.default_rng([seed, zlib.crc32(split.encode())])


def _draw(
    n: int,
    recipe: _Recipe,
    generator: np.random.Generator,
    taken: frozenset[bytes],
    label: str,
) -> tuple[LevelSet, frozenset[bytes]]:
    """`n` levels whose keys are not in `taken`, and their keys."""
    if n < 1:
        raise ConfigError(f"the number of levels must be at least 1, got {n}")
    keys: set[bytes] = set()
    boards: list[np.ndarray] = []
    barren = 0
    while len(boards) < n:
        n_before = len(boards)
        candidates = _candidates(recipe, generator)
        found = keys_of(candidates, symmetries=True)
        for board, key in zip(candidates, found, strict=True):
            if len(boards) < n and key not in keys and key not in taken:
                keys.add(key)
                boards.append(board)
        barren = barren + 1 if len(boards) == n_before else 0
        if barren == _BARREN_BATCHES:
            raise ConfigError(
                f"found only {n_before} of {n} distinct levels ({recipe}, at least "
                f"{recipe.min_pushes} pushes, wall density {recipe.wall_density}): "
                "ask for fewer levels, boxes or pushes, or for a larger interior"
            )
    levels = level_set_from_codes(np.stack(boards), f"generated: {recipe}, {label}")
    return levels, frozenset(keys)


def _candidates(recipe: _Recipe, generator: np.random.Generator) -> np.ndarray:
    """The acceptable levels of one batch: uint8 `[K, H + 2, W + 2]` bit codes."""
    floor = _connected_floor(recipe, generator)
    boxes = np.zeros_like(floor)
    goals = np.empty((recipe.n_boxes, recipe.batch), np.int64)
    for index in range(recipe.n_boxes):
        goals[index] = _pick(floor & ~boxes, generator)
        _set(boxes, goals[index], True)
    player = _pick(floor & ~boxes, generator)
    has_room = floor.sum(axis=0) >= recipe.n_boxes + 2
    places, player = _pull_away(recipe, generator, floor, goals, player)
    boxes[:] = False
    _set(boxes, places, True)
    player = _pick(_reach(recipe, player, floor & ~boxes), generator)
    codes = np.where(floor, 0, WALL).astype(np.uint8)
    columns = np.arange(recipe.batch)
    codes[goals, columns] |= GOAL
    codes[places, columns] |= BOX
    codes[player, columns] |= PLAYER
    accepted = has_room & (_least_pushes(recipe, places, goals) >= recipe.min_pushes)
    # `_pull_away` sorts by the number of pulls: mix hard and easy again.
    order = generator.permutation(np.flatnonzero(accepted))
    return codes[:, order].T.reshape(-1, *recipe.shape)


def _connected_floor(recipe: _Recipe, generator: np.random.Generator) -> np.ndarray:
    """bool `[squares, B]`: squares joined to a random one; the rest become walls."""
    height, width = recipe.shape
    density = recipe.wall_density * generator.uniform(0.5, 1.5, recipe.batch)
    floor = np.zeros((height, width, recipe.batch), bool)
    noise = generator.random((*recipe.interior, recipe.batch))
    floor[1:-1, 1:-1] = noise >= density
    floor = floor.reshape(height * width, recipe.batch)
    return _reach(recipe, _pick(floor, generator), floor)


def _pull_away(
    recipe: _Recipe,
    generator: np.random.Generator,
    floor: np.ndarray,
    places: np.ndarray,
    player: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Boxes `[n_boxes, B]` and player `[B]` after random pulls.

    Every candidate makes its own number of pulls; they are in descending order, so
    that those still at work are always the first columns.
    """
    places, player = places.copy(), player.copy()
    n_pulls = generator.integers(
        recipe.min_pushes, recipe.max_pulls, recipe.batch, endpoint=True
    )
    n_pulls = -np.sort(-n_pulls)
    for pull in range(n_pulls[0]):
        active = int(np.count_nonzero(n_pulls > pull))
        columns = np.arange(active)
        free = floor[:, :active].copy()
        _set(free, places[:, :active], False)
        reach = _reach(recipe, player[:active], free)
        near = places[None, :, :active] + recipe.steps[:, None, None]
        beyond = np.clip(near + recipe.steps[:, None, None], 0, len(floor) - 1)
        options = reach[near, columns] & reach[beyond, columns]
        options = options.reshape(-1, active)
        choice = _pick(options, generator)
        step, box = np.divmod(choice, recipe.n_boxes)
        can = options[choice, columns]
        moved = np.where(can, recipe.steps[step], 0)
        places[box, columns] += moved
        player[:active] = np.where(can, places[box, columns] + moved, player[:active])
    return places, player


def _reach(recipe: _Recipe, start: np.ndarray, free: np.ndarray) -> np.ndarray:
    """bool `[squares, B]`: free squares joined to `start` by free squares."""
    reach = np.zeros_like(free)
    _set(reach, start, True)
    reach &= free
    n_reached = -1
    while n_reached != (n_now := np.count_nonzero(reach)):
        n_reached = n_now
        for step in recipe.steps[1::2]:
            reach[step:] |= reach[:-step] & free[step:]
            reach[:-step] |= reach[step:] & free[:-step]
    return reach


def _least_pushes(recipe: _Recipe, places: np.ndarray, goals: np.ndarray) -> np.ndarray:
    """Every box's distance to its nearest goal, summed: `[B]`."""
    width = recipe.shape[1]
    rows, columns = np.divmod(places[:, None], width)
    goal_rows, goal_columns = np.divmod(goals[None], width)
    distance = np.abs(rows - goal_rows) + np.abs(columns - goal_columns)
    return distance.min(axis=1).sum(axis=0)


def _pick(mask: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The index of a random true row of each column, 0 where there is none."""
    ranks = np.cumsum(mask, axis=0, dtype=np.int32)
    chosen = (generator.random(mask.shape[1]) * ranks[-1]).astype(np.int32)
    return np.argmax(ranks > chosen, axis=0)


def _set(planes: np.ndarray, rows: np.ndarray, value: bool) -> None:
    """Sets ``planes[rows[..., b], b]`` for every column b."""
    planes[rows, np.arange(planes.shape[1])] = value
