"""Where the levels of each split come from: the generator or level files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allocsearch.tasks.sokoban.config import SokobanConfig
from allocsearch.tasks.sokoban.generator import disjoint_splits, generate_levels
from allocsearch.tasks.sokoban.level_files import SPLITS, present_splits, split_path
from allocsearch.tasks.sokoban.level_packs import load_levels
from allocsearch.tasks.sokoban.levels import LevelSet, largest
from allocsearch.tasks.sokoban.symmetry import canonical_keys

_N_GENERATED = 10_000


def load_splits(config: SokobanConfig) -> dict[str, LevelSet]:
    """The levels of each split, of one board size.

    Boards smaller than the largest of any split are padded with walls. A directory may
    lack `test`, which is then missing from the result; a file, or a directory without
    splits, is a `test` split alone.

    Raises:
        DataError: a directory or a level is missing or broken.
        ConfigError: levels of that kind cannot be generated.
    """
    if config.data is None:
        splits = _generate(config)
    else:
        splits = _read(Path(config.data), config)
    if not config.environment.keep_border:
        splits = {name: levels.interior() for name, levels in splits.items()}
    return splits


def generated_shape(config: SokobanConfig) -> tuple[int, int] | None:
    """The board size of generated levels; None where levels come from files."""
    if config.data is not None:
        return None
    border = 2 if config.environment.keep_border else 0
    height, width = config.levels.interior
    return height + border, width + border


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


def _generate(config: SokobanConfig) -> dict[str, LevelSet]:
    levels = config.levels
    recipe = {
        "interior": levels.interior,
        "n_boxes": levels.n_boxes,
        "seed": levels.seed,
    }
    held_out = disjoint_splits(
        {"valid": levels.n_valid, "test": levels.n_test},
        min_pushes=levels.min_pushes,
        **recipe,
    )
    n_train = levels.n_train or _N_GENERATED
    n_held_out = levels.n_valid + levels.n_test
    train = generate_levels(
        n_train + n_held_out, min_pushes=levels.train_min_pushes, **recipe
    )
    taken = {key for split in held_out.values() for key in canonical_keys(split)}
    free = [i for i, key in enumerate(canonical_keys(train)) if key not in taken]
    return {"train": train.subset(free[:n_train]), **held_out}


def _read(root: Path, config: SokobanConfig) -> dict[str, LevelSet]:
    levels = config.levels
    most = {
        "train": levels.n_train,
        "valid": levels.n_valid,
        "test": levels.n_test,
    }
    present = present_splits(root)
    # Without splits it is for evaluation; otherwise only `test` may be missing.
    wanted = {"train", "valid", *present} if present else {"test"}
    splits = {
        name: load_levels(split_path(root, name), max_levels=most[name])
        for name in SPLITS
        if name in wanted
    }
    shape = largest([levels.shape for levels in splits.values()])
    return {name: levels.padded(shape) for name, levels in splits.items()}
