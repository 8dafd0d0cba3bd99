"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

_CONFIG = "Configuration"

ConfigFile = Annotated[
    Path | None,
    typer.Argument(metavar="STUDY.yaml", help="A study's config; flags override it."),
]
Task = Annotated[
    str | None,
    typer.Option(
        "--task", "-t", rich_help_panel=_CONFIG, metavar="NAME", help="What is trained."
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        "-b",
        rich_help_panel=_CONFIG,
        metavar="NAME|FLOPS",
        help="A named budget of the task, or FLOPs a step such as 250M.",
    ),
]
Budgets = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        "-b",
        rich_help_panel=_CONFIG,
        metavar="NAME|FLOPS",
        help="A named budget of the task, or FLOPs a step such as 250M; repeatable.",
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        rich_help_panel=_CONFIG,
        metavar="PATH",
        help="The task's files (task.data), where it takes any.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        rich_help_panel=_CONFIG,
        metavar="KEY=VALUE",
        help="Any field of the config, as in training.learning_rate=3e-4; repeatable. "
        "`allocsearch show-config` lists them.",
    ),
]
Recipe = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        rich_help_panel=_CONFIG,
        metavar="NAME",
        help="Training values that the task has a name for, as `far` of sokoban.",
    ),
]
Experts = Annotated[
    list[str] | None,
    typer.Option(
        "--expert",
        "-e",
        rich_help_panel=_CONFIG,
        metavar="NAME",
        help="Kind of expert; repeatable. The task's own choice if left out.",
    ),
]
Arms = Annotated[
    list[str] | None,
    typer.Option(
        "--arm",
        rich_help_panel=_CONFIG,
        metavar="ARM",
        help="recurrent or nonrecurrent; both if left out.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        rich_help_panel=_CONFIG,
        help="Decides everything random.",
    ),
]
Horizon = Annotated[
    str | None,
    typer.Option(
        "--horizon",
        rich_help_panel=_CONFIG,
        metavar="N",
        help="Length of training per seed, in the task's unit: 200000, 50M.",
    ),
]
NSeeds = Annotated[
    int | None,
    typer.Option(
        "--n-seeds",
        metavar="N",
        rich_help_panel=_CONFIG,
        help="Training runs per allocation.",
    ),
]
NTrials = Annotated[
    int | None,
    typer.Option(
        "--n-trials",
        "-n",
        rich_help_panel=_CONFIG,
        metavar="N",
        help="Trials of the whole study, over all restarts.",
    ),
]
Timeout = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        rich_help_panel=_CONFIG,
        metavar="TIME",
        help="How long the study may run over all restarts, as in 90m or 12h.",
    ),
]
MaxCost = Annotated[
    float | None,
    typer.Option(
        "--max-cost",
        rich_help_panel=_CONFIG,
        metavar="HOURS",
        help="Device-hours that trials may take over all restarts.",
    ),
]
StudyName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A study's name, or the path of its folder.",
        show_default=False,
    ),
]
Checkpoint = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT", help="A checkpoint's folder, or a study's name."
    ),
]
TrialOfStudy = Annotated[
    str | None,
    typer.Argument(metavar="TRIAL", help="Of a study, as `show` takes it."),
]
Directory = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        "-d",
        metavar="DIR",
        help="Where studies are; ./studies by default.",
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", metavar="", help="Print JSON, and nothing else, on stdout."),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", metavar="", help="No progress, only notes and results."
    ),
]
TrialName = Annotated[
    str,
    typer.Argument(
        metavar="TRIAL",
        help="A number, or `best`; with as much of BUDGET/EXPERT/ARM/ before it as it "
        "takes.",
        show_default=False,
    ),
]
Yes = Annotated[
    bool,
    typer.Option("--yes", "-y", metavar="", help="Run heavy budgets on a CPU unasked."),
]
OneArm = Annotated[
    str | None,
    typer.Option(
        "--arm",
        metavar="ARM",
        help="recurrent or nonrecurrent, where a number has both.",
    ),
]
OneBudget = Annotated[
    str | None,
    typer.Option(
        "--budget", "-b", metavar="NAME", help="Budget, where a study has several."
    ),
]
OneExpert = Annotated[
    str | None,
    typer.Option(
        "--expert", "-e", metavar="NAME", help="Expert, where it has several."
    ),
]

_EXECUTION = "Execution"

Executor = Annotated[
    str | None,
    typer.Option(
        "--executor",
        rich_help_panel=_EXECUTION,
        metavar="NAME",
        help="inline (in this process), local (worker processes) or ray.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        "-w",
        rich_help_panel=_EXECUTION,
        metavar="N",
        help="Trials at a time, with local and ray.",
    ),
]
GpusPerTrial = Annotated[
    float | None,
    typer.Option(
        "--gpus-per-trial",
        rich_help_panel=_EXECUTION,
        metavar="N",
        help="GPUs of a trial; with local, one each if left out.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        rich_help_panel=_EXECUTION,
        metavar="auto|HOST:PORT",
        help="Ray cluster; one on this machine is started if left out.",
    ),
]
Storage = Annotated[
    str | None,
    typer.Option(
        "--storage",
        rich_help_panel=_EXECUTION,
        metavar="URL",
        help="Database of the trials, as postgresql://USER@HOST/NAME; a SQLite file in "
        "the study's folder if left out.",
    ),
]

DEFAULT_DIRECTORY = Path("studies")
