"""`allocsearch resume`."""

import typer

from allocsearch.cli import options


def resume(
    name: options.StudyName,
    n_trials: options.NTrials = None,
    directory: options.Directory = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Go on with a study that was interrupted, or give it more trials.

    Finished trials are kept; one that was cut off goes on from its checkpoint.

    Examples:
        allocsearch resume sokoban-tiny
        allocsearch resume sokoban-tiny --n-trials 80
    """
    from allocsearch.cli.studying import search
    from allocsearch.config import StudyConfig, merge, parse
    from allocsearch.study import load_study

    config = load_study(name, directory or options.DEFAULT_DIRECTORY).config
    if n_trials is not None:
        more = {"search": {"n_trials": n_trials}}
        config = parse(StudyConfig, merge(config.given(), more))
    raise typer.Exit(search(config, yes=True, as_json=as_json, quiet=quiet))
