"""Tables on Spark, for counts: through Spark Connect, or with this process as the driver.

Ibis writes the SQL, and Spark hands its result over as Arrow. There are no transactions: whatever must agree is asked
for by one statement.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist.counting.engines import Engine, NoTable, Session, carried_tables, raise_alone, sql_of
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.space.crs import Operation

#: What expressions rely on, whatever the session's own settings are.
_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.session.timeZone": "UTC",
    # A file that is gone, or cut short, must not be left out without a word.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}

#: Tries to reach a server, which are a few seconds together.
_TRIES = 3
#: PySpark writes what Spark says, records included, to stderr by these loggers.
_LOGGERS = "SQLQueryContextLogger", "DataFrameQueryContextLogger"
_is_quiet = ContextVar("_is_quiet", default=False)


def _is_told(record: logging.LogRecord) -> bool:
    del record
    return not _is_quiet.get()


class _SparkSession(Session):
    """A look at Spark's tables; the public tables of a statement are views of this session while it runs."""

    def _statement(self, expression: Any) -> str:
        import ibis

        ibis.pyspark  # noqa: B018  # settings that writing SQL asks for
        return sql_of(expression, "pyspark")

    def _run(self, statement: str, expression: Any) -> Any:
        carried = carried_tables(expression)
        try:
            for name, rows in carried.items():
                self._connection.createDataFrame(rows).createOrReplaceTempView(name)
            return self._connection.sql(statement).toArrow().cast(expression.schema().to_pyarrow())
        finally:
            for name in carried:
                with suppress(Exception):  # Spark is away
                    self._connection.catalog.dropTempView(name)


    @contextmanager
    def project(self, expression: Any, operation: Operation, axes: str) -> Iterator[Any]:
        import ibis
        from pyspark.sql.types import DoubleType, StructType

        take, name = operation.to_send(), f"deltahist_{uuid.uuid4().hex}"
        statement = self._statement(expression)

        # Only what workers have is named in here: they need no more than PySpark and pyproj.
        def bring(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            forward = take()
            for batch in batches:
                read = [batch.column(axis).to_numpy(zero_copy_only=False) for axis in axes]
                columns = {each: batch.column(each) for each in batch.schema.names}
                columns |= {axis: pa.array(placed) for axis, placed in zip(axes, forward(*read), strict=True)}
                columns |= {f"{axis}_read": batch.column(axis) for axis in axes}
                yield pa.RecordBatch.from_pydict(columns)

        with self._engine.failures():
            rows = self._connection.sql(statement)
            schema = StructType(list(rows.schema))
            for axis in axes:
                schema = schema.add(f"{axis}_read", DoubleType())
            rows.mapInArrow(bring, schema).createOrReplaceTempView(name)
        try:
            kinds = dict(expression.schema().items()) | {f"{axis}_read": "float64" for axis in axes}
            yield ibis.table(kinds, name=name)
        finally:
            with suppress(Exception):  # Spark is away
                self._connection.catalog.dropTempView(name)


class Spark(Engine):
    """Spark by the address of a server of Spark Connect or of a master, or an open session.

    A session that was given is left as it was found.
    """

    prefixes = ("sc://", "spark://")
    driver, extra = "pyspark", "spark"
    session = _SparkSession
    has_transactions = False
    bounds_users = projects = True
    #: A table in a schema of a catalog.
    name_parts = 3
    # Spark hands a result over as a whole.
    has_batches = False
    lost = (
        "did not read all records: is it away, out of room, or without an executor, or was a file of the table "
        "changed? Nothing was answered"
    )

    def __init__(self, where: Any) -> None:
        self._own = isinstance(where, str)
        if not self._own:
            self.name, self._session = "of the Spark session", where
            return
        # A user's name and password may come before the host, and a token after it.
        scheme, _, rest = where.partition("://")
        self.name = repr(f"{scheme}://{re.split('[/;?]', rest)[0].rpartition('@')[2]}")
        failed = None
        try:
            self._session = _connect(where) if where.startswith("sc://") else _drive(where)
        except InputError:
            raise
        except Exception:
            failed = InputError(f"the database {self.name} does not answer: is Spark there, and may you use it?")
        if failed:
            raise failed

    def schema(self, table: str) -> Any:
        import ibis
        from ibis.backends.pyspark.datatypes import PySparkType
        from pyspark.errors import AnalysisException

        name = ".".join("`" + each.replace("`", "``") + "`" for each in table.split(".", self.name_parts - 1))
        with self.failures():
            is_there = False
            with suppress(AnalysisException):  # no such catalog
                # Spark would take parquet.`/a/path` for a table, and read files there.
                is_there = bool(table) and self._session.catalog.tableExists(name)
            if not is_there:
                raise NoTable(f"the database {self.name} has no table {table!r}")
            fields = self._session.table(name).schema
        columns = {}
        for field in fields:
            # Text that has another collation would be compared in another way.
            if getattr(field.dataType, "collation", "UTF8_BINARY") == "UTF8_BINARY":
                with suppress(NotImplementedError, ibis.common.exceptions.IbisTypeError):
                    columns[field.name] = PySparkType.to_ibis(field.dataType)
        return ibis.schema(columns)

    def tables(self) -> list[str]:
        with self.failures():
            return sorted(each.name for each in self._session.catalog.listTables())

    @contextmanager
    def connection(self, changes: bool) -> Iterator[Any]:
        del changes
        settings, before = self._session.conf, dict[str, str]()
        with self.failures():
            for name, value in _SETTINGS.items():
                if (there := settings.get(name)) != value:
                    before[name] = there
                    settings.set(name, value)
        try:
            yield self._session
        finally:
            for name, value in before.items():
                with suppress(Exception):  # Spark is away
                    settings.set(name, value)

    def close(self) -> None:
        if self._own:
            with suppress(Exception):
                self._session.stop()

    @contextmanager
    def failures(self) -> Iterator[None]:
        import pyproj
        from pyspark.errors import PythonException
        from pyspark.logger import PySparkLogger

        for name in _LOGGERS:
            PySparkLogger.getLogger(name).addFilter(_is_told)
        before = _is_quiet.set(True)
        try:
            with super().failures():
                try:
                    yield
                except PythonException:
                    proj = pyproj.__proj_version__
                    said = (
                        f"could not run Python on its workers: do they have pyproj, with PROJ {proj} "
                        "and the grids that are here? What it says is not shown, since it may quote records"
                    )
                    raise_alone(InputError(f"the database {self.name} {said}"))
        finally:
            _is_quiet.reset(before)

    def losses(self) -> tuple[type[Exception], ...]:
        from py4j.protocol import Py4JError
        from pyspark.errors.exceptions.base import RetriesExceeded

        lost = Py4JError, RetriesExceeded, ConnectionError
        if importlib.util.find_spec("grpc") is None:
            return lost
        from pyspark.errors.exceptions.connect import SparkException

        return (*lost, SparkException)


def _connect(where: str) -> Any:
    """Return a session of a server of Spark Connect."""
    for module in ("grpc", "grpc_status"):
        if importlib.util.find_spec(module) is None:
            raise InputError(f"sc://… needs {module}, which is not installed: pip install 'deltahist[spark]'")
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(where).create()
    # Of itself it would try for ten minutes.
    session.client.set_retry_policies([DefaultPolicy(max_retries=_TRIES)])
    session.conf.get("spark.sql.ansi.enabled")
    return session


def _drive(where: str) -> Any:
    """Return a session of a master's, with the driver in this process: it tells neither logs nor pages anything."""
    from pyspark.sql import SparkSession

    java = os.environ.get("JAVA_HOME")
    if not (Path(java, "bin", "java").exists() if java else shutil.which("java")):
        raise InputError(
            "spark://… needs Java 17, which is not installed: apt-get install openjdk-17-jre-headless; "
            "sc://host:15002 (Spark Connect) needs none here"
        )
    if SparkSession.getActiveSession() is not None:
        raise InputError("a Spark session is open in this process, and there is one at most: give it as the database")
    builder = SparkSession.builder.master(where).appName("deltahist")
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress", "spark.eventLog.enabled"):
        builder = builder.config(name, "false")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
