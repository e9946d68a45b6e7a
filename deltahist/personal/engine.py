"""The databases that hold people's records: DuckDB in this process, PostgreSQL by its address.

A database that fails on private rows may quote them. Its message is never shown: each kind of failure has one text.
"""

from __future__ import annotations

import functools
import io
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from deltahist._postgres import apply_settings, read_search_path
from deltahist.errors import InputError
from deltahist.personal.expressions import DTYPES, LARGEST, LONGEST_TEXT, SMALLEST, bound_number, check_column, kind_of
from deltahist.personal.query import OWNER, Query, check_names

#: Ibis makes its compilers at first use, which is not safe for two threads at once.
_COMPILING = threading.Lock()
#: Stands for the collation that compares bytes, until SQL is written for PostgreSQL.
_BYTEWISE = "bytewise"
_YEARS = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"


class Session:
    """One transaction in a database, which is undone in the end."""

    def __init__(self, database: Database, connection: Any) -> None:
        self._database, self._connection = database, connection

    def put(self, name: str, rows: Any) -> None:
        """Put Arrow rows into a temporary table, which is new or has been empty so far."""
        with self._database.failures():
            self._database.put(self._connection, name, rows)

    def create(self, name: str, expression: Any) -> None:
        """Create a temporary view for an Ibis table, past which no database moves what is asked of it (OFFSET 0)."""
        with self._database.failures():
            self._connection.execute(f"CREATE TEMPORARY VIEW {name} AS {self._write(expression)} OFFSET 0")

    def plan(self, expression: Any) -> Callable[[], Any]:
        """Plan an unbound Ibis table, without reading a record, and return a function that fetches it."""
        with self._database.failures():
            statement = self._write(expression)
            self._connection.execute(f"EXPLAIN {statement}")
        schema = expression.schema().to_pyarrow()
        return lambda: self._database.run(self._connection, statement, schema)

    def fetch(self, expression: Any) -> Any:
        """Return an unbound Ibis table as an Arrow table."""
        with self._database.failures():
            return self.plan(expression)()

    def _write(self, expression: Any) -> str:
        """Return an expression as SQL, and put the public tables that it carries into the database."""
        for name, rows in carried_tables(expression).items():
            self.put(name, rows)
        return self._database.write_sql(self._connection, expression)

    @contextmanager
    def until(self, end: float) -> Iterator[None]:
        """Stop what runs here, in the block, when a time has come (`time.monotonic`)."""
        over = threading.Event()

        def watch() -> None:
            # Again and again: a statement may begin just after it was stopped.
            while not over.wait(min(max(end - time.monotonic(), 0.05), threading.TIMEOUT_MAX)):
                with suppress(Exception):
                    self._database.stop(self._connection)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


class Database:
    """A database with records of people, safe to use from several threads. Private: it fetches data.

    >>> import duckdb
    >>> with Database.open(duckdb.connect()).snapshot() as look:
    ...     type(look).__name__
    'Session'
    """

    #: The Ibis schema of a table or view, or InputError; a transaction that is undone at the end of a block.
    schema: Callable[[str], Any]
    connection: Callable[[], AbstractContextManager[Any]]
    #: A column as text that is compared by its bytes, whatever collation it has.
    as_bytes: Callable[[Any], Any]
    #: For a connection: make or fill a temporary table, write and run SQL, stop what runs.
    put: Callable[[Any, str, Any], None]
    write_sql: Callable[[Any, Any], str]
    run: Callable[[Any, str, Any], Any]
    stop: Callable[[Any], None]
    #: The database in messages, and the driver's exceptions that mean a lost connection or too little room.
    name: str
    losses: tuple[type[Exception], ...]

    @classmethod
    def open(cls, where: Any) -> Database:
        """Open a path, an address ("postgresql://user@host/city") or a DuckDB connection; InputError if it fails."""
        is_server = isinstance(where, str) and where.startswith(("postgresql://", "postgres://"))
        if isinstance(where, str) and "://" in where and not is_server:
            raise InputError(f"database is {where.split(':')[0]}://…: it must be a DuckDB file or postgresql://…")
        try:
            import ibis  # noqa: F401

            return PostgreSQL(where) if is_server else DuckDB(where)
        except ImportError as problem:
            extra = "postgresql" if is_server else "personal"
            raise InputError(f"{problem}: install it with pip install 'deltahist[{extra}]'") from None

    @contextmanager
    def snapshot(self) -> Iterator[Session]:
        """Open a consistent look, which ends with the block."""
        with self.connection() as connection:
            yield Session(self, connection)

    def close(self) -> None:
        """Close the connections that were opened here."""

    def narrow_time(self, column: Any) -> Any:
        """Return a column of times that all fit into microseconds, NULL in place of others."""
        return column

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Turn failures in the block into an InputError without the database's own words."""
        try:
            yield
            return
        except InputError:
            raise
        except self.losses:
            text = "went away, or ran out of room, while records were read: nothing was answered"
        except Exception:
            text = "cannot evaluate this: was a table or a column changed meanwhile? Its words are not shown"
        raise_alone(InputError(f"the database {self.name} {text}"))

    def query(self, table: str, owner: str) -> Query:
        """Return a query of all records of a table or view, "visits" or "part.visits".

        Owners are texts, whole numbers or UUIDs. Raises InputError if the table or the column is not there.
        """
        import ibis

        schema = self.schema(table)
        check_names(schema.names)
        check_column(owner, schema.names)
        kind = schema[owner]
        if not (kind.is_string() or kind.is_integer() or kind.is_uuid()):
            raise InputError(f"owner is {owner!r}, of type {kind}: it must hold text, whole numbers or UUIDs")
        part, _, own = table.rpartition(".")
        records = ibis.table(schema, name=own, database=part or None)
        readable = [name for name, dtype in schema.items() if kind_of(dtype) and name != owner]
        columns = {name: self._normalize(records[name]) for name in readable}
        made = records.select(**{OWNER: self.as_bytes(records[owner])}, **columns)
        return Query(made.filter(made[OWNER].notnull()), (table, owner))

    def _normalize(self, column: Any) -> Any:
        """Return a column as one of its kind: NaN, too large numbers and times are NULL, tiny numbers are zero."""
        import ibis

        dtype = column.type()
        kind = str(kind_of(dtype))
        if kind == "text":
            return self.as_bytes(column).substr(0, LONGEST_TEXT)
        if kind == "number":
            if dtype.is_decimal() and (dtype.precision is None or dtype.precision > 38):
                # Such decimals may be too long for floats, which PostgreSQL takes for an error.
                column = column.cast("decimal")
                low, high = (ibis.literal(repr(each)).cast("decimal") for each in (SMALLEST, LARGEST))
                column = ibis.cases((column.abs().between(low, high), column), (column.abs() < low, low - low))
            return bound_number(column.cast("float64"), SMALLEST, LARGEST)
        if kind in ("time", "date"):
            if kind == "time":
                column = self.narrow_time(column)
            if kind == "time" and column.type().timezone:
                # DuckDB cannot bring the very last ones to UTC.
                low, high = (ibis.literal(f"{each}+00").cast(column.type()) for each in _YEARS)
                column = ibis.cases((column.between(low, high), column))
            value = column.cast(DTYPES[kind])
            ends = _YEARS if kind == "time" else [each[:10] for each in _YEARS]
            low, high = (ibis.literal(each).cast(DTYPES[kind]) for each in ends)
            return ibis.cases((value.between(low, high), value))
        return column.cast(DTYPES[kind])


def raise_alone(failed: Exception) -> NoReturn:
    """Raise an error without the context of the one before, which may quote records."""
    try:
        raise failed
    finally:
        failed.__context__ = None


def quote(name: str) -> str:
    """Return a name in SQL, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def sql_of(expression: Any, dialect: str, text: Callable[[str], str] | None = None, pretty: bool = False) -> str:
    """Return an expression of unbound tables as SQL; `text` writes text constants where a database has its own way."""
    from ibis.backends.sql import compilers
    from sqlglot import exp

    def written(node: Any) -> Any:
        if text is not None and isinstance(node, exp.Anonymous) and node.name == _BYTEWISE:
            return exp.Collate(this=node.expressions[0], expression=exp.to_identifier("C", quoted=True))
        is_text = text is not None and isinstance(node, exp.Literal) and node.is_string
        return exp.Var(this=text(node.this)) if is_text else node  # type: ignore[misc]

    with _COMPILING:
        compiler = getattr(compilers, dialect).compiler
        tree = compiler.to_sqlglot(expression.unbind())
        return str(tree.transform(written).sql(dialect=compiler.dialect, pretty=pretty))


@functools.cache
def _function(name: str, taken: str, given: str) -> Any:
    """Return a function of the database from one Ibis type to another."""
    import ibis

    return ibis.udf.scalar.builtin(lambda one: ..., name=name, signature=((taken,), given))


def carried_tables(expression: Any) -> dict[str, Any]:
    """Return the public tables that an expression carries with it, as Arrow tables by name."""
    import ibis.expr.operations as ops

    return {op.name: op.data.to_pyarrow(op.schema) for op in expression.op().find(ops.InMemoryTable)}


class DuckDB(Database):
    """A DuckDB file, or an open connection; every block has a cursor of its own."""

    def __init__(self, where: Any) -> None:
        import duckdb

        self.losses = (
            duckdb.ConnectionException, duckdb.IOException, duckdb.OutOfMemoryException, duckdb.InterruptException,
        )  # fmt: skip
        self._beside: Path | None = None
        if isinstance(where, duckdb.DuckDBPyConnection):
            self.name, self._connection = "of the connection", where
            return
        if not isinstance(where, str | Path):
            raise InputError(f"database is {type(where).__name__}: it must be a path, an address or a connection")
        path = str(where)
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
            # Records that memory does not hold go there. DuckDB would make a folder that others can read.
            self._beside = Path(f"{path}.tmp")
            with suppress(OSError):
                self._beside.mkdir(mode=0o700)

    def schema(self, table: str) -> Any:
        import ibis

        part, _, own = table.rpartition(".")
        with self._cursor() as cursor, self.failures():
            # By the catalog: DuckDB takes other names for paths, and reads files there.
            where = "lower(?) IN (lower(table_schema), lower(table_catalog))" if part else "table_schema IN ?"
            schemas = part or cursor.execute("SELECT current_schemas(true)").fetchone()[0]
            found = f"SELECT 1 FROM information_schema.tables WHERE lower(table_name) = lower(?) AND {where}"
            if not cursor.execute(found, [own, schemas]).fetchone():
                raise InputError(f"the database {self.name} has no table {table!r}")
            return ibis.duckdb.from_connection(cursor).get_schema(own, database=part or None)

    @contextmanager
    def connection(self) -> Iterator[Any]:
        import duckdb

        with self._cursor() as cursor:
            cursor.begin()
            try:
                yield cursor
            finally:
                with suppress(duckdb.Error):  # it failed, and has undone everything itself
                    cursor.rollback()

    def close(self) -> None:
        if self._beside is not None:
            self._connection.close()
            with suppress(OSError):  # others of this process may use it
                self._beside.rmdir()

    def narrow_time(self, column: Any) -> Any:
        # DuckDB's times of seconds and milliseconds reach further than those of microseconds.
        return column.try_cast("timestamp(6)") if column.type().scale in (0, 3) else column

    def as_bytes(self, column: Any) -> Any:
        return _function("decode", "binary", "string")(_function("encode", "string", "binary")(column.cast("string")))

    def put(self, connection: Any, name: str, rows: Any) -> None:
        connection.register(name, rows)

    def write_sql(self, connection: Any, expression: Any) -> str:
        return sql_of(expression, "duckdb")

    def run(self, connection: Any, statement: str, schema: Any) -> Any:
        return connection.execute(statement).to_arrow_table().cast(schema)

    def stop(self, connection: Any) -> None:
        connection.interrupt()

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        with self.failures():
            cursor = self._connection.cursor()
            cursor.execute("SET TimeZone = 'UTC'; SET default_collation = 'binary'")
        try:
            yield cursor
        finally:
            cursor.close()


class PostgreSQL(Database):
    """A PostgreSQL database; every block has a connection of its own. Rows go there as CSV, by COPY."""

    def __init__(self, where: str) -> None:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        self._url = where
        self.losses = (psycopg.OperationalError, psycopg.InterfaceError)
        unread = InputError("database is an unreadable address: it must be postgresql://user@host/name (@ as %40)")
        try:
            # The address may hold a password: messages show the rest.
            parts = conninfo_to_dict(where)
        except psycopg.ProgrammingError:
            raise unread from None
        # Of a password with such signs a part would be taken for a host, and shown.
        port = str(parts.get("port") or "0").replace(",", "")
        if any("@" in str(parts.get(name, "")) for name in ("host", "dbname")) or not port.isdigit():
            raise unread
        self.name = repr(f"{parts.get('dbname', '')} on {parts.get('host', 'localhost')}")
        with self.connection():
            pass

    def schema(self, table: str) -> Any:
        import ibis

        part, _, own = table.rpartition(".")
        with self.connection() as connection, self.failures():
            try:
                return ibis.postgres.from_connection(connection).get_schema(own, database=part or None)
            except ibis.common.exceptions.TableNotFound:
                raise InputError(f"the database {self.name} has no table {table!r}") from None

    def as_bytes(self, column: Any) -> Any:
        return _function(_BYTEWISE, "string", "string")(column.cast("string"))

    def put(self, connection: Any, name: str, rows: Any) -> None:
        import ibis
        from ibis.backends.sql.datatypes import PostgresType
        from pyarrow import csv

        kinds = zip(rows.column_names, rows.schema.types, strict=True)
        typed = {name: PostgresType.to_string(ibis.dtype(kind)) for name, kind in kinds}
        columns = ", ".join(f"{quote(name)} {kind}" for name, kind in typed.items())
        text = io.BytesIO()
        csv.write_csv(rows, text, csv.WriteOptions(include_header=False, quoting_style="all_valid"))
        connection.execute(f"CREATE TEMPORARY TABLE IF NOT EXISTS {quote(name)} ({columns}) ON COMMIT DROP")
        with connection.cursor() as cursor, cursor.copy(f"COPY {quote(name)} FROM STDIN (FORMAT csv)") as copy:
            copy.write(text.getbuffer())

    def write_sql(self, connection: Any, expression: Any) -> str:
        from psycopg.sql import Literal

        # Views take no parameters: the driver writes text constants for this connection.
        return sql_of(expression, "postgres", lambda text: Literal(text).as_string(connection))

    def run(self, connection: Any, statement: str, schema: Any) -> Any:
        import pyarrow as pa

        # In the binary form, in which no setting of the server changes a number or a time.
        rows = connection.execute(statement, binary=True).fetchall()
        columns = [pa.array([row[place] for row in rows]) for place in range(len(schema))]
        return pa.table(columns, schema.names).cast(schema)

    def stop(self, connection: Any) -> None:
        connection.cancel_safe(timeout=1)

    @contextmanager
    def connection(self) -> Iterator[Any]:
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
            with self.failures():
                apply_settings(
                    run, f"the database {self.name}", {"search_path": read_search_path(run)}, "repeatable read"
                )
            yield connection
        finally:
            # What was not committed is rolled back.
            connection.close()
