"""Exit codes, and what becomes of an error: one sentence, never a traceback."""

import sys
from typing import NoReturn

from allocsearch.analysis.formats import plain
from allocsearch.errors import AllocsearchError, redacted

DONE = 0
NOTHING = 1
"""Every trial failed, or there is nothing to evaluate."""
BAD_INPUT = 2
BUG = 70
INTERRUPTED = 130

EPILOG = (
    "Exit codes: 0 done · 1 every trial failed, or there was nothing to evaluate · "
    "2 bad input, said in one sentence · 70 a bug (see --debug) · 128 and a signal's "
    "number, such as 130 for Ctrl-C and 143 for SIGTERM: interrupted, and resumable."
)


class NothingToDo(AllocsearchError):  # noqa: N818 - an ending, not a fault
    """There is no result to work on; exit code 1."""


def code_of(error: BaseException) -> int:
    """The exit code that an error means."""
    if isinstance(error, NothingToDo):
        return NOTHING
    if isinstance(error, AllocsearchError):
        return BAD_INPUT
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return BUG


def sentence_of(error: BaseException) -> str:
    """What to tell the user, on one line."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    text = redacted(plain(str(error)))
    if isinstance(error, AllocsearchError):
        return text
    kind = type(error).__name__
    detail = f": {text[:200]}" if text else ""
    return f"unexpected {kind}{detail}; run `allocsearch --debug …` to see where"


def leave(text: str, code: int) -> NoReturn:
    """Say why on stderr and exit."""
    print(f"allocsearch: {plain(text)}", file=sys.stderr)
    raise SystemExit(code)
