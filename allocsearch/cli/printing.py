"""Results go to stdout, everything else to stderr; JSON stands alone on stdout."""

import json
import sys
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from allocsearch.analysis.formats import plain
from allocsearch.analysis.records import json_ready


def stdout() -> Console:
    """For results. Made anew, so that it follows a redirected stream."""
    return Console(file=sys.stdout, highlight=False)


def stderr() -> Console:
    """For progress and notes."""
    return Console(file=sys.stderr, highlight=False)


def show(*parts: RenderableType) -> None:
    """Print results; strings are text, never markup."""
    console = stdout()
    for part in parts:
        console.print(Text(part) if isinstance(part, str) else part)


def show_json(values: Any) -> None:
    """Print one JSON value."""
    sys.stdout.write(json.dumps(json_ready(values), indent=1, ensure_ascii=False))
    sys.stdout.write("\n")


def note(text: str) -> None:
    """Tell something on stderr, in a line."""
    stderr().print(Text(plain(text)), soft_wrap=True)


def plot_width() -> int:
    """Columns for a plot: the terminal's, but not so many that marks get lost."""
    return min(stdout().width, 100)
