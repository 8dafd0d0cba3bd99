"""Opening the database of a study: what is wrong with it is said in one sentence."""

import os
import sqlite3
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote
from weakref import WeakValueDictionary

import optuna
import sqlalchemy.exc
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.engine import URL, make_url

from allocsearch.errors import ConfigError, StudyError, redacted

_LOCK_TIMEOUT_SECONDS = 30.0
_POSTGRESQL = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""A server that is cut off is noticed within half a minute, not after hours."""
_SERVERS: WeakValueDictionary[str, RDBStorage] = WeakValueDictionary()


def open_storage(url: str, *, create: bool) -> RDBStorage:
    """Optuna's storage at `url`.

    Args:
        url: an SQLAlchemy URL, such as ``sqlite:////path/study.db``.
        create: whether a database that is missing or empty is to be made.

    Raises:
        ConfigError: `url` is not a database URL.
        StudyError: the database is missing, broken, foreign or out of reach.
    """
    parsed = _parse(url)
    label = describe(url)
    path = sqlite_path(parsed)
    with storage_errors(label):
        if path is not None:
            _check_sqlite(path, create=create)
        try:
            return _connect(parsed)
        except ImportError as error:
            raise StudyError(
                f"{label} needs a driver that is not installed; install the one for "
                f"{parsed.drivername!r}, as allocsearch[postgresql] for PostgreSQL."
            ) from error
        except RuntimeError as error:
            raise StudyError(
                f"{label} was written by an Optuna that does not fit the installed "
                f"{optuna.__version__}; install the version that wrote it."
            ) from error


@contextmanager
def storage_errors(label: str) -> Iterator[None]:
    """Turn what a database throws into a StudyError that names it.

    Optuna's log lines and its notices about experimental features stay out of the
    user's terminal meanwhile.
    """
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            # Such a trial is refused, with a reason, right after.
            warnings.filterwarnings("ignore", "Fixed parameter")
            with database_errors(label):
                yield
    finally:
        optuna.logging.set_verbosity(verbosity)


@contextmanager
def database_errors(label: str) -> Iterator[None]:
    """As `storage_errors` where Optuna has no part; any thread may use it."""
    try:
        yield
    except (sqlalchemy.exc.SQLAlchemyError, StorageInternalError, sqlite3.Error) as e:
        raise StudyError(f"{label} cannot be used: {_reason(e)}.") from e


def describe(url: str) -> str:
    """How messages call the database: its file, or its URL without the password."""
    parsed = _parse(url)
    path = sqlite_path(parsed)
    if path is not None:
        return f"study database {path}"
    shown = parsed.render_as_string(hide_password=True)
    return f"study database {redacted(shown)}"


def without_password(url: str) -> str:
    """A database's URL as it may be written down.

    Raises:
        ConfigError: not a database URL.
    """
    parsed = _parse(url)
    query = {k: v for k, v in parsed.query.items() if redacted(f"{k}=x") == f"{k}=x"}
    bare = URL.create(
        parsed.drivername,
        parsed.username,
        None,
        parsed.host,
        parsed.port,
        parsed.database,
        query,
    )
    return url if bare == parsed else bare.render_as_string(hide_password=False)


def with_password(url: str, full: str | None) -> str:
    """The one of two URLs to connect with.

    Args:
        url: as a study stores it.
        full: a URL that may have a password, as the environment gives it; it counts
            only if it is that of the same database and user.

    Raises:
        ConfigError: one of them is not a database URL.
    """
    if full and _parse(without_password(full)) == _parse(without_password(url)):
        return full
    return url


def sqlite_path(parsed: URL) -> Path | None:
    """The file of a plain SQLite URL; None for any other database."""
    name = parsed.database
    if parsed.get_backend_name() != "sqlite" or name in (None, "", ":memory:"):
        return None
    return None if name.startswith("file:") else Path(name)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        parsed.get_dialect()
    except (sqlalchemy.exc.ArgumentError, ImportError) as error:
        raise ConfigError(
            "the storage is not a database URL; give one such as "
            "sqlite:///study.db or postgresql://user@host/name."
        ) from error
    return parsed


def is_shared(url: str) -> bool:
    """Whether a database serves several processes that write, unlike SQLite.

    Raises:
        ConfigError: `url` is not a database URL.
    """
    return _parse(url).get_backend_name() != "sqlite"


def _connect(parsed: URL) -> RDBStorage:
    """Optuna's storage; of a server one for all searches, as connections are scarce."""
    url = _with_driver(parsed).render_as_string(hide_password=False)
    options = _engine_options(parsed)
    if parsed.get_backend_name() == "sqlite":
        return RDBStorage(url, engine_kwargs=options)
    if (found := _SERVERS.get(url)) is not None:
        return found
    made = _SERVERS[url] = _patient_with_twins(url, options)
    return made


def _patient_with_twins(url: str, options: dict) -> RDBStorage:
    # Processes that find an empty database at the same time make the same tables,
    # and all but one fail at it.
    for pause in (0.5, 1.0, 2.0):
        try:
            return RDBStorage(url, engine_kwargs=options)
        except (sqlalchemy.exc.IntegrityError, sqlalchemy.exc.ProgrammingError):
            time.sleep(pause)
    return RDBStorage(url, engine_kwargs=options)


def _with_driver(parsed: URL) -> URL:
    # What "postgresql" alone means has changed between versions of SQLAlchemy.
    if parsed.drivername == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    return parsed


def _engine_options(parsed: URL) -> dict:
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        given = "timeout" in parsed.query
        return {} if given else {"connect_args": {"timeout": _LOCK_TIMEOUT_SECONDS}}
    options: dict = {"pool_pre_ping": True, "pool_size": 2, "max_overflow": 2}
    if backend == "postgresql":
        options["connect_args"] = {
            name: value
            for name, value in _POSTGRESQL.items()
            if name not in parsed.query
        }
    return options


def _check_sqlite(path: Path, *, create: bool) -> None:
    """Look before Optuna does: it would make files and tables wherever it is sent."""
    if path.is_dir():
        raise StudyError(f"study database {path} is a folder; give a file in it.")
    if not path.exists():
        if not create:
            raise StudyError(f"there is no study database {path}; check its name.")
        if not path.parent.is_dir():
            raise StudyError(
                f"study database {path} cannot be made: there is no folder "
                f"{path.parent}; make it first."
            )
        return
    if create and not os.access(path, os.W_OK):
        raise StudyError(f"study database {path} is read-only; allow writing to it.")
    tables = _tables(path)
    if "studies" not in tables and (tables or not create):
        raise StudyError(f"{path} is a database but holds no studies; give another.")


def _tables(path: Path) -> set[str]:
    uri = f"file:{quote(str(path.resolve()))}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=_LOCK_TIMEOUT_SECONDS)
    try:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
        return {name for (name,) in found}
    finally:
        connection.close()


def _reason(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(getattr(error, "orig", None) or error)
    hints = {
        "not a database": "the file is not a database or is damaged",
        "malformed": "the file is damaged; restore a copy",
        "readonly": "it is read-only; allow writing to it",
        "locked": "another process keeps it locked; wait or stop that process",
        "unable to open": "the file cannot be opened; check its permissions",
        "disk is full": "the disk is full",
    }
    for sign, hint in hints.items():
        if sign in text:
            return hint
    return redacted(" ".join(text.split()).rstrip("."))
