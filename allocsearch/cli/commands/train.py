"""`allocsearch train`."""

from pathlib import Path
from typing import Annotated

import typer

from allocsearch.cli import options
from allocsearch.cli.flags import Flags, configure

_SHAPE = "Allocation"


def train(
    config: options.ConfigFile = None,
    task: options.Task = None,
    budget: options.Budget = None,
    depth: Annotated[
        int | None,
        typer.Option(
            "--depth", "-L", metavar="N", rich_help_panel=_SHAPE, help="Levels L."
        ),
    ] = None,
    n_experts: Annotated[
        int | None,
        typer.Option(
            "--n-experts", "-E", metavar="N", rich_help_panel=_SHAPE, help="Experts E."
        ),
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(
            "--width",
            metavar="N",
            rich_help_panel=_SHAPE,
            help="Channels d; the widest that the budget allows if left out.",
        ),
    ] = None,
    radius: Annotated[
        str | None,
        typer.Option(
            "--radius", metavar="N", rich_help_panel=_SHAPE, help="A number, or full."
        ),
    ] = None,
    aggregation: Annotated[
        str | None,
        typer.Option(
            "--aggregation",
            metavar="NAME",
            rich_help_panel=_SHAPE,
            help="sqrt_sum if left out.",
        ),
    ] = None,
    expert: Annotated[
        str | None,
        typer.Option(
            "--expert",
            "-e",
            metavar="NAME",
            rich_help_panel=_SHAPE,
            help="Kind of expert.",
        ),
    ] = None,
    recurrent: Annotated[
        bool,
        typer.Option(
            "--recurrent/--nonrecurrent",
            metavar="",
            rich_help_panel=_SHAPE,
            help="Whether state is carried from step to step.",
        ),
    ] = True,
    seed: options.Seed = None,
    recipe: options.Recipe = None,
    horizon: options.Horizon = None,
    n_seeds: options.NSeeds = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            "--learning-rate",
            metavar="X",
            rich_help_panel="Configuration",
            help="At width 64, one expert and one level; others are scaled from it.",
        ),
    ] = None,
    data: options.Data = None,
    set_: options.Settings = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="The checkpoint's folder; training goes on from what is there.",
        ),
    ] = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train one allocation and keep a checkpoint of it.

    Examples:
        allocsearch train --task sokoban --budget tiny --depth 4 --n-experts 1
        allocsearch train -t sokoban -b tiny -L 1 -E 4 --nonrecurrent --out trained/flat
    """
    flags = Flags(
        task=task,
        data=data,
        budgets=[budget] if budget else None,
        experts=[expert] if expert else None,
        seed=seed,
        recipe=recipe,
        horizon=horizon,
        n_seeds=n_seeds,
        learning_rate=learning_rate,
    )
    study_config = configure(flags, set_, config)
    from allocsearch.cli.choosing import Shape
    from allocsearch.cli.training import train_one

    shape = Shape(recurrent, depth, n_experts, width, radius, aggregation)
    code = train_one(study_config, shape, out, yes=yes, as_json=as_json, quiet=quiet)
    raise typer.Exit(code)
