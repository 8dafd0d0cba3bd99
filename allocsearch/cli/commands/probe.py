"""`allocsearch probe`."""

from pathlib import Path
from typing import Annotated

import typer

from allocsearch.cli import options

_PROBE = "Probe"


def probe(
    checkpoints: Annotated[
        list[str],
        typer.Argument(
            metavar="CHECKPOINT",
            help="Folders of checkpoints, or trials of studies as STUDY/TRIAL.",
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="NAME",
            rich_help_panel=_PROBE,
            help="Whose next direction, square by square: agent or box.",
        ),
    ] = "agent",
    kernel: Annotated[
        int,
        typer.Option(
            "--kernel",
            metavar="1|3",
            rich_help_panel=_PROBE,
            help="Squares per side that a probe reads.",
        ),
    ] = 3,
    read: Annotated[
        str,
        typer.Option(
            "--read",
            metavar="WHAT",
            rich_help_panel=_PROBE,
            help="The final state through its norm (state) or before it (raw), or the "
            "memories of a level, by number, 1 at the bottom.",
        ),
    ] = "state",
    episodes: Annotated[
        int | None,
        typer.Option(
            "--episodes",
            metavar="N",
            rich_help_panel=_PROBE,
            help="Training levels to play; if left out 60 a square, 3000 at most.",
        ),
    ] = None,
    precision: Annotated[
        float,
        typer.Option(
            "--precision",
            metavar="X",
            rich_help_panel=_PROBE,
            help="What each network's threshold is set for.",
        ),
    ] = 0.93,
    steps: Annotated[
        int,
        typer.Option(
            "--steps",
            metavar="N",
            rich_help_panel=_PROBE,
            help="Steps from the start of an episode that are scored.",
        ),
    ] = 20,
    split: Annotated[
        str,
        typer.Option(
            "--split",
            metavar="SPLIT",
            rich_help_panel=_PROBE,
            help="Held-out levels to score on: valid, or test for what is final.",
        ),
    ] = "valid",
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            metavar="N",
            rich_help_panel=_PROBE,
            help="Decides levels drawn and the fit.",
        ),
    ] = 0,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Recall against step: drawn as .png or .svg, numbers as .csv or "
            ".json; repeatable.",
        ),
    ] = None,
    task: options.Task = None,
    data: options.Data = None,
    set_: options.Settings = None,
    directory: options.Directory = None,
    as_json: options.Json = False,
) -> None:
    """Tell from trained networks what they will do, with linear probes.

    Fits probes to what each network holds while it solves training levels, sets a
    threshold for each by its precision, and compares recall, step by step, on the
    held-out levels that all the networks solve. The same probe of what the network is
    shown stands beside. Of a checkpoint with several seeds the first is probed.

    Examples:
        allocsearch probe trained/sokoban
        allocsearch probe trained/deep trained/flat --out recall.png --out recall.csv
        allocsearch probe sokoban-tiny/recurrent/best --target box --split test --json
        allocsearch probe trained/deep --read 2 --kernel 1
    """
    from allocsearch.cli import probing
    from allocsearch.cli.flags import Flags
    from allocsearch.tasks.probes import ProbeRequest

    request = ProbeRequest(
        target=target,
        kernel=kernel,
        read=read,
        n_episodes=episodes,
        precision=precision,
        n_steps=steps,
        split=split,
        seed=seed,
    )
    where = directory or options.DEFAULT_DIRECTORY
    flags = Flags(task=task, data=data)
    probing.probe(checkpoints, where, request, flags, set_ or (), out or (), as_json)
