"""What files hold that a task may train on, as a table and sentences."""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rich.status import Status

from allocsearch.analysis.cells import words
from allocsearch.analysis.fitted import Column, FittedTable
from allocsearch.analysis.formats import plain
from allocsearch.cli.printing import note, show, show_json, stderr, stdout
from allocsearch.errors import DataError
from allocsearch.registry import load
from allocsearch.tasks.records import DataOptions, DataReport

_MOST_PROBLEMS = 20
_MOST_VALUES = 4
_SECONDS = 30.0


def print_report(task: str, path: Path, as_json: bool) -> None:
    """Inspect files for a task and print what was found.

    Args:
        task: an installed task.
        path: a file or directory.
        as_json: whether stdout is to be JSON.

    Raises:
        UnknownNameError, PluginError: no such task.
        ConfigError: the task reads no files.
        DataError: there is nothing to read, or something is broken; what was found is
            printed first.
    """
    kind = load("task", task)
    with stderr().status(f"reading {plain(str(path))}"):
        report: DataReport = kind.inspect_data(path)
    _print(task, path, report, as_json)


def print_prepared(
    task: str, path: Path | None, options: DataOptions, as_json: bool
) -> None:
    """Have a task make its files, and print what was made.

    Args:
        task: an installed task.
        path: what to make them from; None for what the options name.
        options: how.
        as_json: whether stdout is to be JSON.

    Raises:
        UnknownNameError, PluginError: no such task.
        ConfigError: the task makes no files, or not with these options.
        DataError: something cannot be read or written.
    """
    kind = load("task", task)
    with stderr().status("starting") as shown:
        report: DataReport = kind.prepare_data(
            path, options, status=partial(_tell, shown, [0.0]), note=note
        )
    _print(task, path or options.out or Path(task), report, as_json)


def _tell(shown: Status, last: list[float], line: str) -> None:
    """Renew a line in a terminal; where there is none, write one now and then."""
    shown.update(plain(line))
    if not shown.console.is_terminal and time.monotonic() - last[0] > _SECONDS:
        last[0] = time.monotonic()
        note(line)


def _print(task: str, path: Path, report: DataReport, as_json: bool) -> None:
    if as_json:
        show_json(
            {
                "task": task,
                "path": str(path),
                "parts": report.parts,
                "notes": report.notes,
                "problems": report.problems,
                **report.details,
            }
        )
    else:
        show(report_table(path, report))
        for line in listed(report.problems):
            stdout().out(plain(line), highlight=False)
    if report.problems:
        n = len(report.problems)
        raise DataError(f"{path}: {n} problem{'s' if n > 1 else ''}, listed above")


def report_table(path: Path, report: DataReport) -> FittedTable:
    """A row for each part of the data."""
    names = list(dict.fromkeys(name for part in report.parts.values() for name in part))
    columns = [Column("part", [plain(name) for name in report.parts], "left")]
    columns += [
        Column(words(name), [_cell(part, name) for part in report.parts.values()])
        for name in names
    ]
    return FittedTable(
        plain(str(path)), columns, [plain(note) for note in report.notes]
    )


def listed(problems: tuple[str, ...]) -> list[str]:
    """The first problems, and how many more there are."""
    rest = len(problems) - _MOST_PROBLEMS
    more = [f"and {rest} more (--json has all)"] if rest > 0 else []
    return [*problems[:_MOST_PROBLEMS], *more]


def _cell(part: Mapping[str, Any], name: str) -> str:
    value = part.get(name, "")
    if not isinstance(value, list | tuple):
        return (
            f"{value:,}".replace(",", " ") if isinstance(value, int) else plain(value)
        )
    if len(value) > _MOST_VALUES:
        return f"{value[0]} to {value[-1]}"
    return plain(", ".join(map(str, value)))
