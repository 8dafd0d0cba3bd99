"""From flags to a config: each flag is shorthand for a field."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocsearch.errors import ConfigError

if TYPE_CHECKING:
    from allocsearch.config import StudyConfig

_SCALE = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}

# A flag's name here, and the field that it sets.
_FIELDS = {
    "task": "task.name",
    "data": "task.data",
    "budgets": "budgets",
    "recipe": "recipe",
    "experts": "experts",
    "arms": "arms",
    "seed": "seed",
    "name": "name",
    "n_trials": "search.n_trials",
    "timeout": "search.timeout",
    "max_cost": "search.max_cost",
    "mode": "search.mode",
    "horizon": "training.horizon",
    "n_seeds": "training.n_seeds",
    "learning_rate": "training.learning_rate",
    "directory": "output.directory",
    "storage": "output.storage",
    "executor": "execution.executor",
    "workers": "execution.n_workers",
    "gpus_per_trial": "execution.gpus_per_trial",
    "address": "execution.address",
}


@dataclass(frozen=True)
class Flags:
    """What was given on the command line; None or empty where it was not."""

    task: str | None = None
    data: str | None = None
    budgets: Sequence[str] | None = None
    recipe: str | None = None
    experts: Sequence[str] | None = None
    arms: Sequence[str] | None = None
    seed: int | None = None
    name: str | None = None
    n_trials: int | None = None
    timeout: str | None = None
    max_cost: float | None = None
    mode: str | None = None
    horizon: str | None = None
    n_seeds: int | None = None
    learning_rate: float | None = None
    directory: Path | None = None
    storage: str | None = None
    executor: str | None = None
    workers: int | None = None
    gpus_per_trial: float | None = None
    address: str | None = None

    def values(self) -> dict[str, Any]:
        """The flags that were given, nested as the config is."""
        nested: dict[str, Any] = {}
        for flag, value in asdict(self).items():
            if value is None or value == []:
                continue
            *sections, field = _FIELDS[flag].split(".")
            place = nested
            for section in sections:
                place = place.setdefault(section, {})
            place[field] = _plain(flag, value)
        return nested


def configure(
    flags: Flags,
    settings: Sequence[str] | None = None,
    path: Path | None = None,
) -> "StudyConfig":
    """A config from a file, flags over it, settings on top.

    Raises:
        ConfigError: a file cannot be read, or a field is wrong.
    """
    from allocsearch.config import load_config

    config = load_config(path, settings or (), flags.values())
    if "task" not in config.model_fields_set:
        raise ConfigError("nothing says what to train: give --task, or `task:` in YAML")
    return config


def change(config: "StudyConfig", flags: Flags) -> "StudyConfig":
    """The config of a study that was begun, with flags over it.

    Raises:
        ConfigError: a field is wrong.
    """
    from allocsearch.config import StudyConfig
    from allocsearch.parsing import merge, parse

    return parse(StudyConfig, merge(config.given(), flags.values()))


def _plain(flag: str, value: Any) -> Any:
    if flag == "horizon":
        return parse_count(value)
    if flag == "timeout":
        return parse_seconds(value)
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, list | tuple) else value


def parse_count(text: str, what: str = "horizon") -> int:
    """``"50M"`` as 50 000 000.

    Args:
        text: what a user wrote.
        what: what it counts, for the error.

    Raises:
        ConfigError: not a positive whole number.
    """
    match = re.fullmatch(r"\s*(\d[\d_]*(?:\.\d+)?)\s*([kKmMgGbB]?)\s*", text)
    number = float(match[1].replace("_", "")) * _SCALE[match[2].lower()] if match else 0
    if number < 1 or number != int(number):
        raise ConfigError(
            f"{what} {text!r} is not a positive whole number such as 200000 or 50M"
        )
    return int(number)


def parse_seconds(text: str) -> float:
    """``"90m"`` as 5 400 seconds; a bare number is seconds.

    Raises:
        ConfigError: not a positive number with a unit of s, m, h or d.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", text, re.IGNORECASE)
    seconds = float(match[1]) * _SECONDS[match[2].lower()] if match else 0.0
    if seconds <= 0:
        raise ConfigError(
            f"time {text!r} cannot be read: give a positive number of seconds, or one "
            "with a unit as in 90m, 12h or 2d"
        )
    return seconds
