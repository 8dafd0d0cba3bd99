"""`allocsearch table`."""

from typing import Annotated

import typer

from allocsearch.cli import options


def table(
    name: options.StudyName,
    select: Annotated[
        str,
        typer.Option(
            "--select",
            metavar="RULE",
            help="What makes a trial the best of its depth: objective, on validation "
            "data, or training, the same measured while training.",
        ),
    ] = "objective",
    directory: options.Directory = None,
    as_json: options.Json = False,
    as_csv: Annotated[
        bool,
        typer.Option("--csv", metavar="", help="Print CSV, and nothing else."),
    ] = False,
) -> None:
    """Tabulate the best allocation of every depth, with mean and sample variance.

    For each budget and arm, the trial selected at each depth: experts and width, mean
    and sample variance over seeds of the score (for sokoban the mean return of the
    last five evaluations), and the other metrics.

    Examples:
        allocsearch table sokoban-tiny
        allocsearch table sokoban-tiny --select training --csv
    """
    from allocsearch.analysis.by_depth import (
        by_depth_csv,
        by_depth_rows,
        by_depth_tables,
    )
    from allocsearch.cli.printing import show, show_json
    from allocsearch.errors import ConfigError
    from allocsearch.study import load_study

    if as_json and as_csv:
        raise ConfigError("--json and --csv are both given: choose one")
    study = load_study(name, directory or options.DEFAULT_DIRECTORY)
    rows = by_depth_rows(study.trials(), select)
    if as_json:
        show_json(rows)
    elif as_csv:
        typer.echo(by_depth_csv(rows), nl=False)
    else:
        show(by_depth_tables(rows))
