"""``python -m allocsearch`` is the `allocsearch` command."""

from allocsearch.cli import main

main()
