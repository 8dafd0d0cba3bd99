"""Tokens a second from text to shards, and from shards to windows for training.

Text to shards is compared with the tokenizer alone, called in a loop on the same
documents in memory. Windows are read from shards on disk that are in the page cache.

    python benchmarks/fineweb_data.py --data texts --tokenizer gpt2
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allocsearch.tasks.fineweb.builtin_text import stories
from allocsearch.tasks.fineweb.corpus import load_corpora
from allocsearch.tasks.fineweb.ingestion import ingest
from allocsearch.tasks.fineweb.preparation import local_sections
from allocsearch.tasks.fineweb.slots import SlotStream
from allocsearch.tasks.fineweb.tokenization import load_tokenizer

N_REPEATS = 5
N_STORIES = 20


def timed(what: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = what()
    return time.perf_counter() - start, result


def write_stories(folder: Path) -> Path:
    """The built-in text many times over, as files to tokenise."""
    for name, split, times in (("train", "train", N_STORIES), ("val", "valid", 1)):
        text = "\n<|endoftext|>\n".join(stories(split) * times)
        (folder / f"{name}.txt").write_text(text)
    return folder


def ingestion(data: Path, name: str, n_processes: int, scratch: Path) -> dict:
    """Tokens a second into shards, and of the tokenizer alone."""
    tokenizer = load_tokenizer(name)
    sections = local_sections(data)
    texts = [piece.text for section in sections for piece in section.source.open()]
    found = {}
    alone, counts = timed(lambda: [len(tokenizer.encode(text)) for text in texts])
    n_tokens = sum(counts) + len(texts)
    found["documents"] = len(texts)
    found["M tokens"] = n_tokens / 1e6
    found["tokenizer alone, M tokens/s"] = n_tokens / alone / 1e6
    for n in sorted({1, n_processes}):
        folder = scratch / f"by-{n}"
        seconds, _ = timed(
            lambda n=n, folder=folder: ingest(sections, tokenizer, folder, processes=n)
        )
        rate = n_tokens / seconds
        found[f"to shards, {n} processes, M tokens/s"] = rate / 1e6
        found[f"to shards, {n} processes, of the tokenizer"] = rate / n_tokens * alone
    return found


def windows(folder: Path, n_slots: int, window: int) -> dict[str, float]:
    """Tokens a second as windows."""
    corpora = load_corpora(str(folder), None, n_valid=1, n_test=1)
    stream = SlotStream(corpora["train"], n_slots, window)
    n_updates = min(stream.n_windows, 2000)

    def read() -> None:
        for position in range(n_updates):
            stream.windows(position, 1)

    n_tokens = n_updates * n_slots * window
    best = min(timed(read)[0] for _ in range(N_REPEATS))
    return {
        f"windows {n_slots}x{window}, M tokens/s": n_tokens / best / 1e6,
        f"windows {n_slots}x{window}, microseconds each": best / n_updates * 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="text; the built-in one if left out")
    parser.add_argument("--tokenizer", default="gpt2")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        os.environ["ALLOCSEARCH_CACHE_DIR"] = str(scratch / "cache")
        (scratch / "texts").mkdir()
        data = options.data or write_stories(scratch / "texts")
        found = ingestion(data, options.tokenizer, options.processes, scratch)
        for n_slots, window in ((8, 64), (8, 256), (64, 512)):
            found |= windows(scratch / "by-1", n_slots, window)
    for label, value in found.items():
        print(f"{label:<44}{value:>12,.2f}")


if __name__ == "__main__":
    main()
