"""`allocsearch resume`."""

import typer

from allocsearch.cli import options


def resume(
    name: options.StudyName,
    n_trials: options.NTrials = None,
    timeout: options.Timeout = None,
    max_cost: options.MaxCost = None,
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
    from allocsearch.cli.flags import Flags
    from allocsearch.cli.studying import search
    from allocsearch.config import StudyConfig, merge, parse
    from allocsearch.study import load_study

    config = load_study(name, directory or options.DEFAULT_DIRECTORY).config
    more = Flags(n_trials=n_trials, timeout=timeout, max_cost=max_cost).values()
    if more:
        config = parse(StudyConfig, merge(config.given(), more))
    raise typer.Exit(search(config, yes=True, as_json=as_json, quiet=quiet))
