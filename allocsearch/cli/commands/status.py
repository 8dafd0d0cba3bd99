"""`allocsearch status`."""

from pathlib import Path
from typing import Annotated

import typer

from allocsearch.cli import options


def status(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A study; all of them if left out."),
    ] = None,
    directory: options.Directory = None,
    as_json: options.Json = False,
) -> None:
    """Say how far a study is, or every study of a directory.

    Examples:
        allocsearch status
        allocsearch status sokoban-tiny --json
    """
    from allocsearch.cli.standing import print_all, print_one

    where = directory or options.DEFAULT_DIRECTORY
    if name is None:
        print_all(Path(where), as_json)
    else:
        print_one(name, Path(where), as_json)
