"""`allocsearch data`."""

from pathlib import Path
from typing import Annotated

import typer

from allocsearch.cli import options

_MAKING = "Making files"


def data(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK", help="Which task reads them.", show_default=False
        ),
    ],
    path: Annotated[
        Path | None,
        typer.Argument(metavar="PATH", help="A file or directory."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            rich_help_panel=_MAKING,
            help="Where to put what is made; continued if it was interrupted.",
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_MAKING,
            help="A dataset to stream instead of PATH; the task's own if left out.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", rich_help_panel=_MAKING, help="Which of its parts."
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_MAKING,
            help="Field that has the text; `text` if left out.",
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            rich_help_panel=_MAKING,
            help="How text becomes tokens.",
        ),
    ] = None,
    max_tokens: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            rich_help_panel=_MAKING,
            help="Training tokens at most, as 100M.",
        ),
    ] = None,
    valid_tokens: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            rich_help_panel=_MAKING,
            help="Validation tokens at most, taken first.",
        ),
    ] = None,
    shard_tokens: Annotated[
        str | None,
        typer.Option(
            metavar="N", rich_help_panel=_MAKING, help="Tokens in a file, as 100M."
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=_MAKING,
            help="How many work at once; one a core if left out.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Check and count the files that a task is to train on, or make them.

    With PATH alone every broken rule is listed with file and line, and so is every
    saved solution that does not solve its level; what splits share is counted, and what
    loads faster next time is prepared. Exits with 2 if anything is broken.

    Without PATH, or with an option below, the task makes its files: from PATH, or from
    a dataset that is streamed. The same command again goes on after an interruption.

    Examples:
        allocsearch data sokoban boxoban-levels/unfiltered
        allocsearch data sokoban microban.xsb --json
        allocsearch data fineweb --max-tokens 1B --out fineweb-1B
        allocsearch data fineweb my-texts --tokenizer bytes --out shards
    """
    from allocsearch.cli.flags import parse_count
    from allocsearch.cli.inspecting import print_prepared, print_report
    from allocsearch.tasks.records import DataOptions

    counts = {
        "max_tokens": max_tokens,
        "valid_tokens": valid_tokens,
        "shard_tokens": shard_tokens,
    }
    given = {
        name: parse_count(text, f"--{name.replace('_', '-')}")
        for name, text in counts.items()
        if text is not None
    }
    asked = DataOptions(
        out, dataset, config, column or "text", tokenizer, processes=processes, **given
    )
    if path is not None and asked == DataOptions():
        print_report(task, path, as_json)
    else:
        print_prepared(task, path, asked, as_json)
