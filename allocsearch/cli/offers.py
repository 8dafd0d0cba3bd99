"""What installed distributions offer, and whether it loads."""

from rich.console import Group, RenderableType
from rich.text import Text

from allocsearch.analysis.fitted import Column, FittedTable
from allocsearch.analysis.formats import MISSING, plain
from allocsearch.analysis.rows import Row
from allocsearch.errors import PluginError
from allocsearch.registry import Plugin, find, load_error, plugins

KINDS = ("task", "expert", "aggregation")


def plugin_rows() -> list[Row]:
    """Every offer of every kind, with the error that a run asking for it would get."""
    return [
        {
            "kind": plugin.kind,
            "name": plugin.name,
            "distribution": plugin.distribution,
            "version": plugin.version,
            "entry_point": plugin.value,
            "error": _error(plugin),
        }
        for kind in KINDS
        for plugin in plugins(kind)
    ]


def _error(plugin: Plugin) -> str | None:
    try:
        find(plugin.kind, plugin.name)
    except PluginError as error:  # claimed twice
        return plain(str(error))
    return plain(load_error(plugin)) or None


def offers_table(rows: list[Row]) -> RenderableType:
    """The rows as a table, errors below it in full."""
    columns = [
        Column("kind", [row["kind"] for row in rows], "left"),
        Column("name", [plain(row["name"]) for row in rows], "left"),
        Column("distribution", [plain(row["distribution"]) for row in rows], "left"),
        Column("version", [plain(row["version"]) or MISSING for row in rows], "left"),
        Column("loads", [_loads(row) for row in rows], "left"),
    ]
    kinds = [row["kind"] for row in rows]
    breaks = [i for i in range(len(kinds) - 1) if kinds[i] != kinds[i + 1]]
    errors = dict.fromkeys(row["error"] for row in rows if row["error"])
    said = [Text(error, "red") for error in errors]
    return Group(FittedTable("Plug-ins", columns, breaks=breaks), *said)


def _loads(row: Row) -> Text:
    return Text("no", "red") if row["error"] else Text("yes")
