"""Experts, aggregations and tasks by name, from entry points, without importing them.

Built-ins are registered exactly as a stranger's package registers its own. An entry
point is imported only when a run asks for it, so a broken one hurts nobody else.
"""

import functools
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from allocsearch.errors import PluginError, unknown_name

GROUPS = {
    "expert": "allocsearch.experts",
    "aggregation": "allocsearch.aggregations",
    "task": "allocsearch.tasks",
}

ONLY_VARIABLE = "ALLOCSEARCH_PLUGINS_ONLY"
"""Distributions, separated by commas, whose entry points alone are looked at."""

_BUILT_IN = "allocsearch"

_only: ContextVar[tuple[str, ...] | None] = ContextVar("only", default=None)

_IN_PROCESS: dict[tuple[str, str], Any] = {}


@dataclass(frozen=True)
class Plugin:
    """One name that an installed distribution offers.

    Attributes:
        kind: "expert", "aggregation" or "task".
        name: how configs and the command line call it.
        value: where it lives, "package.module:attribute".
        distribution: the distribution that declares it.
        version: that distribution's version.
    """

    kind: str
    name: str
    value: str
    distribution: str
    version: str

    @property
    def origin(self) -> str:
        """``"distribution version"``, as results record it."""
        return f"{self.distribution} {self.version}".strip()


def plugins(kind: str) -> list[Plugin]:
    """Every offer of a kind, sorted by name; clashing names appear more than once."""
    here = [
        Plugin(kind, name, repr(target), "this process", "")
        for (k, name), target in _IN_PROCESS.items()
        if k == kind
    ]
    allowed = [plugin for plugin in _installed(kind) if _is_allowed(plugin)]
    return sorted([*allowed, *here], key=lambda p: (p.name, p.distribution))


def names(kind: str) -> list[str]:
    """Every name of a kind, sorted, nothing imported."""
    return sorted({plugin.name for plugin in plugins(kind)})


def find(kind: str, name: str) -> Plugin:
    """The one offer of this name.

    Raises:
        UnknownNameError: nobody offers it; the message names the nearest.
        PluginError: two distributions offer it, or one that was ruled out; the
            message names them.
    """
    offers = [plugin for plugin in plugins(kind) if plugin.name == name]
    left_out = [plugin for plugin in _installed(kind) if plugin.name == name]
    if left_out and not offers:
        raise PluginError(
            f"{kind} {name!r} is from {left_out[0].distribution}, which --plugins-only "
            f"({ONLY_VARIABLE}, plugins_only) leaves out"
        )
    if not offers:
        raise unknown_name(kind, name, names(kind))
    if len(offers) > 1:
        origins = " and ".join(plugin.distribution for plugin in offers)
        raise PluginError(
            f"{kind} {name!r} is claimed by {origins}: uninstall one of them"
        )
    return offers[0]


def load(kind: str, name: str) -> Any:
    """Import what a name stands for.

    Raises:
        UnknownNameError: nobody offers it.
        PluginError: it is claimed twice, or importing it fails; the message names
            the distribution and the original error.
    """
    plugin = find(kind, name)
    if (kind, name) in _IN_PROCESS:
        return _IN_PROCESS[kind, name]
    return _import(plugin)


def load_error(plugin: Plugin) -> str:
    """Why a plug-in cannot be imported, or an empty string."""
    if (plugin.kind, plugin.name) in _IN_PROCESS:
        return ""
    try:
        _import(plugin)
    except PluginError as error:
        return str(error)
    return ""


def register(kind: str, name: str, target: Any) -> Any:
    """Offer something to this process only, as a notebook or a script would.

    Other processes do not see it: a study that several workers share needs a package
    with an entry point.

    Raises:
        PluginError: the name is taken.
    """
    if name in names(kind):
        raise PluginError(
            f"{kind} {name!r} is already offered by {find(kind, name).distribution}: "
            "choose another name"
        )
    _IN_PROCESS[kind, name] = target
    return target


def unregister(kind: str, name: str) -> None:
    """Take back what `register` offered."""
    _IN_PROCESS.pop((kind, name), None)


@contextmanager
def limited_to(distributions: Sequence[str] | None) -> Iterator[None]:
    """While entered, only these distributions' entry points exist, and the built-in.

    The environment's limit holds beside this one. None is no limit.
    """
    token = _only.set(None if distributions is None else tuple(distributions))
    try:
        yield
    finally:
        _only.reset(token)


def check_limits() -> None:
    """Look at the limits themselves.

    Raises:
        UnknownNameError: they name a distribution that offers nothing.
    """
    known = {p.distribution for kind in GROUPS for p in _installed(kind)}
    for limit in _limits():
        for name in limit:
            if _canonical(name) not in map(_canonical, known):
                raise unknown_name("distribution with plug-ins", name, known)


def _is_allowed(plugin: Plugin) -> bool:
    own = _canonical(plugin.distribution)
    return own == _BUILT_IN or all(own in map(_canonical, limit) for limit in _limits())


def _limits() -> list[Sequence[str]]:
    given = os.environ.get(ONLY_VARIABLE)
    everywhere = None if given is None else [n for n in given.split(",") if n.strip()]
    return [limit for limit in (everywhere, _only.get()) if limit is not None]


def _canonical(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


@functools.cache
def _installed(kind: str) -> tuple[Plugin, ...]:
    # One distribution may be found twice, on two entries of sys.path.
    points = entry_points(group=GROUPS[kind])
    return tuple(dict.fromkeys(_describe(kind, point) for point in points))


def _describe(kind: str, point: EntryPoint) -> Plugin:
    dist = point.dist
    name, version = (dist.name, dist.version) if dist else ("unknown", "")
    return Plugin(kind, point.name, point.value, name, version)


@functools.cache
def _import(plugin: Plugin) -> Any:
    point = EntryPoint(plugin.name, plugin.value, GROUPS[plugin.kind])
    try:
        return point.load()
    except Exception as error:  # a stranger's import may raise anything
        raise PluginError(
            f"{plugin.kind} {plugin.name!r} from {plugin.origin} cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from error
