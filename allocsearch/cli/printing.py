"""Results go to stdout, everything else to stderr; JSON stands alone on stdout."""

import json
import re
import sys
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from allocsearch.analysis.formats import plain, printable
from allocsearch.analysis.records import json_ready

# Control characters beyond those that JSON escapes, changes of direction, surrogates.
_ACTED_UPON = re.compile(
    "[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


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
        console.print(Text(printable(part)) if isinstance(part, str) else part)


def show_json(values: Any) -> None:
    """Print one JSON value."""
    text = json.dumps(json_ready(values), indent=1, ensure_ascii=False)
    # Within strings, as JSON writes them: a terminal would act upon the rest.
    text = _ACTED_UPON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    sys.stdout.write(f"{text}\n")


def note(text: str) -> None:
    """Tell something on stderr, in a line."""
    stderr().print(Text(plain(text)), soft_wrap=True)


def plot_width() -> int:
    """Columns for a plot: the terminal's, but not so many that marks get lost."""
    return min(stdout().width, 100)
