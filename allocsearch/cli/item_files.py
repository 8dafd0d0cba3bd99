"""Files of what each item of a split scored, one row per seed and item."""

import contextlib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from allocsearch.errors import ConfigError

SUFFIXES = (".parquet", ".csv")


def check_item_file(path: Path) -> None:
    """Refuse a name that nothing could be written under.

    Raises:
        ConfigError: the suffix is unknown, or its format needs an extra.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError(
            f"{path} has no suffix that says how to write it: end its name in "
            f"{' or '.join(SUFFIXES)}"
        )
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(
            f"writing {path} needs pyarrow, which is missing: "
            "pip install 'allocsearch[parquet]', or end the name in .csv"
        )


def write_items(
    path: Path, seeds: Sequence[int], items: Sequence[Mapping[str, np.ndarray]]
) -> None:
    """Write a table whose first column is the seed; a file that is there is replaced.

    Args:
        path: accepted by `check_item_file`.
        seeds: one per network.
        items: of each network, columns of equal length.

    Raises:
        ConfigError: the place cannot be written.
    """
    import pandas as pd

    frames = [
        pd.DataFrame({"seed": seed, **columns})
        for seed, columns in zip(seeds, items, strict=True)
    ]
    frame = pd.concat(frames, ignore_index=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            frame.to_parquet(fresh, engine="pyarrow", index=False)
        else:
            frame.to_csv(fresh, index=False)
        fresh.replace(path)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()
