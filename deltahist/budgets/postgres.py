"""A ledger in a PostgreSQL database, in a schema of its own; whatever holds for PostgreSQL only stands here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    NullPool,
    Table,
    create_engine,
    insert,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError, TimeoutError as NoConnection

from deltahist._postgres import settle
from deltahist.budgets import accounts
from deltahist.budgets.accounts import TABLES, Accounts
from deltahist.errors import DamagedFile, InputError

SCHEMA = "deltahist"
VERSION = 1
_VERSIONS = MetaData()
_LEDGER = Table("ledger", _VERSIONS, Column("version", Integer, nullable=False))

#: "dhLG": what changes the ledger holds this lock of the database until its transaction ends; a run alone the next.
_CHANGING, _ALONE = 1684556871, 1684556872
#: Connections that a process keeps for changes, and for looks; one thread waits for another when all are in use.
_CONNECTIONS = 8
#: Besides what every transaction relies on.
_SETTINGS = {"search_path": SCHEMA, "synchronous_commit": "on"}
_LOCK = text("SELECT pg_advisory_xact_lock(:lock)").bindparams(lock=_CHANGING)


@dataclass(frozen=True)
class PostgreSQL:
    """The schema `deltahist` of a database: one ledger.

    A change holds one lock of the database from its first look until it is committed, and is on the server's disk
    then (synchronous_commit, for the transaction). Connections are kept, shared by the threads of a process, and made
    anew by a process that forks off.
    """

    url: URL = field(repr=False)

    @classmethod
    def at(cls, rest: str) -> PostgreSQL:
        """The database at what follows postgresql:// in a URL. InputError if it cannot be read, or has no driver."""
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise InputError(
                "a ledger in PostgreSQL needs a driver that is not installed: pip install 'deltahist[postgresql]'"
            ) from None
        try:
            url = make_url(f"postgresql+psycopg://{rest}")
        except (ArgumentError, ValueError):
            url = None
        if url is None or not url.database:
            raise InputError(
                "the URL of the ledger cannot be read (it is not shown, it may hold a password): write "
                "postgresql://user:password@host/database, with %40 for an @ in a password, and %2F for a stroke"
            )
        return cls(url)

    @cached_property
    def place(self) -> str:
        """The URL without its password and its settings, one of which may be a password."""
        shown = URL.create(
            "postgresql", self.url.username, None, self.url.host, self.url.port, self.url.database
        )
        return shown.render_as_string()

    @property
    def path(self) -> None:
        """It has no file."""

    def exists(self) -> bool:
        """Whether a ledger is there."""
        with self._looking() as connection:
            return inspect(connection).has_table(_LEDGER.name)

    def create(self) -> None:
        """Make the schema and its tables, unless another process has just made them."""
        with self._changing() as connection:
            if inspect(connection).has_table(_LEDGER.name):
                return
            connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
            for tables in (_VERSIONS, TABLES):
                tables.create_all(connection, checkfirst=False)
            connection.execute(insert(_LEDGER), {"version": VERSION})

    def check(self) -> None:
        """Refuse a schema that is not a whole ledger, or is of a newer version."""
        with self._looking() as connection:
            if not inspect(connection).has_table(_LEDGER.name):
                raise DamagedFile(f"{self._what} is gone: nothing is published without it")
            versions = list(connection.scalars(select(_LEDGER.c.version)))
            if len(versions) == 1 and versions[0] > VERSION:
                raise InputError(
                    f"{self._what} is of version {versions[0]}: this program knows versions up to {VERSION}"
                )
            there = set(inspect(connection).get_table_names(SCHEMA))
        missing = sorted(TABLES.tables.keys() - there)
        if missing or len(versions) != 1:
            why = f"it has no table {missing[0]!r}" if missing else f"it has {len(versions)} versions"
            raise DamagedFile(f"{self._what} is damaged: {why}; nothing was charged")

    def discard(self) -> None:
        """Nothing: a schema without accounts may be what another process has just opened."""

    def problems(self) -> list[str]:
        """None that can be asked for: the server looks after its own files."""
        return []

    @contextlib.contextmanager
    def read(self) -> Iterator[Accounts]:
        """The accounts as they stand at one moment."""
        with self._looking() as connection:
            yield Accounts(connection)

    @contextlib.contextmanager
    def change(self) -> Iterator[Accounts]:
        """The accounts, alone: others wait from the first look on, not only from the first change."""
        with self._changing() as connection:
            yield Accounts(connection)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """A lock on the ledger; it ends with the connection, and so with the process."""
        with self._translated():
            connection = _engine(self.url, "alone").connect()
        try:
            with self._translated():
                self._settle(connection, None)
                free = connection.scalar(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": _ALONE})
            if not free:
                raise InputError(
                    f"{self._what} is in use: another process publishes from it; wait until it ends"
                )
            yield
        finally:
            # The server may be gone, or the lock may be another's; else it is free at once.
            with contextlib.suppress(DBAPIError):
                connection.execute(text("SELECT pg_advisory_unlock_all()"))
            connection.close()

    @property
    def _what(self) -> str:
        return f"ledger {self.place!r}"

    @contextlib.contextmanager
    def _looking(self) -> Iterator[Connection]:
        with self._translated(), _engine(self.url, "look").connect() as connection, connection.begin():
            self._settle(connection, "repeatable read")
            yield connection

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Connection]:
        with self._translated(), _engine(self.url, "change").connect() as connection:
            transaction = connection.begin()
            with transaction:
                self._settle(connection, "read committed")
                connection.execute(_LOCK)
                yield connection
                try:
                    transaction.commit()
                except DBAPIError as problem:
                    self._doubt(problem)

    def _settle(self, connection: Connection, isolation: str | None) -> None:
        timeouts = {"lock_timeout": str(round(1000 * accounts.PATIENCE)), "statement_timeout": "0"}

        def run(statement: str, values: Mapping[str, Any]) -> Any:
            return connection.exec_driver_sql(statement, dict(values)).one()

        settle(run, self._what, _SETTINGS, isolation, timeouts=timeouts)

    def _doubt(self, problem: DBAPIError) -> NoReturn:
        """The connection broke while the server was committing: it may have done so."""
        raise InputError(
            f"{self._what} went away while a charge was committed: {self._said(problem)}; whether it was charged is "
            "not known, and nothing is handed out: ask again with the same key, which charges once"
        ) from None

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Problems of the database, in the ledger's words."""
        try:
            yield
        except NoConnection:
            raise InputError(
                f"{self._what} cannot be used: all connections of this process wait for other transactions; nothing "
                "was charged"
            ) from None
        except DBAPIError as problem:
            raise InputError(
                f"{self._what} cannot be used: {self._said(problem)} (gone away, locked by another transaction, or not "
                "allowed?); nothing was charged"
            ) from None

    def _said(self, problem: SQLAlchemyError) -> str:
        """The driver's words on one line, without a password, whatever it shows."""
        said = " ".join(str(getattr(problem, "orig", None) or problem).split())[:300]
        password = self.url.password
        return said.replace(password, "***") if password else said


#: Statements stay compiled with their engine, and connections open.
_ENGINES: dict[tuple[URL, str], Engine] = {}
#: Those of the process that this one was forked off from: to let go of them would close its connections.
_INHERITED: list[dict[tuple[URL, str], Engine]] = []


def _engine(url: URL, use: str) -> Engine:
    """Changes must not wait for looks, nor looks within a change for other changes: each use has its connections."""
    found = _ENGINES.get((url, use))
    if found is None:
        options: dict[str, Any] = {"isolation_level": "READ COMMITTED"}
        if use == "look":
            options = {"isolation_level": "REPEATABLE READ"}
        if use == "alone":
            options = {"isolation_level": "AUTOCOMMIT", "poolclass": NullPool}
        else:
            options |= {"pool_size": _CONNECTIONS, "max_overflow": 0, "pool_timeout": accounts.PATIENCE}
            options["pool_pre_ping"] = True
        waiting = {} if "connect_timeout" in url.query else {"connect_timeout": 10}
        # Another thread may have been faster: one of the two stays.
        found = _ENGINES.setdefault((url, use), create_engine(url, connect_args=waiting, **options))
    return found


def _forget() -> None:
    global _ENGINES
    _INHERITED.append(_ENGINES)
    _ENGINES = {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
