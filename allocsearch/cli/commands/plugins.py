"""`allocsearch plugins`."""

from allocsearch.cli import options


def plugins(as_json: options.Json = False) -> None:
    """List the tasks, experts and aggregations that are installed.

    Each is imported to see whether it loads; one that does not hurts only a run that
    asks for it.

    Examples:
        allocsearch plugins
        allocsearch plugins --json
    """
    from allocsearch.cli.offers import offers_table, plugin_rows
    from allocsearch.cli.printing import show, show_json

    rows = plugin_rows()
    if as_json:
        show_json(rows)
    else:
        show(offers_table(rows))
