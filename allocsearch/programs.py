"""Compiled programs, which a process must let go of from time to time."""

import math
from pathlib import Path

import jax

_MAPPINGS = Path("/proc/self/maps")
_LIMIT = Path("/proc/sys/vm/max_map_count")


def release_programs(share: float = 0.5) -> bool:
    """Forget compiled programs where they hold much of what a process may map.

    Every program compiled for the CPU keeps some tens of memory mappings, of which
    Linux gives a process 65 530 (`vm.max_map_count`). At the limit the next compilation
    aborts the process: after some forty trials of a study, if nothing were done. What
    is still needed is compiled again, to the same program.

    Args:
        share: of the limit, above which programs are forgotten.

    Returns:
        Whether they were forgotten. Always where the system tells no count.
    """
    if _share_held() <= share:
        return False
    jax.clear_caches()
    return True


def _share_held() -> float:
    """Mappings of this process over those it may have; infinite where none can tell."""
    try:
        with _MAPPINGS.open("rb") as lines:
            return sum(1 for _ in lines) / int(_LIMIT.read_text())
    except (OSError, ValueError):
        return math.inf
