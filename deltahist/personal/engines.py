"""The SQL engines that read people's records: DuckDB in this process, PostgreSQL by its address.

An engine that fails on private rows may quote them. Its message is never shown: each kind of failure has one text.
To add an engine, subclass `Engine`, define its abstract methods, and choose it in `Engine.open`.
"""

from __future__ import annotations

import functools
import io
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from deltahist._postgres import apply_settings, read_search_path
from deltahist.errors import InputError
from deltahist.personal.query import (
    DTYPES,
    LARGEST,
    LONGEST_TEXT,
    OWNER,
    SMALLEST,
    Query,
    bound_number,
    check_column,
    check_names,
    find_kind,
)

#: Ibis makes its compilers at first use, which is not safe for two threads at once.
_COMPILING = threading.Lock()


class Session:
    """One transaction of an engine, which is rolled back in the end."""

    def __init__(self, engine: Engine, connection: Any) -> None:
        self._engine, self._connection = engine, connection

    def put_table(self, name: str, rows: Any) -> None:
        """Put Arrow rows into a temporary table, which is new or has been empty so far."""
        with self._engine.hide_failures():
            self._engine.put_table(self._connection, name, rows)

    def create_view(self, name: str, expression: Any) -> None:
        """Create a temporary view for an Ibis table. OFFSET 0 keeps databases from moving conditions into it."""
        with self._engine.hide_failures():
            self._connection.execute(f"CREATE TEMPORARY VIEW {name} AS {self._write_sql(expression)} OFFSET 0")

    def plan_fetch(self, expression: Any) -> Callable[[], Any]:
        """Plan an unbound Ibis table, without reading a record, and return a function that fetches it."""
        with self._engine.hide_failures():
            statement = self._write_sql(expression)
            self._connection.execute(f"EXPLAIN {statement}")
        schema = expression.schema().to_pyarrow()
        return lambda: self._engine.run_statement(self._connection, statement, schema)

    def fetch_table(self, expression: Any) -> Any:
        """Return an unbound Ibis table as an Arrow table."""
        with self._engine.hide_failures():
            return self.plan_fetch(expression)()

    def _write_sql(self, expression: Any) -> str:
        """Return an expression as SQL, and put the public tables that it carries into the database."""
        for name, rows in find_public_tables(expression).items():
            self.put_table(name, rows)
        return self._engine.write_sql(self._connection, expression)

    @contextmanager
    def stop_at(self, end: float) -> Iterator[None]:
        """Stop the statements of the block when a time has come (`time.monotonic`)."""
        over = threading.Event()

        def watch() -> None:
            # Again and again: a statement may begin just after it was stopped.
            while not over.wait(min(max(end - time.monotonic(), 0.05), threading.TIMEOUT_MAX)):
                with suppress(Exception):
                    self._engine.stop_statement(self._connection)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


class Engine(ABC):
    """A database with records of people, safe to use from several threads. Private: it fetches data.

    >>> import duckdb
    >>> with Engine.open(duckdb.connect()).open_session() as session:
    ...     type(session).__name__
    'Session'
    """

    #: The database in messages, and the driver's exceptions that mean a lost connection or too little room.
    name: str
    losses: tuple[type[Exception], ...]

    @classmethod
    def open(cls, where: Any) -> Engine:
        """Open a path, an address ("postgresql://user@host/city") or a DuckDB connection; InputError if it fails."""
        is_server = isinstance(where, str) and where.startswith(("postgresql://", "postgres://"))
        if isinstance(where, str) and "://" in where and not is_server:
            raise InputError(f"database is {where.split(':')[0]}://…: it must be a DuckDB file or postgresql://…")
        try:
            return PostgreSQLEngine(where) if is_server else DuckDBEngine(where)
        except ImportError as problem:
            extra = "postgresql" if is_server else "personal"
            raise InputError(f"{problem}: install it with pip install 'deltahist[{extra}]'") from None

    @abstractmethod
    def read_schema(self, table: str) -> Any:
        """Return the Ibis schema of a table or view; InputError if there is none."""

    @abstractmethod
    def open_connection(self) -> AbstractContextManager[Any]:
        """Open a connection in a transaction, which is rolled back at the end of the block."""

    @abstractmethod
    def compare_as_bytes(self, column: Any) -> Any:
        """Return a column as text that is compared by its bytes, whatever collation it has."""

    @abstractmethod
    def put_table(self, connection: Any, name: str, rows: Any) -> None:
        """Make a temporary table of Arrow rows, or fill it."""

    @abstractmethod
    def write_sql(self, connection: Any, expression: Any) -> str:
        """Return an unbound Ibis table as SQL."""

    @abstractmethod
    def run_statement(self, connection: Any, statement: str, schema: Any) -> Any:
        """Return the rows of a statement as an Arrow table."""

    @abstractmethod
    def stop_statement(self, connection: Any) -> None:
        """Stop the statement that runs on a connection, from another thread."""

    def narrow_time(self, column: Any) -> Any:
        """Return a column of times that all fit into microseconds, NULL in place of others."""
        return column

    def close(self) -> None:  # noqa: B027  few have something to close
        """Close the connections that were opened here."""

    @contextmanager
    def open_session(self) -> Iterator[Session]:
        """Open a session that sees one moment, until the end of the block."""
        with self.open_connection() as connection:
            yield Session(self, connection)

    @contextmanager
    def hide_failures(self) -> Iterator[None]:
        """Turn failures in the block into an InputError without the engine's message, which may quote records."""
        try:
            yield
            return
        except InputError:
            raise
        except self.losses:
            text = "went away, or ran out of room, while records were read: nothing was answered"
        except Exception:
            text = "cannot evaluate this: was a table or a column changed? The database's message is not shown"
        raise_without_context(InputError(f"the database {self.name} {text}"))

    def make_query(self, table: str, owner: str) -> Query:
        """Return a query of all records of a table or view, "visits" or "part.visits".

        Owners are texts, whole numbers or UUIDs. Raises InputError if the table or the column is not there.
        """
        import ibis

        schema = self.read_schema(table)
        check_names(schema.names)
        check_column(owner, schema.names)
        kind = schema[owner]
        if not (kind.is_string() or kind.is_integer() or kind.is_uuid()):
            raise InputError(f"owner is {owner!r}, of type {kind}: it must hold text, whole numbers or UUIDs")
        part, _, own = table.rpartition(".")
        records = ibis.table(schema, name=own, database=part or None)
        readable = [name for name, dtype in schema.items() if find_kind(dtype) and name != owner]
        columns = {name: self._normalize_column(records[name]) for name in readable}
        made = records.select(**{OWNER: self.compare_as_bytes(records[owner])}, **columns)
        return Query(made.filter(made[OWNER].notnull()), (table, owner))

    def _normalize_column(self, column: Any) -> Any:
        """Return a column as one of its kind: NaN, too large numbers and times are NULL, tiny numbers are zero."""
        import ibis

        dtype = column.type()
        kind = str(find_kind(dtype))
        if kind == "text":
            return self.compare_as_bytes(column).substr(0, LONGEST_TEXT)
        if kind == "number":
            if dtype.is_decimal() and (dtype.precision is None or dtype.precision > 38):
                # PostgreSQL fails on decimals that are too long for floats.
                column = column.cast("decimal")
                low, high = (ibis.literal(repr(each)).cast("decimal") for each in (SMALLEST, LARGEST))
                column = ibis.cases((column.abs().between(low, high), column), (column.abs() < low, low - low))
            return bound_number(column.cast("float64"), SMALLEST, LARGEST)
        if kind not in ("time", "date"):
            return column.cast(DTYPES[kind])
        first, last = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"
        if kind == "time":
            column = self.narrow_time(column)
            if column.type().timezone:
                # DuckDB cannot bring the very last times to UTC.
                low, high = (ibis.literal(f"{each}+00").cast(column.type()) for each in (first, last))
                column = ibis.cases((column.between(low, high), column))
        else:
            first, last = first[:10], last[:10]
        value = column.cast(DTYPES[kind])
        low, high = (ibis.literal(each).cast(DTYPES[kind]) for each in (first, last))
        return ibis.cases((value.between(low, high), value))


def raise_without_context(failed: Exception) -> NoReturn:
    """Raise an error without the context of the one before, which may quote records."""
    try:
        raise failed
    finally:
        failed.__context__ = None


def write_sql(expression: Any, dialect: str, quote: Callable[[str], str] | None = None, pretty: bool = False) -> str:
    """Return an expression of unbound tables as SQL; `quote` writes text constants of databases that need it."""
    from ibis.backends.sql import compilers
    from sqlglot import exp

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
    """Return a function of the database from one Ibis type to another."""
    import ibis

    return ibis.udf.scalar.builtin(lambda one: ..., name=name, signature=((taken,), given))


def find_public_tables(expression: Any) -> dict[str, Any]:
    """Return the public tables that an expression carries, as Arrow tables by name."""
    import ibis.expr.operations as ops

    return {op.name: op.data.to_pyarrow(op.schema) for op in expression.op().find(ops.InMemoryTable)}


class DuckDBEngine(Engine):
    """A DuckDB file, or an open connection; every session has its own cursor."""

    def __init__(self, where: Any) -> None:
        import duckdb
        import ibis  # noqa: F401  its absence is reported at once

        self.losses = (
            duckdb.ConnectionException, duckdb.IOException, duckdb.OutOfMemoryException, duckdb.InterruptException,
        )  # fmt: skip
        self._spill: Path | None = None
        if isinstance(where, duckdb.DuckDBPyConnection):
            self.name, self._connection = "of the connection", where
            return
        path = str(Path(where)) if str(where) else ""
        self.name = repr(path)
        if not path.startswith(":memory:"):
            # DuckDB would read files of other kinds, and fetch from the network what reads them.
            start = b""
            with suppress(OSError), Path(path).open("rb") as file:
                start = file.read(16)
            if not path or (start and start[8:12] != b"DUCK"):
                raise InputError(f"database is {path!r}: it must be a DuckDB file")
            path = str(Path(path).resolve())
        try:
            self._connection = duckdb.connect(path)
        except duckdb.Error as problem:
            said = str(problem).splitlines()[0][:200]
            raise InputError(f"database {where!r} cannot be opened: {said}") from None
        if Path(path).is_file():
            # Records that memory does not hold are spilled there. DuckDB would make a folder that others can read.
            self._spill = Path(f"{path}.tmp")
            with suppress(OSError):
                self._spill.mkdir(mode=0o700)

    def read_schema(self, table: str) -> Any:
        import ibis

        part, _, own = table.rpartition(".")
        with self._open_cursor() as cursor, self.hide_failures():
            # By the catalog: DuckDB takes other names for paths, and reads files there.
            where = "lower(?) IN (lower(table_schema), lower(table_catalog))" if part else "table_schema IN ?"
            schemas = part or cursor.execute("SELECT current_schemas(true)").fetchone()[0]
            found = f"SELECT 1 FROM information_schema.tables WHERE lower(table_name) = lower(?) AND {where}"
            if not cursor.execute(found, [own, schemas]).fetchone():
                raise InputError(f"the database {self.name} has no table {table!r}")
            return ibis.duckdb.from_connection(cursor).get_schema(own, database=part or None)

    @contextmanager
    def open_connection(self) -> Iterator[Any]:
        import duckdb

        with self._open_cursor() as cursor:
            cursor.begin()
            try:
                yield cursor
            finally:
                with suppress(duckdb.Error):  # it failed, and has rolled back
                    cursor.rollback()

    def close(self) -> None:
        if self._spill is not None:
            self._connection.close()
            with suppress(OSError):  # others of this process may use it
                self._spill.rmdir()

    def narrow_time(self, column: Any) -> Any:
        # DuckDB's times of seconds and milliseconds reach further than those of microseconds.
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
        with self.hide_failures():
            cursor = self._connection.cursor()
            cursor.execute("SET TimeZone = 'UTC'; SET default_collation = 'binary'")
        try:
            yield cursor
        finally:
            cursor.close()


class PostgreSQLEngine(Engine):
    """A PostgreSQL database; every session has its own connection. Rows go there as CSV, by COPY."""

    def __init__(self, where: str) -> None:
        import ibis  # noqa: F401  its absence is reported at once
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        self._url = where
        self.losses = (psycopg.OperationalError, psycopg.InterfaceError)
        try:
            parts = conninfo_to_dict(where)
        except psycopg.ProgrammingError:
            parts = {"host": "@"}
        # The address may hold a password, and messages show the rest. An @ in it would make part of it a host.
        port = str(parts.get("port") or "0").replace(",", "")
        if any("@" in str(parts.get(name, "")) for name in ("host", "dbname")) or not port.isdigit():
            raise InputError("database is an unreadable address: it must be postgresql://user@host/name (@ as %40)")
        self.name = repr(f"{parts.get('dbname', '')} on {parts.get('host', 'localhost')}")
        with self.open_connection():
            pass

    def read_schema(self, table: str) -> Any:
        import ibis

        part, _, own = table.rpartition(".")
        with self.open_connection() as connection, self.hide_failures():
            try:
                return ibis.postgres.from_connection(connection).get_schema(own, database=part or None)
            except ibis.common.exceptions.TableNotFound:
                raise InputError(f"the database {self.name} has no table {table!r}") from None

    def compare_as_bytes(self, column: Any) -> Any:
        # `write_sql` puts the collation "C" in place of this function, which PostgreSQL does not have.
        return _make_function("bytewise", "string", "string")(column.cast("string"))

    def put_table(self, connection: Any, name: str, rows: Any) -> None:
        import ibis
        from ibis.backends.sql.datatypes import PostgresType
        from psycopg.sql import SQL, Identifier
        from pyarrow import csv

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

        # Views take no parameters: the driver writes text constants for this connection.
        return write_sql(expression, "postgres", lambda text: Literal(text).as_string(connection))

    def run_statement(self, connection: Any, statement: str, schema: Any) -> Any:
        import pyarrow as pa

        # In the binary form, in which no setting of the server changes a number or a time.
        rows = connection.execute(statement, binary=True).fetchall()
        columns = [pa.array([row[place] for row in rows]) for place in range(len(schema))]
        return pa.table(columns, schema.names).cast(schema)

    def stop_statement(self, connection: Any) -> None:
        connection.cancel_safe(timeout=1)

    @contextmanager
    def open_connection(self) -> Iterator[Any]:
        import psycopg

        try:
            connection = psycopg.connect(self._url)
        except psycopg.Error as problem:
            said = str(problem).strip().splitlines()[-1][:200]
            raise InputError(f"the database {self.name} does not answer: {said}") from None

        def run(statement: str, values: Mapping[str, Any]) -> Any:
            return connection.execute(statement, values).fetchone()  # type: ignore[arg-type]

        try:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = False  # public tables are made
            with self.hide_failures():
                own = {"search_path": read_search_path(run)}
                apply_settings(run, f"the database {self.name}", own, "repeatable read")
            yield connection
        finally:
            # What was not committed is rolled back.
            connection.close()
