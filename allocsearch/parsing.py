"""From YAML and ``section.field=value`` to typed values, with one sentence if wrong."""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from allocsearch.allocation import Scalar
from allocsearch.errors import ConfigError, redacted
from allocsearch.safe_yaml import safe_yaml

Count = Annotated[int, Field(ge=1)]


_MOST_SHOWN = 200


class Section(BaseModel):
    """A frozen group of fields that refuses unknown ones."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


def parse(model: type[Section], values: Mapping[str, Any], where: str = "") -> Any:
    """Validate values against a section.

    Args:
        model: the section's class.
        values: what the user gave.
        where: path of the section, for messages.

    Returns:
        An instance of `model`.

    Raises:
        ConfigError: one sentence with the path, what was wrong and the nearest name.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        problems = error.errors()
        more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
        sentence = redacted(_sentence(model, problems[0], where))
        raise ConfigError(sentence + more) from None


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings laid over each other; later ones win."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            old = merged.get(key)
            if isinstance(old, Mapping) and isinstance(value, Mapping):
                value = merge(old, value)
            merged[key] = value
    return merged


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A mapping from a YAML file, read safely.

    Raises:
        ConfigError: missing, unreadable, not YAML or not a mapping.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"config {path} is not UTF-8 text") from error
    except OSError as error:
        raise ConfigError(f"config {path} cannot be read: {error.strerror}") from error
    try:
        values = safe_yaml(text)
    except ValueError as error:
        where = getattr(error.__cause__, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise ConfigError(f"config {path} is not valid YAML{line}") from error
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(k, str) for k in values):
        raise ConfigError(f"config {path} must be a mapping of names to values")
    return values


def parse_setting(setting: str) -> dict[str, Any]:
    """``"a.b=1"`` as ``{"a": {"b": 1}}``.

    Raises:
        ConfigError: no "=", an empty name, or a value that is not YAML.
    """
    path, equals, text = setting.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(
            f"setting {_shown(setting)} is not of the form section.field=value"
        )
    value = _read_scalar(setting, text)
    for key in reversed(keys):
        value = {key: value}
    return value


def _read_scalar(setting: str, text: str) -> Any:
    try:
        value = safe_yaml(text)
    except ValueError as error:
        raise ConfigError(
            f"the value in {_shown(setting)} is not valid YAML"
        ) from error
    if isinstance(value, str):  # YAML 1.1 reads 3e-4 as text
        try:
            return float(value) if any(c in value for c in "eE") else value
        except ValueError:
            return value
    return value


def _sentence(model: type[BaseModel], problem: Any, where: str) -> str:
    location = [str(part) for part in problem["loc"]]
    path = ".".join(location)
    prefix = f"{where}: " if where else ""
    if problem["type"] == "extra_forbidden":
        names = _field_names(model, problem["loc"][:-1])
        near = difflib.get_close_matches(location[-1], names, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        listing = ", ".join(sorted(names))
        return f"{prefix}unknown field {path!r}: {hint}Known: {listing}."
    message = problem["msg"].removeprefix("Value error, ")
    given = problem.get("input")
    shown = f" (got {_shown(given)})" if isinstance(given, Scalar) else ""
    return f"{prefix}field {path!r}: {message[:1].lower()}{message[1:]}{shown}"


def _shown(value: Scalar) -> str:
    text = redacted(repr(value))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _field_names(model: type[BaseModel], path: Sequence[Any]) -> list[str]:
    for part in path:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(str(part))
        inner = _model_within(field.annotation) if field else None
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _model_within(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _model_within(argument)
        if found is not None:
            return found
    return None
