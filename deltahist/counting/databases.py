"""Tables of servers: PostgreSQL and Spark count where the rows are, by the same SQL.

A database that fails on private rows may quote them, so its own messages are never shown.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from deltahist.counting.sql import POSTGRESQL, SPARK, Relation, quote_name
from deltahist.errors import InputError
from deltahist.space.crs import Operation


@contextmanager
def open_table(database: str | Path | Any, table: str) -> Iterator[_PostgreSQL | _Spark]:
    """Open a table of a server; raise InputError if it does not answer, or fails later on."""
    failed: InputError | None = None
    kind: Any = _PostgreSQL if str(database).startswith("postgres") else _Spark
    try:
        with kind.open(database) as engine:
            name = ".".join(map(quote_name, table.split(".")))
            engine.given = Relation(table, name, engine.types(table), engine.dialect)
            yield engine
    except Exception as problem:
        hidden = InputError(
            f"the database failed ({type(problem).__name__}): does it answer, does it have the table {table!r}, and is "
            "its package installed ('deltahist[postgresql]', 'deltahist[spark]')? Its message may quote records, so it "
            "is hidden"
        )
        failed = problem if isinstance(problem, InputError) else hidden
    if failed is not None:  # outside of `except`, or the error would keep the database's own message
        raise failed


class _Engine:
    """A server that counts where the rows are. It states no geometry and no CRS."""

    given: Relation
    geometry = crs = None

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.views: list[str] = []  # temporary ones, dropped at the end

    def finish(self) -> int:
        return 0


class _PostgreSQL(_Engine):
    dialect = POSTGRESQL
    projects = False

    @classmethod
    @contextmanager
    def open(cls, address: str) -> Iterator[_PostgreSQL]:
        import psycopg

        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(
                "SET standard_conforming_strings = on; SET client_encoding = 'UTF8'; SET DateStyle = 'ISO, YMD'; "
                "SET TimeZone = 'UTC'; SET extra_float_digits = 1"
            )
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield cls(connection)

    def types(self, table: str) -> dict[str, str]:
        found = self._connection.execute(f"SELECT * FROM {'.'.join(map(quote_name, table.split('.')))} LIMIT 0")
        return {column.name: column.type_display for column in found.description}

    def batches(self, statement: str) -> Iterator[Any]:
        import pyarrow as pa

        kinds = {"x": pa.float64(), "y": pa.float64(), "chosen": pa.bool_()}  # all others are whole numbers
        with self._connection.cursor("deltahist", binary=True) as cursor:
            cursor.execute(self.dialect.write(statement))
            names = [column.name for column in cursor.description]
            schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in names])
            yield pa.RecordBatch.from_pylist([], schema)
            while rows := cursor.fetchmany(1 << 16):
                columns = zip(*rows, strict=True)
                arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Spark(_Engine):
    dialect = SPARK
    projects = True

    @classmethod
    @contextmanager
    def open(cls, where: Any) -> Iterator[_Spark]:
        session = where
        if isinstance(where, str):
            from pyspark.sql.connect.client.retries import DefaultPolicy
            from pyspark.sql.connect.session import SparkSession as Remote

            session = Remote.builder.remote(where).create()
            session.client.set_retry_policies([DefaultPolicy(max_retries=3)])  # by default it tries for ten minutes
        wanted = {
            "spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC",
            "spark.sql.parser.escapedStringLiterals": "false",
            # Missing or damaged files must be errors.
            "spark.sql.files.ignoreCorruptFiles": "false", "spark.sql.files.ignoreMissingFiles": "false",
        }  # fmt: skip
        before = {name: session.conf.get(name) for name in wanted}
        engine = cls(session)
        try:
            for name, value in wanted.items():
                session.conf.set(name, value)
            yield engine
        finally:
            with suppress(Exception):  # Spark may be gone
                for view in engine.views:
                    session.catalog.dropTempView(view)
                for name, value in before.items():
                    session.conf.set(name, value)
                if session is not where:
                    session.stop()

    def types(self, table: str) -> dict[str, str]:
        name = ".".join("`" + part.replace("`", "``") + "`" for part in table.split("."))
        self._connection.catalog.getTable(name)  # or Spark would take parquet.`/a/path` for a table, and read files
        return {f.name: f.dataType.simpleString() for f in self._connection.table(name).schema}

    def batches(self, statement: str) -> Any:
        import pyarrow as pa

        found = self._connection.sql(self.dialect.write(statement)).toArrow()
        return [pa.RecordBatch.from_pylist([], found.schema), *found.to_batches()]

    def project(self, statement: str, operation: Operation) -> str:
        transformer, view = operation.transformer, f"deltahist_{uuid.uuid4().hex}"

        # Workers need no more than PySpark and pyproj.
        def bring(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            for batch in batches:
                x, y = transformer.transform(*(batch[axis].to_numpy(zero_copy_only=False) for axis in "xy"))
                yield batch.set_column(0, "x", pa.array(x)).set_column(1, "y", pa.array(y))

        rows = self._connection.sql(self.dialect.write(statement))
        rows.mapInArrow(bring, rows.schema).createOrReplaceTempView(view)
        self.views.append(view)
        return f"SELECT * FROM {view}"
