"""`allocsearch doctor`."""

import typer

from allocsearch.cli import options


def doctor(directory: options.Directory = None, as_json: options.Json = False) -> None:
    """Check this machine and installation.

    Exits with 1 if something is wrong that no run can do without.

    Examples:
        allocsearch doctor
        allocsearch doctor --directory /scratch/studies --json
    """
    from allocsearch.cli.checkup import checkup, checkup_table
    from allocsearch.cli.printing import show, show_json

    found = checkup(directory or options.DEFAULT_DIRECTORY)
    if as_json:
        show_json(found)
    else:
        show(checkup_table(found))
    raise typer.Exit(0 if found["ok"] else 1)
