"""Tables of databases: DuckDB, PostgreSQL and Spark count where the rows are, by the same SQL.

A database that fails on private rows may quote them: its own words are never shown.
"""

from __future__ import annotations

import importlib.util
import io
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist.counting.sql import DUCKDB, Dialect, Given, as_dict, quote, select_sql
from deltahist.counting.where import Condition
from deltahist.errors import InputError
from deltahist.preprocessing import Clock
from deltahist.space.crs import Operation

if TYPE_CHECKING:
    from deltahist.counting.reading import Reading

#: Rows of a batch, and bytes where they come as text.
_ROWS, _BYTES = 1 << 17, 1 << 24
_RULE = "a DuckDB file, postgresql://user@host/name, sc://host:15002 or spark://host:7077, or an open Spark session"


class Engine:
    """A database that is open.

    `dialect` is of its SQL, and `projects` is whether it can bring coordinates to the map itself.
    """

    dialect: Dialect
    projects = False

    def types(self, table: str) -> dict[str, str]:
        """Return the types of a table's columns by name; raise InputError if there is no such table."""
        raise NotImplementedError

    def fetch(self, statement: str) -> Any:
        """Return the rows of a statement, whole numbers all of them, as an Arrow table."""
        raise NotImplementedError

    def batches(self, statement: str) -> Iterator[Any]:
        """Yield the rows of a statement as Arrow batches."""
        raise NotImplementedError

    def project(self, statement: str, operation: Operation) -> str:
        """Return a statement for the same rows with coordinates on the map."""
        raise NotImplementedError


@contextmanager
def open_table(
    database: str | Path | Any, reading: Reading, axes: int, time: tuple[Clock, int] | None
) -> Iterator[tuple[Engine, str]]:
    """Open a database, and return its engine and the statement that reads a table.

    Raises InputError if it does not answer, or lacks the table or a column, or one is of another kind.
    """
    table = str(reading.table)
    for name, usual in (("layer", None), ("format", None), ("decimal", ".")):
        if (value := getattr(reading, name)) != usual:
            raise InputError(f"{name} is {value!r} with the table {table!r}: it is about files; leave it out")
    with _open(database) as engine:
        types = engine.types(table)
        name = ".".join(map(quote, table.split(".")))
        given = Given(name if engine.dialect is not DUCKDB else f"source.{name}", types, engine.dialect)
        asked = [*reading.coordinates, *(c for c in (reading.user, reading.time) if c is not None)]
        condition = None if reading.where is None else Condition.of(reading.where)
        for column in (*map(str, asked), *(() if condition is None else condition.kinds)):
            if column not in types:
                raise InputError(f"column {column!r} is not in {table!r}: it must be one of {', '.join(types)}")
        if len(reading.coordinates) != axes:
            need = "x and y" if axes == 2 else "x only"
            raise InputError(f"table {table!r} needs columns for its coordinates: name {need}, as x= and y=")
        timed = None if reading.time is None or time is None else (str(reading.time), *time)
        if condition is not None:
            condition.check_columns(set(reading.coordinates), None if timed is None else timed[0])
        user = None if reading.user is None else str(reading.user)
        yield engine, select_sql(given, reading.coordinates, condition, user, timed)  # type: ignore[arg-type]


@contextmanager
def _open(database: str | Path | Any) -> Iterator[Engine]:
    text = str(database) if isinstance(database, str | Path) else ""
    if text.startswith(("postgresql://", "postgres://")):
        opened: Any = _PostgreSQL.open(text)
    elif text.startswith(("sc://", "spark://")) or type(database).__module__.startswith("pyspark.sql."):
        opened = _Spark.open(text or database)
    elif "://" not in text and Path(text).is_file():
        opened = _DuckDB.open(Path(text))
    else:
        raise InputError(f"database is {text.split('://')[0]!r}: it must be {_RULE}")
    with _silent("the database"), opened as engine:
        yield engine


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Turn failures into an InputError without the database's own words, which may quote records."""
    failed = None
    try:
        yield
    except InputError:
        raise
    except Exception as problem:
        failed = InputError(
            f"{name} failed ({type(problem).__name__}): does it answer, and was a table changed meanwhile? What it "
            "says is not shown, since it may quote records"
        )
    if failed is not None:
        raise failed


# --- DuckDB -------------------------------------------------------------------------------------------------


class _DuckDB(Engine):
    dialect = DUCKDB

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[_DuckDB]:
        import duckdb

        with path.open("rb") as file:
            if file.read(16)[8:12] != b"DUCK":  # it would read other files as tables
                raise InputError(f"database {path.name!r} is another file: it must be {_RULE}")
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'; SET autoload_known_extensions = false")
            place = str(path).replace("'", "''")
            connection.execute(f"ATTACH '{place}' AS source (READ_ONLY)")
            yield cls(connection)

    def types(self, table: str) -> dict[str, str]:
        *part, own = table.split(".")
        found = self._connection.execute(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = 'source' AND table_name = ? "
            "AND schema_name = ? ORDER BY column_index", [own, part[0] if part else "main"]
        ).fetchall()  # fmt: skip
        if not found:
            raise InputError(f"table is {table!r}: the database has no such table")
        return as_dict(found)

    def fetch(self, statement: str) -> Any:
        return self._connection.execute(statement).to_arrow_table()

    def batches(self, statement: str) -> Iterator[Any]:
        yield from self._connection.execute(statement).to_arrow_reader(_ROWS)


# --- PostgreSQL ---------------------------------------------------------------------------------------------

#: Settings that statements rely on.
_SETTINGS = (
    "SET standard_conforming_strings = on; SET client_encoding = 'UTF8'; SET DateStyle = 'ISO, YMD'; "
    "SET TimeZone = 'UTC'; SET extra_float_digits = 1"
)


class _PostgreSQL(Engine):
    # The server draws from its system's entropy.
    dialect = Dialect(
        "postgres", "extract(epoch FROM {})", "hashtextextended(CAST({} AS TEXT), 0)", "gen_random_uuid()"
    )

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @classmethod
    @contextmanager
    def open(cls, address: str) -> Iterator[_PostgreSQL]:
        if importlib.util.find_spec("psycopg") is None:
            raise InputError("postgresql:// needs psycopg: pip install 'deltahist[postgresql]'")
        import psycopg

        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(_SETTINGS)
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield cls(connection)

    def types(self, table: str) -> dict[str, str]:
        name = ".".join(map(quote, table.split(".")))
        found = self._connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = to_regclass(%s) AND "
            "attnum > 0 AND NOT attisdropped ORDER BY attnum", [name]
        ).fetchall()  # fmt: skip
        if not found:
            raise InputError(f"table is {table!r}: the database has no such table")
        return as_dict(found)

    def fetch(self, statement: str) -> Any:
        import pyarrow as pa

        names = ("place", "number", "kept", "users")
        with self._connection.cursor() as cursor:
            rows = cursor.execute(self.dialect.write(statement)).fetchall()
            width = len(cursor.description)
        columns = zip(*rows, strict=True) if rows else ((),) * width
        return pa.table({name: pa.array(column, pa.int64()) for name, column in zip(names, columns, strict=False)})

    def batches(self, statement: str) -> Iterator[Any]:
        copy = f"COPY ({self.dialect.write(statement)}) TO STDOUT (FORMAT csv, HEADER)"
        with self._connection.cursor() as cursor, cursor.copy(copy) as rows:
            text, header = io.BytesIO(), b""
            for row in rows:
                if not header:
                    header = text_header = bytes(row)
                    text.write(text_header)
                    continue
                text.write(row)
                if text.tell() >= _BYTES:
                    yield from self._parsed(text)
                    text = io.BytesIO()
                    text.write(header)
            yield from self._parsed(text)

    def _parsed(self, text: io.BytesIO) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import csv

        text.seek(0)
        kinds = {"x": pa.float64(), "y": pa.float64(), "u": pa.int64(), "step": pa.int64(), "chosen": pa.bool_()}
        convert = csv.ConvertOptions(column_types=kinds, null_values=[""], true_values=["t"], false_values=["f"])
        yield from csv.read_csv(text, convert_options=convert).combine_chunks().to_batches()


# --- Spark --------------------------------------------------------------------------------------------------


class _Spark(Engine):
    # Its uuid() is drawn from a generator that a random seed starts: unlike elsewhere it is not cryptographic.
    dialect = Dialect("spark", "unix_micros(CAST({} AS TIMESTAMP)) / 1e6", "xxhash64({})", "uuid()")
    projects = True

    def __init__(self, session: Any) -> None:
        self._session = session
        self._views: list[str] = []

    @classmethod
    @contextmanager
    def open(cls, where: Any) -> Iterator[_Spark]:
        if importlib.util.find_spec("pyspark") is None:
            raise InputError("Spark needs pyspark: pip install 'deltahist[spark]'")
        session = where
        if isinstance(where, str) and where.startswith("sc://"):
            from pyspark.sql.connect.client.retries import DefaultPolicy
            from pyspark.sql.connect.session import SparkSession as Remote

            session = Remote.builder.remote(where).create()
            session.client.set_retry_policies([DefaultPolicy(max_retries=3)])  # of itself it tries for ten minutes
        elif isinstance(where, str):
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.master(where).appName("deltahist")
            for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress", "spark.eventLog.enabled"):
                builder = builder.config(name, "false")  # pages and logs would show constants
            session = builder.getOrCreate()
            session.sparkContext.setLogLevel("OFF")
        wanted = {
            "spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC",
            "spark.sql.parser.escapedStringLiterals": "false",
            # A file that is gone, or cut short, must not be left out without a word.
            "spark.sql.files.ignoreCorruptFiles": "false", "spark.sql.files.ignoreMissingFiles": "false",
        }  # fmt: skip
        before = {name: session.conf.get(name) for name in wanted}
        engine = cls(session)
        try:
            for name, value in wanted.items():
                session.conf.set(name, value)
            yield engine
        finally:
            with suppress(Exception):  # Spark is away
                for view in engine._views:
                    session.catalog.dropTempView(view)
                for name, value in before.items():
                    session.conf.set(name, value)
                if session is not where:
                    session.stop()

    def types(self, table: str) -> dict[str, str]:
        from pyspark.errors import AnalysisException

        name = ".".join("`" + part.replace("`", "``") + "`" for part in table.split("."))
        with suppress(AnalysisException):
            # Spark would take parquet.`/a/path` for a table, and read files there.
            if self._session.catalog.tableExists(name):
                return as_dict((f.name, f.dataType.simpleString()) for f in self._session.table(name).schema)
        raise InputError(f"table is {table!r}: the database has no such table")

    def fetch(self, statement: str) -> Any:
        return self._session.sql(self.dialect.write(statement)).toArrow()

    def batches(self, statement: str) -> Iterator[Any]:
        raise InputError("Spark hands out no rows, as points of a line need: take a file or another database")

    def project(self, statement: str, operation: Operation) -> str:
        take, view = operation.to_send(), f"deltahist_{uuid.uuid4().hex}"

        # Only what workers have is named in here: they need no more than PySpark and pyproj.
        def bring(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            forward = take()
            for batch in batches:
                read = [batch.column(axis).to_numpy(zero_copy_only=False) for axis in "xy"]
                columns = {each: batch.column(each) for each in batch.schema.names}
                columns |= {axis: pa.array(placed) for axis, placed in zip("xy", forward(*read), strict=True)}
                yield pa.RecordBatch.from_pydict(columns)

        rows = self._session.sql(self.dialect.write(statement))
        rows.mapInArrow(bring, rows.schema).createOrReplaceTempView(view)
        self._views.append(view)
        return f"SELECT * FROM {view}"
