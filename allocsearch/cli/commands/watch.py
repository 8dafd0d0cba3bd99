"""`allocsearch watch`."""

from pathlib import Path
from typing import Annotated

import typer

from allocsearch.cli import options


def watch(
    checkpoints: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CHECKPOINT",
            help="Folders of checkpoints, or trials of studies as STUDY/TRIAL.",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            "--split",
            metavar="SPLIT",
            help="train, valid or test; valid if left out, where there is one.",
        ),
    ] = None,
    item: Annotated[
        int,
        typer.Option("--item", "-i", metavar="N", help="Which of the split, from 0."),
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Draw it instead: .gif moves, .png has all steps in rows.",
        ),
    ] = None,
    task: options.Task = None,
    data: options.Data = None,
    set_: options.Settings = None,
    directory: options.Directory = None,
    as_json: options.Json = False,
) -> None:
    """Watch trained networks on one item of held-out data, step by step.

    Play is that of `evaluate`; --set decides how, as there. Several checkpoints are
    drawn side by side. Of a checkpoint with several seeds the
    first is shown. Without a checkpoint, the item alone is.

    Examples:
        allocsearch watch trained/sokoban --item 7
        allocsearch watch trained/deep trained/wide --item 7 --out both.gif
        allocsearch watch sokoban-tiny/recurrent/best --split test --out strip.png
        allocsearch watch trained/sokoban --set task.evaluation.policy=sampled
        allocsearch watch --task sokoban --data microban.xsb --item 3
    """
    from allocsearch.cli import viewing
    from allocsearch.cli.flags import Flags

    asked = viewing.Asked(item, split, Flags(task=task, data=data), set_ or ())
    where = directory or options.DEFAULT_DIRECTORY
    viewing.watch(checkpoints or (), where, asked, out, as_json)
