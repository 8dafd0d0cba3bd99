"""A flag that XLA needs before its first use in a process."""

import os
from importlib import metadata

_YNNPACK = "--xla_cpu_experimental_ynn_fusion_type"
_SAFE = "LIBRARY_FUSION_TYPE_DOT"


def avoid_ynnpack_reductions() -> None:
    """Keep jaxlib 0.10 from computing more than matrix products with YNNPACK on CPUs.

    Its reductions there read outside their buffers at some small shapes and end the
    process with SIGSEGV (seen in training a non-recurrent `conv_lstm` of L 8, E 2,
    d 6, at every try with reductions, at none with products alone, which are faster
    than XLA's own); jaxlib 0.11.2 and 0.12.0 do not. Has no effect once a backend is
    in use, and leaves the flag alone where `XLA_FLAGS` already has it.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if _YNNPACK not in flags and _jaxlib_version().startswith("0.10."):
        os.environ["XLA_FLAGS"] = f"{flags} {_YNNPACK}={_SAFE}".strip()


def _jaxlib_version() -> str:
    try:
        return metadata.version("jaxlib")
    except metadata.PackageNotFoundError:
        return ""
