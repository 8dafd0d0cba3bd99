"""Which cores and which GPUs each worker process of a machine gets."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from allocsearch.errors import ConfigError

_PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_USED_FRACTION = 0.9


def available_cores() -> list[int]:
    """Numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def share_of_cores(
    worker: int, n_workers: int, cores: Sequence[int], per_worker: float | None = None
) -> list[int]:
    """The cores of one worker, apart from the others' while there are enough.

    Args:
        worker: from 0.
        n_workers: how many there are.
        cores: numbers of the cores that this process may use.
        per_worker: how many each gets; an equal share if None.
    """
    n_each = max(1, int(per_worker or len(cores) / n_workers))
    first = worker * n_each
    return sorted({cores[(first + i) % len(cores)] for i in range(n_each)})


def share_of_gpus(
    worker: int, n_workers: int, gpus: Sequence[str], per_worker: float | None = None
) -> tuple[list[str], float | None]:
    """The GPUs of one worker, in turn, and how much of their memory it may take.

    Args:
        worker: from 0.
        n_workers: how many there are.
        gpus: names of the GPUs that this process may use.
        per_worker: how many each gets; below 1 they share; one each if None.

    Returns:
        The GPUs, and a fraction of their memory, None where they are not shared.

    Raises:
        ConfigError: there are fewer than one worker is to get.
    """
    wanted = 1 if per_worker is None else per_worker
    if per_worker is not None and per_worker > len(gpus):
        raise ConfigError(
            f"execution.gpus_per_trial is {per_worker:g}, but there are {len(gpus)} "
            "GPUs here"
        )
    if not gpus or wanted == 0:
        return [], None
    n_each = max(1, int(wanted))
    mine = [gpus[(worker * n_each + i) % len(gpus)] for i in range(n_each)]
    n_sharing = -(-n_workers * n_each // len(gpus))
    return mine, _USED_FRACTION / n_sharing if n_sharing > 1 else None


def visible_gpus(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    given = environment.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip()]
    found = Path("/proc/driver/nvidia/gpus")
    return [str(i) for i, _ in enumerate(found.iterdir())] if found.is_dir() else []


def environment_of(
    worker: int, n_workers: int, gpus_per_worker: float | None
) -> dict[str, str]:
    """The environment that a worker process starts with.

    Raises:
        ConfigError: as `share_of_gpus`.
    """
    environment = dict(os.environ)
    if environment.pop(_SPARED, None):
        environment.pop(_PREALLOCATE, None)
    gpus = visible_gpus()
    mine, fraction = share_of_gpus(worker, n_workers, gpus, gpus_per_worker)
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(mine)
    if fraction is not None:
        environment.setdefault(_FRACTION, f"{fraction:.3f}")
    return environment


_SPARED = "ALLOCSEARCH_SPARED_GPUS"


def spare_gpus() -> None:
    """Keep this process from taking the GPU memory that its workers will need.

    JAX takes most of it when it is first used; so this must come before.
    """
    if _PREALLOCATE not in os.environ:
        os.environ[_PREALLOCATE] = "false"
        os.environ[_SPARED] = "1"
