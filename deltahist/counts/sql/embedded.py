"""DuckDB, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from deltahist.counts.sql.common import carried, quoted, sql_of, unspoken
from deltahist.errors import InputError

#: What a block relies on, whatever the connection's own settings are.
_SETTINGS = "SET TimeZone = 'UTC'; SET default_collation = 'binary'"


class Embedded:
    """A DuckDB file, or an open connection; every block has a cursor of its own."""

    dialect = "duckdb"

    def __init__(self, where: Any) -> None:
        import duckdb

        self._own = isinstance(where, str)
        if not self._own:
            if not isinstance(where, duckdb.DuckDBPyConnection):
                raise InputError(
                    f"database is {type(where).__name__}: it must be a path, an address, or a DuckDB connection"
                )
            self.name, self._connection = "of the connection", where
            return
        path = where.removeprefix("duckdb:///")
        self.name = repr(path)
        try:
            file = _checked_path(path)
            self._connection = duckdb.connect(file)
        except duckdb.Error as problem:
            said = str(problem).splitlines()[0][:200]
            raise InputError(f"database {path!r} cannot be opened as a DuckDB file: {said}") from None
        # Records that memory does not hold go there, and stay if the process is killed: DuckDB would make a folder, and
        # files in it, that others can read, whoever may read the database.
        self._beside = Path(f"{file}.tmp")
        if Path(file).is_file():
            with suppress(OSError):
                self._beside.mkdir(mode=0o700)

    def schema(self, table: str) -> Any:
        """The Ibis schema of a table or view."""
        import ibis

        *within, own = table.split(".", 1)
        with self._cursor() as cursor, unspoken(self.name, _gone()):
            if not _is_there(cursor, own, within):
                own_alone = "" if self._own else " (frames and temporary tables are seen in their own connection only)"
                raise InputError(f"the database {self.name} has no table {table!r}{own_alone}")
            backend = ibis.duckdb.from_connection(cursor)
            return backend.get_schema(own, database=within[0] if within else None)

    @contextmanager
    def snapshot(self) -> Iterator[_Cursor]:
        """A consistent look: one transaction, which is rolled back."""
        with self._cursor() as cursor:
            cursor.begin()
            try:
                yield _Cursor(cursor, self.name)
            finally:
                _undo(cursor)

    @contextmanager
    def change(self) -> Iterator[_Cursor]:
        """A transaction that writes."""
        with self._cursor() as cursor:
            cursor.begin()
            try:
                yield _Cursor(cursor, self.name)
                with unspoken(self.name, _gone()):
                    cursor.commit()
            except BaseException:
                _undo(cursor)
                raise

    def close(self) -> None:
        """Close the file, if it was opened here."""
        if self._own:
            self._connection.close()
            with suppress(OSError):  # others of this process may use it
                self._beside.rmdir()

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        with unspoken(self.name, _gone()):
            cursor = self._connection.cursor()
            cursor.execute(_SETTINGS)
        try:
            yield cursor
        finally:
            cursor.close()


class _Cursor:
    """What is done in one transaction."""

    def __init__(self, cursor: Any, name: str) -> None:
        self._cursor, self._name = cursor, name

    def fetch(self, expression: Any) -> Any:
        """An Ibis table, evaluated, as an Arrow table."""
        with unspoken(self._name, _gone()):
            return self._run(self._statement(expression), expression)

    def planned(self, expression: Any) -> Callable[[], Any]:
        """Have the database plan an Ibis table, and return what fetches it: whatever fails here has read no record."""
        with unspoken(self._name, _gone()):
            statement = self._statement(expression)
            self._cursor.execute(f"EXPLAIN {statement}")
        return lambda: self._run(statement, expression)

    def _statement(self, expression: Any) -> str:
        """An Ibis table in SQL; the public tables that it carries are brought in."""
        for name, rows in carried(expression).items():
            self._cursor.register(name, rows)
        return sql_of(expression, "duckdb")

    def _run(self, statement: str, expression: Any) -> Any:
        return self._cursor.execute(statement).to_arrow_table().cast(expression.schema().to_pyarrow())

    def execute(self, statement: str) -> None:
        """A statement of SQL without results."""
        with unspoken(self._name, _gone()):
            self._cursor.execute(statement)

    def append(self, table: str, rows: Any) -> None:
        """Append an Arrow table."""
        columns = ", ".join(map(quoted, rows.column_names))
        with unspoken(self._name, _gone()):
            self._cursor.register("deltahist_rows", rows)
            self._cursor.execute(
                f"INSERT INTO {quoted(table)} ({columns}) SELECT {columns} FROM deltahist_rows"
            )
            self._cursor.unregister("deltahist_rows")


def _checked_path(path: str) -> str:
    """Return the path of a database as DuckDB takes it for nothing else; InputError if another file is there.

    DuckDB would read tables from other files, and fetch from the network what reads them.
    """
    if path.startswith(":memory:"):
        return path
    if not path or "\0" in path:
        raise InputError(f"database is {path!r}: it must be the path of a DuckDB file")
    try:
        with Path(path).open("rb") as file:
            start = file.read(16)
    except OSError:  # DuckDB says what is wrong with it, or makes it
        start = b""
    if start and start[8:12] != b"DUCK":
        kind = "a SQLite file" if start.startswith(b"SQLite format 3") else "another file"
        raise InputError(f"database {path!r} is {kind}: it must be a DuckDB file (or is it a ledger, or a table?)")
    return str(Path(path).resolve())


def _is_there(cursor: Any, table: str, within: list[str]) -> bool:
    """Whether the catalog has a table or view: DuckDB takes other names for paths, and reads files there."""
    where = "lower(?) IN (lower(table_schema), lower(table_catalog))" if within else "table_schema IN ?"
    schemas = within[0] if within else cursor.execute("SELECT current_schemas(true)").fetchone()[0]
    statement = f"SELECT count(*) FROM information_schema.tables WHERE lower(table_name) = lower(?) AND {where}"
    return bool(cursor.execute(statement, [table, schemas]).fetchone()[0])


def _gone() -> tuple[type[Exception], ...]:
    import duckdb

    return (
        duckdb.ConnectionException,
        duckdb.IOException,
        duckdb.OutOfMemoryException,
        duckdb.InterruptException,
    )


def _undo(cursor: Any) -> None:
    import duckdb

    try:
        cursor.rollback()
    except duckdb.Error:  # it failed before, and has undone all itself
        return
