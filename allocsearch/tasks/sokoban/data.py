"""Where the levels of each split come from: the generator or level files."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from allocsearch.tasks.sokoban.config import LevelsConfig, SokobanConfig
from allocsearch.tasks.sokoban.generator import disjoint_splits, generate_levels
from allocsearch.tasks.sokoban.level_files import SPLITS, present_splits, split_path
from allocsearch.tasks.sokoban.level_packs import load_levels, packed_shape
from allocsearch.tasks.sokoban.levels import LevelSet, largest
from allocsearch.tasks.sokoban.symmetry import canonical_keys

_N_GENERATED = 10_000


class Splits(Mapping[str, LevelSet]):
    """The levels of each split, all of one board size.

    A split is read or generated when it is first asked for.

    Attributes:
        shape: height and width of every board.
    """

    def __init__(
        self, shape: tuple[int, int], sources: Mapping[str, Callable[[], LevelSet]]
    ):
        """Takes what gives the levels of each split, boards of that shape."""
        self.shape = shape
        self._sources = dict(sources)
        self._made: dict[str, LevelSet] = {}

    def __getitem__(self, name: str) -> LevelSet:
        if name not in self._made:
            self._made[name] = self._sources[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def interior(self) -> "Splits":
        """The same levels without their borders of walls."""
        inner = {name: lambda name=name: self[name].interior() for name in self}
        return Splits((self.shape[0] - 2, self.shape[1] - 2), inner)


def load_splits(config: SokobanConfig) -> Splits:
    """The levels of each split, of one board size.

    Boards smaller than the largest of any split are padded with walls. A directory may
    lack `test`, which is then missing from the result; a file, or a directory without
    splits, is a `test` split alone.

    Files are read here, for the size of their boards, unless a pack tells it;
    generated levels are made when they are asked for.

    Raises:
        DataError: a directory or a level is missing or broken.
        ConfigError: levels of that kind cannot be generated (when asked for).
    """
    if config.data is None:
        splits = _generated(config)
    else:
        splits = _stored(Path(config.data), config)
    return splits if config.environment.keep_border else splits.interior()


def describe(splits: Mapping[str, LevelSet]) -> dict[str, Any]:
    """Source, size and hash of each split, JSON-ready."""
    return {
        name: {
            "source": levels.source,
            "n_levels": len(levels),
            "board": list(levels.shape),
            "n_boxes": levels.box_counts(),
            "sha256": levels.digest(),
        }
        for name, levels in splits.items()
    }


def _generated(config: SokobanConfig) -> Splits:
    height, width = config.levels.interior
    sources = {
        "train": partial(_generate_train, config.levels),
        "valid": partial(_generate_held_out, config.levels, "valid"),
        "test": partial(_generate_held_out, config.levels, "test"),
    }
    return Splits((height + 2, width + 2), sources)


def _recipe(levels: LevelsConfig) -> dict[str, Any]:
    return {
        "interior": levels.interior,
        "n_boxes": levels.n_boxes,
        "seed": levels.seed,
    }


def _generate_held_out(levels: LevelsConfig, name: str) -> LevelSet:
    """One of `valid` and `test`; the other is made too only if it decides the one."""
    sizes = {"valid": levels.n_valid, "test": levels.n_test}
    last = sizes[name], name
    drawn = {other: n for other, n in sizes.items() if (n, other) <= last}
    return disjoint_splits(drawn, min_pushes=levels.min_pushes, **_recipe(levels))[name]


def _generate_train(levels: LevelsConfig) -> LevelSet:
    sizes = {"valid": levels.n_valid, "test": levels.n_test}
    recipe = _recipe(levels)
    held_out = disjoint_splits(sizes, min_pushes=levels.min_pushes, **recipe)
    n_train = levels.n_train or _N_GENERATED
    n_held_out = levels.n_valid + levels.n_test
    train = generate_levels(
        n_train + n_held_out, min_pushes=levels.train_min_pushes, **recipe
    )
    taken = {key for split in held_out.values() for key in canonical_keys(split)}
    free = [i for i, key in enumerate(canonical_keys(train)) if key not in taken]
    return train.subset(free[:n_train])


@dataclass(frozen=True)
class _Stored:
    """The levels that a file or directory holds, read once.

    Attributes:
        path: a file or directory.
        max_levels: how many are read.
    """

    path: Path
    max_levels: int | None

    @cached_property
    def shape(self) -> tuple[int, int]:
        return packed_shape(self.path, self.max_levels) or self.levels.shape

    @cached_property
    def levels(self) -> LevelSet:
        return load_levels(self.path, max_levels=self.max_levels)


def _stored(root: Path, config: SokobanConfig) -> Splits:
    levels = config.levels
    most = {
        "train": levels.n_train,
        "valid": levels.n_valid,
        "test": levels.n_test,
    }
    present = present_splits(root)
    # Without splits it is for evaluation; otherwise only `test` may be missing.
    wanted = {"train", "valid", *present} if present else {"test"}
    stored = {
        name: _Stored(split_path(root, name), most[name])
        for name in SPLITS
        if name in wanted
    }
    shape = largest([one.shape for one in stored.values()])
    sources = {
        name: lambda one=one: one.levels.padded(shape) for name, one in stored.items()
    }
    return Splits(shape, sources)
