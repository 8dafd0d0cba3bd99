"""`allocsearch evaluate`."""

from typing import Annotated

import typer

from allocsearch.cli import options


def evaluate(
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT", help="A checkpoint's folder, or a study's name."
        ),
    ],
    trial: Annotated[
        str | None,
        typer.Argument(metavar="TRIAL", help="Of a study, as `show` takes it."),
    ] = None,
    split: Annotated[
        str,
        typer.Option(
            "--split", metavar="SPLIT", help="valid, or test for what is final."
        ),
    ] = "valid",
    task: options.Task = None,
    data: options.Data = None,
    set_: options.Settings = None,
    directory: options.Directory = None,
    as_json: options.Json = False,
) -> None:
    """Score trained networks on held-out data.

    A checkpoint knows its task; flags override it, as to score on other data.

    Examples:
        allocsearch evaluate sokoban-tiny recurrent/best --split test
        allocsearch evaluate trained/sokoban --data boxoban/medium --json
    """
    from allocsearch.cli.flags import Flags
    from allocsearch.cli.scoring import locate, print_scores

    where = directory or options.DEFAULT_DIRECTORY
    path = locate(checkpoint, trial, where)
    print_scores(path, split, Flags(task=task, data=data), set_ or (), as_json)
