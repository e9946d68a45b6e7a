"""Databases that hold private records: DuckDB in this process, PostgreSQL by its address.

An engine is a subclass of `Engine` with its own `Session`, listed in `opening.ENGINES`. A database
that fails on private rows may quote them. Its message is never shown: each kind of failure has one fixed text.
"""

from __future__ import annotations

import importlib.util
import io
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from deltahist._postgres import own_schemas, settle
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.space.crs import Operation

#: Of a batch: rows, and bytes where they come as text.
_ROWS, _BYTES = 1 << 18, 1 << 24
#: Ibis makes its compilers at first use, which is not safe for two threads at once.
_COMPILING = threading.Lock()


class Session:
    """One transaction in a database. Engines define `_statement`, `_run`, `_parts`, `_append` and `_stop`."""

    def __init__(self, connection: Any, engine: Engine) -> None:
        self._connection, self._engine = connection, engine

    def fetch(self, expression: Any) -> Any:
        """Return an Ibis table, which is bound to no database, as an Arrow table."""
        with self._engine.failures():
            return self._run(self._statement(expression), expression)

    def batches(self, expression: Any) -> Iterator[Any]:
        """Yield an Ibis table, which is bound to no database, as Arrow tables of some rows at a time."""
        with self._engine.failures():
            parts = self._parts(self._statement(expression), expression)
        while True:
            with self._engine.failures():
                part = next(parts, None)
            if part is None:
                return
            yield part

    def plan(self, expression: Any) -> Callable[[], Any]:
        """Have the database plan an Ibis table, and return a function that fetches it.

        Whatever fails here has read no record.
        """
        with self._engine.failures():
            statement = self._statement(expression)
            self._connection.execute(f"EXPLAIN {statement}")
        return lambda: self._run(statement, expression)

    @contextmanager
    def until(self, end: float) -> Iterator[None]:
        """Stop what runs here, in the block, when a time has come (`time.monotonic`)."""
        if end == math.inf:
            yield
            return
        over = threading.Event()

        def watch() -> None:
            wait = end - time.monotonic()
            # Again and again: a statement may begin just after it was stopped.
            while not over.wait(max(wait, 0)):
                with suppress(Exception):
                    self._stop()
                wait = 0.1

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def project(self, expression: Any, operation: Operation, axes: str) -> AbstractContextManager[Any]:
        """Open an Ibis table whose coordinates are on the map, beside those that were read: "x_read", "y_read".

        Only engines that project define it.
        """
        raise NotImplementedError

    def execute(self, statement: str) -> None:
        """Run a statement of SQL without results."""
        with self._engine.failures():
            self._connection.execute(statement)

    def append(self, table: str, rows: Any) -> None:
        """Append an Arrow table to a table with columns of these names."""
        with self._engine.failures():
            self._append(table, ", ".join(map(quote, rows.column_names)), rows)

    def _statement(self, expression: Any) -> str:
        """Return an Ibis table as SQL; bring in the public tables that it carries."""
        raise NotImplementedError

    def _run(self, statement: str, expression: Any) -> Any:
        """Return the rows of a statement as an Arrow table, in the expression's types."""
        raise NotImplementedError

    def _parts(self, statement: str, expression: Any) -> Iterator[Any]:
        """Yield the rows of a statement as `_run` returns them, in memory that does not grow with their number."""
        raise NotImplementedError

    def _append(self, table: str, columns: str, rows: Any) -> None:
        raise NotImplementedError

    def _stop(self) -> None:
        """Stop what runs, from another thread."""
        raise NotImplementedError


class NoTable(InputError):  # noqa: N818
    """A table that a database does not have."""


class Engine:
    """A database, as queries and counts need it; safe to use from several threads.

    `prefixes` of addresses, the `driver` module and the `extra` that installs it tell when to take it.
    """

    prefixes: ClassVar[tuple[str, ...]]
    driver: ClassVar[str]
    extra: ClassVar[str]
    session: ClassVar[type[Session]]
    #: Whether records can be written, all or none, and two looks agree; queries about people need it.
    has_transactions: ClassVar[bool] = True
    #: Whether each user's points are bounded in the database, by a keyed hash; else users and cells are fetched for it.
    bounds_users: ClassVar[bool] = False
    #: Whether rows can be fetched in batches, for what is not done in the database.
    has_batches: ClassVar[bool] = True
    #: Whether coordinates can be brought to the map by the one operation in the database.
    projects: ClassVar[bool] = False
    #: Names that a table's name may have at most, with dots between them.
    name_parts: ClassVar[int] = 2
    #: What messages say of it after `losses`.
    lost: ClassVar[str] = (
        "went away, or ran out of room, while records were read: nothing was answered; try again when it is back"
    )
    #: The database in messages.
    name: str

    def __init__(self, where: Any) -> None:
        raise NotImplementedError

    def schema(self, table: str) -> Any:
        """Return the Ibis schema of a table or view; raise NoTable if there is none of this name."""
        raise NotImplementedError

    def tables(self) -> list[str]:
        """Return the names of tables and views that are found without the name of a part."""
        raise NotImplementedError

    def connection(self, changes: bool) -> AbstractContextManager[Any]:
        """Open a connection in a transaction, which is undone at the end of the block unless it was committed."""
        raise NotImplementedError

    @contextmanager
    def snapshot(self) -> Iterator[Session]:
        """Open a consistent look, which ends with the block."""
        with self.connection(changes=False) as connection:
            yield self.session(connection, self)

    @contextmanager
    def change(self) -> Iterator[Session]:
        """Open a transaction that is committed at the end of the block, and undone if the block fails."""
        with self.connection(changes=True) as connection:
            yield self.session(connection, self)
            with self.failures():
                connection.commit()

    def close(self) -> None:
        """Close the connections that were opened here."""

    def narrow(self, column: Any) -> Any:
        """Return a column of a table whose values all fit the kinds of queries, NULL in place of others."""
        return column

    def losses(self) -> tuple[type[Exception], ...]:
        """Return the driver's exceptions that mean a lost connection or too little room."""
        raise NotImplementedError

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Turn failures in the block into an InputError without the database's own words."""
        try:
            yield
            return
        except InputError:
            raise
        except self.losses():
            text = self.lost
        except Exception:
            text = (
                "cannot evaluate this: was a table or a column changed meanwhile? What it says is not shown, since it "
                "may quote records"
            )
        raise_alone(InputError(f"the database {self.name} {text}"))


# --- SQL ----------------------------------------------------------------------------------------------------


def raise_alone(failed: Exception) -> NoReturn:
    """Raise an error without the context of the one before, which may quote records."""
    try:
        raise failed
    finally:
        failed.__context__ = None


def quote(name: str) -> str:
    """Return a name in SQL, whatever it holds; "part.table" is a table in a part of the database."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split(".", 1))


def unbound(name: str, schema: Any, parts: int = 2) -> Any:
    """Return an Ibis table that is bound to no database; its name has some parts at most, with dots between them."""
    import ibis

    *above, own = name.split(".", parts - 1)
    catalog, part = [None, None, *above][-2:]
    return ibis.table(schema, name=own, catalog=catalog, database=part)


def _split(table: str) -> tuple[str | None, str]:
    """Return the part of the database, if one is named, and the table's own name."""
    part, dot, own = table.partition(".")
    return (part, own) if dot else (None, table)


def sql_of(
    expression: Any, dialect: str, text: Callable[[str], str] | None = None, *, pretty: bool = False
) -> str:
    """Return an expression of unbound tables as SQL; `text` writes text constants where a database has its own way."""
    from ibis.backends.sql import compilers
    from sqlglot import exp

    def written(node: Any) -> Any:
        is_text = text is not None and isinstance(node, exp.Literal) and node.is_string
        return exp.Var(this=text(node.this)) if is_text else node  # type: ignore[misc]

    with _COMPILING:
        compiler = getattr(compilers, dialect).compiler
        tree = compiler.to_sqlglot(expression.unbind())
        return str(tree.transform(written).sql(dialect=compiler.dialect, pretty=pretty))


def carried_tables(expression: Any) -> dict[str, Any]:
    """Return the public tables that an expression carries with it, as Arrow tables by name."""
    import ibis.expr.operations as ops

    found = expression.op().find(ops.InMemoryTable)
    return {op.name: op.data.to_pyarrow(op.schema) for op in found}


# --- DuckDB -------------------------------------------------------------------------------------------------

#: Names of tables and views in the schemas that need not be named.
_LISTED = (
    "SELECT table_name FROM information_schema.tables WHERE table_schema = ANY(current_schemas(true)) "
    "AND table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY table_name"
)
#: Settings that a block relies on, whatever the connection's own are.
_SETTINGS = "SET TimeZone = 'UTC'; SET default_collation = 'binary'"


class _DuckDBSession(Session):
    """One transaction in DuckDB, of a cursor."""

    def _statement(self, expression: Any) -> str:
        for name, rows in carried_tables(expression).items():
            self._connection.register(name, rows)
        return sql_of(expression, "duckdb")

    def _run(self, statement: str, expression: Any) -> Any:
        return self._connection.execute(statement).to_arrow_table().cast(expression.schema().to_pyarrow())

    def _parts(self, statement: str, expression: Any) -> Iterator[Any]:
        import pyarrow as pa

        schema = expression.schema().to_pyarrow()
        for batch in self._connection.execute(statement).to_arrow_reader(_ROWS):
            yield pa.Table.from_batches([batch]).cast(schema)

    def _append(self, table: str, columns: str, rows: Any) -> None:
        self._connection.register("deltahist_rows", rows)
        self._connection.execute(f"INSERT INTO {quote(table)} ({columns}) SELECT {columns} FROM deltahist_rows")
        self._connection.unregister("deltahist_rows")

    def _stop(self) -> None:
        self._connection.interrupt()


class DuckDB(Engine):
    """A DuckDB file, or an open connection; every block has a cursor of its own."""

    prefixes = ("duckdb:///",)
    driver = extra = "duckdb"
    session = _DuckDBSession

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
        import ibis

        part, own = _split(table)
        with self._cursor() as cursor, self.failures():
            if not _is_there(cursor, own, part):
                own_alone = "" if self._own else " (frames and temporary tables are seen in their own connection only)"
                raise NoTable(f"the database {self.name} has no table {table!r}{own_alone}")
            return ibis.duckdb.from_connection(cursor).get_schema(own, database=part)

    def tables(self) -> list[str]:
        with self._cursor() as cursor, self.failures():
            return [name for (name,) in cursor.execute(_LISTED).fetchall()]

    @contextmanager
    def connection(self, changes: bool) -> Iterator[Any]:
        import duckdb

        with self._cursor() as cursor:
            cursor.begin()
            try:
                yield cursor
            finally:
                with suppress(duckdb.Error):  # it was committed, or failed and has undone all itself
                    cursor.rollback()

    def close(self) -> None:
        if self._own:
            self._connection.close()
            with suppress(OSError):  # others of this process may use it
                self._beside.rmdir()

    def narrow(self, column: Any) -> Any:
        kind = column.type()
        # DuckDB's times of seconds and milliseconds reach further than those of microseconds.
        return column.try_cast("timestamp(6)") if kind.is_timestamp() and kind.scale in (0, 3) else column

    def losses(self) -> tuple[type[Exception], ...]:
        import duckdb

        lost = "ConnectionException", "IOException", "OutOfMemoryException", "InterruptException"
        return tuple(getattr(duckdb, name) for name in lost)

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        with self.failures():
            cursor = self._connection.cursor()
            cursor.execute(_SETTINGS)
        try:
            yield cursor
        finally:
            cursor.close()


def _checked_path(path: str) -> str:
    """Return the path of a database as DuckDB takes it for nothing else; InputError if another file is there.

    DuckDB would read tables from other files, and fetch from the network what reads them.
    """
    if path.startswith(":memory:"):
        return path
    if not path or "\0" in path:
        raise InputError(f"database is {path!r}: it must be the path of a DuckDB file")
    start = _first_bytes(Path(path))
    if start and not is_duckdb(Path(path)):
        kind = "a SQLite file" if start.startswith(b"SQLite format 3") else "another file"
        raise InputError(f"database {path!r} is {kind}: it must be a DuckDB file (or is it a ledger, or a table?)")
    return str(Path(path).resolve())


def is_duckdb(path: Path) -> bool:
    """Return whether a file begins as DuckDB files do."""
    return _first_bytes(path)[8:12] == b"DUCK"


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(16)
    except OSError:  # DuckDB says what is wrong with it, or makes it
        return b""


def _is_there(cursor: Any, table: str, part: str | None) -> bool:
    """Return whether the catalog has a table or view: DuckDB takes other names for paths, and reads files there."""
    where = "lower(?) IN (lower(table_schema), lower(table_catalog))" if part else "table_schema IN ?"
    schemas = part or cursor.execute("SELECT current_schemas(true)").fetchone()[0]
    statement = f"SELECT count(*) FROM information_schema.tables WHERE lower(table_name) = lower(?) AND {where}"
    return bool(cursor.execute(statement, [table, schemas]).fetchone()[0])


# --- PostgreSQL ---------------------------------------------------------------------------------------------


class _PostgreSQLSession(Session):
    """One transaction in PostgreSQL, of a connection; public tables are temporary ones there."""

    def __init__(self, connection: Any, engine: Engine) -> None:
        super().__init__(connection, engine)
        self._there: set[str] = set()

    def _statement(self, expression: Any) -> str:
        from psycopg.sql import Literal

        for name, rows in carried_tables(expression).items():
            if name not in self._there:
                self._create(name, rows)
        # COPY takes no parameters: the driver writes text constants for this connection.
        return sql_of(expression, "postgres", lambda text: Literal(text).as_string(self._connection))

    def _run(self, statement: str, expression: Any) -> Any:
        import pyarrow as pa

        schema = expression.schema().to_pyarrow()
        return pa.concat_tables([schema.empty_table(), *self._parts(statement, expression)])

    def _parts(self, statement: str, expression: Any) -> Iterator[Any]:
        text = io.BytesIO()
        copy = f"COPY ({statement}) TO STDOUT (FORMAT csv)"
        with self._connection.cursor() as cursor, cursor.copy(copy) as rows:
            for row in rows:
                text.write(row)
                if text.tell() >= _BYTES:
                    yield _from_csv(text, expression)
                    text = io.BytesIO()
        if text.tell():
            yield _from_csv(text, expression)

    def _append(self, table: str, columns: str, rows: Any) -> None:
        from pyarrow import csv

        text = io.BytesIO()
        csv.write_csv(rows, text, csv.WriteOptions(include_header=False, quoting_style="all_valid"))
        statement = f"COPY {quote(table)} ({columns}) FROM STDIN (FORMAT csv)"
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(text.getbuffer())

    def _stop(self) -> None:
        self._connection.cancel_safe(timeout=1)

    def _create(self, name: str, rows: Any) -> None:
        """Create a temporary table of public rows, which ends with the transaction."""
        import ibis
        from ibis.backends.sql.datatypes import PostgresType

        columns = ", ".join(
            f"{quote(column)} {PostgresType.to_string(ibis.dtype(kind))}"
            for column, kind in zip(rows.column_names, rows.schema.types, strict=True)
        )
        self._connection.execute(f"CREATE TEMPORARY TABLE {quote(name)} ({columns}) ON COMMIT DROP")
        self.append(name, rows)
        self._there.add(name)


def _is_port(port: Any) -> bool:
    return port is None or str(port).replace(",", "").isdigit()


def _from_csv(text: io.BytesIO, expression: Any) -> Any:
    """Return whole rows of PostgreSQL's CSV as an Arrow table, in the expression's types."""
    from pyarrow import csv

    schema = expression.schema().to_pyarrow()
    text.seek(0)
    convert = csv.ConvertOptions(
        column_types=schema, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False,
        true_values=["t"], false_values=["f"],
    )  # fmt: skip
    lines = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    return csv.read_csv(text, csv.ReadOptions(column_names=schema.names), lines, convert).cast(schema)


class PostgreSQL(Engine):
    """A PostgreSQL database; every block has a connection of its own.

    Rows come and go as CSV by COPY, which is quick and keeps every digit.
    """

    prefixes = ("postgresql://", "postgres://")
    driver, extra = "psycopg", "postgresql"
    session = _PostgreSQLSession

    def __init__(self, where: Any) -> None:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        self._url = where
        try:
            # The address may hold a password: messages show the rest.
            told = conninfo_to_dict(where)
            # Of a password with such signs a part would be taken for something else, and shown.
            if any("@" in str(told.get(name, "")) for name in ("host", "dbname")) or not _is_port(told.get("port")):
                raise ProgrammingError
        except ProgrammingError:
            raise InputError(
                "database is an address that cannot be read: it must be postgresql://user@host/name (signs such as / "
                "and @ in a password are written %2F and %40)"
            ) from None
        self.name = repr(f"{told.get('dbname', '')} on {told.get('host', 'localhost')}")
        with self.connection(changes=True):
            pass

    def schema(self, table: str) -> Any:
        import ibis

        part, own = _split(table)
        with self.connection(changes=True) as connection, self.failures():
            try:
                return ibis.postgres.from_connection(connection).get_schema(own, database=part)
            except ibis.common.exceptions.TableNotFound:
                raise NoTable(f"the database {self.name} has no table {table!r}") from None

    def tables(self) -> list[str]:
        with self.connection(changes=False) as connection, self.failures():
            return [name for (name,) in connection.execute(_LISTED).fetchall()]

    def losses(self) -> tuple[type[Exception], ...]:
        import psycopg

        return (psycopg.OperationalError, psycopg.InterfaceError)

    @contextmanager
    def connection(self, changes: bool) -> Iterator[Any]:
        import psycopg

        isolation = "READ COMMITTED" if changes else "REPEATABLE READ"

        try:
            connection = psycopg.connect(self._url)
        except psycopg.Error as problem:
            said = str(problem).strip().splitlines()[-1][:200]
            raise InputError(f"the database {self.name} does not answer: {said}") from None

        def run(statement: str, values: Mapping[str, Any]) -> Any:
            return connection.execute(statement, values).fetchone()  # type: ignore[arg-type]

        try:
            connection.isolation_level = psycopg.IsolationLevel[isolation.replace(" ", "_")]
            connection.read_only = False
            with self.failures():
                own = {"search_path": own_schemas(run)}
                settle(run, f"the database {self.name}", own, isolation.lower())
            yield connection
        finally:
            # What was not committed is rolled back.
            connection.close()


def open_engine(where: Any) -> Engine:
    """Open a database by its path, its address, an open DuckDB connection, or an open Spark session.

    Raises InputError if the address is of another kind, the libraries are not installed, or nothing answers.
    """
    if isinstance(where, Path) or (isinstance(where, str) and "://" not in where):
        where = f"duckdb:///{where}"
    engine: type[Engine] | None = DuckDB
    if isinstance(where, str):
        engine = next((each for each in (DuckDB, PostgreSQL) if where.startswith(each.prefixes)), None)
    if engine is None:
        raise InputError(
            f"database is {where.split('://')[0]!r}://…: it must be a DuckDB file (city.duckdb, "
            "duckdb:///city.duckdb), or postgresql://user@host/name"
        )
    for module in (engine.driver, "ibis"):
        if importlib.util.find_spec(module) is None:
            raise InputError(
                f"tables in a database need {module}, which is not installed: pip install 'deltahist[{engine.extra}]'"
            )
    return engine(where)
