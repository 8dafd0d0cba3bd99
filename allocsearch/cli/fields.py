"""Every field of a config with its value and meaning, as YAML with comments."""

import inspect
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from allocsearch.analysis.formats import plain
from allocsearch.cli.printing import note, show_json, stdout
from allocsearch.config import StudyConfig
from allocsearch.plan import DEFAULT_N_TRIALS
from allocsearch.search.storage import without_password
from allocsearch.tasks.resolve import Setting, resolve

_WIDTH = 88


def print_fields(config: StudyConfig, as_json: bool) -> None:
    """Print a config as it is resolved for its first budget."""
    if len(config.budgets) > 1:
        note(f"values are those of budget {next(iter(config.budgets))}, the first")
    setting = resolve(config, next(iter(config.budgets)))
    values = resolved_values(config, setting)
    if as_json:
        show_json(values)
        return
    for line in yaml_lines(StudyConfig, values, type(setting.task).Config):
        stdout().out(line, highlight=False)


def resolved_values(config: StudyConfig, setting: Setting) -> dict[str, Any]:
    """Every field as the budget fills it in, JSON-ready; a valid config."""
    search = setting.search.model_dump(mode="json")
    space = setting.space.model_dump(mode="json")
    output = config.output.model_dump(mode="json")
    if config.output.storage is not None:
        output["storage"] = without_password(config.output.storage)
    bound = {"tolerance": setting.budget.tolerance, "granule": setting.budget.granule}
    return {
        **config.model_dump(mode="json"),
        "output": output,
        "task": setting.task_config,
        "experts": [expert.model_dump(mode="json") for expert in setting.experts],
        "space": {**space, **bound},
        "search": {**search, "n_trials": search["n_trials"] or DEFAULT_N_TRIALS},
        "training": setting.training.model_dump(mode="json"),
    }


def yaml_lines(
    model: type[BaseModel],
    values: Mapping[str, Any],
    task: type[BaseModel] | None = None,
    indent: int = 0,
) -> Iterator[str]:
    """YAML of a section's values, each below a comment that says what it is.

    Args:
        model: the section, for descriptions.
        values: a value for every field.
        task: the section of the task's own fields, at the top level.
        indent: columns before each line.
    """
    space = " " * indent
    for name, value in values.items():
        field = model.model_fields.get(name)
        section = task if task and name == "task" else _section(field)
        told = (field.description if field else None) or _first_line(section)
        for line in textwrap.wrap(plain(told), _WIDTH - indent - 2):
            yield f"{space}# {line}"
        if section is not None and isinstance(value, Mapping):
            yield f"{space}{name}:"
            yield from yaml_lines(section, value, indent=indent + 2)
        else:
            yield from textwrap.indent(_yaml(name, value), space).splitlines()
        if indent == 0:
            yield ""


def _yaml(name: str, value: Any) -> str:
    nested = isinstance(value, list) and any(isinstance(v, Mapping) for v in value)
    if nested or not isinstance(value, list | Mapping):
        return yaml.safe_dump(
            {name: value}, default_flow_style=None if nested else False
        )
    return f"{name}: {yaml.safe_dump(value, default_flow_style=True, width=10**6)}"


def _section(field: Any) -> type[BaseModel] | None:
    kind = field.annotation if field else None
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _first_line(section: type[BaseModel] | None) -> str:
    return (inspect.getdoc(section) or "").partition("\n")[0] if section else ""
