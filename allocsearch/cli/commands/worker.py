"""`allocsearch worker`."""

from typing import Annotated

import typer

from allocsearch.cli import options
from allocsearch.cli.flags import Flags


def worker(
    name: options.StudyName,
    storage: options.Storage = None,
    n_trials: Annotated[
        int | None,
        typer.Option(
            "--n-trials",
            "-n",
            min=1,
            metavar="N",
            help="Leave after N trials of this worker.",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0,
            metavar="SECONDS",
            help="Leave, at a checkpoint, after so long.",
        ),
    ] = None,
    executor: options.Executor = None,
    workers: options.Workers = None,
    gpus_per_trial: options.GpusPerTrial = None,
    address: options.Address = None,
    directory: options.Directory = None,
    quiet: options.Quiet = False,
) -> None:
    """Help with a study that was begun, from this machine, beside other workers.

    The study keeps its trials in a database server, and its folder is one that all
    workers see. Each trial is trained by one worker; what a worker leaves, another
    takes up from its checkpoint. A worker stays until no trial is left.

    Examples:
        allocsearch worker sokoban-small --directory /shared/studies
        allocsearch worker sokoban-small --executor local --workers 4 --timeout 3600
    """
    from allocsearch.cli.joining import join

    flags = Flags(
        storage=storage,
        executor=executor,
        workers=workers,
        gpus_per_trial=gpus_per_trial,
        address=address,
    )
    where = directory or options.DEFAULT_DIRECTORY
    code = join(name, where, flags, most_trials=n_trials, seconds=timeout, quiet=quiet)
    raise typer.Exit(code)
