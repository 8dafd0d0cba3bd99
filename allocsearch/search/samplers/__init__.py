"""The samplers, by name: one file each."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from allocsearch.errors import ConfigError, unknown_name
from allocsearch.search.samplers.auto import AutoSampler
from allocsearch.search.samplers.base import Request, Sampler
from allocsearch.search.samplers.gp import GPSampler
from allocsearch.search.samplers.grid import GridSampler
from allocsearch.search.samplers.nsga2 import NSGA2Sampler
from allocsearch.search.samplers.random import RandomSampler
from allocsearch.search.samplers.stratified import StratifiedSampler
from allocsearch.search.samplers.tpe import TPESampler

SAMPLERS: dict[str, type] = {
    "auto": AutoSampler,
    "gp": GPSampler,
    "grid": GridSampler,
    "nsga2": NSGA2Sampler,
    "random": RandomSampler,
    "stratified": StratifiedSampler,
    "tpe": TPESampler,
}

__all__ = ["SAMPLERS", "Request", "Sampler", "make_sampler"]


def make_sampler(name: str, options: Mapping[str, Any] | None = None) -> Sampler:
    """The sampler called `name`.

    Args:
        name: a key of `SAMPLERS`.
        options: values for the fields of that sampler's class.

    Raises:
        UnknownNameError: no sampler, or no option of it, has that name.
        ConfigError: an option has the wrong type.
    """
    if name not in SAMPLERS:
        raise unknown_name("sampler", name, SAMPLERS)
    cls = SAMPLERS[name]
    known = {field.name: field.type for field in fields(cls)}
    for option, value in (options or {}).items():
        if option not in known:
            raise unknown_name(f"option of sampler {name!r}", option, known)
        if type(value) is not known[option]:
            wanted = getattr(known[option], "__name__", known[option])
            raise ConfigError(
                f"option {option!r} of sampler {name!r} is {value!r}; it must be of "
                f"type {wanted}."
            )
    return cls(**(options or {}))
