"""The `allocsearch` command. A command is a few lines over the Python API."""


def main() -> None:
    """Run the command line of this process and exit."""
    from allocsearch.cli.app import app

    app(prog_name="allocsearch")
