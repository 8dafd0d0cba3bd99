"""`allocsearch evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from allocsearch.cli import options


def evaluate(
    checkpoint: options.Checkpoint,
    trial: options.TrialOfStudy = None,
    split: Annotated[
        str,
        typer.Option(
            "--split", metavar="SPLIT", help="valid, or test for what is final."
        ),
    ] = "valid",
    task: options.Task = None,
    data: options.Data = None,
    set_: options.Settings = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="What each item scored, such as a level: .parquet or .csv.",
        ),
    ] = None,
    directory: options.Directory = None,
    as_json: options.Json = False,
) -> None:
    """Score trained networks on held-out data.

    A checkpoint knows its task; flags override it, as to score on other data.

    Examples:
        allocsearch evaluate sokoban-tiny recurrent/best --split test
        allocsearch evaluate trained/sokoban --data boxoban/medium --json
        allocsearch evaluate trained/sokoban --set task.evaluation.policy=sampled
        allocsearch evaluate trained/sokoban --out levels.parquet
    """
    from allocsearch.cli.flags import Flags
    from allocsearch.cli.scoring import locate, print_scores

    where = directory or options.DEFAULT_DIRECTORY
    path = locate(checkpoint, trial, where)
    flags = Flags(task=task, data=data)
    print_scores(path, split, flags, set_ or (), out, as_json)
