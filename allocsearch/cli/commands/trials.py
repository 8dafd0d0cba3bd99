"""`allocsearch trials`."""

from allocsearch.cli import options


def trials(
    name: options.StudyName,
    directory: options.Directory = None,
    as_json: options.Json = False,
) -> None:
    """List every trial of a study.

    Examples:
        allocsearch trials sokoban-tiny
        allocsearch trials sokoban-tiny --json
    """
    from allocsearch.analysis.rows import trials_rows
    from allocsearch.analysis.tables import trials_table
    from allocsearch.cli.printing import show, show_json
    from allocsearch.study import load_study

    study = load_study(name, directory or options.DEFAULT_DIRECTORY)
    rows = trials_rows(study.trials())
    if as_json:
        show_json(rows)
    else:
        show(trials_table(rows))
