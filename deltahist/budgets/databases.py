"""Where a ledger is kept: a SQLite file, or a PostgreSQL database by its URL."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.budgets.accounts import Accounts


class LedgerDatabase(Protocol):
    """What a ledger asks of its database; nothing here depends on which one it is."""

    @property
    def place(self) -> str:
        """Where it is, for people: without a password."""

    @property
    def path(self) -> Path | None:
        """The file; None for a database of a server."""

    def exists(self) -> bool:
        """Whether a ledger is there."""

    def create(self) -> None:
        """Make a ledger without accounts, whole, unless another process has just made it."""

    def check(self) -> None:
        """Refuse what is no whole ledger, before anything is done with it."""

    def discard(self) -> None:
        """Leave nothing behind of a ledger without accounts, as far as it can; within its transaction."""

    def read(self) -> AbstractContextManager[Accounts]:
        """The accounts as they stand at one moment."""

    def change(self) -> AbstractContextManager[Accounts]:
        """The accounts, alone, durably: others wait from the first look on, not only from the first change."""

    def alone(self) -> AbstractContextManager[None]:
        """A lock on the ledger; it ends with the process, however that ends."""

    def problems(self) -> list[str]:
        """What is wrong with the database itself, for an audit."""


def database(where: str | Path) -> LedgerDatabase:
    """The database at a path or a URL; nothing is opened.

    Raises InputError on a URL of another kind, or one that cannot be read; it never shows what may be a password.

    >>> database("sqlite:///city.ledger").place
    'city.ledger'
    >>> database("postgresql://ann:secret@db.example.org/city").place
    'postgresql://ann@db.example.org/city'
    """
    kind, found, rest = os.fspath(where).partition("://")
    if not found or isinstance(where, Path):
        # SQLAlchemy takes long to import: only who opens a ledger waits for it.
        from deltahist.budgets.sqlite import SQLiteFile

        return SQLiteFile(Path(where))
    if kind == "sqlite":
        if not rest.startswith("/") or len(rest) == 1:
            raise InputError(
                f"ledger {os.fspath(where)!r} names no file: write sqlite:///city.ledger, with three strokes, or the "
                "path alone"
            )
        return database(Path(rest[1:]))
    if kind not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise InputError(
            f"ledger is a URL of {kind!r}: it must be a file (a path, or sqlite:///city.ledger) or a database "
            "(postgresql://user@host/database)"
        )
    from deltahist.budgets.postgres import PostgreSQL

    return PostgreSQL.at(rest)
