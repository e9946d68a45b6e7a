"""The SQL engines that read people's records: DuckDB in this process, and PostgreSQL servers. Private.

An engine's errors may quote private rows, so each kind of failure has a fixed message instead. To add an engine,
subclass `Engine`, define its abstract methods, and select it in `Engine.open`.
"""

from __future__ import annotations

import functools
import io
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import ibis
import ibis.expr.operations as ops
import pyarrow as pa
from ibis.backends.sql import compilers
from ibis.backends.sql.datatypes import PostgresType
from pyarrow import csv
from sqlglot import exp

from deltahist._postgres import apply_settings, read_search_path
from deltahist.errors import InputError, check_choice
from deltahist.personal import query

#: Ibis creates its compilers on first use, and two threads must not do so at the same time.
_COMPILING = threading.Lock()


class Session:
    """One transaction on an engine. It is rolled back at the end."""

    def __init__(self, engine: Engine, connection: Any) -> None:
        self._engine, self.connection = engine, connection

    def put_table(self, name: str, rows: Any) -> None:
        """Put Arrow rows into a temporary table that is new or empty."""
        self._engine.put_table(self.connection, name, rows)

    def create_view(self, name: str, expression: Any) -> None:
        """Create a temporary view of an Ibis table. OFFSET 0 stops databases from moving conditions into the view."""
        self.connection.execute(f"CREATE TEMPORARY VIEW {name} AS {self._write_sql(expression)} OFFSET 0")

    def plan_fetch(self, expression: Any) -> Callable[[], Any]:
        """Plan a query without reading records, and return a function that fetches its result as an Arrow table."""
        statement, schema = self._write_sql(expression), expression.schema().to_pyarrow()
        self.connection.execute(f"EXPLAIN {statement}")
        return lambda: self._engine.run_statement(self.connection, statement, schema)

    def _write_sql(self, expression: Any) -> str:
        """Return an expression as SQL, after copying its public tables into the database."""
        for name, rows in find_public_tables(expression).items():
            self.put_table(name, rows)
        return self._engine.write_sql(self.connection, expression)

    @contextmanager
    def stop_at(self, end: float) -> Iterator[None]:
        """Stop the block's statements when `time.monotonic()` reaches `end`."""
        over = threading.Event()

        def watch() -> None:
            # Repeat, since a statement may begin just after the last one was stopped.
            while not over.wait(min(max(end - time.monotonic(), 0.05), threading.TIMEOUT_MAX)):
                with suppress(Exception):
                    self._engine.stop_statement(self.connection)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


class Engine(ABC):
    """A database of people's records. Its `name` appears in messages. Several threads may use it at once."""

    name: str

    @classmethod
    def open(cls, where: Any) -> Engine:
        """Open a DuckDB file or connection, or a PostgreSQL database such as "postgresql://user@host/city"."""
        is_server = isinstance(where, str) and where.startswith(("postgresql://", "postgres://"))
        return PostgreSQLEngine(where) if is_server else DuckDBEngine(where)

    @abstractmethod
    def read_schema(self, table: str, database: str | None) -> Any:
        """Return the Ibis schema of a table or view in the SQL schema `database`, or None if there is no such table."""

    @abstractmethod
    def open_session(self) -> AbstractContextManager[Session]:
        """Open a transaction on one snapshot of the data. Roll it back at the end, and hide the block's errors."""

    @abstractmethod
    def compare_as_bytes(self, column: Any) -> Any:
        """Return a column as strings that compare byte by byte, whatever the column's collation."""

    @abstractmethod
    def put_table(self, connection: Any, name: str, rows: Any) -> None:
        """Fill a temporary table with Arrow rows. Create it if it is missing."""

    @abstractmethod
    def write_sql(self, connection: Any, expression: Any) -> str:
        """Return an unbound Ibis table as SQL."""

    @abstractmethod
    def run_statement(self, connection: Any, statement: str, schema: Any) -> Any:
        """Return the rows of a statement as an Arrow table."""

    @abstractmethod
    def stop_statement(self, connection: Any) -> None:
        """Stop the statement that a connection is running in another thread."""

    def narrow_time(self, column: Any) -> Any:
        """Return a column of times, with NULL for times beyond the range of 64-bit microseconds."""
        return column

    def close(self) -> None:  # noqa: B027  only some engines need it
        """Close the database that `open` opened."""

    @contextmanager
    def hide_failures(self) -> Iterator[None]:
        """Replace the block's errors by InputErrors without the original messages, which may quote records."""
        try:
            yield
            return
        except InputError:
            raise
        except Exception:
            hint = "did a table change, the connection break or memory run out?"
        text = f"the database {self.name} failed: {hint} Its own message may quote records, so it is hidden"
        raise_without_context(InputError(text))

    def make_query(self, table: str, owner: str) -> query.Query:
        """Return a query of all records of a table or view. Owners must be strings, whole numbers or UUIDs."""
        part, _, own = table.rpartition(".")
        schema = self.read_schema(own, part or None)
        if schema is None:
            raise InputError(f"the database {self.name} has no table {table!r}")
        query.check_names(schema.names)
        owners = [name for name, kind in schema.items() if kind.is_string() or kind.is_integer() or kind.is_uuid()]
        check_choice(tuple(owners), owner=owner)
        records = ibis.table(schema, name=own, database=part or None)
        readable = [name for name, dtype in schema.items() if query.find_kind(dtype) and name != owner]
        columns = {name: self._normalize_column(records[name]) for name in readable}
        made = records.select(**{query.OWNER: self.compare_as_bytes(records[owner])}, **columns)
        return query.Query(made.filter(made[query.OWNER].notnull()), (table, owner))

    def _normalize_column(self, column: Any) -> Any:
        """Convert a column to its kind's type. NaN, huge numbers and distant times become NULL, and tiny numbers 0."""
        dtype = column.type()
        kind = str(query.find_kind(dtype))
        if kind == "text":
            return self.compare_as_bytes(column).substr(0, query.LONGEST_TEXT)
        if kind == "number":
            if dtype.is_decimal() and (dtype.precision is None or dtype.precision > 38):
                # PostgreSQL cannot convert decimals beyond the range of floats.
                column = column.cast("decimal")
                low, high = (ibis.literal(repr(each)).cast("decimal") for each in (query.SMALLEST, query.LARGEST))
                column = ibis.cases((column.abs().between(low, high), column), (column.abs() < low, low - low))
            return query.bound_number(column.cast("float64"), query.SMALLEST, query.LARGEST)
        if kind not in ("time", "date"):
            return column.cast(query.DTYPES[kind])
        first, last = "0001-01-01", "9999-12-31"
        if kind == "time":
            first, last = f"{first} 00:00:00", f"{last} 23:59:59.999999"
            column = self.narrow_time(column)
            if column.type().timezone:
                # DuckDB cannot convert the very last times to UTC.
                low, high = (ibis.literal(f"{each}+00").cast(column.type()) for each in (first, last))
                column = ibis.cases((column.between(low, high), column))
        value = column.cast(query.DTYPES[kind])
        low, high = (ibis.literal(each).cast(query.DTYPES[kind]) for each in (first, last))
        return ibis.cases((value.between(low, high), value))


def raise_without_context(failed: Exception) -> NoReturn:
    """Raise an error without its context, which may quote records."""
    try:
        raise failed
    finally:
        failed.__context__ = None


def write_sql(expression: Any, dialect: str, quote: Callable[[str], str] | None = None, pretty: bool = False) -> str:
    """Return an Ibis expression as SQL. `quote`, if given, writes string constants in the database's own form."""

    def rewrite(node: Any) -> Any:
        if quote is not None and isinstance(node, exp.Anonymous) and node.name == "bytewise":
            return exp.Collate(this=node.expressions[0], expression=exp.to_identifier("C", quoted=True))
        is_text = quote is not None and isinstance(node, exp.Literal) and node.is_string
        return exp.Var(this=quote(node.this)) if is_text else node  # type: ignore[misc]

    with _COMPILING:
        compiler = getattr(compilers, dialect).compiler
        tree = compiler.to_sqlglot(expression.unbind())
        return str(tree.transform(rewrite).sql(dialect=compiler.dialect, pretty=pretty))


@functools.cache
def _make_function(name: str, taken: str, given: str) -> Any:
    return ibis.udf.scalar.builtin(lambda one: ..., name=name, signature=((taken,), given))


def find_public_tables(expression: Any) -> dict[str, Any]:
    """Return the public tables in an expression, as a dict from names to Arrow tables."""
    return {op.name: op.data.to_pyarrow(op.schema) for op in expression.op().find(ops.InMemoryTable)}


class DuckDBEngine(Engine):
    """A DuckDB file or an open connection. Each session has its own cursor."""

    def __init__(self, where: Any) -> None:
        self._spill: Path | None = None
        if isinstance(where, duckdb.DuckDBPyConnection):
            self.name, self._connection = "of the connection", where
            return
        path = str(Path(where)) if str(where) else ""
        self.name = repr(path)
        if not path.startswith(":memory:"):
            # DuckDB would also read other kinds of files, and download extensions for them.
            start = b""
            with suppress(OSError), Path(path).open("rb") as file:
                start = file.read(16)
            if not path or "://" in str(where) or (start and start[8:12] != b"DUCK"):
                name = str(where).partition("://")[0]
                raise InputError(f"database is {name!r}: it must be a DuckDB file or a postgresql:// address")
            path = str(Path(path).resolve())
        try:
            self._connection = duckdb.connect(path)
        except duckdb.Error as problem:
            said = str(problem).splitlines()[0][:200]
            raise InputError(f"database {where!r} cannot be opened: {said}") from None
        if Path(path).is_file():
            # DuckDB spills records to this folder. If DuckDB created the folder, other users could read it.
            self._spill = Path(f"{path}.tmp")
            with suppress(OSError):
                self._spill.mkdir(mode=0o700)

    def read_schema(self, table: str, database: str | None) -> Any:
        with self._open_cursor() as cursor:
            # Look in the catalog, since DuckDB would read unknown names as file paths.
            where = "lower(?) IN (lower(table_schema), lower(table_catalog))" if database else "table_schema IN ?"
            schemas = database or cursor.execute("SELECT current_schemas(true)").fetchone()[0]
            found = f"SELECT 1 FROM information_schema.tables WHERE lower(table_name) = lower(?) AND {where}"
            if not cursor.execute(found, [table, schemas]).fetchone():
                return None
            return ibis.duckdb.from_connection(cursor).get_schema(table, database=database)

    @contextmanager
    def open_session(self) -> Iterator[Session]:
        with self._open_cursor() as cursor:
            cursor.begin()
            try:
                yield Session(self, cursor)
            finally:
                with suppress(duckdb.Error):  # a failed transaction has already been rolled back
                    cursor.rollback()

    def close(self) -> None:
        if self._spill is not None:
            self._connection.close()
            with suppress(OSError):  # another connection of this process may be using it
                self._spill.rmdir()

    def narrow_time(self, column: Any) -> Any:
        # DuckDB's times in seconds and milliseconds have a wider range than those in microseconds.
        return column.try_cast("timestamp(6)") if column.type().scale in (0, 3) else column

    def compare_as_bytes(self, column: Any) -> Any:
        encode = _make_function("encode", "string", "binary")
        return _make_function("decode", "binary", "string")(encode(column.cast("string")))

    def put_table(self, connection: Any, name: str, rows: Any) -> None:
        connection.register(name, rows)

    def write_sql(self, connection: Any, expression: Any) -> str:
        return write_sql(expression, "duckdb")

    def run_statement(self, connection: Any, statement: str, schema: Any) -> Any:
        return connection.execute(statement).to_arrow_table().cast(schema)

    def stop_statement(self, connection: Any) -> None:
        connection.interrupt()

    @contextmanager
    def _open_cursor(self) -> Iterator[Any]:
        with self.hide_failures(), closing(self._connection.cursor()) as cursor:
            cursor.execute("SET TimeZone = 'UTC'; SET default_collation = 'binary'")
            yield cursor


class PostgreSQLEngine(Engine):
    """A PostgreSQL database. Each session has its own connection. Rows are sent as CSV, with COPY."""

    def __init__(self, where: str) -> None:
        self._url = where
        parts: dict[str, Any] = {"host": "@"}
        rule = "its address must be postgresql://user@host/name, with %40 for @ in a password"
        try:
            import psycopg
            from psycopg.conninfo import conninfo_to_dict

            parts = conninfo_to_dict(where)
        except ImportError:
            rule = "PostgreSQL needs a driver (pip install '.[postgresql]')"
        except psycopg.ProgrammingError:
            pass
        # If a password in the address contains an @, the part after it would be parsed as the host and shown.
        port = str(parts.get("port") or "0").replace(",", "")
        if any("@" in str(parts.get(name, "")) for name in ("host", "dbname")) or not port.isdigit():
            raise InputError(f"the database cannot be opened: {rule}")
        self.name = repr(f"{parts.get('dbname', '')} on {parts.get('host', 'localhost')}")
        with self.open_session():
            pass

    def read_schema(self, table: str, database: str | None) -> Any:
        with self.open_session() as session, suppress(ibis.common.exceptions.TableNotFound):
            return ibis.postgres.from_connection(session.connection).get_schema(table, database=database)
        return None

    def compare_as_bytes(self, column: Any) -> Any:
        # PostgreSQL has no function `bytewise`, so `write_sql` replaces it with the collation "C".
        return _make_function("bytewise", "string", "string")(column.cast("string"))

    def put_table(self, connection: Any, name: str, rows: Any) -> None:
        from psycopg.sql import SQL, Identifier

        table = Identifier(name)
        kinds = [SQL(PostgresType.to_string(ibis.dtype(kind))) for kind in rows.schema.types]
        typed = [SQL("{} {}").format(Identifier(own), kind) for own, kind in zip(rows.column_names, kinds, strict=True)]
        text = io.BytesIO()
        csv.write_csv(rows, text, csv.WriteOptions(include_header=False, quoting_style="all_valid"))
        create = SQL("CREATE TEMPORARY TABLE IF NOT EXISTS {} ({}) ON COMMIT DROP")
        connection.execute(create.format(table, SQL(", ").join(typed)))
        with connection.cursor() as cursor, cursor.copy(SQL("COPY {} FROM STDIN (FORMAT csv)").format(table)) as copy:
            copy.write(text.getbuffer())

    def write_sql(self, connection: Any, expression: Any) -> str:
        from psycopg.sql import Literal

        # Views accept no parameters, so the driver quotes string constants as this connection requires.
        return write_sql(expression, "postgres", lambda text: Literal(text).as_string(connection))

    def run_statement(self, connection: Any, statement: str, schema: Any) -> Any:
        # Server settings do not affect numbers or times in binary form.
        rows = connection.execute(statement, binary=True).fetchall()
        columns = [pa.array([row[place] for row in rows]) for place in range(len(schema))]
        return pa.table(columns, schema.names).cast(schema)

    def stop_statement(self, connection: Any) -> None:
        connection.cancel_safe(timeout=1)

    @contextmanager
    def open_session(self) -> Iterator[Session]:
        import psycopg

        try:
            connection = psycopg.connect(self._url)
        except psycopg.Error as problem:
            said = str(problem).strip().splitlines()[-1][:200]
            raise InputError(f"cannot connect to the database {self.name}: {said}") from None

        def run(statement: str, values: Mapping[str, Any]) -> Any:
            return connection.execute(statement, values).fetchone()

        # The server rolls back when the connection closes.
        with self.hide_failures(), closing(connection):
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = False  # for temporary tables
            own = {"search_path": read_search_path(run)}
            apply_settings(run, f"the database {self.name}", own, "repeatable read")
            yield Session(self, connection)
