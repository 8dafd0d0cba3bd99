"""What can go wrong at the edges: each error is one sentence a user can act on.

The command line prints the message of any `AllocsearchError` and exits with code 2;
in Python each class is also the built-in exception that fits it.
"""

import difflib
import re
from collections.abc import Iterable

_CREDENTIALS = re.compile(r"(\w://[^\s:/?#@]*):[^\s/?#]*@")
_SECRET_FIELDS = re.compile(r"\b((?:ssl)?(?:password|passwd|pwd)=)[^\s&;'\"]+", re.I)


class AllocsearchError(Exception):
    """Base of every error that a user can cause and mend."""


class ConfigError(AllocsearchError, ValueError):
    """A value in a config, a flag or an argument that cannot be used."""


class UnknownNameError(AllocsearchError, LookupError):
    """A task, expert, aggregation, budget or study that does not exist."""


class BudgetError(AllocsearchError, ValueError):
    """A work budget that nothing fits, or a built network that breaks it."""


class PluginError(AllocsearchError, ImportError):
    """An entry point that cannot be loaded or that two packages claim."""


class DataError(AllocsearchError, ValueError):
    """A level, text or table file that is missing or broken."""


class StudyError(AllocsearchError, RuntimeError):
    """A study that cannot be opened, continued or changed as asked."""


class CheckpointError(AllocsearchError, ValueError):
    """A checkpoint that is damaged, foreign or of another version."""


class AuditError(AllocsearchError, ValueError):
    """A traced program whose work cannot be counted exactly."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that is not among `known`, with the nearest one.

    Args:
        kind: what the name stands for, such as ``"task"``.
        name: what the user gave.
        known: every valid name.
    """
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    listing = f"Known: {', '.join(known)}." if known else "There is none."
    return UnknownNameError(f"unknown {kind} {name!r}: {hint}{listing}")


def redacted(text: str) -> str:
    """Text without the passwords of URLs in it.

    >>> redacted("postgresql://me:secret@host/db")
    'postgresql://me:***@host/db'
    """
    return _SECRET_FIELDS.sub(r"\1***", _CREDENTIALS.sub(r"\1:***@", text))
