"""Read rows from files, folders and object storage through DuckDB, and from PostgreSQL and Spark servers.

To add a file format, write a function here and list its suffixes in `FORMATS`. Servers count their own rows with the
same SQL. Database error messages are never shown, because they may quote private rows.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import itertools
import json
import re
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import pyarrow as pa

from deltahist._files import is_address, read_address
from deltahist.counting.sql import DUCKDB, POSTGRESQL, SPARK, Condition, Reading, Relation, quote_name, quote_text
from deltahist.errors import InputError, check_choice
from deltahist.space.crs import Operation
from deltahist.space.geometries import DRIVERS, open_layer

#: Number of rows per batch.
ROWS = 1 << 17
#: Length of the longest line that DuckDB reads, in bytes.
_LONGEST_LINE = 1 << 21


@dataclass(frozen=True)
class Source:
    """An open table (`given`) on a connection, with its geometry column and CRS, if any.

    Call `finish` after the last row. `finish` returns the number of text rows with too few or too many fields, and
    fails if the file is truncated.
    """

    connection: Any
    given: Relation | Any = None
    geometry: str | None = None
    crs: Any = None
    finish: Callable[[], int] = lambda: 0

    def batches(self, statement: str) -> Any:
        """Run a statement and return its rows in Arrow batches."""
        return self.connection.execute(statement).to_arrow_reader(ROWS)


@contextmanager
def open_input(path: str | Path | Any, reading: Reading) -> Iterator[Any]:
    """Open a table. Raises InputError if the table cannot be read, either on opening or within the block."""
    server = is_server(path)
    failed: InputError | None = None
    try:
        with _open_table(path, str(reading.table)) if server else _open_files(Path(path), reading) as source:
            yield source
    except InputError as problem:
        failed = problem
    except Exception as problem:  # readers raise many types of errors
        if server:
            failed = InputError(
                f"the database failed ({type(problem).__name__}): is it running, does it have the table "
                f"{reading.table!r}, and is its package installed (pip install '.[postgresql]' or '.[spark]')? Its "
                "message may quote records, so it is hidden"
            )
        else:
            said = next(iter(str(problem).splitlines()), "")[:300] or type(problem).__name__  # the rest may quote rows
            hint = " (an unclosed quote, mixed line endings, or a truncated line?)" if "CSV " in said else ""
            failed = InputError(f"input {Path(str(path)).name!r} cannot be read: {said}{hint}")
    if failed is not None:  # raised outside `except`, so that tracebacks hide the database's message
        raise failed from None


def is_server(path: Any) -> bool:
    """Return True if an input is an open session or the address of a server."""
    return not isinstance(path, str | Path) or str(path).startswith(("postgresql://", "postgres://", "sc://"))


def is_stream(path: Path) -> bool:
    """Return True if an input can be read only once: standard input ("-") or a pipe such as /dev/fd/63."""
    return path == Path("-") or path.is_fifo() or str(path).startswith(("/dev/fd/", "/dev/stdin"))


@contextmanager
def _open_files(path: Path, reading: Reading) -> Iterator[Source]:
    import duckdb

    with ExitStack() as stack:
        connection = stack.enter_context(duckdb.connect())
        spill = stack.enter_context(tempfile.TemporaryDirectory())  # readable only by its owner
        connection.execute(
            "SET TimeZone = 'UTC'; SET preserve_insertion_order = false; SET enable_progress_bar = false; "
            "SET autoinstall_known_extensions = false; SET autoload_known_extensions = false; "
            f"SET temp_directory = {quote_text(spill)}"
        )
        yield _open_path(path, reading, connection, stack)


def _open_path(path: Path, reading: Reading, connection: Any, stack: ExitStack) -> Source:
    name = path.name
    if reading.table is not None:
        connection.execute(f"ATTACH {quote_text(path)} AS source (READ_ONLY)")
        return _make_source(connection, reading.table, f"source.{'.'.join(map(quote_name, reading.table.split('.')))}")
    if is_address(path):
        name = "/".join(read_address(path, "input"))
        return _open_lake(name, name, connection)
    if is_stream(path):
        path, name = _copy_stream(path, stack), "standard input" if path == Path("-") else str(path)
    if path.name.endswith(".metadata.json") or S_ISDIR(path.stat().st_mode):  # fails if the file does not exist
        return _open_lake(str(path), name, connection)
    opener = FORMATS[check_choice(tuple(FORMATS), suffix=Path(path.name.lower().removesuffix(".gz")).suffix)]
    source = opener(path, name, reading, connection, stack)

    def finish() -> int:
        tail = b""
        if path.name.endswith(".gz"):
            with gzip.open(path) as packed:  # fails on a truncated file, unlike DuckDB
                while part := packed.read(_LONGEST_LINE):
                    tail = (tail + part)[-_LONGEST_LINE:]
        elif opener is _open_csv:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _LONGEST_LINE))
                tail = file.read()
        if len(tail) == _LONGEST_LINE and not re.search(rb"[\r\n]", tail[:-2]):  # DuckDB skips an overlong last line
            raise InputError(f"input {name!r} ends in a line of more than {_LONGEST_LINE:,} bytes: is it a table?")
        return source.finish()

    return replace(source, finish=finish)


def _copy_stream(path: Path, stack: ExitStack) -> Path:
    """Copy a stream to a file that only its owner can read. The first bytes determine the suffix."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    stream = sys.stdin.buffer if path == Path("-") else stack.enter_context(path.open("rb"))
    with (folder / "stream").open("wb") as file:
        shutil.copyfileobj(stream, file)
    with (folder / "stream").open("rb") as file:
        start = file.read(4)
    starts = {b"PAR1": ".parquet", b"{": ".jsonl", bytes([0x1F, 0x8B]): ".csv.gz"}
    ending = next((ending for known, ending in starts.items() if start.startswith(known)), ".csv")
    return (folder / "stream").rename(folder / f"stream{ending}")


def _quote_path(path: Path) -> str:
    """Quote a path for DuckDB, and escape wildcards such as *, which DuckDB would expand."""
    return quote_text(glob.escape(str(path)))


def _list_types(connection: Any, relation: str) -> dict[str, str]:
    return dict(row[:2] for row in connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall())


def _open_csv(path: Path, name: str, reading: Reading, connection: Any, stack: ExitStack) -> Source:
    """Open a delimited text file, reading every column as text."""
    with (gzip.open if path.name.endswith(".gz") else open)(path, "rb") as file:
        text = file.read(1 << 18).decode("utf-8-sig", errors="replace")
    lines = [line for line in text.splitlines()[:20] if line.strip()] or [""]
    counts = {d: [line.count(d) for line in lines] for d in "\t,;|"}
    # A delimiter occurs equally often in every line. If several characters do, use the most frequent.
    usual = {d: sorted(c)[len(c) // 2] for d, c in counts.items()}
    steady = {d: usual[d] for d, c in counts.items() if c[0] and min(c) == max(c)} or usual
    delimiter = max(steady, key=lambda d: steady[d]) if any(steady.values()) else ","
    quoted = delimiter != "\t" or '"' in lines[0]  # tab-delimited text is quoted only if its header is
    parsed = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=0 if quoted else csv.QUOTE_NONE)
    rows = (  # non-blank rows, each with the number of lines before it
        (before, [field.strip() for field in row])
        for before, row in zip(iter(lambda: parsed.line_num, -1), itertools.islice(parsed, 100), strict=False)
        if any(row)
    )
    skipped, first = next(rows, (0, []))
    # If columns are given by number, a first line that contains a number is data. Its private value does not matter.
    numbers = [field for field in first if re.fullmatch(r"[-+]?[\d.,]+([eE][-+]?\d+)?|nan|inf", field)]
    header = not (numbers and all(map(str.isdigit, reading.coordinates)))
    names = [f"{f} [{i}]" if not header or first.count(f) > 1 else f for i, f in enumerate(first)]
    _, second = next(rows, (0, []))
    if not first or len(second) > len(first):  # DuckDB would ignore extra fields that are empty
        number = f"{len(first)} names and {len(second)} fields" if first else "no lines"
        raise InputError(f"input {name!r} has {number}: the first line must have a name for every field")
    aliases = {each: f"c{i}" for i, each in enumerate(names)}
    columns = ", ".join(f"{alias}: 'VARCHAR'" for alias in aliases.values())
    rejects = ", store_rejects = true, rejects_limit = 0" if reading.drop_bad_rows else ""
    quotes = quote_text('"' if quoted else "")
    relation = (
        f"read_csv({_quote_path(path)}, auto_detect = false, delim = {quote_text(delimiter)}, quote = {quotes}, "
        f"escape = {quotes}, header = {header}, skip = {skipped}, strict_mode = true, columns = {{{columns}}}{rejects})"
    )
    given = Relation(name, relation, dict.fromkeys(names, "VARCHAR"), DUCKDB, aliases, texts=True)

    def finish() -> int:
        if not rejects:
            return 0
        found = connection.execute("SELECT error_type::VARCHAR, line FROM reject_errors").fetchall()
        for kind, line in found:
            if kind not in ("MISSING COLUMNS", "TOO MANY COLUMNS"):
                raise InputError(f"line {line:,} of input {name!r} cannot be read: {kind.lower()}")
        return len({line for _, line in found})

    return Source(connection, given, finish=finish)


def _open_jsonl(path: Path, name: str, reading: Reading, connection: Any, stack: ExitStack) -> Source:
    file = f"read_json({_quote_path(path)}, format = 'newline_delimited', maximum_depth = 1"
    names = list(_list_types(connection, f"{file})"))
    columns = ", ".join(f"{quote_text(each)}: 'VARCHAR'" for each in names)
    relation = f"{file}, columns = {{{columns}}})"
    return Source(connection, Relation(name, relation, dict.fromkeys(names, "VARCHAR"), DUCKDB, texts=True))


def _open_excel(path: Path, name: str, reading: Reading, connection: Any, stack: ExitStack) -> Source:
    import pandas as pd

    sheets = list(pd.read_excel(path, sheet_name=None, header=None, dtype=object).values())
    check_choice((1,), sheets=len(sheets))
    file = Path(stack.enter_context(tempfile.TemporaryDirectory()), "sheet.csv")
    sheets[0].to_csv(file, index=False, header=False)
    return _open_csv(file, name, reading, connection, stack)


def _open_parquet(path: Path, name: str, reading: Reading, connection: Any, stack: ExitStack) -> Source:
    import pyarrow.parquet as pq

    described = (pq.read_schema(path).metadata or {}).get(b"geo")
    geometry = crs = None
    if described is not None:
        geo = json.loads(described)
        geometry = geo["primary_column"]
        crs = geo["columns"][geometry].get("crs", "OGC:CRS84")  # default in GeoParquet
    crs = json.dumps(crs) if isinstance(crs, dict) else crs
    return _make_source(connection, name, f"read_parquet({_quote_path(path)})", geometry, crs)


def _open_lake(place: str, name: str, connection: Any) -> Source:
    """Open a folder of Parquet files (perhaps partitioned), or a Delta or Iceberg table."""
    rows: Any
    if place.endswith(".metadata.json"):
        from pyiceberg.table import StaticTable

        rows = StaticTable.from_metadata(place).scan().to_arrow_batch_reader()
    else:
        from pyarrow import dataset, fs

        uri = place.replace("az://", "abfs://", 1) if is_address(place) else str(Path(place).resolve())
        system, root = fs.FileSystem.from_uri(uri)
        if system.get_file_info(f"{root}/_delta_log").type == fs.FileType.Directory:
            from deltalake import DeltaTable

            rows = DeltaTable(place).to_pyarrow_dataset()
        else:
            parts = None if FORMATS.get(Path(place).suffix) is _open_parquet else "hive"
            rows = dataset.dataset(root, filesystem=system, format="parquet", partitioning=parts)
    connection.register("source", rows)
    return _make_source(connection, name, "source")


def _make_source(connection: Any, name: str, relation: str, geometry: str | None = None, crs: Any = None) -> Source:
    """Return a source for a relation. Fields of structures become columns such as "loc.x"."""
    types, parts = _list_types(connection, relation), ["*"]
    for column in [column for column, kind in types.items() if kind.startswith("STRUCT(")]:
        fields = _list_types(connection, f"(SELECT unnest({quote_name(column)}) FROM {relation})")
        types |= {f"{column}.{name}": kind for name, kind in fields.items()}
        parts += [f"{quote_name(column)}.{quote_name(each)} AS {quote_name(f'{column}.{each}')}" for each in fields]
    if len(parts) > 1:
        relation = f"(SELECT {', '.join(parts)} FROM {relation})"
    return Source(connection, Relation(name, relation, types, DUCKDB), geometry, crs)


def _open_geometries(path: Path, name: str, reading: Reading, connection: Any, stack: ExitStack) -> Source:
    asked = [c for c in (*reading.coordinates, reading.user, reading.time) if c is not None]
    if reading.where is not None:
        asked += Condition.of(reading.where).kinds
    rows, crs = stack.enter_context(open_layer(path, asked))
    connection.register("source", rows)
    source = _make_source(connection, name, "source", crs=crs)
    return replace(source, geometry=list(source.given.types)[-1])


#: Functions that open files, by suffix (without .gz). The second argument is the file's name in messages.
FORMATS: dict[str, Callable[[Path, str, Reading, Any, ExitStack], Source]] = {
    **dict.fromkeys((".csv", ".tsv", ".txt", ".dat"), _open_csv),
    **dict.fromkeys((".jsonl", ".ndjson"), _open_jsonl),
    **dict.fromkeys((".parquet", ".pq", ".geoparquet"), _open_parquet),
    **dict.fromkeys((".xlsx", ".xlsm"), _open_excel),
    **dict.fromkeys(DRIVERS, _open_geometries),
}


# --- servers ------------------------------------------------------------------------------------------------------


@contextmanager
def _open_table(database: str | Any, table: str) -> Iterator[Source]:
    kind: Any = PostgreSQL if str(database).startswith("postgres") else Spark
    with kind.open(database) as engine:
        name = ".".join(map(quote_name, table.split(".")))
        yield replace(engine, given=Relation(table, name, engine.list_types(table), engine.dialect))


class PostgreSQL(Source):
    dialect = POSTGRESQL
    projects = False

    @classmethod
    @contextmanager
    def open(cls, address: str) -> Iterator[PostgreSQL]:
        import psycopg

        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(
                "SET standard_conforming_strings = on; SET client_encoding = 'UTF8'; SET DateStyle = 'ISO, YMD'; "
                "SET TimeZone = 'UTC'; SET extra_float_digits = 1"
            )
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield cls(connection)

    def list_types(self, table: str) -> dict[str, str]:
        found = self.connection.execute(f"SELECT * FROM {'.'.join(map(quote_name, table.split('.')))} LIMIT 0")
        return {column.name: column.type_display for column in found.description}

    def batches(self, statement: str) -> Iterator[Any]:
        kinds = dict.fromkeys("xyz", pa.float64()) | {"chosen": pa.bool_()}  # other columns are whole numbers
        with self.connection.cursor("deltahist", binary=True) as cursor:
            cursor.execute(self.dialect.write(statement))
            names = [column.name for column in cursor.description]
            schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in names])
            yield pa.RecordBatch.from_pylist([], schema)
            while rows := cursor.fetchmany(1 << 16):
                columns = zip(*rows, strict=True)
                arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True)
class Spark(Source):
    views: list[str] = field(default_factory=list)  # temporary views to drop at the end
    dialect = SPARK
    projects = True

    @classmethod
    @contextmanager
    def open(cls, where: Any) -> Iterator[Spark]:
        session = where
        if isinstance(where, str):
            from pyspark.sql.connect.client.retries import DefaultPolicy
            from pyspark.sql.connect.session import SparkSession as Remote

            session = Remote.builder.remote(where).create()
            session.client.set_retry_policies([DefaultPolicy(max_retries=3)])  # the default retries for ten minutes
        wanted = {
            "spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC",
            "spark.sql.parser.escapedStringLiterals": "false",
            # Do not ignore missing or damaged files.
            "spark.sql.files.ignoreCorruptFiles": "false", "spark.sql.files.ignoreMissingFiles": "false",
        }  # fmt: skip
        before = {name: session.conf.get(name) for name in wanted}
        engine = cls(session)
        try:
            for name, value in wanted.items():
                session.conf.set(name, value)
            yield engine
        finally:
            with suppress(Exception):  # the Spark server may have stopped
                for view in engine.views:
                    session.catalog.dropTempView(view)
                for name, value in before.items():
                    session.conf.set(name, value)
                if session is not where:
                    session.stop()

    def list_types(self, table: str) -> dict[str, str]:
        name = ".".join("`" + part.replace("`", "``") + "`" for part in table.split("."))
        self.connection.catalog.getTable(name)  # refuses names such as parquet.`/a/path`, which Spark would open
        return {f.name: f.dataType.simpleString() for f in self.connection.table(name).schema}

    def batches(self, statement: str) -> Any:
        found = self.connection.sql(self.dialect.write(statement)).toArrow()
        return [pa.RecordBatch.from_pylist([], found.schema), *found.to_batches()]

    def project(self, statement: str, operation: Operation) -> str:
        transformer, view = operation.transformer, f"deltahist_{uuid.uuid4().hex}"

        # Do not use deltahist here, because workers may have only PySpark and pyproj.
        def project_batches(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            for batch in batches:
                x, y = transformer.transform(*(batch[axis].to_numpy(zero_copy_only=False) for axis in "xy"))
                yield batch.set_column(0, "x", pa.array(x)).set_column(1, "y", pa.array(y))

        rows = self.connection.sql(self.dialect.write(statement))
        rows.mapInArrow(project_batches, rows.schema).createOrReplaceTempView(view)
        self.views.append(view)
        return f"SELECT * FROM {view}"
