"""`allocsearch launch`."""

from typing import Annotated

import typer

from allocsearch.cli import options


def launch(
    scheduler: Annotated[
        str, typer.Argument(metavar="SCHEDULER", help="slurm", show_default=False)
    ],
    name: options.StudyName,
    n_workers: Annotated[
        int,
        typer.Option("--n-workers", min=1, metavar="N", help="Jobs, a worker each."),
    ] = 1,
    cpus: Annotated[
        int, typer.Option("--cpus", min=1, metavar="N", help="Cores of each.")
    ] = 1,
    gpus: Annotated[
        int, typer.Option("--gpus", min=0, metavar="N", help="GPUs of each.")
    ] = 0,
    time: Annotated[
        str, typer.Option("--time", metavar="HH:MM:SS", help="Time limit of each.")
    ] = "",
    partition: Annotated[
        str, typer.Option("--partition", metavar="NAME", help="Slurm's partition.")
    ] = "",
    sbatch: Annotated[
        list[str] | None,
        typer.Option(
            "--sbatch",
            metavar="OPTION",
            help="Any other option of sbatch, as --sbatch=--account=lab; repeatable.",
        ),
    ] = None,
    submit: Annotated[
        bool,
        typer.Option(
            "--submit/--print",
            metavar="",
            show_default=False,
            help="Submit it, or print the script to look at, as it does unless told.",
        ),
    ] = False,
    directory: options.Directory = None,
) -> None:
    """Have a study that was begun trained by jobs of a cluster's scheduler.

    The study keeps its trials in a database server; the jobs see its folder under the
    same path, and the database's URL, if it needs a password, in ALLOCSEARCH_STORAGE.
    Jobs that are preempted or reach their time limit are queued again and go on.

    Examples:
        allocsearch launch slurm sokoban-small --n-workers 8 --gpus 1 --print
        allocsearch launch slurm sokoban-small --n-workers 8 --time 04:00:00 --submit
    """
    from allocsearch.cli.joining import launch_slurm
    from allocsearch.errors import ConfigError
    from allocsearch.workers.slurm import SlurmJob

    if scheduler != "slurm":
        raise ConfigError(f"there is no scheduler {scheduler!r}; known: slurm")
    job = SlurmJob(n_workers, cpus, gpus, time, partition, more=tuple(sbatch or ()))
    where = directory or options.DEFAULT_DIRECTORY
    launch_slurm(name, where, job, submit=submit)
