"""YAML as plain values and nothing else."""

from collections.abc import Mapping
from typing import Any

import yaml

_MOST_VALUES = 100_000
_DEEPEST = 100


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which takes for ever over text that nests deeply."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise yaml.YAMLError(f"nested more than {_DEEPEST} deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def safe_yaml(text: str) -> Any:
    """YAML's plain values: no objects, and no aliases that unfold without end.

    Raises:
        ValueError: the text is not such; its cause is PyYAML's error, if it has one.
    """
    try:
        loader = _Loader(text)
        value = loader.get_single_data()
    except Exception as error:  # PyYAML's constructors raise anything at odd tags
        raise ValueError("not valid YAML") from error
    waiting, n_values = [value], 0
    while waiting:
        one = waiting.pop()
        n_values += 1
        if n_values > _MOST_VALUES:
            raise ValueError(f"more than {_MOST_VALUES} values, aliases unfolded")
        if isinstance(one, Mapping):
            waiting += one.values()
        elif isinstance(one, list | tuple | set):
            waiting += one
    return value
