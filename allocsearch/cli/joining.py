"""What `worker` and `launch` do: more drivers of a study that others drive as well."""

from pathlib import Path

from allocsearch.cli import exits
from allocsearch.cli.flags import Flags, change
from allocsearch.cli.printing import note, stdout
from allocsearch.cli.watching import run_watched
from allocsearch.errors import StudyError
from allocsearch.search import is_shared
from allocsearch.study import Study, load_study
from allocsearch.workers.devices import spare_gpus
from allocsearch.workers.slurm import SlurmJob, batch_script, submit_script


def join(
    name: str,
    directory: Path,
    flags: Flags,
    *,
    most_trials: int | None,
    seconds: float | None,
    quiet: bool,
) -> int:
    """Train trials of a study until none is left.

    Args:
        name: the study's name, or the path of its folder.
        directory: where studies are.
        flags: laid over its config, in this process only.
        most_trials: leave after so many trials.
        seconds: leave, at a checkpoint, after so long.
        quiet: whether to leave out progress.

    Returns:
        The exit code.

    Raises:
        StudyError: there is no such study, or its database is for one process.
    """
    known = load_study(name, directory)
    study = Study(known.directory, change(known.config, flags))
    _refuse_sqlite(study)
    if study.config.execution.executor != "inline":
        spare_gpus()
    code = run_watched(study, quiet, most_trials=most_trials, seconds=seconds)
    return exits.DONE if code is None else code


def launch_slurm(name: str, directory: Path, job: SlurmJob, *, submit: bool) -> None:
    """Print the batch script of a study's workers, or submit it.

    Raises:
        StudyError: there is no such study, its database is for one process, or Slurm
            refuses.
    """
    study = load_study(name, directory)
    _refuse_sqlite(study)
    script = batch_script(study.name, study.directory.resolve(), job)
    if not submit:
        stdout().out(script, end="", highlight=False)
        return
    (study.directory / "logs").mkdir(exist_ok=True)
    number = submit_script(script)
    note(f"job {number}: {job.n_workers} workers; `squeue -j {number}` shows them")


def _refuse_sqlite(study: Study) -> None:
    if not is_shared(study.storage):
        raise StudyError(
            f"study {study.name!r} keeps its trials in a SQLite file, which several "
            "writers would damage. On one machine, `allocsearch resume "
            f"{study.name} --executor local --workers N` trains several at a time; for "
            "several machines, begin a study with --storage postgresql://USER@HOST/NAME"
        )
