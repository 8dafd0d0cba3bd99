"""Riding out a database that is away for a while, as when it restarts."""

import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import sqlalchemy.exc

from allocsearch.errors import StudyError

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE_SECONDS = 300.0
"""How long a database may be away."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0


def ride_out(call: Callable[P, R]) -> Callable[P, R]:
    """The same call, made again while the database is out of reach.

    For calls that may be made twice: what the first one did, if it did anything before
    the connection was lost, must not harm.
    """

    @wraps(call)
    def patient(*args: P.args, **kwargs: P.kwargs) -> R:
        deadline = time.monotonic() + PATIENCE_SECONDS
        pause = _FIRST_PAUSE
        while True:
            try:
                return call(*args, **kwargs)
            except StudyError as error:
                if not is_out_of_reach(error) or time.monotonic() > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    return patient


def is_out_of_reach(error: BaseException) -> bool:
    """Whether an error says that a database server is away, starting or stopping.

    A SQLite file is never away: what goes wrong with it will not pass by itself.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, sqlalchemy.exc.DBAPIError):
            lost = (sqlalchemy.exc.OperationalError, sqlalchemy.exc.InterfaceError)
            module = type(cause.orig).__module__
            away = isinstance(cause, lost) or cause.connection_invalidated
            return away and not module.startswith("sqlite3")
        cause = cause.__cause__ or cause.__context__
    return False
