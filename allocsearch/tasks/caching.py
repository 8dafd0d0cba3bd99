"""Where tasks keep what they can make again."""

import os
import tempfile
from pathlib import Path


def cache_directory() -> Path:
    """Where caches are: ``$ALLOCSEARCH_CACHE_DIR``, or in the user's cache directory.

    That is ``$XDG_CACHE_HOME`` or ``~/.cache``, or for a user without a home the
    directory of temporary files.
    """
    own = os.environ.get("ALLOCSEARCH_CACHE_DIR")
    if own:
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    try:
        caches = Path(shared) if shared else Path.home() / ".cache"
    except RuntimeError:
        caches = Path(tempfile.gettempdir())
    return caches / "allocsearch"
