"""What a result depends on beside its config: versions, device, cores, commit."""

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from allocsearch.version import __version__

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "optuna", "numpy")


def describe_environment() -> dict[str, Any]:
    """Versions, device and cores, JSON-ready. Starts JAX."""
    import jax

    device = jax.devices()[0]
    return {
        "allocsearch": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "platform": device.platform,
        "device": device.device_kind,
        "n_devices": jax.device_count(),
        "cpu": _cpu_model(),
        "visible_cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
    }


def first_difference(old: Any, new: Any, where: str) -> str:
    """Where two JSON values differ first, in words; empty when they do not.

    Args:
        old: what was stored.
        new: what is given now.
        where: path of the values, for the words.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*old, *(k for k in new if k not in old)]:
            if key not in old or key not in new:
                return f"{where}.{key} is {'new' if key not in old else 'gone'}"
            found = first_difference(old[key], new[key], f"{where}.{key}")
            if found:
                return found
        return ""
    return "" if old == new else f"{where} was {old!r}, now {new!r}"


def _commit() -> str:
    """The commit of the checkout this package runs from; empty when installed."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return ""
    try:
        found = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor()
