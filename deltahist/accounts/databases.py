"""Databases of ledgers: a SQLite file, or a schema of a PostgreSQL database; and their transactions."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Hashable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoResultFound, TimeoutError as NoConnection

from deltahist._files import check_secret, exclusive, sync_folder
from deltahist._postgres import settle
from deltahist.accounts.tables import TABLES, LostTransactionError
from deltahist.errors import DamagedFile, InputError

#: Of the tables, in both databases.
VERSION = 1
#: Seconds to wait for other transactions: many may stand in line, and one of them may look at much data.
PATIENCE = 120.0


def database(where: str | Path) -> SQLite | PostgreSQLSchema:
    """Return the database at a path or a URL; nothing is opened.

    Raises InputError on a URL of another kind, or one that cannot be read; no message shows a password.

    >>> database("sqlite:///city.ledger").place
    'city.ledger'
    >>> database("postgresql://ann:secret@db.example.org/city").place
    'postgresql://ann@db.example.org/city'
    """
    kind, found, rest = os.fspath(where).partition("://")
    if not found or isinstance(where, Path):
        return SQLite(Path(where))
    if kind == "sqlite":
        if not rest.startswith("/") or len(rest) == 1:
            raise InputError(
                f"ledger {os.fspath(where)!r} names no file: write sqlite:///city.ledger, with three strokes, or the "
                "path alone"
            )
        return SQLite(Path(rest[1:]))
    if kind not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise InputError(
            f"ledger is a URL of {kind!r}: it must be a file (a path, or sqlite:///city.ledger) or a database "
            "(postgresql://user@host/database)"
        )
    return PostgreSQLSchema(rest)


class LedgerDatabase:
    """The common part of the databases of ledgers, whose transactions are serial, whole and durable.

    Attributes
    ----------
    place : path or URL, for messages: without a password. path : the file; None on a server.
    key : what objects for the same database have in common.
    """

    place: str
    key: Hashable
    path: Path | None = None
    _password: str | None = None
    #: Likely causes of a problem, for messages.
    _causes: ClassVar[str]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place!r})"

    def discard(self) -> None:
        """Remove a ledger without accounts, where no other process can have opened it meanwhile."""

    def problems(self) -> list[str]:
        """Return problems of the database itself, for an audit."""
        return []

    @property
    def _name(self) -> str:
        return f"ledger {self.place!r}"

    def _check_version(self, version: int) -> None:
        if version > VERSION:
            raise InputError(f"{self._name} is of version {version}: this program knows versions up to {VERSION}")

    @contextlib.contextmanager
    def translate_problems(self) -> Iterator[None]:
        """Raise problems of the database in the ledger's words."""
        try:
            yield
        except json.JSONDecodeError as problem:
            raise DamagedFile(f"{self._name} is damaged: a rule in it cannot be read ({problem})") from None
        except (DBAPIError, sqlite3.Error, NoConnection, NoResultFound, LostTransactionError) as problem:
            code = getattr(getattr(problem, "orig", None), "sqlite_errorcode", 0) & 0xFF
            damaged = code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
            raise (DamagedFile if damaged else InputError)(
                f"{self._name} cannot be used: {self._message(problem)} ({self._causes}); nothing was charged"
            ) from None

    def _message(self, problem: Exception) -> str:
        """Return the driver's words on one line, without a password, whatever the driver shows."""
        words = str(getattr(problem, "orig", None) or problem)
        words = words.replace(self._password, "***") if self._password else words
        return " ".join(words.split())[:300]


#: "dhLG": marks the file as a ledger.
_APPLICATION = 1684556871


class SQLite(LedgerDatabase):
    """A ledger in a file, with a connection for each transaction: nothing is shared with forks or threads.

    A change is on the disk before it ends (rollback journal, synchronous EXTRA).
    """

    path: Path
    _causes = "cut short, damaged, or held by another process?"

    def __init__(self, path: Path) -> None:
        self.path, self.place, self.key = path, str(path), path.absolute()

    def __reduce__(self) -> Any:
        return SQLite, (self.path,)

    @cached_property
    def _engine(self) -> Engine:
        """The engine: it keeps compiled statements, and no connections."""
        url = URL.create("sqlite", database=self.path.absolute().as_uri(), query={"uri": "true", "mode": "rw"})
        # The driver begins no transaction of its own accord: pragmas come before ours. Threads take turns in one.
        settings = {"isolation_level": None, "timeout": PATIENCE, "check_same_thread": False}
        return create_engine(url, poolclass=NullPool, connect_args=settings)

    def exists(self) -> bool:
        """Return whether a ledger is there."""
        return self.path.exists()

    def create(self) -> None:
        """Make a ledger without accounts, whole, unless another process has just made one."""
        folder = self.path.parent
        if not folder.is_dir():
            raise InputError(f"folder {str(folder)!r} of the ledger does not exist: make it first")
        handle, name = tempfile.mkstemp(prefix=".", suffix=".ledger", dir=folder)
        os.close(handle)
        try:
            with SQLite(Path(name)).begin(change=True) as connection:
                for mark in (f"application_id = {_APPLICATION}", f"user_version = {VERSION}"):
                    connection.exec_driver_sql(f"PRAGMA {mark}")
                for table, columns in TABLES.items():
                    stated = columns.format(whole="INTEGER", bytes="BLOB")
                    connection.exec_driver_sql(f"CREATE TABLE {table} ({stated})")
            # A link, unlike a renaming, never replaces a ledger that another process has just made.
            with contextlib.suppress(FileExistsError):
                os.link(name, self.path)
            sync_folder(folder)
        finally:
            os.unlink(name)

    def check(self) -> None:
        """Refuse a file that is not a whole ledger, that others can write, or that is of a newer version."""
        if not self.path.is_file():
            raise InputError(f"{self._name} is no file")
        check_secret(self.path, "ledger", readable=True)
        with self.begin(change=False) as found:
            if _pragma(found, "application_id") != _APPLICATION:
                raise DamagedFile(f"{self._name} is no ledger (cut short, or something else?); nothing was charged")
            self._check_version(_pragma(found, "user_version"))
            verdict = _pragma(found, "quick_check(1)")
            # Compared within the transaction: other processes cannot let the file grow meanwhile.
            size, there = _pragma(found, "page_count") * _pragma(found, "page_size"), self.path.stat().st_size
        if verdict != "ok" or size != there:
            raise DamagedFile(
                f"{self._name} is damaged or cut short: {verdict}, {there:,} bytes of {size:,}; nothing was charged"
            )

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        """Lock the ledger for a run; the lock ends with the process, however that ends."""
        return exclusive(self.path, "ledger")

    def discard(self) -> None:
        for path in (self.path, Path(f"{self.path}-lock")):
            path.unlink(missing_ok=True)

    def problems(self) -> list[str]:
        with self.begin(change=False) as found:
            lines = found.exec_driver_sql("PRAGMA integrity_check").scalars()
            return [f"the file is damaged: {line}" for line in lines if line != "ok"]

    @contextlib.contextmanager
    def begin(self, change: bool) -> Iterator[Connection]:
        """Begin a transaction: a look at one moment, or a change that runs alone and is durable when it ends.

        Other changes wait from the first look on, not from the first change.
        """
        if not self.path.exists():
            raise InputError(f"{self._name} is gone: nothing is published without it")
        with self.translate_problems(), self._engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA synchronous = EXTRA")
            connection.exec_driver_sql("BEGIN IMMEDIATE" if change else "BEGIN")
            mode = _pragma(connection, "journal_mode")
            if mode != "delete":
                raise DamagedFile(
                    f"{self._name} was put into journal mode {mode!r} by another program, and charges may be in "
                    f"another file, {self.path.name + '-wal'!r}: bring that file back if it is not there, then say "
                    "PRAGMA journal_mode = DELETE in sqlite3; nothing was charged"
                )
            yield connection


def _pragma(connection: Connection, pragma: str) -> Any:
    """Ask for a setting."""
    return connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one()


SCHEMA = "deltahist"
#: "dhLG": a change holds this lock of the database until its transaction ends; a run holds the next.
_CHANGING, _RUNNING = 1684556871, 1684556872
_LOCK = text("SELECT pg_advisory_xact_lock(:lock)").bindparams(lock=_CHANGING)
#: Besides what every transaction relies on.
_SETTINGS = {"search_path": SCHEMA, "synchronous_commit": "on"}
#: Of looks and of changes: who has waited for a change sees what it has done.
_ISOLATION = {False: "REPEATABLE READ", True: "READ COMMITTED"}
#: Connections that a process keeps for each of these; a thread waits for another when all are in use. Changes wait for
#: no looks, nor looks within a change for other changes.
_CONNECTIONS = 8
#: Engines of this process, and of those that it was forked off from, whose connections stay theirs.
_ENGINES: dict[tuple[int, URL, str], Engine] = {}


class PostgreSQLSchema(LedgerDatabase):
    """A ledger in the schema `deltahist` of a database, at the part of a URL that follows postgresql://.

    A change holds one lock of the database from its first look until it is committed, and is on the server's disk
    then (synchronous_commit, for the transaction). Connections are kept, shared by the threads of a process, and made
    anew by a process that forks off.
    """

    _causes = "gone away, locked by another transaction, or not allowed?"

    def __init__(self, rest: str) -> None:
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
        self._url, self._password, self.key = url, url.password, url
        # Without the password and the settings, one of which may be a password.
        shown = URL.create("postgresql", url.username, None, url.host, url.port, url.database)
        self.place = shown.render_as_string()

    def exists(self) -> bool:
        with self.begin(change=False) as connection:
            return inspect(connection).has_table("ledger")

    def create(self) -> None:
        with self.begin(change=True) as connection:
            if not inspect(connection).has_table("ledger"):
                connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
                for table, columns in {"ledger": "version INTEGER NOT NULL", **TABLES}.items():
                    stated = columns.format(whole="BIGINT", bytes="BYTEA")
                    connection.execute(text(f"CREATE TABLE {table} ({stated})"))
                connection.execute(text("INSERT INTO ledger VALUES (:version)"), {"version": VERSION})

    def check(self) -> None:
        with self.begin(change=False) as connection:
            missing = {"ledger", *TABLES} - set(inspect(connection).get_table_names(SCHEMA))
            versions = [] if "ledger" in missing else connection.scalars(text("SELECT version FROM ledger")).all()
        for version in versions:
            self._check_version(version)
        if missing or len(versions) != 1:
            why = f"it has no table {min(missing)!r}" if missing else f"it has {len(versions)} versions"
            raise DamagedFile(f"{self._name} is damaged: {why}; nothing was charged")

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        with self.translate_problems():
            connection = self._engine("AUTOCOMMIT").connect()
        try:
            with self.translate_problems():
                self._settle(connection, None)
                free = connection.scalar(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": _RUNNING})
            if not free:
                raise InputError(f"{self._name} is in use: another process publishes from it; wait until it ends")
            yield
        finally:
            # The server may be gone, or the lock may be another's; else it is free at once.
            with contextlib.suppress(DBAPIError):
                connection.execute(text("SELECT pg_advisory_unlock_all()"))
            connection.close()

    @contextlib.contextmanager
    def begin(self, change: bool) -> Iterator[Connection]:
        isolation = _ISOLATION[change]
        with self.translate_problems(), self._engine(isolation).connect() as connection:
            self._settle(connection, isolation.lower())
            if change:
                connection.execute(_LOCK)
            yield connection
            try:
                connection.commit()
            except DBAPIError as problem:
                if not change:
                    raise
                # The server may have committed before the connection broke.
                raise InputError(
                    f"{self._name} went away while a charge was committed: {self._message(problem)}; whether it was "
                    "charged is not known, and nothing is handed out: ask again with the same key, which charges once"
                ) from None

    def _engine(self, isolation: str) -> Engine:
        """Return the engine of this process for transactions of one kind."""
        key = (os.getpid(), self._url, isolation)
        if key not in _ENGINES:
            made = create_engine(
                self._url,
                isolation_level=isolation,
                connect_args={} if "connect_timeout" in self._url.query else {"connect_timeout": 10},
                pool_size=_CONNECTIONS,
                max_overflow=0,
                pool_timeout=PATIENCE,
                pool_pre_ping=True,
            )
            # Another thread may have been faster: one of the two stays.
            _ENGINES.setdefault(key, made)
        return _ENGINES[key]

    def _settle(self, connection: Connection, isolation: str | None) -> None:
        timeouts = {"lock_timeout": str(round(1000 * PATIENCE)), "statement_timeout": "0"}

        def run(statement: str, values: Mapping[str, Any]) -> Any:
            return connection.exec_driver_sql(statement, dict(values)).one()

        settle(run, self._name, _SETTINGS, isolation, timeouts=timeouts)
