"""`allocsearch run`."""

from typing import Annotated

import typer

from allocsearch.cli import options
from allocsearch.cli.flags import Flags, configure


def run(
    config: options.ConfigFile = None,
    task: options.Task = None,
    budget: options.Budgets = None,
    data: options.Data = None,
    n_trials: options.NTrials = None,
    timeout: options.Timeout = None,
    max_cost: options.MaxCost = None,
    seed: options.Seed = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="Of the study; task and budgets if left out."
        ),
    ] = None,
    expert: options.Experts = None,
    arm: options.Arms = None,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode",
            metavar="MODE",
            help="search adapts to results; claim tries each depth equally often; "
            "sweep tries every combination below the budget.",
        ),
    ] = None,
    recipe: options.Recipe = None,
    horizon: options.Horizon = None,
    n_seeds: options.NSeeds = None,
    set_: options.Settings = None,
    executor: options.Executor = None,
    workers: options.Workers = None,
    gpus_per_trial: options.GpusPerTrial = None,
    address: options.Address = None,
    storage: options.Storage = None,
    directory: options.Directory = None,
    yes: options.Yes = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", metavar="", help="Say what would be searched, and how long."
        ),
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Search for the best allocations of a budget, with and without recurrence.

    A study that exists is gone on with, if its configuration is the same.

    Examples:
        allocsearch run --task sokoban --budget tiny
        allocsearch run study.yaml --n-trials 80 --set training.learning_rate=3e-4
        allocsearch run --task sokoban --budget large --dry-run
        allocsearch run -t sokoban -b small --set search.rungs=halving --timeout 2d
        allocsearch run --task sokoban --budget small --executor local --workers 2
    """
    flags = Flags(
        task=task,
        data=data,
        budgets=budget,
        experts=expert,
        arms=arm,
        seed=seed,
        name=name,
        n_trials=n_trials,
        timeout=timeout,
        max_cost=max_cost,
        mode=mode,
        recipe=recipe,
        horizon=horizon,
        n_seeds=n_seeds,
        directory=directory,
        storage=storage,
        executor=executor,
        workers=workers,
        gpus_per_trial=gpus_per_trial,
        address=address,
    )
    study_config = configure(flags, set_, config)
    from allocsearch.cli.studying import describe, search

    if dry_run:
        describe(study_config, as_json)
    else:
        raise typer.Exit(search(study_config, yes=yes, as_json=as_json, quiet=quiet))
