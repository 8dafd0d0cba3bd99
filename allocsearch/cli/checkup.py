"""What `doctor` looks at: versions, device, speed, database, plug-ins and disk."""

import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from allocsearch.analysis.formats import format_bytes, plain
from allocsearch.cli.machine import matmul_flops_per_second
from allocsearch.cli.offers import plugin_rows
from allocsearch.errors import StudyError
from allocsearch.manifest import describe_environment
from allocsearch.search import list_studies
from allocsearch.work import format_flops

Found = dict[str, Any]


def checkup(directory: Path) -> Found:
    """Everything, JSON-ready; ``"ok"`` is whether a run can work here.

    Args:
        directory: where studies would be kept.
    """
    folder = _existing(directory)
    writable = os.access(folder, os.W_OK)
    sqlite = _sqlite_error()
    return {
        "ok": writable and not sqlite,
        "environment": describe_environment(),
        "matmul_gflops_per_second": matmul_flops_per_second() / 1e9,
        "sqlite": {"version": sqlite3.sqlite_version, "error": sqlite},
        "plugins": plugin_rows(),
        "directory": {
            "path": str(directory.absolute()),
            "writable": writable,
            "free_bytes": shutil.disk_usage(folder).free,
        },
    }


def _existing(path: Path) -> Path:
    path = path.absolute()
    return next(p for p in (path, *path.parents) if p.exists())


def _sqlite_error() -> str:
    """Why a database of trials cannot be made and read, or an empty string."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            from allocsearch.search.storage import open_storage

            url = f"sqlite:///{folder}/study.db"
            open_storage(url, create=True).engine.dispose()
            list_studies(url)
        except (StudyError, OSError) as error:
            return str(error)
    return ""


def checkup_table(found: Found) -> RenderableType:
    """The findings as lines with a mark each."""
    environment, disk = found["environment"], found["directory"]
    packages = ", ".join(f"{k} {v}" for k, v in environment["packages"].items())
    broken = [row for row in found["plugins"] if row["error"]]
    writable = "writable" if disk["writable"] else "not writable"
    lines = [
        (
            True,
            "allocsearch",
            f"{environment['allocsearch']} {environment['commit'][:9]}",
        ),
        (True, "python", environment["python"]),
        (True, "packages", packages),
        (True, "device", f"{environment['n_devices']} × {environment['device']}"),
        (True, "processor", environment["cpu"]),
        (True, "visible cores", str(environment["visible_cores"])),
        (True, "matmul", f"{format_flops(found['matmul_gflops_per_second'] * 1e9)}/s"),
        (not found["sqlite"]["error"], "SQLite", found["sqlite"]["version"]),
        (not broken, "plug-ins", f"{len(found['plugins'])}, {len(broken)} broken"),
        (disk["writable"], "studies", f"{disk['path']} {writable}"),
        (True, "free disk", format_bytes(disk["free_bytes"])),
    ]
    table = Table.grid(padding=(0, 2))
    for fine, name, value in lines:
        mark = Text("✓", "green") if fine else Text("✗", "red")
        table.add_row(mark, Text(name, "dim"), Text(plain(value)))
    errors = [found["sqlite"]["error"], *(row["error"] for row in broken)]
    return Group(table, *(Text(e, "red") for e in dict.fromkeys(filter(None, errors))))
