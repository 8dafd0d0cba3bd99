"""`allocsearch resume`."""

import typer

from allocsearch.cli import options
from allocsearch.cli.flags import Flags, change


def resume(
    name: options.StudyName,
    n_trials: options.NTrials = None,
    timeout: options.Timeout = None,
    max_cost: options.MaxCost = None,
    executor: options.Executor = None,
    workers: options.Workers = None,
    gpus_per_trial: options.GpusPerTrial = None,
    address: options.Address = None,
    storage: options.Storage = None,
    directory: options.Directory = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Go on with a study that was interrupted, or give it more trials or time.

    Finished trials are kept; one that was cut off goes on from its checkpoint.

    Examples:
        allocsearch resume sokoban-tiny
        allocsearch resume sokoban-tiny --n-trials 80 --timeout 12h
    """
    from allocsearch.cli.studying import search
    from allocsearch.study import load_study

    flags = Flags(
        n_trials=n_trials,
        timeout=timeout,
        max_cost=max_cost,
        executor=executor,
        workers=workers,
        gpus_per_trial=gpus_per_trial,
        address=address,
        storage=storage,
    )
    study = load_study(name, directory or options.DEFAULT_DIRECTORY)
    config = change(study.config, flags)
    raise typer.Exit(search(config, yes=True, as_json=as_json, quiet=quiet))
