"""Tables as batches of Arrow columns. `FORMATS` lists all formats: what opens each, and its endings.

A format is one function here, from an input and a request to an `OpenedTable`, and its line in `FORMATS`.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist._confined import DRIVERS, Child, Unreadable
from deltahist.counting.inputs import Input, ShallowJson, readable, short
from deltahist.errors import InputError
from deltahist.space.geometries import reads_as_number

_BUFFER = 1 << 20
#: Bytes of text that are taken at a time. Of JSON, of which an object must fit, Arrow holds some thirty at once.
_BLOCK, _JSON_BLOCK = 1 << 24, 1 << 20
_DELIMITERS = "\t,;|"
#: Rows for each byte of a Parquet file from which on they are no ordinary rows.
_ROWS_PER_BYTE = 64


@dataclass(frozen=True)
class TableRequest:
    """Columns to read: of coordinates (none: the geometry), of users, of times and of a condition.

    `layer` is one of several in a file, and `decimal` the point or comma of numbers in text.
    """

    x: str | None
    y: str | None
    user: str | None
    layer: str | None
    axes: int
    time: str | None = None
    where: tuple[str, ...] = ()
    decimal: str = "."

    @property
    def coordinates(self) -> list[str]:
        """Names or numbers of the coordinate columns."""
        return [c for c in (self.x, self.y) if c is not None]

    @property
    def columns(self) -> list[str]:
        """All columns that are read, each once."""
        others = [c for c in (self.user, self.time) if c is not None]
        return list(dict.fromkeys([*self.coordinates, *others, *self.where]))


@dataclass(frozen=True)
class OpenedTable:
    """An open table: its columns, and a function that reads its rows.

    Parameters
    ----------
    names : of the columns; of text without a header the fields of the first line.
    read : (columns by position, whether the geometry too, rows of a batch) to batches, each as an Arrow column for each
        position, the geometry last, and the number of rows beside them that have no columns at all.
    header : whether the names are names.
    geometry : position of the geometry if it is a column, else -1; None if there is none.
    crs, rows : the CRS of the geometry and the number of rows, if they are known.
    missing : words that stand for missing values.
    """

    names: list[str]
    read: Callable[[list[int], bool, int], Iterator[tuple[list[Any], int]]]
    header: bool = True
    geometry: int | None = None
    crs: Any = None
    rows: int | None = None
    missing: frozenset[str] = frozenset()


# --- text -------------------------------------------------------------------------------------------------


def open_text(source: Input, request: TableRequest) -> OpenedTable:
    """Open a file of lines with a delimiter."""
    import pyarrow as pa
    import pyarrow.csv as pc

    delimiter, first = _first_line(source, request)
    names, header = _names(first, request)
    labels = [f"column {i}" for i in range(len(first))]
    options = pc.ReadOptions(column_names=labels, skip_rows=1 if header else 0, block_size=_BLOCK)

    def read(positions: list[int], geometry: bool, rows: int) -> Iterator[tuple[list[Any], int]]:
        kept = [labels[i] for i in positions]
        convert = pc.ConvertOptions(
            include_columns=kept, column_types={k: pa.string() for k in kept}, strings_can_be_null=True
        )
        malformed: list[int] = []

        def skip(row: Any) -> str:
            malformed.append(1)
            return "skip"

        # Quoted fields may hold line breaks, also where the reader cuts the file into blocks.
        parse = pc.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=skip)
        counted = 0
        with source.text() as stream, pc.open_csv(stream, options, parse, convert) as reader:
            for batch in reader:
                bad = len(malformed)
                yield batch.columns, bad - counted
                counted = bad
        if len(malformed) > counted:
            yield [pa.array([], pa.string()) for _ in kept], len(malformed) - counted

    return OpenedTable(names, read, header, missing=frozenset(pc.ConvertOptions().null_values))


def _first_line(source: Input, request: TableRequest) -> tuple[str, list[str]]:
    """Return the delimiter and the fields of the first line.

    `csv.Sniffer` takes time in the square of the length, minutes for a text of quotes, and any file may come.
    """
    with readable(source.name):
        text = io.StringIO(source.head().decode("utf-8-sig", errors="replace"), newline="")
    lines = [line for line in (text.readline() for _ in range(20)) if line.strip()]
    if not lines:
        raise InputError(f"input {source.name!r} is empty: it has no rows")
    if any("\0" in line for line in lines):
        raise InputError(f"input {source.name!r} is not text in UTF-8: convert it, or correct its ending")
    # A delimiter stands equally often in every line; of several, the one that stands most often.
    counts = {d: [line.count(d) for line in lines] for d in _DELIMITERS if d != request.decimal}
    steady = {d: c[0] for d, c in counts.items() if c[0] > 0 and min(c) == max(c)}
    some = steady or {d: c[0] for d, c in counts.items() if c[0] > 0}
    # Of decimal commas only quoted ones stand between commas.
    usual = "," if request.decimal == "." or "," in lines[0] else ";"
    delimiter = max(some, key=lambda d: some[d]) if some else usual
    return delimiter, next(csv.reader([lines[0]], delimiter=delimiter))


def _names(first: list[str], request: TableRequest) -> tuple[list[str], bool]:
    """Return the column names, and whether the first line is a header."""
    stripped = [f.strip() for f in first]
    # With columns by number a header is a line without any number: whether a row counts as one must not depend
    # on its coordinates, and a first row with a bad one is a bad row.
    numbered = all(c.isdigit() and int(c) < len(stripped) for c in request.coordinates)
    figures = (f.replace(request.decimal, ".") for f in stripped)
    return stripped, not (numbered and any(map(reads_as_number, figures)))


# --- Parquet ----------------------------------------------------------------------------------------------


def open_parquet(source: Input, request: TableRequest) -> OpenedTable:
    """Open a Parquet file, with its geometry if its metadata name one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = source.seekable()
    try:
        # Pages are read as they are needed: a row group may be as large as the file.
        file = pq.ParquetFile(content, buffer_size=_BUFFER, pre_buffer=False)
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise InputError(
            f"input {source.name!r} is no readable Parquet file: {short(problem)} (cut short?)"
        ) from None
    names = file.schema_arrow.names
    primary, crs = _geometry(file, source.name)

    def read(positions: list[int], geometry: bool, rows: int) -> Iterator[tuple[list[Any], int]]:
        wanted = [*(names[i] for i in positions), *([primary] if geometry else [])]
        for batch in _batches(source, content, file, wanted, rows):
            yield [batch.column(name) for name in wanted], 0

    place = names.index(primary) if primary in names else None
    return OpenedTable(names, read, geometry=place, crs=crs, rows=file.metadata.num_rows)


def _batches(source: Input, content: Any, file: Any, columns: list[str], rows: int) -> Iterator[Any]:
    """Yield batches of columns, from a confined process where a few bytes may stand for any number of values."""
    size = source.path.stat().st_size if source.stream is None else content.size()
    fixed = all(_is_fixed(file.schema_arrow.field(name).type) for name in columns)
    with file:
        if fixed and file.metadata.num_rows <= _ROWS_PER_BYTE * size:
            yield from file.iter_batches(batch_size=rows, columns=columns)
            return
    held = None
    if source.stream is not None:
        content.seek(0)
        held = content.read()
    child = Child("parquet", source.path, member=source.member, content=held)
    yield from child.batches(columns=columns, geometry=False, rows=rows)


def _is_fixed(kind: Any) -> bool:
    """Return whether all values of an Arrow type take the same few bytes."""
    import pyarrow as pa

    types = pa.types
    return types.is_primitive(kind) or types.is_decimal(kind)


def _geometry(file: Any, name: str) -> tuple[str | None, Any]:
    """Return the geometry column of a GeoParquet file and its CRS; (None, None) for another Parquet file."""
    said = (file.schema_arrow.metadata or {}).get(b"geo")
    if said is None:
        return None, None
    try:
        geo = json.loads(said)
        primary = geo["primary_column"]
        # A GeoParquet file without a CRS is in longitude and latitude.
        crs = geo["columns"][primary].get("crs", "OGC:CRS84")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise InputError(
            f"input {name!r} says in its metadata that it has geometries, but what it says of them is damaged "
            f"({type(problem).__name__}: {short(problem)}): write the file anew"
        ) from None
    if not isinstance(primary, str):
        raise InputError(f"input {name!r} names {primary!r} as its column of geometries: it must be text")
    return primary, json.dumps(crs) if isinstance(crs, dict) else crs


# --- JSON lines -------------------------------------------------------------------------------------------


def open_json_lines(source: Input, request: TableRequest) -> OpenedTable:
    """Open a file with one JSON object per line; the first lines decide the types of its columns."""
    import pyarrow as pa
    import pyarrow.json as pj

    with readable(source.name):
        head = source.head()
        if not head.strip():
            raise InputError(f"input {source.name!r} is empty: it has no rows")
        if not head.lstrip().startswith(b"{"):
            raise InputError(
                f"input {source.name!r} does not begin with an object of JSON: each line must be one, such as "
                '{"x": 1, "y": 2}'
            )
        shallow = ShallowJson(io.BytesIO(head), source.name)
        text = shallow.read()
        shallow.check()
        schema = pj.read_json(io.BytesIO(text), read_options=pj.ReadOptions(block_size=_BLOCK)).schema
        names = schema.names

    def read(positions: list[int], geometry: bool, rows: int) -> Iterator[tuple[list[Any], int]]:
        fields = [pa.field(names[i], _json_type(schema.field(i), request)) for i in positions]
        parse = pj.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore")
        block = pj.ReadOptions(block_size=_JSON_BLOCK)
        with ShallowJson(source.text(), source.name) as stream:
            try:
                with pj.open_json(stream, block, parse) as reader:
                    for batch in reader:
                        yield [batch.column(field.name) for field in fields], 0
            finally:
                stream.check()

    return OpenedTable(names, read)


def _json_type(field: Any, request: TableRequest) -> Any:
    """Return the type to read a column as: 1.5 may follow 1, and times are parsed later, in all their forms."""
    import pyarrow as pa

    kind = field.type
    if pa.types.is_integer(kind) and field.name in (request.user, request.time):
        return pa.int64()
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_null(kind):
        return pa.float64() if field.name in request.coordinates else pa.string()
    return pa.string() if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else kind


# --- Excel ------------------------------------------------------------------------------------------------


def open_excel(source: Input, request: TableRequest) -> OpenedTable:
    """Open a sheet of a workbook; its cells become text, as they would in a file of text."""
    if importlib.util.find_spec("openpyxl") is None:
        raise InputError(
            f"input {source.name!r} is an Excel workbook, and openpyxl, which reads them, is not installed: "
            "pip install 'deltahist[excel]', or save the sheet as CSV"
        )
    with readable(source.name):
        child = Child("excel", source.path, member=source.member, layer=request.layer)
    said = _chosen_layer(child, source, request, "sheets")
    if said["first"] is None:
        raise InputError(f"input {source.name!r} is empty: it has no rows")
    names, header = _names([field or "" for field in said["first"]], request)

    def read(positions: list[int], geometry: bool, rows: int) -> Iterator[tuple[list[Any], int]]:
        for batch in child.batches(columns=positions, skip=int(header), rows=rows):
            yield batch.columns, 0

    return OpenedTable(names, read, header)


# --- layers of geometries -----------------------------------------------------------------------------------


def open_layer(source: Input, request: TableRequest) -> OpenedTable:
    """Open a layer of a file that GDAL reads."""
    if source.path.suffix.lower() == ".shp":
        _check_length(source)
    try:
        child = Child("geo", source.path, member=source.member, layer=request.layer)
    except Unreadable as problem:
        raise InputError(f"input {source.name!r} cannot be read: {problem}{_hint(source)}") from None
    said = _chosen_layer(child, source, request, "layers")
    names = said["names"]

    def read(positions: list[int], geometry: bool, rows: int) -> Iterator[tuple[list[Any], int]]:
        wanted = [names[i] for i in positions]
        for batch in child.batches(columns=wanted, geometry=geometry, rows=rows):
            yield batch.columns, 0

    return OpenedTable(names, read, geometry=-1, crs=said["crs"], rows=said["rows"])


def _chosen_layer(child: Child, source: Input, request: TableRequest, parts: str) -> dict[str, Any]:
    """Return the description of the layer or sheet that is read; raise InputError if none of several is chosen."""
    said = child.description
    if len(said) > 1:  # more than the names of the layers
        return said
    ask = ": choose one with layer=" if request.layer is None else f", but no {request.layer!r}"
    raise InputError(f"input {source.name!r} has {parts} {', '.join(said['layers'])}{ask}")


def _check_length(source: Input) -> None:
    """Raise InputError if a shapefile is shorter than it says: its missing points would pass for rows without one."""
    with source.path.open("rb") as file:
        header = file.read(28)
    words = int.from_bytes(header[24:28], "big")
    if len(header) < 28 or 2 * words > source.path.stat().st_size:
        raise InputError(f"input {source.name!r} is shorter than it says: was it cut short?")


def _hint(source: Input) -> str:
    """Return a likely cause that GDAL's own message lacks."""
    suffix = source.path.suffix.lower()
    if suffix == ".shp":
        return " (its parts .shx and .dbf must lie beside it)"
    return " (one object per line? then format='jsonl')" if suffix == ".json" else ""


@dataclass(frozen=True)
class Format:
    """A format of tables: what opens it, the endings of its files, and whether they may come as one stream."""

    open: Callable[[Input, TableRequest], OpenedTable]
    endings: tuple[str, ...]
    streamed: bool = False


FORMATS = {
    "csv": Format(open_text, (".csv", ".tsv", ".txt", ".dat"), streamed=True),
    "jsonl": Format(open_json_lines, (".jsonl", ".ndjson"), streamed=True),
    "parquet": Format(open_parquet, (".parquet", ".pq", ".geoparquet")),
    "excel": Format(open_excel, (".xlsx", ".xlsm")),
    "geo": Format(open_layer, tuple(DRIVERS)),
}


# --- values -------------------------------------------------------------------------------------------------


def numbers(column: Any, name: str, *, some: bool = False, decimal: str = ".") -> NDArray[np.float64]:
    """Return floats from an Arrow column of numbers or text; NaN where there is none.

    With a decimal comma, text with a point is no number: whether 1.234 is little or much could only be guessed.

    Raises InputError if the column's type holds no numbers, or, when `some` are expected, no row of it does.
    """
    import pyarrow as pa

    kind = column.type
    if kind == pa.float64():
        return _floats(column)
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        out = column.cast(pa.float64(), safe=False)
        return _floats(out)
    if not is_text(kind):
        raise InputError(f"column {name!r} has the type {kind}: coordinates must be numbers")
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column)
    if decimal == ",":
        pointed = pc.match_substring(text, ".")
        text = pc.if_else(pointed, "", pc.replace_substring(text, ",", "."))
    try:
        out = text.cast(pa.float64())
    except pa.ArrowInvalid:
        import pandas as pd

        out = pd.to_numeric(text.to_pandas(), errors="coerce").to_numpy(np.float64, na_value=np.nan)
        if some and np.isnan(out).all():
            shown = next((str(v)[:40] for v in column.to_pylist() if v), "")
            raise InputError(
                f"column {name!r} holds no numbers (it starts with {shown!r}): coordinates must be numbers "
                f"({_cause(shown, decimal)})"
            ) from None
        return out
    return _floats(out)


def _floats(column: Any) -> NDArray[np.float64]:
    """Return an Arrow column of floats as an array, with NaN where there is none."""
    import pyarrow as pa

    if column.null_count:
        column = column.fill_null(np.nan)
    # Arrow's own way to NumPy would import pandas first.
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return np.asarray(np.from_dlpack(whole), dtype=np.float64)


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is text."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _cause(shown: str, decimal: str) -> str:
    other = "," if decimal == "." else "."
    if other in shown and reads_as_number(shown.replace(other, ".")):
        return f"written with a decimal {'comma' if other == ',' else 'point'}? then decimal={other!r}"
    return "is it the right column?"


def from_wkb(column: Any, axes: int, name: str) -> list[NDArray[np.float64]]:
    """Return coordinates from an Arrow column of points as WKB, one array per axis; NaN where there is none.

    Raises InputError if it cannot be read, or holds other geometries; `name` is what messages call the file.
    """
    import shapely

    try:
        points = shapely.from_wkb(column.to_numpy(zero_copy_only=False))
    except (shapely.errors.GEOSException, TypeError) as problem:
        raise InputError(f"input {name!r} has an unreadable geometry: {short(problem)}") from None
    kinds = shapely.get_type_id(points)
    if not np.isin(kinds, (0, -1)).all():  # -1: missing, a bad row
        raise InputError(f"input {name!r} has geometries that are not points: each row must be one point")
    points[shapely.is_empty(points)] = None  # a point without coordinates: a bad row as well
    return [shapely.get_x(points), shapely.get_y(points)][:axes]
