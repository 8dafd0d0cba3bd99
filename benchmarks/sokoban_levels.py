"""Seconds to pack and to reload a tree of Boxoban's size, and bytes a level.

Writes 900 files of 1000 generated four-box 10x10 levels in Boxoban's form (drawn with
repetition, as parsing does not mind), then times, each once: reading all text and
leaving a pack, reloading from the pack, copying to the device, and the whole of what
`allocsearch data` does, duplicates up to rotation and reflection included.

    python benchmarks/sokoban_levels.py --n-files 900
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from allocsearch.tasks.sokoban.environment import Levels
from allocsearch.tasks.sokoban.generator import generate_levels
from allocsearch.tasks.sokoban.inspection import inspect_levels
from allocsearch.tasks.sokoban.level_packs import load_levels

LEVELS_PER_FILE = 1000
N_DISTINCT = 10_000
CHARACTERS = np.zeros(16, np.uint8)
CHARACTERS[[0, 1, 2, 4, 6, 8, 10]] = np.frombuffer(b" #.$*@+", np.uint8)


def write_tree(folder: Path, n_files: int) -> int:
    """Write files in Boxoban's form; returns their bytes."""
    levels = generate_levels(N_DISTINCT, interior=(8, 8), n_boxes=4, seed=0)
    rows = np.full((N_DISTINCT, 10, 11), ord("\n"), np.uint8)
    rows[:, :, :10] = CHARACTERS[levels.codes_with_player()]
    texts = [board.tobytes().decode() for board in rows]
    generator = np.random.default_rng(0)
    n_bytes = 0
    for index in range(n_files):
        drawn = generator.integers(N_DISTINCT, size=LEVELS_PER_FILE)
        blocks = (f"; {i}\n{texts[level]}\n" for i, level in enumerate(drawn))
        n_bytes += (folder / f"{index:03}.txt").write_text("".join(blocks))
    return n_bytes


def timed(what: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = what()
    return time.perf_counter() - start, result


def measure(n_files: int) -> dict[str, float]:
    """Figures by name; times in seconds."""
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ALLOCSEARCH_CACHE_DIR"] = f"{scratch}/cache"
        folder = Path(scratch, "train")
        folder.mkdir()
        n_bytes = write_tree(folder, n_files)
        packing, levels = timed(lambda: load_levels(folder, min_bytes=0))
        digest = levels.digest()
        reloading, levels = timed(lambda: load_levels(folder))
        if levels.digest() != digest:
            raise RuntimeError("the pack holds other levels than the files")
        copying, on_device = timed(
            lambda: jax.block_until_ready(Levels.from_level_set(levels))
        )
        (pack,) = Path(scratch, "cache", "levels").iterdir()
        pack_bytes = pack.stat().st_size
        inspecting, _ = timed(lambda: inspect_levels(folder))
    return {
        "levels": len(levels),
        "text, MB": n_bytes / 1e6,
        "pack, MB": pack_bytes / 1e6,
        "pack, bytes a level": pack_bytes / len(levels),
        "on the device, MB": sum(x.nbytes for x in jax.tree.leaves(on_device)) / 1e6,
        "read and pack, s": packing,
        "reload, s": reloading,
        "copy to the device, s": copying,
        "allocsearch data, s": inspecting,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n-files", type=int, default=900)
    for name, value in measure(parser.parse_args().n_files).items():
        print(f"{name:<24}{value:>12,.2f}")


if __name__ == "__main__":
    main()
