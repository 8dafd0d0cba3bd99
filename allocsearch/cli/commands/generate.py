"""`allocsearch generate`."""

from typing import Annotated

import typer

from allocsearch.cli import options


def generate(
    checkpoint: options.Checkpoint,
    trial: options.TrialOfStudy = None,
    prompt: Annotated[
        str,
        typer.Option("--prompt", "-p", metavar="TEXT", help="What the text goes on."),
    ] = "",
    n_tokens: Annotated[
        int, typer.Option("--n-tokens", metavar="N", help="Tokens to draw.")
    ] = 200,
    temperature: Annotated[
        float,
        typer.Option(
            "--temperature",
            metavar="X",
            help="Below 1 likelier tokens are preferred; 0 takes the likeliest.",
        ),
    ] = 1.0,
    top_k: Annotated[
        int | None,
        typer.Option(
            "--top-k",
            metavar="N",
            help="Draw among the N likeliest only.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Decides what is drawn.")
    ] = 0,
    data: options.Data = None,
    set_: options.Settings = None,
    directory: options.Directory = None,
    as_json: options.Json = False,
) -> None:
    """Let a trained network write, step by step as it was trained.

    Of a checkpoint with several seeds the first writes. A recurrent network carries
    its state on; another one reads as far back as its cache reaches.

    Examples:
        allocsearch generate trained/fineweb --prompt "Once upon" --n-tokens 100
        allocsearch generate fineweb-tiny recurrent/best --temperature 0.7 --top-k 40
    """
    from allocsearch.cli.flags import Flags
    from allocsearch.cli.generating import print_text
    from allocsearch.cli.scoring import locate
    from allocsearch.tasks.records import Prompt

    path = locate(checkpoint, trial, directory or options.DEFAULT_DIRECTORY)
    asked = Prompt(prompt, n_tokens, temperature, top_k, seed)
    print_text(path, asked, Flags(data=data), set_ or (), as_json)
