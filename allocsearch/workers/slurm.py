"""Workers as Slurm jobs: a batch script that can be read, and `sbatch` to submit it.

Each job of the array runs one `allocsearch worker`. Slurm warns a job before its time
limit (SIGUSR1) and before it is preempted (SIGTERM); the worker then writes a
checkpoint and lets go of its trials, and the script has the job queued again. Slurm
would do that itself for a preempted job only if it ran on until it is killed.
"""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from allocsearch.errors import StudyError

WARNED = (138, 143)
"""Exit codes of a worker that SIGUSR1 or SIGTERM stopped."""


@dataclass(frozen=True)
class SlurmJob:
    """What each worker's job asks Slurm for.

    Attributes:
        n_workers: how many jobs.
        cpus: cores of each.
        gpus: GPUs of each.
        time: its time limit as Slurm writes it, ``"HH:MM:SS"``; the partition's if "".
        partition: where; Slurm's default if "".
        warning_seconds: how long before the time limit it is warned.
        more: further ``#SBATCH`` lines, such as ``"--account=lab"``.
    """

    n_workers: int
    cpus: int = 1
    gpus: int = 0
    time: str = ""
    partition: str = ""
    warning_seconds: int = 60
    more: Sequence[str] = ()


def batch_script(name: str, directory: Path, job: SlurmJob) -> str:
    """The script of the jobs. There is no password in it.

    Args:
        name: the study's name.
        directory: the study's folder.
        job: what to ask Slurm for.

    Raises:
        StudyError: an option of sbatch has several lines.
    """
    log = directory / "logs" / "slurm-%A_%a.log"
    asked = [
        f"--job-name=allocsearch-{name}",
        f"--array=0-{job.n_workers - 1}",
        "--ntasks=1",
        f"--cpus-per-task={job.cpus}",
        *([f"--gpus={job.gpus}"] if job.gpus else []),
        *([f"--time={job.time}"] if job.time else []),
        *([f"--partition={job.partition}"] if job.partition else []),
        "--requeue",
        "--open-mode=append",
        f"--signal=USR1@{job.warning_seconds}",
        f"--output={log}",
        *job.more,
    ]
    worker = [sys.executable, "-m", "allocsearch", "worker", str(directory)]
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {_one_line(line)}" for line in asked),
        "",
        "# Slurm may signal this shell as well; the worker ends by itself.",
        "trap : TERM USR1",
        f"srun --ntasks=1 --cpus-per-task={job.cpus} \\",
        f"  {shlex.join(worker)}",
        "code=$?",
        f"if {' || '.join(f'[ $code -eq {code} ]' for code in WARNED)}; then",
        "  # A job that was cancelled, with SIGTERM as well, is not running any more.",
        '  if [ "$(squeue -h -j "$SLURM_JOB_ID" -o %T)" = RUNNING ]; then',
        '    exec scontrol requeue "$SLURM_JOB_ID"',
        "  fi",
        "fi",
        "exit $code",
    ]
    return "\n".join(lines) + "\n"


def submit_script(script: str) -> str:
    """Hand a script to Slurm.

    Returns:
        The number of the job.

    Raises:
        StudyError: there is no Slurm here, or it refuses; says why.
    """
    if shutil.which("sbatch") is None:
        raise StudyError(
            "there is no sbatch on this machine: run this where jobs are submitted, or "
            "take the script that --print shows there"
        )
    done = subprocess.run(
        ["sbatch", "--parsable"],
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StudyError(f"sbatch refused: {' '.join(done.stderr.split())}")
    return done.stdout.strip().partition(";")[0]


def _one_line(text: str) -> str:
    # A second line would be a command of the script.
    if "\n" in text or "\r" in text:
        raise StudyError(f"{text!r} cannot be an option of sbatch")
    return text
