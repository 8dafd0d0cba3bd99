"""Leases: which process has which trial, in the database of the study itself.

A lease is a row that one ``UPDATE … WHERE`` claims, so that of many processes one gets
it. It runs out by the database's own clock, whatever the clocks of the machines say,
and whoever claims it next raises its epoch: a process that was away too long finds that
its epoch is no longer the row's, and that what it brings is not wanted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa
from optuna.storages import RDBStorage
from sqlalchemy import exc

from allocsearch.errors import StudyError
from allocsearch.search.riding import ride_out
from allocsearch.search.storage import database_errors, describe, open_storage

_NOW = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)",
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
    "mysql": "UNIX_TIMESTAMP(NOW(6))",
    "mariadb": "UNIX_TIMESTAMP(NOW(6))",
}
"""Seconds since 1970 by each database's clock."""

_TABLE = sa.Table(
    "allocsearch_leases",
    sa.MetaData(),
    sa.Column("search", sa.String(512), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("worker", sa.String(255), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("taken", sa.Double, nullable=False),
    sa.Column("renewed", sa.Double, nullable=False),
    sa.Column("expires", sa.Double, nullable=False),
)
_NOBODY = ""


@dataclass(frozen=True)
class Lease:
    """The right to train one trial and to tell its result.

    Attributes:
        search: name of the search in the database.
        number: the trial's number in it; negative for what is no trial.
        worker: who holds it.
        epoch: how often it had been claimed by then; no other holder has the same.
    """

    search: str
    number: int
    worker: str
    epoch: int

    @property
    def host_and_pid(self) -> str:
        """The worker as people know it: ``"host:pid"``."""
        return ":".join(self.worker.split(":")[:2])


@dataclass(frozen=True)
class Holding:
    """A lease as `Leases.held` lists it.

    Attributes:
        lease: what is held.
        since: when it was claimed, in UTC, by the database's clock.
        seconds_since_renewal: how long ago its holder was heard of.
        seconds_left: until it runs out; negative where it has.
    """

    lease: Lease
    since: datetime
    seconds_since_renewal: float
    seconds_left: float


class Leases:
    """The leases of one database. Safe to use from several threads."""

    def __init__(self, storage: str, rdb: RDBStorage) -> None:
        """Leases in a database that is open; meant for `open` and `load`."""
        self._label = describe(storage)
        self._rdb = rdb
        self._engine = rdb.engine
        if rdb.engine.dialect.name not in _NOW:
            known = ", ".join(sorted(_NOW))
            raise StudyError(
                f"{self._label} cannot keep leases; several workers need one of {known}"
            )
        self._now = sa.literal_column(_NOW[rdb.engine.dialect.name], sa.Double)

    @classmethod
    def load(cls, storage: str) -> "Leases":
        """The leases of a database that is there, to look at. Writes nothing.

        Raises:
            StudyError: the database cannot be used.
        """
        return cls(storage, open_storage(storage, create=False))

    @classmethod
    def open(cls, storage: str) -> "Leases":
        """The leases of a database that is there; their table is made if missing.

        Raises:
            StudyError: the database cannot be used.
        """
        leases = cls.load(storage)
        leases._make_table()
        return leases

    def close(self) -> None:
        """Let go of the database's connections."""
        self._engine.dispose()

    @ride_out
    def acquire(
        self, search: str, number: int, worker: str, seconds: float
    ) -> Lease | None:
        """Claim what is free, was released, or has run out.

        Args:
            search: name of the search in the database.
            number: the trial's number in it.
            worker: who claims it; one name for each process.
            seconds: how long it is held unless renewed.

        Returns:
            The lease, or None where somebody holds it.

        Raises:
            StudyError: the database cannot be used.
        """
        row = _TABLE.c
        free = (row.worker == _NOBODY) | (row.expires < self._now)
        claim = {
            "worker": worker,
            "taken": self._now,
            "renewed": self._now,
            "expires": self._now + seconds,
        }
        this = (row.search == search) & (row.number == number)
        with database_errors(self._label):
            try:
                with self._engine.begin() as connection:
                    update = sa.update(_TABLE).where(this & free)
                    done = connection.execute(
                        update.values(**claim, epoch=row.epoch + 1)
                    )
                    if done.rowcount:
                        # The row is locked until this transaction ends.
                        epoch = connection.scalar(sa.select(row.epoch).where(this))
                        return Lease(search, number, worker, int(epoch or 0))
                    if connection.scalar(sa.select(row.epoch).where(this)) is not None:
                        return None
                    connection.execute(
                        sa.insert(_TABLE).values(
                            search=search, number=number, epoch=1, **claim
                        )
                    )
                    return Lease(search, number, worker, 1)
            except exc.IntegrityError:  # another process inserted it just now
                return None

    def renew(self, lease: Lease, seconds: float) -> bool:
        """Hold a lease for `seconds` from now, if it is still ours.

        A lease that has run out is still its holder's until another claims it.

        Raises:
            StudyError: the database cannot be used; whether it is ours is unknown.
        """
        renewed = {"renewed": self._now, "expires": self._now + seconds}
        return self._change(lease, renewed)

    def release(self, lease: Lease) -> bool:
        """Let go of a lease, so that anybody may claim it at once.

        Returns:
            Whether it was still ours.

        Raises:
            StudyError: the database cannot be used.
        """
        return self._change(lease, {"worker": _NOBODY, "expires": 0.0})

    @ride_out
    def live(self, searches: Sequence[str]) -> set[tuple[str, int]]:
        """What is held now, as (search, number).

        Raises:
            StudyError: the database cannot be used.
        """
        return {
            (h.lease.search, h.lease.number)
            for h in self.held(searches)
            if h.seconds_left > 0
        }

    def held(self, searches: Sequence[str]) -> list[Holding]:
        """Every lease of some searches that was not released, by search and number.

        Raises:
            StudyError: the database cannot be used.
        """
        row = _TABLE.c
        query = (
            sa.select(_TABLE, self._now.label("now"))
            .where(row.search.in_(searches) & (row.worker != _NOBODY))
            .order_by(row.search, row.number)
        )
        with database_errors(self._label):
            if not sa.inspect(self._engine).has_table(_TABLE.name):
                return []
            with self._engine.connect() as connection:
                found = connection.execute(query).all()
        return [
            Holding(
                Lease(r.search, r.number, r.worker, int(r.epoch)),
                datetime.fromtimestamp(float(r.taken), UTC),
                float(r.now) - r.renewed,
                r.expires - float(r.now),
            )
            for r in found
        ]

    def _change(self, lease: Lease, values: dict) -> bool:
        row = _TABLE.c
        ours = (
            (row.search == lease.search)
            & (row.number == lease.number)
            & (row.worker == lease.worker)
            & (row.epoch == lease.epoch)
        )
        with database_errors(self._label), self._engine.begin() as connection:
            done = connection.execute(sa.update(_TABLE).where(ours).values(**values))
            return done.rowcount == 1

    def _make_table(self) -> None:
        with database_errors(self._label):
            try:
                _TABLE.create(self._engine, checkfirst=True)
            except exc.DBAPIError:
                # Two processes may find it missing at once; then one is too late.
                if not sa.inspect(self._engine).has_table(_TABLE.name):
                    raise
