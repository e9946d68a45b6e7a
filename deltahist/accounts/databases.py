"""Databases for ledgers: a SQLite file, the schema `deltahist` of a PostgreSQL database, or memory."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.exc import ArgumentError, DBAPIError

from deltahist._files import check_secret, sync_folder
from deltahist._postgres import apply_settings
from deltahist.errors import DamagedFile, InputError

#: Version of the tables, stored as SQLite's user_version and in a comment on the PostgreSQL schema.
VERSION = 3
#: Application ID "dhLG", which marks a SQLite file as a ledger.
APPLICATION = 1684556871
SCHEMA = "deltahist"
#: Number of seconds to wait for other transactions.
PATIENCE = 120.0

METADATA = sa.MetaData()
#: Groups of people. `rule` limits what all accounts of a group together may spend; {} means no limit.
POPULATIONS = sa.Table(
    "populations", METADATA, sa.Column("name", sa.Text, primary_key=True), sa.Column("rule", sa.JSON, nullable=False)
)
#: In billionths: `share` is the limit of a window (None for people's own budgets), `most` is the limit of all charges
#: (None if only windows have limits), and `spent` is the sum of all charges. `notes` stores small values by key.
ACCOUNTS = sa.Table(
    "accounts",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("population", sa.Text, sa.ForeignKey(POPULATIONS.c.name), nullable=False),
    sa.Column("unit", sa.Text, nullable=False),
    sa.Column("share", sa.BigInteger),
    sa.Column("most", sa.BigInteger),
    sa.Column("spent", sa.BigInteger, nullable=False),
    sa.Column("rule", sa.JSON, nullable=False),
    sa.Column("notes", sa.JSON, nullable=False),
    sa.CheckConstraint("spent >= 0 AND (most IS NULL OR spent <= most)"),
)
CHARGES = sa.Table(
    "charges",
    METADATA,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("account", sa.Text, sa.ForeignKey(ACCOUNTS.c.name), nullable=False),
    sa.Column("step", sa.BigInteger, nullable=False),
    sa.Column("nano", sa.BigInteger, sa.CheckConstraint("nano >= 0"), nullable=False),
    sa.Column("key", sa.Text),
)
sa.Index("charges_by_step", CHARGES.c.account, CHARGES.c.step)
sa.Index(
    "charges_by_key", CHARGES.c.account, CHARGES.c.key,
    unique=True, sqlite_where=CHARGES.c.key.is_not(None), postgresql_where=CHARGES.c.key.is_not(None),
)  # fmt: skip


def find_database(where: str | Path | None) -> Database:
    """Return the database at a path or URL, or one in memory for None, without opening it. Messages hide passwords.

    >>> find_database("sqlite:///city.db").place, find_database("postgresql://ann:secret@host/city").place
    ('city.db', 'postgresql://ann@host/city')
    """
    if where is None:
        return Memory()
    kind, found, rest = os.fspath(where).partition("://")
    if not found or isinstance(where, Path):
        return SQLite(Path(where))
    if kind == "sqlite" and rest.startswith("/") and len(rest) > 1:
        return SQLite(Path(rest[1:]))
    rule = (
        "it must be sqlite:///city.db (three slashes) or postgresql://user:password@host/database, with %40 for @ and "
        "%2F for / in the password"
    )
    if kind in ("postgresql", "postgres", "postgresql+psycopg"):
        try:
            if (url := sa.make_url(f"postgresql+psycopg://{rest}")).database:
                return PostgreSQL(url)
        except (ArgumentError, ValueError):
            pass
        except ImportError:
            rule = "PostgreSQL needs a driver: pip install '.[postgresql]'"
    raise InputError(f"the ledger's URL (not shown, because it may contain a password) cannot be used: {rule}")


class Database:
    """A database that stores a ledger. Write transactions run one at a time, and are durable when they end."""

    #: The file, if there is one.
    path: Path | None = None
    _password: str | None = None

    def __init__(self, place: str, engine: sa.Engine) -> None:
        #: Path or URL without a password, for messages.
        self.place = place
        self._engine, self._turn, self._owner = engine, threading.Lock(), 0
        weakref.finalize(self, engine.dispose)
        if hasattr(os, "register_at_fork"):  # a forked process must not use pooled connections
            kept = weakref.ref(engine)
            os.register_at_fork(after_in_child=lambda: engine.dispose(close=False) if (engine := kept()) else None)

    def has_ledger(self) -> bool:
        """Return whether the database has a ledger."""
        return False

    def create_ledger(self) -> None:
        """Create an empty ledger atomically, unless another process has just created one."""

    def check_ledger(self, thorough: bool = False) -> None:
        """Raise DamagedFile if the ledger is damaged or has another version. If `thorough`, also check its indexes."""
        with self.begin_transaction(write=False) as connection:
            for fault in self._list_faults(connection, thorough):
                raise DamagedFile(f"ledger {self.place!r} cannot be used: {fault}")

    def _list_faults(self, connection: Connection, thorough: bool) -> Iterator[str]:
        """Yield the faults in the tables. A trigger is a fault too, since it might change charges."""
        yield from ()

    @contextlib.contextmanager
    def begin_transaction(self, write: bool) -> Iterator[Connection]:
        """Begin a consistent read, or an exclusive write that commits at the end and rolls back if the block raises."""
        # Writing threads take turns here, because a thread waiting for a lock would keep polling the database.
        nested = write and self._owner == threading.get_ident()
        if nested or (write and not self._turn.acquire(timeout=PATIENCE)):
            holder = "this thread" if nested else "other threads"
            raise InputError(f"ledger {self.place!r} is in use by {holder}: nothing was charged")
        try:
            self._owner = threading.get_ident() if write else self._owner
            with self._explain_problems(), self._engine.connect() as connection:
                self._prepare_transaction(connection, write)
                yield connection
                try:
                    self._commit_changes(connection)
                except DBAPIError as problem:  # a server may have committed before the connection broke
                    connection.invalidate()
                    problem.add_note("the commit failed, so it may or may not have charged: repeat with the same key")
                    raise
        finally:
            if write:
                self._owner = 0
                self._turn.release()

    def _commit_changes(self, connection: Connection) -> None:
        connection.commit()

    def _prepare_transaction(self, connection: Connection, write: bool) -> None:
        """Begin a transaction, after applying and checking its settings."""

    @contextlib.contextmanager
    def _explain_problems(self) -> Iterator[None]:
        try:
            yield
        except (json.JSONDecodeError, DBAPIError, sqlite3.Error, OverflowError) as problem:
            code = getattr(getattr(problem, "orig", problem), "sqlite_errorcode", 0) & 0xFF
            damaged = isinstance(problem, ValueError) or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
            charged = "; ".join(getattr(problem, "__notes__", ["nothing was charged"]))
            message = f"ledger {self.place!r} cannot be used: {self._describe(problem)}; {charged}"
            raise (DamagedFile if damaged else InputError)(message) from None

    def _describe(self, problem: Exception) -> str:
        text = " ".join(str(getattr(problem, "orig", None) or problem).split())[:300]
        return text.replace(self._password, "***") if self._password else text


class SQLite(Database):
    """A ledger in a SQLite file."""

    path: Path

    def __init__(self, path: Path) -> None:
        url = sa.URL.create("sqlite", database=path.absolute().as_uri(), query={"uri": "true", "mode": "rw"})
        settings = {"isolation_level": None, "timeout": PATIENCE, "check_same_thread": False}
        super().__init__(str(path), sa.create_engine(url, pool_timeout=PATIENCE, connect_args=settings))
        self.path = path

    def has_ledger(self) -> bool:
        return self.path.exists()

    def create_ledger(self) -> None:
        handle, name = tempfile.mkstemp(prefix=".", suffix=".ledger", dir=self.path.parent)
        os.close(handle)
        try:
            with SQLite(Path(name)).begin_transaction(write=True) as connection:
                connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION}")
                connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
                METADATA.create_all(connection)
            # Unlike a rename, a link never replaces a ledger that another process has just created.
            with contextlib.suppress(FileExistsError):
                os.link(name, self.path)
            sync_folder(self.path.parent)
        finally:
            for made in (name, f"{name}-journal"):
                Path(made).unlink(missing_ok=True)

    def _list_faults(self, connection: Connection, thorough: bool) -> Iterator[str]:
        check_secret(self.path, "ledger", readable=True)
        driver = connection.connection.driver_connection
        if _read_pragma(driver, "application_id") != APPLICATION:
            yield "it is not a ledger"
        if (verdict := _read_pragma(driver, "integrity_check(1)" if thorough else "quick_check(1)")) != "ok":
            yield f"it is damaged: {verdict}"
        size = _read_pragma(driver, "page_count") * _read_pragma(driver, "page_size")
        if size != (there := self.path.stat().st_size):
            yield f"it is damaged: the file has {there:,} bytes instead of {size:,}"
        if (version := _read_pragma(driver, "user_version")) != VERSION:
            yield f"it has version {version}, but this version reads version {VERSION}"
        for name in connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").scalars():
            yield f"trigger {name!r} is not deltahist's: drop it, and audit the ledger"

    def _prepare_transaction(self, connection: Connection, write: bool) -> None:
        driver: Any = connection.connection.driver_connection
        # A pooled connection keeps its old file open even after another file has replaced it.
        there = self.path.stat().st_ino if self.path.exists() else 0
        if not there or connection.info.setdefault("inode", there) != there:
            connection.invalidate()
            raise InputError(f"ledger {self.place!r} was deleted, or replaced by another file: nothing was charged")
        # Overwrite the journal instead of deleting it: equally durable, and faster.
        if _read_pragma(driver, "journal_mode") == "delete":
            driver.execute("PRAGMA journal_mode = PERSIST")
        driver.execute("PRAGMA synchronous = EXTRA")
        driver.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        # Check after locking. In WAL mode, charges may be in a second file, which can get lost.
        if (mode := _read_pragma(driver, "journal_mode")) != "persist" or _read_pragma(driver, "synchronous") != 3:
            raise DamagedFile(
                f"ledger {self.place!r} is in journal mode {mode!r}, which another program set, so charges may be in "
                f"{self.path.name}-{mode}: keep both files together and run PRAGMA journal_mode = DELETE in sqlite3"
            )

    def _commit_changes(self, connection: Connection) -> None:
        # If memory or disk space runs out, SQLite rolls back. COMMIT then fails, but `commit` would do nothing.
        connection.exec_driver_sql("COMMIT")


class Memory(Database):
    """A ledger in memory, which is lost when its process ends."""

    def __init__(self) -> None:
        self._process = os.getpid()
        settings = {"isolation_level": None, "check_same_thread": False}
        super().__init__(":memory:", sa.create_engine("sqlite://", poolclass=sa.StaticPool, connect_args=settings))

    def begin_transaction(self, write: bool) -> contextlib._GeneratorContextManager[Connection]:
        """Begin a transaction. Readers also take turns, since all transactions share one connection."""
        if self._process != os.getpid():
            raise InputError("the ledger is in another process's memory, so its budget may be spent twice: use a file")
        return super().begin_transaction(write=True)

    def create_ledger(self) -> None:
        with self.begin_transaction(write=True) as connection:
            METADATA.create_all(connection)

    def _prepare_transaction(self, connection: Connection, write: bool) -> None:
        connection.exec_driver_sql("BEGIN")


def _read_pragma(driver: Any, pragma: str) -> Any:
    return driver.execute(f"PRAGMA {pragma}").fetchone()[0]


class PostgreSQL(Database):
    """A ledger in the schema `deltahist` of a database. Writers lock the accounts table."""

    def __init__(self, url: sa.URL) -> None:
        shown = sa.URL.create("postgresql", url.username, None, url.host, url.port, url.database)
        # Connection poolers may not support prepared statements.
        settings = {"prepare_threshold": None, "connect_timeout": url.query.get("connect_timeout", 10)}
        engine = sa.create_engine(
            url, isolation_level="REPEATABLE READ", connect_args=settings, pool_pre_ping=True, pool_timeout=PATIENCE
        )
        super().__init__(shown.render_as_string(), engine)
        self._password = str(url.password) if url.password else None

    def has_ledger(self) -> bool:
        with self.begin_transaction(write=False) as connection:
            return sa.inspect(connection).has_table("accounts", SCHEMA)

    def create_ledger(self) -> None:
        with self._explain_problems(), self._engine.connect() as connection:
            connection = connection.execution_options(isolation_level="READ COMMITTED")
            self._apply_settings(connection, "read committed")
            connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({APPLICATION})"))
            if not sa.inspect(connection).has_table("accounts", SCHEMA):
                connection.execute(sa.text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
                connection.execute(sa.text(f"COMMENT ON SCHEMA {SCHEMA} IS 'version {VERSION}'"))
                METADATA.create_all(connection, checkfirst=False)
            connection.commit()

    def _list_faults(self, connection: Connection, thorough: bool) -> Iterator[str]:
        for table in METADATA.tables.keys() - sa.inspect(connection).get_table_names(SCHEMA):
            yield f"it is damaged: table {table!r} is missing"
        version = connection.scalar(sa.text(f"SELECT obj_description('{SCHEMA}'::regnamespace)"))
        if version != f"version {VERSION}":
            yield f"it has {version}, but this version reads version {VERSION}"
        names = f"""
            SELECT tgname::text FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
            WHERE relnamespace = '{SCHEMA}'::regnamespace AND NOT tgisinternal
            UNION ALL SELECT rulename::text FROM pg_rules WHERE schemaname = '{SCHEMA}'"""
        for name in connection.exec_driver_sql(names).scalars():
            yield f"trigger or rule {name!r} is not deltahist's: drop it, and audit the ledger"

    def _prepare_transaction(self, connection: Connection, write: bool) -> None:
        if write:
            # Let statements after the lock see what other transactions have committed.
            connection.execution_options(isolation_level="READ COMMITTED")
        self._apply_settings(connection, "read committed" if write else "repeatable read")
        if write:
            connection.execute(sa.text(f"LOCK TABLE {SCHEMA}.accounts IN SHARE ROW EXCLUSIVE MODE"))

    def _apply_settings(self, connection: Connection, isolation: str) -> None:
        apply_settings(
            lambda statement, values: connection.exec_driver_sql(statement, dict(values)).one(),
            f"ledger {self.place!r}",
            {"search_path": SCHEMA, "synchronous_commit": "on"},
            isolation,
            timeouts={"lock_timeout": str(round(1000 * PATIENCE)), "statement_timeout": "0"},
        )
