"""Every file that holds points as one relation of DuckDB: text, Parquet, geometries, workbooks, tables of lakes."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile
from zlib import error as Zlib  # noqa: N812

from deltahist._objects import is_address, read_address
from deltahist.counting.sql import DUCKDB, Given, kind_of, quote
from deltahist.errors import InputError
from deltahist.space.geometries import DRIVERS, open_layer

if TYPE_CHECKING:
    from deltahist.counting.reading import Reading

#: The path that stands for standard input.
STDIN = Path("-")
#: Characters of text that are looked at for the names of columns, and the marks that may stand between them.
_HEAD, _DELIMITERS = 1 << 18, "\t,;|"
_FORMATS = {
    "csv": (".csv", ".tsv", ".txt", ".dat"),
    "jsonl": (".jsonl", ".ndjson"),
    "parquet": (".parquet", ".pq", ".geoparquet"),
    "excel": (".xlsx", ".xlsm"),
    "geo": tuple(DRIVERS),
}
_SETTINGS = (
    "SET TimeZone = 'UTC'; SET preserve_insertion_order = false; SET autoinstall_known_extensions = false; "
    "SET autoload_known_extensions = false; SET enable_progress_bar = false"
)


@dataclass(frozen=True)
class Source:
    """A table that is open.

    Parameters
    ----------
    connection : of DuckDB. given : the relation and its columns.
    geometry, crs : the column of geometries, and the CRS that the file states; None if there are none.
    finish : tells, after the rows were read, how many rows of text had too few or too many fields; raises InputError
        if the file was cut short, or changed.
    """

    connection: Any
    given: Given
    geometry: str | None = None
    crs: Any = None
    finish: Callable[[], int] = lambda: 0


@contextmanager
def open_source(path: Path, reading: Reading) -> Iterator[Source]:
    """Open a file, a folder, or an address in object storage.

    Raises InputError if it is missing, empty, of an unknown kind, or unreadable.
    """
    import duckdb

    with ExitStack() as stack:
        connection = stack.enter_context(duckdb.connect())
        spill = stack.enter_context(tempfile.TemporaryDirectory())  # others cannot read it
        connection.execute(_SETTINGS)
        connection.execute(f"SET temp_directory = {_text(spill)}")
        with readable(str(path)):
            yield _open(path, reading, connection, stack)


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Raise InputError in place of what readers raise on a damaged table."""
    import duckdb
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except (duckdb.Error, pa.ArrowException, OSError, EOFError, ValueError, RuntimeError, BadZipFile, Zlib) as why:
        said = next(iter(str(why).splitlines()), "")[:300] or type(why).__name__  # further lines quote rows
        raise InputError(f"input {name!r} cannot be read: {said} (cut short?)") from None


def _open(path: Path, reading: Reading, connection: Any, stack: ExitStack) -> Source:
    if reading.table is not None:
        return _open_duckdb(path, reading.table, connection)
    if is_address(path):
        address = "/".join(read_address(path, "input"))
        return _open_lake(address, address, reading, connection)
    if path == STDIN:
        path = _copy_stdin(stack)
        name = "standard input"
    elif not path.exists():
        raise InputError(f"input {str(path)!r} does not exist")
    else:
        name = path.name
    if path.name.endswith(".metadata.json") or path.is_dir():
        return _open_lake(str(path), name, reading, connection)
    before = _version(path)
    if not before[-1]:
        raise InputError(f"input {name!r} is empty: it has no rows")
    kind = _format_of(path)
    if kind is None:
        endings = ", ".join(itertools.chain(*_FORMATS.values()))
        raise InputError(f"input {name!r} has the ending {path.suffix!r}: it must be {endings}; or say table=")
    if reading.layer is not None and kind not in ("excel", "geo"):
        raise InputError(f"layer is {reading.layer!r} of {name!r}: only workbooks and files of geometries have layers")
    source = _OPENERS[kind](path, name, reading, connection, stack)

    def finish() -> int:
        if path.name.endswith(".gz"):
            with gzip.open(path) as packed:  # DuckDB reads half of a file without a word
                while packed.read(1 << 22):
                    pass
        if _version(path) != before:
            raise InputError(f"input {name!r} changed while it was read: count again when nothing writes there")
        return source.finish()

    return replace(source, finish=finish)


def _version(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _format_of(path: Path) -> str | None:
    name = path.name.lower().removesuffix(".gz")
    return next((kind for kind, endings in _FORMATS.items() if name.endswith(endings)), None)


def _copy_stdin(stack: ExitStack) -> Path:
    """Return a file, which others cannot read, with what comes by standard input; its first bytes tell its format."""
    if sys.stdin.isatty():
        raise InputError("input is '-', standard input, but that is a terminal: lead a table into it, or name a file")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    with (folder / "stdin").open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    with (folder / "stdin").open("rb") as file:
        start = file.read(4)
    starts = {b"PAR1": ".parquet", b"{": ".jsonl", bytes([0x1F, 0x8B]): ".csv.gz"}
    ending = next((ending for known, ending in starts.items() if start.startswith(known)), ".csv")
    return (folder / "stdin").rename(folder / f"stdin{ending}")


def _text(value: str | Path) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _file(path: Path) -> str:
    """Return a path as DuckDB takes it for this file alone."""
    if any(mark in str(path) for mark in "*?["):
        raise InputError(f"input {path.name!r} has one of *?[ in its path: rename it")
    return _text(path)


def _types(connection: Any, relation: str) -> dict[str, str]:
    return dict(row[:2] for row in connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall())


def _open_duckdb(path: Path, table: str, connection: Any) -> Source:
    """Open a table of a DuckDB file."""
    with path.open("rb") if path.is_file() else io.BytesIO() as file:
        start = file.read(16)
    if start[8:12] != b"DUCK":  # it would make one, or read other files
        raise InputError(f"database is {str(path)!r}: it must be a DuckDB file, or the address of a server")
    connection.execute(f"ATTACH {_text(path)} AS source (READ_ONLY)")
    *part, own = table.split(".")
    types = connection.execute(
        "SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = 'source' AND schema_name = ? AND "
        "table_name = ? ORDER BY column_index", [part[0] if part else "main", own]
    ).fetchall()  # fmt: skip
    if not types:
        raise InputError(f"table is {table!r}: the database has no such table")
    return Source(connection, Given(table, f"source.{'.'.join(map(quote, [*part, own]))}", dict(types), DUCKDB))


# --- text -------------------------------------------------------------------------------------------------


def _open_csv(path: Path, name: str, reading: Reading, connection: Any, stack: ExitStack) -> Source:
    """Open a file of lines with a delimiter: each column as text, and the first line for its names."""
    with (gzip.open if path.name.endswith(".gz") else open)(path, "rb") as file:
        text = file.read(_HEAD).decode("utf-8-sig", errors="replace")
    if not text.strip():
        raise InputError(f"input {name!r} is empty: it has no rows")
    blank = len(text) - len(text.lstrip("\r\n"))
    skipped = len(text[:blank].splitlines())
    lines = [line for line in text.splitlines()[:20] if line.strip()]
    counts = {d: [line.count(d) for line in lines] for d in _DELIMITERS if d != reading.decimal}
    # A delimiter stands equally often in every line; of several, the one that stands most often.
    steady = {d: c[0] for d, c in counts.items() if c[0] and min(c) == max(c)} or {d: c[0] for d, c in counts.items()}
    delimiter = max(steady, key=lambda d: steady[d])
    if not steady[delimiter]:
        delimiter = ";" if reading.decimal == "," else ","
    try:
        fields = next(csv.reader(io.StringIO(text[blank:], newline=""), delimiter=delimiter))
    except csv.Error as problem:  # a field longer than 131,072 characters
        raise InputError(f"input {name!r} has a first line that cannot be read: {problem}") from None
    first = [field.strip() for field in fields]
    names, header = _names(first, reading)
    aliases = {each: f"c{i}" for i, each in enumerate(names)}
    columns = ", ".join(f"{alias}: 'VARCHAR'" for alias in aliases.values())
    rejects = ", store_rejects = true, rejects_limit = 0" if reading.drop_bad_rows else ""
    relation = (
        f"read_csv({_file(path)}, auto_detect = false, delim = {_text(delimiter)}, quote = '\"', escape = '\"', "
        f"header = {str(header).lower()}, skip = {skipped}, strict_mode = true, columns = {{{columns}}}{rejects})"
    )
    given = Given(name, relation, dict.fromkeys(names, "VARCHAR"), DUCKDB, aliases, reading.decimal, header)

    def finish() -> int:
        if not rejects:
            return 0
        found = connection.execute("SELECT error_type::VARCHAR, line FROM reject_errors").fetchall()
        for kind, line in found:
            if kind not in ("MISSING COLUMNS", "TOO MANY COLUMNS"):
                raise InputError(f"input {name!r} has a line that cannot be read, {line:,}: {kind.lower()}")
        return len({line for _, line in found})

    return Source(connection, given, finish=finish)


def _names(first: list[str], reading: Reading) -> tuple[list[str], bool]:
    """Return names of columns, each different, from the first row, and whether it holds names."""

    def is_number(text: str) -> bool:
        try:
            return float(text.replace(reading.decimal, ".")) is not None
        except ValueError:
            return False

    # With columns by number a header is a row without any number: whether a row counts as one must not depend on its
    # coordinates.
    header = not (all(map(str.isdigit, reading.coordinates)) and any(map(is_number, first)))
    return [f"{f} [{i}]" if not header or first.count(f) > 1 else f for i, f in enumerate(first)], header


def _open_jsonl(path: Path, name: str, reading: Reading, connection: Any, stack: ExitStack) -> Source:
    """Open a file with one JSON object per line: each column as text."""
    file = f"read_json({_file(path)}, format = 'newline_delimited', maximum_depth = 1"
    names = list(_types(connection, f"{file})"))
    columns = ", ".join(f"{_text(each)}: 'VARCHAR'" for each in names)
    relation = f"{file}, columns = {{{columns}}})"
    return Source(connection, Given(name, relation, dict.fromkeys(names, "VARCHAR"), DUCKDB, None, reading.decimal))


def _open_excel(path: Path, name: str, reading: Reading, connection: Any, stack: ExitStack) -> Source:
    """Open a sheet of a workbook: each cell as text, and the first row for the names of columns."""
    import pandas as pd
    import pyarrow as pa

    try:
        sheets = pd.read_excel(path, sheet_name=None, header=None, dtype=object)
    except ImportError:
        raise InputError(f"input {name!r} is a workbook: pip install 'deltahist[excel]', or save it as CSV") from None
    if reading.layer is None and len(sheets) > 1:
        raise InputError(f"input {name!r} has the sheets {', '.join(sheets)}: choose one with layer=")
    sheet = next(iter(sheets.values())) if reading.layer is None else sheets.get(reading.layer)
    if sheet is None:
        raise InputError(f"layer is {reading.layer!r}: it must be one of the sheets {', '.join(sheets)}")
    if not len(sheet):
        raise InputError(f"input {name!r} is empty: it has no rows")
    names, header = _names([str(each).strip() for each in sheet.iloc[0]], reading)
    columns = [[None if pd.isna(v) else str(v) for v in sheet[i][int(header) :]] for i in sheet.columns]
    table = pa.table(dict(zip(names, (pa.array(c, pa.string()) for c in columns), strict=True)))
    connection.register("source", table)
    given = Given(name, "source", dict.fromkeys(names, "VARCHAR"), DUCKDB, None, reading.decimal, header)
    return Source(connection, given)


# --- Parquet and lakes --------------------------------------------------------------------------------------


def _open_parquet(path: Path, name: str, reading: Reading, connection: Any, stack: ExitStack) -> Source:
    """Open a Parquet file, with its geometry if its metadata name one."""
    import pyarrow.parquet as pq

    relation = f"read_parquet({_file(path)})"
    types = _types(connection, relation)
    described = (pq.read_schema(path).metadata or {}).get(b"geo")
    geometry = crs = None
    if described is not None:
        geo = json.loads(described)
        try:
            geometry = geo["primary_column"]
            crs = geo["columns"][geometry].get("crs", "OGC:CRS84")  # what GeoParquet means where it says nothing
        except (KeyError, TypeError, AttributeError):
            raise InputError(f"input {name!r} does not say rightly what its geometries are: write it anew") from None
    crs = json.dumps(crs) if isinstance(crs, dict) else crs
    return _with_fields(Source(connection, Given(name, relation, types, DUCKDB), geometry, crs))


def _open_lake(place: str, name: str, reading: Reading, connection: Any) -> Source:
    """Open a folder of Parquet files, whose folders may be partitions, or a table of Delta or Iceberg."""
    is_local = not is_address(place)
    if place.endswith(".metadata.json"):
        from pyiceberg.table import StaticTable

        connection.register("source", StaticTable.from_metadata(place).scan().to_arrow_batch_reader())
    elif _is_delta(place, is_local):
        from deltalake import DeltaTable

        connection.register("source", DeltaTable(place).to_pyarrow_dataset())
    elif is_local:
        folder = Path(place)
        if any((folder / "metadata").glob("*.metadata.json")):
            raise InputError(
                f"input {name!r} is a table of Iceberg: name the metadata of a version, metadata/….metadata.json"
            )
        files = [f for f in sorted(folder.rglob("*")) if f.is_file() and f.name[0] not in "._"]
        if strange := [f for f in files if _format_of(f) != "parquet"]:
            raise InputError(f"input {name!r} holds {strange[0].name!r}: a folder must hold Parquet files alone")
        if not files:
            raise InputError(f"input {name!r} is empty: it has no Parquet files")
        listed = ", ".join(map(_file, files))
        relation = f"read_parquet([{listed}], hive_partitioning = true)"
        return _with_fields(Source(connection, Given(name, relation, _types(connection, relation), DUCKDB)))
    else:
        import pyarrow.dataset as ds

        single = place.endswith(_FORMATS["parquet"])
        dataset = ds.dataset(_uri(place), format="parquet", partitioning=None if single else "hive")
        connection.register("source", dataset)
    return _with_fields(Source(connection, Given(name, "source", _types(connection, "source"), DUCKDB)))


def _is_delta(place: str, is_local: bool) -> bool:
    if is_local:
        return (Path(place) / "_delta_log").is_dir()
    from pyarrow.fs import FileSystem, FileType

    system, path = FileSystem.from_uri(_uri(place))
    return bool(system.get_file_info(f"{path}/_delta_log").type == FileType.Directory)


def _uri(address: str) -> str:
    return address.replace("az://", "abfs://", 1)


def _with_fields(source: Source) -> Source:
    """Return a source whose structures are columns field by field, "loc.x"."""
    types, parts = dict(source.given.types), ["*"]
    for name, kind in source.given.types.items():
        if kind.startswith("STRUCT("):
            fields = f"DESCRIBE SELECT unnest({quote(name)}) FROM {source.given.relation}"
            for field, its, *_ in source.connection.execute(fields).fetchall():
                if kind_of(its):
                    types[f"{name}.{field}"] = its
                    parts.append(f"{quote(name)}.{quote(field)} AS {quote(f'{name}.{field}')}")
    if len(parts) == 1:
        return source
    relation = f"(SELECT {', '.join(parts)} FROM {source.given.relation})"
    return replace(source, given=replace(source.given, relation=relation, types=types))


def _open_geo(path: Path, name: str, reading: Reading, connection: Any, stack: ExitStack) -> Source:
    """Open a layer of a file of geometries, which pyogrio reads."""
    asked = [c for c in (*reading.coordinates, reading.user, reading.time) if c is not None]
    if reading.where is not None:
        from deltahist.counting.where import Condition

        asked += Condition.of(reading.where).kinds
    rows, crs = stack.enter_context(open_layer(path, reading.layer, list(map(str, asked))))
    connection.register("source", rows)
    types = _types(connection, "source")
    return Source(connection, Given(name, "source", types, DUCKDB), list(types)[-1], crs)


_OPENERS: dict[str, Callable[..., Source]] = {
    "csv": _open_csv, "jsonl": _open_jsonl, "parquet": _open_parquet, "excel": _open_excel, "geo": _open_geo,
}  # fmt: skip
