"""`allocsearch data`."""

from pathlib import Path
from typing import Annotated

import typer

from allocsearch.cli import options


def data(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK", help="Which task reads them.", show_default=False
        ),
    ],
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="A file or directory.", show_default=False),
    ],
    as_json: options.Json = False,
) -> None:
    """Check and count the files that a task is to train on.

    Every broken rule is listed with file and line, and so is every saved solution that
    does not solve its level; duplicates within and across splits are counted, and what
    loads faster next time is prepared. Exits with 2 if anything is broken.

    Examples:
        allocsearch data sokoban boxoban-levels/unfiltered
        allocsearch data sokoban microban.xsb --json
    """
    from allocsearch.cli.inspecting import print_report

    print_report(task, path, as_json)
