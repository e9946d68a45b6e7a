"""Databases of ledgers: a SQLite file, or a schema of a PostgreSQL database, by path or URL.

`LedgerDatabase` is what both have in common; how each of them locks, writes and checks stands in its own class.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

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
    func,
    insert,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError, TimeoutError as NoConnection

from deltahist._files import check_secret, exclusive, sync_folder
from deltahist._postgres import settle
from deltahist.accounts import tables
from deltahist.accounts.tables import TABLES, Accounts
from deltahist.errors import DamagedFile, InputError

#: Of the tables, in both databases.
VERSION = 1


def database(where: str | Path) -> LedgerDatabase:
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


class LedgerDatabase(ABC):
    """The database of one ledger, whose transactions are serial, whole and durable.

    Attributes
    ----------
    place : path or URL, for messages: without a password. path : the file; None on a server.
    """

    place: str
    path: Path | None = None
    #: Likely causes of a problem, for messages.
    _causes: ClassVar[str]

    @contextlib.contextmanager
    def read(self) -> Iterator[Accounts]:
        """Read the accounts as they are at one moment."""
        with self._begin_read() as connection:
            yield Accounts(connection)

    @contextlib.contextmanager
    def change(self) -> Iterator[Accounts]:
        """Change the accounts, alone and durably: others wait from the first look on, not from the first change."""
        with self._begin_change() as connection:
            yield Accounts(connection)

    @abstractmethod
    def exists(self) -> bool:
        """Return whether a ledger is there."""

    @abstractmethod
    def create(self) -> None:
        """Make a ledger without accounts, whole, unless another process has just made one."""

    @abstractmethod
    def check(self) -> None:
        """Refuse whatever is no whole ledger, or one of a newer version."""

    @abstractmethod
    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        """Lock the ledger for a run; the lock ends with the process, however that ends."""

    @abstractmethod
    def discard(self) -> None:
        """Remove a ledger without accounts, within its transaction, where no other process can have opened it."""

    def problems(self) -> list[str]:
        """Return problems of the database itself, for an audit."""
        return []

    @abstractmethod
    def _begin_read(self) -> contextlib.AbstractContextManager[Connection]:
        """Begin a transaction that sees one moment."""

    @abstractmethod
    def _begin_change(self) -> contextlib.AbstractContextManager[Connection]:
        """Begin a transaction that runs alone, and commit it durably."""

    @property
    def _what(self) -> str:
        return f"ledger {self.place!r}"

    @contextlib.contextmanager
    def _translate_problems(self) -> Iterator[None]:
        """Raise problems of the database in the ledger's words."""
        try:
            yield
        except json.JSONDecodeError as problem:
            raise DamagedFile(f"{self._what} is damaged: a rule in it cannot be read ({problem})") from None
        except NoConnection:
            raise InputError(
                f"{self._what} cannot be used: all connections of this process wait for other transactions; nothing "
                "was charged"
            ) from None
        except DBAPIError as problem:
            raise (DamagedFile if _code(problem) in _DAMAGED else InputError)(
                f"{self._what} cannot be used: {self._message(problem)} ({self._causes}); nothing was charged"
            ) from None

    def _message(self, problem: SQLAlchemyError) -> str:
        """Return the driver's words on one line."""
        return " ".join(str(getattr(problem, "orig", None) or problem).split())[:300]


# ---------------------------------------------------------------------------------- SQLite

#: "dhLG": marks the file as a ledger.
_APPLICATION = 1684556871
#: What SQLite calls "synchronous EXTRA".
_EXTRA = 3
#: Seconds between two tries to begin a change, at most: SQLite itself would try less and less often, and may never win.
_PAUSE = 0.01
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class SQLite(LedgerDatabase):
    """A ledger in a file, with a connection for each transaction: nothing is shared with forks or threads.

    A change is on the disk before `change` ends (rollback journal, synchronous EXTRA).
    """

    path: Path
    _causes = "cut short, damaged, or held by another process?"

    def __init__(self, path: Path) -> None:
        self.path, self.place = path, str(path)

    def __repr__(self) -> str:
        return f"SQLite({self.place!r})"

    def exists(self) -> bool:
        """Return whether the file is there."""
        return self.path.exists()

    def create(self) -> None:
        """Make the file, without accounts, unless another process has just made it."""
        folder = self.path.parent
        if not folder.is_dir():
            raise InputError(f"folder {str(folder)!r} of the ledger does not exist: make it first")
        handle, name = tempfile.mkstemp(prefix=".", suffix=".ledger", dir=folder)
        os.close(handle)
        try:
            with self._translate_problems(), self._connect(Path(name), "BEGIN") as connection:
                for mark in (f"application_id = {_APPLICATION}", f"user_version = {VERSION}"):
                    connection.exec_driver_sql(f"PRAGMA {mark}")
                TABLES.create_all(connection, checkfirst=False)
            with open(name, "rb+") as file:
                os.fsync(file.fileno())
            # A link, unlike a renaming, never replaces a ledger that another process has just made.
            with contextlib.suppress(FileExistsError):
                os.link(name, self.path)
            sync_folder(folder)
        finally:
            os.unlink(name)

    def check(self) -> None:
        """Refuse a file that is not a whole ledger, that others can write, or that is of a newer version."""
        if not self.path.is_file():
            raise InputError(f"{self._what} is no file")
        check_secret(self.path, "ledger", readable=True)
        with self._begin_read() as found:
            if _pragma(found, "application_id") != _APPLICATION:
                why = "it is empty (cut short?)" if self.path.stat().st_size == 0 else "it is something else"
                raise DamagedFile(f"{self._what} is no ledger: {why}; nothing was charged")
            version = _pragma(found, "user_version")
            if version > VERSION:
                raise InputError(
                    f"{self._what} is of version {version}: this program knows versions up to {VERSION}"
                )
            verdict = _pragma(found, "quick_check")
            # Compared within the transaction: other processes cannot let the file grow meanwhile.
            size = _pragma(found, "page_count") * _pragma(found, "page_size")
            there = self.path.stat().st_size
            for table in TABLES.sorted_tables:
                found.execute(select(func.count()).select_from(table))
        if verdict != "ok" or size != there:
            detail = verdict if verdict != "ok" else f"{there:,} bytes instead of {size:,}"
            raise DamagedFile(f"{self._what} is damaged or cut short: {detail}; nothing was charged")

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        """Lock a file beside the ledger."""
        return exclusive(self.path, "ledger")

    def discard(self) -> None:
        """Remove the file, and that of its lock."""
        for path in (self.path, Path(f"{self.path}-lock")):
            path.unlink(missing_ok=True)

    def problems(self) -> list[str]:
        """Return what SQLite itself finds wrong with the whole file."""
        with self._begin_read() as found:
            damage = [str(row[0]) for row in found.exec_driver_sql("PRAGMA integrity_check")]
            strays = found.exec_driver_sql("PRAGMA foreign_key_check").all()
        return [f"the file is damaged: {line}" for line in damage if line != "ok"] + [
            f"a row of table {row[0]!r} belongs to no account" for row in strays
        ]

    @contextlib.contextmanager
    def _begin_read(self) -> Iterator[Connection]:
        with self._translate_problems(), self._connect(self.path, "BEGIN") as connection:
            yield connection

    @contextlib.contextmanager
    def _begin_change(self) -> Iterator[Connection]:
        # Threads of this process wait here, where waiting costs nothing, and the others at the file.
        turn = _TURNS.setdefault(self.path.resolve(), threading.Lock())
        first = turn.acquire(timeout=tables.PATIENCE)
        try:
            with self._translate_problems(), self._connect(self.path, "BEGIN IMMEDIATE") as connection:
                yield connection
        finally:
            if first:
                turn.release()

    @contextlib.contextmanager
    def _connect(self, path: Path, statement: str) -> Iterator[Connection]:
        """Connect to a file, begin a transaction by a statement, and commit it at the end."""
        if not path.exists():
            raise InputError(f"{self._what} is gone: nothing is published without it")
        path = path.resolve()  # at every use: a path may be relative, or a link
        # Looked for before SQLite makes one. The ledger's own bytes are SQLite's to read: a file that this process
        # opens and closes by itself takes away the locks that other threads of the process have on the ledger.
        changes = Path(f"{path}-wal")
        waiting = changes.exists() and changes.stat().st_size > 0
        url = URL.create("sqlite", database=path.as_uri(), query={"uri": "true", "mode": "rw"})
        # The driver begins no transaction of its own accord: pragmas come before ours.
        with _engine(url, "file").begin() as connection:
            self._end_wal(connection, changes.name, waiting)
            _pragma(connection, f"synchronous = {_EXTRA}")
            _begin_in_turn(connection, statement)
            self._check_durable(connection)
            yield connection

    def _end_wal(self, connection: Connection, changes: str, waiting: bool) -> None:
        """Bring charges back into the file itself, if another program has put them into a second one (WAL).

        Raises DamagedFile unless the second one is there: charges may have been in it.
        """
        _pragma(connection, f"busy_timeout = {round(1000 * tables.PATIENCE)}")
        if _pragma(connection, "journal_mode") != "wal":
            return
        if not waiting:
            raise DamagedFile(
                f"{self._what} was put into WAL mode by another program, and its file of changes, {changes!r}, is not "
                "beside it, or is empty: charges may have been in that; bring it back, or, if nothing was lost, say "
                "PRAGMA journal_mode = DELETE in sqlite3"
            )
        try:
            for pragma in ("busy_timeout = 5000", f"synchronous = {_EXTRA}", "journal_mode = DELETE"):
                _pragma(connection, pragma)
        except DBAPIError as problem:
            raise InputError(
                f"{self._what} was put into WAL mode by another program, which does not go back: {problem.orig} (is it "
                "open there?); nothing was charged"
            ) from None

    def _check_durable(self, connection: Connection) -> None:
        """Refuse a transaction that would not be on the disk, in this file, at its end."""
        found = [_pragma(connection, name) for name in ("journal_mode", "synchronous")]
        if found != ["delete", _EXTRA]:
            raise InputError(
                f"{self._what} has journal_mode {found[0]!r} and synchronous {found[1]}: charges must be on the disk, "
                f"in the file itself ('delete' and {_EXTRA}); does another program change it? Nothing was charged"
            )


def _begin_in_turn(connection: Connection, statement: str) -> None:
    """Begin a transaction; a change waits until no other process is at it, and tries as often as any newcomer."""
    end = time.monotonic() + tables.PATIENCE
    _pragma(connection, "busy_timeout = 0")
    while True:
        try:
            connection.exec_driver_sql(statement)
            break
        except DBAPIError as problem:
            if _code(problem) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(random.uniform(0, _PAUSE))
    _pragma(connection, f"busy_timeout = {round(1000 * tables.PATIENCE)}")


def _pragma(connection: Connection, pragma: str) -> Any:
    """Set or ask a setting; a pragma takes no parameters."""
    found = connection.exec_driver_sql(f"PRAGMA {pragma}")
    return found.scalar() if found.returns_rows else None


def _code(problem: DBAPIError) -> int | None:
    """Return SQLite's code of a problem, without the details of the extended code."""
    code = getattr(problem.orig, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


# ---------------------------------------------------------------------------------- PostgreSQL

SCHEMA = "deltahist"
_VERSIONS = MetaData()
_LEDGER = Table("ledger", _VERSIONS, Column("version", Integer, nullable=False))
#: "dhLG": a change holds this lock of the database until its transaction ends; a run holds the next.
_CHANGING, _RUNNING = 1684556871, 1684556872
#: Connections that a process keeps for changes, and for looks; a thread waits for another when all are in use.
_CONNECTIONS = 8
#: Besides what every transaction relies on.
_SETTINGS = {"search_path": SCHEMA, "synchronous_commit": "on"}
_LOCK = text("SELECT pg_advisory_xact_lock(:lock)").bindparams(lock=_CHANGING)


class PostgreSQLSchema(LedgerDatabase):
    """A ledger in the schema `deltahist` of a database, at what follows postgresql:// in a URL.

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
        self._url = url
        # Without the password and the settings, one of which may be a password.
        shown = URL.create("postgresql", url.username, None, url.host, url.port, url.database)
        self.place = shown.render_as_string()

    def __repr__(self) -> str:
        return f"PostgreSQLSchema({self.place!r})"

    def exists(self) -> bool:
        """Return whether a ledger is there."""
        with self._begin_read() as connection:
            return inspect(connection).has_table(_LEDGER.name)

    def create(self) -> None:
        """Make the schema and its tables, unless another process has just made them."""
        with self._begin_change() as connection:
            if inspect(connection).has_table(_LEDGER.name):
                return
            connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
            for tables in (_VERSIONS, TABLES):
                tables.create_all(connection, checkfirst=False)
            connection.execute(insert(_LEDGER), {"version": VERSION})

    def check(self) -> None:
        """Refuse a schema that is not a whole ledger, or is of a newer version."""
        with self._begin_read() as connection:
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
        """Keep the schema: another process may just have opened it."""

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock the ledger for a run; the lock ends with the connection, and so with the process."""
        with self._translate_problems():
            connection = _engine(self._url, "run").connect()
        try:
            with self._translate_problems():
                self._settle(connection, None)
                free = connection.scalar(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": _RUNNING})
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

    @contextlib.contextmanager
    def _begin_read(self) -> Iterator[Connection]:
        with self._translate_problems(), _engine(self._url, "look").begin() as connection:
            self._settle(connection, "repeatable read")
            yield connection

    @contextlib.contextmanager
    def _begin_change(self) -> Iterator[Connection]:
        with self._translate_problems(), _engine(self._url, "change").connect() as connection:
            transaction = connection.begin()
            with transaction:
                self._settle(connection, "read committed")
                connection.execute(_LOCK)
                yield connection
                try:
                    transaction.commit()
                except DBAPIError as problem:  # the server may have committed before the connection broke
                    raise InputError(
                        f"{self._what} went away while a charge was committed: {self._message(problem)}; whether it "
                        "was charged is not known, and nothing is handed out: ask again with the same key, which "
                        "charges once"
                    ) from None

    def _settle(self, connection: Connection, isolation: str | None) -> None:
        timeouts = {"lock_timeout": str(round(1000 * tables.PATIENCE)), "statement_timeout": "0"}

        def run(statement: str, values: Mapping[str, Any]) -> Any:
            return connection.exec_driver_sql(statement, dict(values)).one()

        settle(run, self._what, _SETTINGS, isolation, timeouts=timeouts)

    def _message(self, problem: SQLAlchemyError) -> str:
        """Return the driver's words on one line, without a password, whatever the driver shows."""
        words, password = super()._message(problem), self._url.password
        return words.replace(password, "***") if password else words


# ---------------------------------------------------------------------------------- engines

#: Statements stay compiled with their engine, and connections to a server open.
_ENGINES: dict[tuple[URL, str], Engine] = {}
#: Engines of the process that this one was forked off from: to let go of them would close its connections.
_INHERITED: list[dict[tuple[URL, str], Engine]] = []
#: Threads of this process wait for a change of a SQLite file.
_TURNS: dict[Path, threading.Lock] = {}
#: Files whose statements stay compiled.
_MOST_FILES = 64


def _engine(url: URL, use: str) -> Engine:
    """Return the engine for a use; changes wait for no looks, nor looks within a change for other changes."""
    found = _ENGINES.get((url, use))
    if found is None:
        options: dict[str, Any] = {"poolclass": NullPool}
        if use == "file":
            options["connect_args"] = {"isolation_level": None}
        else:
            options["connect_args"] = {} if "connect_timeout" in url.query else {"connect_timeout": 10}
            options["isolation_level"] = {"look": "REPEATABLE READ", "change": "READ COMMITTED"}.get(use, "AUTOCOMMIT")
        if use in ("look", "change"):
            del options["poolclass"]
            options |= {"pool_size": _CONNECTIONS, "max_overflow": 0, "pool_timeout": tables.PATIENCE}
            options["pool_pre_ping"] = True
        # Another thread may have been faster: one of the two stays.
        found = _ENGINES.setdefault((url, use), create_engine(url, **options))
        # Engines of files hold no connections: the oldest may go.
        for oldest in [key for key in list(_ENGINES) if key[1] == "file"][:-_MOST_FILES]:
            _ENGINES.pop(oldest, None)
    return found


def _forget() -> None:
    """Let go of engines and turns after a fork: other threads of the parent may hold their locks."""
    global _ENGINES
    _INHERITED.append(_ENGINES)
    _ENGINES = {}
    _TURNS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
