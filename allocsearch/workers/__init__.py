"""Where trials are trained: one small interface, and a file for each way."""

import importlib
from typing import Any

from allocsearch.config import ExecutionConfig
from allocsearch.study import Study
from allocsearch.workers.base import Executor, Listener

_HOME = {
    "inline": "allocsearch.workers.inline",
    "local": "allocsearch.workers.local",
    "ray": "allocsearch.workers.ray",
}
_CLASSES = {"inline": "Inline", "local": "Local", "ray": "Ray"}


def make_executor(
    study: Study, listener: Listener, execution: ExecutionConfig | None = None
) -> Executor:
    """The executor that a study's config asks for.

    Args:
        study: whose trials are trained.
        listener: told of progress.
        execution: in place of the config's.

    Raises:
        ConfigError: it needs a package that is not installed, or cannot do as asked.
        StudyError: the cluster cannot be reached.
    """
    execution = execution or study.config.execution
    # Each on its own, as Ray takes seconds to import.
    name = execution.executor
    kind: Any = getattr(importlib.import_module(_HOME[name]), _CLASSES[name])
    return kind(study, listener, execution)
