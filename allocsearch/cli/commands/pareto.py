"""`allocsearch pareto`."""

from pathlib import Path
from typing import Annotated

import typer

from allocsearch.cli import options


def pareto(
    name: options.StudyName,
    x: Annotated[
        str,
        typer.Option(
            "--x",
            metavar="AXIS",
            help="The cost: depth, core_flops, total_flops, training_flops, "
            "parameters, memory_bytes or seconds.",
        ),
    ] = "depth",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="STEM", help="Save STEM.png and STEM.svg."),
    ] = None,
    directory: options.Directory = None,
    as_json: options.Json = False,
) -> None:
    """Show the trials that no other beats in both score and cost.

    Examples:
        allocsearch pareto sokoban-tiny
        allocsearch pareto sokoban-tiny --x parameters --out fronts/parameters
    """
    from allocsearch.cli.fronts import print_front
    from allocsearch.study import load_study

    study = load_study(name, directory or options.DEFAULT_DIRECTORY)
    print_front(study, x, out, as_json)
