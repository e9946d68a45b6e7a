"""Databases that hold private records: DuckDB in this process, or PostgreSQL by its address."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from deltahist.errors import InputError


class Snapshot(Protocol):
    """One consistent look at a database."""

    def fetch(self, expression: Any) -> Any:
        """An Ibis table that is bound to no database, evaluated, as an Arrow table."""

    def planned(self, expression: Any) -> Callable[[], Any]:
        """Have the database plan an Ibis table, and return what fetches it: whatever fails here has read no record."""


class WriteTransaction(Protocol):
    """A transaction that writes."""

    def execute(self, statement: str) -> None:
        """A statement of SQL without results."""

    def append(self, table: str, rows: Any) -> None:
        """Append an Arrow table to a table with columns of these names."""


class Engine(Protocol):
    """A database, as queries and counts need it; safe to use from several threads."""

    name: str
    dialect: str

    def schema(self, table: str) -> Any:
        """The Ibis schema of a table or view; InputError if there is none of this name."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """A consistent look, which ends with the block."""

    def change(self) -> AbstractContextManager[WriteTransaction]:
        """A transaction that is committed at the end of the block, and undone if the block fails."""

    def close(self) -> None:
        """Let go of what is held open."""


def open_engine(where: Any) -> Engine:
    """A database by its path, its address, or an open DuckDB connection.

    Raises
    ------
    InputError
        If the address is of another kind, the libraries are not installed, or nothing answers.
    """
    if isinstance(where, Path) or (isinstance(where, str) and "://" not in where):
        where = f"duckdb:///{where}"
    if isinstance(where, str) and where.startswith(("postgresql://", "postgres://")):
        _needs("postgresql", "psycopg", "ibis")
        from deltahist.counts.sql.server import Server

        return Server(where)
    if isinstance(where, str) and not where.startswith("duckdb:///"):
        raise InputError(
            f"database is {where.split('://')[0]!r}://…: it must be a DuckDB file (city.duckdb, duckdb:///city.duckdb) "
            "or postgresql://user@host/name"
        )
    _needs("duckdb", "duckdb", "ibis")
    from deltahist.counts.sql.embedded import Embedded

    return Embedded(where)


def _needs(extra: str, *modules: str) -> None:
    import importlib.util

    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise InputError(
                f"tables in a database need {module}, which is not installed: pip install 'deltahist[{extra}]'"
            )
