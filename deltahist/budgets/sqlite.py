"""A ledger's database in one SQLite file; whatever holds for SQLite only stands here.

The file is made whole or not at all, looked at before it is used, and changed by one connection at a time.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, func, select
from sqlalchemy.exc import DBAPIError

from deltahist._files import check_secret, sync_folder
from deltahist.budgets import accounts
from deltahist.budgets.accounts import TABLES, Accounts
from deltahist.budgets.turns import Line
from deltahist.errors import DamagedFile, InputError

#: "dhLG": marks the file as a ledger.
_APPLICATION = 1684556871
VERSION = 1
#: A pragma takes no parameters.
_MARKS = (f"PRAGMA application_id = {_APPLICATION}", f"PRAGMA user_version = {VERSION}")
#: What SQLite calls "synchronous EXTRA".
_EXTRA = 3
#: Seconds between two tries to begin a change, at most: SQLite itself would try less and less often, and may never win.
_PAUSE = 0.01


@dataclass(frozen=True)
class SQLiteFile:
    """The file of a ledger, with a connection of its own for each piece of work: nothing is shared with forks or
    threads.

    A change is on the disk before `change` ends (rollback journal, synchronous EXTRA).
    """

    path: Path

    @property
    def place(self) -> str:
        """The path."""
        return str(self.path)

    def exists(self) -> bool:
        """Whether the file is there."""
        return self.path.exists()

    @contextlib.contextmanager
    def read(self) -> Iterator[Accounts]:
        """The accounts as they stand at one moment."""
        with self._transaction("BEGIN") as connection:
            yield Accounts(connection)

    @contextlib.contextmanager
    def change(self) -> Iterator[Accounts]:
        """The accounts, alone: others wait from the first look on, not only from the first change."""
        line = _LINES.setdefault(self.path.resolve(), Line())
        with line.turn(accounts.PATIENCE), self._transaction("BEGIN IMMEDIATE") as connection:
            yield Accounts(connection)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """A lock on the ledger; it ends with the process, however that ends."""
        with self._translated(), hold(self.path, "ledger"):
            yield

    def create(self) -> None:
        """Make the file, without accounts, unless another process has just made it."""
        folder = self.path.parent
        if not folder.is_dir():
            raise InputError(f"folder {str(folder)!r} of the ledger does not exist: make it first")
        handle, name = tempfile.mkstemp(prefix=".", suffix=".ledger", dir=folder)
        os.close(handle)
        try:
            engine = _new_engine(Path(name).resolve(), "rw", accounts.PATIENCE)
            with self._translated(), _connection(engine, "BEGIN") as connection, connection.begin():
                for mark in _MARKS:
                    connection.exec_driver_sql(mark)
                TABLES.create_all(connection, checkfirst=False)
            with open(name, "rb+") as file:
                os.fsync(file.fileno())
            # A link, unlike a renaming, never replaces a ledger that another process has just made.
            with contextlib.suppress(FileExistsError):
                os.link(name, self.path)
            sync_folder(folder)
        finally:
            os.unlink(name)

    def discard(self) -> None:
        """Remove the file, and that of its lock."""
        for path in (self.path, Path(f"{self.path}-lock")):
            path.unlink(missing_ok=True)

    def problems(self) -> list[str]:
        """What SQLite itself finds wrong with the whole file."""
        with self._transaction("BEGIN") as found:
            said = [str(row[0]) for row in found.exec_driver_sql("PRAGMA integrity_check")]
            strays = found.exec_driver_sql("PRAGMA foreign_key_check").all()
        return [f"the file is damaged: {line}" for line in said if line != "ok"] + [
            f"a row of table {row[0]!r} belongs to no account" for row in strays
        ]

    def check(self) -> None:
        """Refuse a file that is not a whole ledger, before anything is done with it."""
        if not self.path.is_file():
            raise InputError(f"{self._what} is no file")
        check_secret(self.path, "ledger", readable=True)
        with self._transaction("BEGIN") as found:
            if _pragma(found, "PRAGMA application_id") != _APPLICATION:
                why = "it is empty (cut short?)" if self.path.stat().st_size == 0 else "it is something else"
                raise DamagedFile(f"{self._what} is no ledger: {why}; nothing was charged")
            version = _pragma(found, "PRAGMA user_version")
            if version > VERSION:
                raise InputError(
                    f"{self._what} is of version {version}: this program knows versions up to {VERSION}"
                )
            verdict = _pragma(found, "PRAGMA quick_check")
            # Compared within the transaction: other processes cannot let the file grow meanwhile.
            size = _pragma(found, "PRAGMA page_count") * _pragma(found, "PRAGMA page_size")
            there = self.path.stat().st_size
            for table in TABLES.sorted_tables:
                found.execute(select(func.count()).select_from(table))
        if verdict != "ok" or size != there:
            detail = verdict if verdict != "ok" else f"{there:,} bytes instead of {size:,}"
            raise DamagedFile(f"{self._what} is damaged or cut short: {detail}; nothing was charged")

    @property
    def _what(self) -> str:
        return f"ledger {str(self.path)!r}"

    def _end_wal(self) -> None:
        """Let charges be in the file itself again, if another program has put them into a second one (WAL).

        Raises DamagedFile if the second one is not there: charges may have been in it.
        """
        path = self.path.resolve()
        changes = Path(f"{path}-wal")
        # Looked for before SQLite makes one. The ledger's own bytes are SQLite's to read: a file that this process
        # opens and closes by itself takes away the locks that other threads of the process have on the ledger.
        there = changes.exists() and changes.stat().st_size > 0
        opened = sqlite3.connect(f"{path.as_uri()}?mode=rw", accounts.PATIENCE, isolation_level=None, uri=True)
        with contextlib.closing(opened) as alone:
            if alone.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                return
            if not there:
                raise DamagedFile(
                    f"{self._what} was put into WAL mode by another program, and its file of changes, "
                    f"{changes.name!r}, is not beside it, or is empty: charges may have been in that; bring it back, "
                    "or, if nothing was lost, say PRAGMA journal_mode = DELETE in sqlite3"
                )
            try:
                alone.execute("PRAGMA busy_timeout = 5000")
                alone.execute(f"PRAGMA synchronous = {_EXTRA}")
                alone.execute("PRAGMA journal_mode = DELETE")
            except sqlite3.OperationalError as problem:
                raise InputError(
                    f"{self._what} was put into WAL mode by another program, which does not go back: {problem} (is it "
                    "open there?); nothing was charged"
                ) from None

    def _check_durable(self, connection: Connection) -> None:
        """Refuse a transaction that would not be on the disk, in this file, at its end."""
        found = [_pragma(connection, f"PRAGMA {name}") for name in ("journal_mode", "synchronous")]
        if found != ["delete", _EXTRA]:
            raise InputError(
                f"{self._what} has journal_mode {found[0]!r} and synchronous {found[1]}: charges must be on the disk, "
                f"in the file itself ('delete' and {_EXTRA}); does another program change it? Nothing was charged"
            )

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        if not self.path.exists():
            raise InputError(f"{self._what} is gone: nothing is published without it")
        with self._translated():
            self._end_wal()
        # Resolved at every use: a path may be relative, or a link.
        engine = _engine(self.path.resolve(), "rw", accounts.PATIENCE)
        with self._translated(), _connection(engine, begin) as connection, connection.begin():
            self._check_durable(connection)
            yield connection

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Problems of the database, in the ledger's words."""
        try:
            yield
        except json.JSONDecodeError as problem:
            raise DamagedFile(f"{self._what} is damaged: a rule in it cannot be read ({problem})") from None
        except (DBAPIError, sqlite3.Error) as problem:
            found = problem.orig if isinstance(problem, DBAPIError) else problem
            damaged = _code(found) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
            raise (DamagedFile if damaged else InputError)(
                f"{self._what} cannot be used: {found} (cut short, damaged, or held by another process?); "
                "nothing was charged"
            ) from None


@contextlib.contextmanager
def hold(path: Path, what: str) -> Iterator[None]:
    """A lock on a file beside `path`; it ends with the process, however that ends.

    Raises InputError if another process holds it.
    """
    with contextlib.ExitStack() as held:
        try:
            engine = _engine(Path(f"{path.resolve()}-lock"), "rwc", 0.0)
            # It is never committed: the file stays empty.
            held.enter_context(_connection(engine, "BEGIN EXCLUSIVE")).begin()
        except DBAPIError as problem:
            if _code(problem.orig) != sqlite3.SQLITE_BUSY:
                raise InputError(
                    f"{what} {str(path)!r} cannot be locked: {problem.orig} (may its folder be written?)"
                ) from None
            raise InputError(
                f"{what} {str(path)!r} is in use: another process publishes from it; wait until it ends"
            ) from None
        yield


def _new_engine(path: Path, mode: str, patience: float) -> Engine:
    """An engine that keeps no connection, and whose transactions begin as each connection is told to."""
    url = URL.create("sqlite", database=path.as_uri(), query={"uri": "true", "mode": mode})
    # The driver begins none of its own accord.
    options = {"timeout": patience, "isolation_level": None}
    engine = create_engine(url, poolclass=NullPool, connect_args=options)

    @event.listens_for(engine, "connect")
    def durable(connection: sqlite3.Connection, record: Any) -> None:
        connection.execute(f"PRAGMA synchronous = {_EXTRA}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        statement = connection.get_execution_options()["begin"]
        if statement == "BEGIN IMMEDIATE":
            _begin_in_turn(connection, patience)
        else:
            connection.exec_driver_sql(statement)

    return engine


def _begin_in_turn(connection: Connection, patience: float) -> None:
    """Begin a change once no other process is at it: who waits long tries as often as who has just come."""
    end = time.monotonic() + patience
    connection.exec_driver_sql("PRAGMA busy_timeout = 0")
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    while not driver.in_transaction:
        try:
            driver.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                connection.exec_driver_sql("BEGIN IMMEDIATE")  # what it raises is the problem in SQLAlchemy's form
            time.sleep(random.uniform(0, _PAUSE))
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {round(1000 * patience)}")


#: Statements stay compiled with their engine.
_engine = functools.lru_cache(maxsize=64)(_new_engine)
#: Threads that stand in line for a change, by the ledger's file.
_LINES: dict[Path, Line] = {}


def _forget() -> None:
    """Another thread may hold an engine's locks, or the first place in a line, when a process forks."""
    _engine.cache_clear()
    _LINES.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _connection(engine: Engine, begin: str) -> Connection:
    """A connection of its own, whose transactions begin with a statement."""
    return engine.connect().execution_options(begin=begin)


def _pragma(connection: Connection, statement: str) -> Any:
    return connection.exec_driver_sql(statement).scalar()


def _code(problem: BaseException | None) -> int | None:
    """What SQLite calls the problem, without the details of the extended code."""
    code = getattr(problem, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
