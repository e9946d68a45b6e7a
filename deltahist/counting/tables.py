"""Tables as batches of Arrow columns. `FORMATS` lists all formats: what opens each, and its endings.

A format is one function here, from an input and the way it is read to an `OpenedTable`, and its line in `FORMATS`.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from deltahist._confined import DRIVERS, Child, Unreadable
from deltahist._files import first_line
from deltahist.counting.arrays import Reading
from deltahist.errors import InputError, meant
from deltahist.space.geometries import reads_as_number

#: First bytes that are looked at, and how much of text they may hold when compressed.
HEAD, _TEXT = 1 << 18, 1 << 20
_BUFFER = 1 << 20
#: Bytes of text that are taken at a time, and that a row of JSON may have.
_BLOCK = 1 << 24
_DELIMITERS = "\t,;|"
#: Likely causes, by endings, that a library's own message lacks.
_CAUSES = {".shp": "its parts .shx and .dbf must lie beside it", ".json": "one object per line? then format='jsonl'"}
#: Rows for each byte of a Parquet file from which on they are no ordinary rows.
_ROWS_PER_BYTE = 64


@dataclass(frozen=True)
class Input:
    """The bytes of a table: of a file, of the `member` of a zip archive, or of standard input, which is read once.

    A part of a folder has a `label`, its name in messages. `seen` is the version that was found (`version_of`).
    """

    path: Path
    member: str | None
    format: str
    stream: io.BufferedReader[Any] | None = None
    label: str | None = None
    seen: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        """Name of the table in messages."""
        if self.stream is not None:
            return "standard input"
        if self.label is not None:
            return self.label
        return self.path.name if self.member is None else f"{self.path.name}/{self.member}"

    @property
    def buffer(self) -> int:
        """Bytes that are read at a time."""
        return _BUFFER

    @property
    def size(self) -> int:
        """Bytes of the file as it was found; 0 of standard input, where they are not known."""
        return 0 if self.seen is None else self.seen[-1]

    def check_unchanged(self) -> None:
        """Raise InputError if the file is another one than was found, or is gone."""
        if self.seen is None:
            return
        try:
            now = version_of(self.path)
        except OSError as problem:
            raise InputError(
                f"input {self.name!r} vanished while it was read ({problem.strerror}): count again when nothing writes "
                "there"
            ) from None
        if now != self.seen:
            raise InputError(f"input {self.name!r} changed while it was read: count again when nothing writes there")

    def file(self) -> Any:
        """Return what Arrow opens: a path, or bytes at any place."""
        return str(self.path) if self.member is None else self.open()

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """Yield the path of the file, for another process."""
        yield self.path

    def open(self) -> IO[bytes]:
        """Open the bytes, packed or not."""
        if self.stream is not None:
            return self.stream
        if self.member is None:
            return self.path.open("rb")
        with zipfile.ZipFile(self.path) as archive:  # the file is closed with the member
            return archive.open(self.member)

    def text(self) -> Any:
        """Open the bytes as an Arrow stream, and unpack gzip."""
        import pyarrow as pa

        plain = self.stream is None and self.member is None
        gzipped = self._first().startswith(b"\x1f\x8b")
        return pa.input_stream(str(self.path) if plain else self.open(), compression="gzip" if gzipped else None)

    def head(self) -> bytes:
        """Return the first whole lines of text, unpacked; all of a short text."""
        first = self._first()
        whole = len(first) < HEAD
        if first.startswith(b"\x1f\x8b"):
            unpacking = zlib.decompressobj(31)
            first = unpacking.decompress(first, _TEXT)
            whole = unpacking.eof and not unpacking.unused_data
        if not first.strip():
            raise InputError(f"input {self.name!r} is empty: it has no rows")
        end = first.rfind(b"\n") + 1
        return first if whole or not end else first[:end]

    def _first(self) -> bytes:
        if self.stream is not None:
            return self.stream.peek(HEAD)[:HEAD]
        with self.open() as file:
            return file.read(HEAD)


def version_of(path: Path) -> tuple[int, ...]:
    """Return figures of a file that change when it is written or replaced; the last is its size."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Raise InputError in place of what readers raise on a damaged table."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except (
        pa.ArrowException, ValueError, OverflowError, OSError, EOFError, RuntimeError, csv.Error, zipfile.BadZipFile,
        zlib.error,
    ) as problem:  # fmt: skip
        raise InputError(f"input {name!r} cannot be read: {first_line(problem)} (cut short?)") from None


#: Batches: an Arrow column for each column read, the geometry last, and the number of rows without any columns.
Batches = Iterator[tuple[list[Any], int]]


@dataclass(frozen=True)
class OpenedTable:
    """An open table: its columns, and a function that reads its rows.

    Parameters
    ----------
    names : of the columns; of text without a header the fields of the first line.
    read : (columns by position, whether the geometry too, rows of a batch) to batches.
    header : whether the names are names.
    geometry : position of the geometry if it is a column, else -1; None if there is none.
    crs, rows : the CRS of the geometry and the number of rows, if they are known.
    missing : words that stand for missing values.
    schema : Arrow's, of Parquet. has_layers : whether a layer, or a sheet, can be chosen.
    """

    names: list[str]
    read: Callable[[list[int], bool, int], Batches]
    header: bool = True
    geometry: int | None = None
    crs: Any = None
    rows: int | None = None
    missing: frozenset[str] = frozenset()
    schema: Any = None
    has_layers: bool = False

    @property
    def types(self) -> list[tuple[str, Any]]:
        """Names and Arrow types of the columns, of Parquet."""
        return [(field.name, field.type) for field in self.schema]


# --- text -------------------------------------------------------------------------------------------------


def open_text(source: Input, reading: Reading) -> OpenedTable:
    """Open a file of lines with a delimiter."""
    import pyarrow as pa
    import pyarrow.csv as pc

    delimiter, first = _first_line(source, reading)
    names, header = _names(first, reading)
    labels = [f"column {i}" for i in range(len(first))]
    options = pc.ReadOptions(column_names=labels, skip_rows=1 if header else 0, block_size=_BLOCK)

    def read(positions: list[int], geometry: bool, rows: int) -> Batches:
        kept = [labels[i] for i in positions]
        types = dict.fromkeys(kept, pa.string())
        convert = pc.ConvertOptions(include_columns=kept, column_types=types, strings_can_be_null=True)
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
        yield [pa.nulls(0, pa.string())] * len(kept), len(malformed) - counted

    return OpenedTable(names, read, header, missing=frozenset(pc.ConvertOptions().null_values))


def _first_line(source: Input, reading: Reading) -> tuple[str, list[str]]:
    """Return the delimiter and the fields of the first line.

    `csv.Sniffer` takes time in the square of the length, minutes for a text of quotes, and any file may come.
    """
    with readable(source.name):
        text = io.StringIO(source.head().decode("utf-8-sig", errors="replace"), newline="")
    lines = [line for line in itertools.islice(text, 20) if line.strip()]
    if any("\0" in line for line in lines):
        raise InputError(f"input {source.name!r} is not text in UTF-8: convert it, or correct its ending")
    # A delimiter stands equally often in every line; of several, the one that stands most often.
    counts = {d: [line.count(d) for line in lines] for d in _DELIMITERS if d != reading.decimal}
    steady = {d: c[0] for d, c in counts.items() if c[0] > 0 and min(c) == max(c)}
    some = steady or {d: c[0] for d, c in counts.items() if c[0] > 0}
    # Of decimal commas only quoted ones stand between commas.
    usual = "," if reading.decimal == "." or "," in lines[0] else ";"
    delimiter = max(some, key=lambda d: some[d]) if some else usual
    return delimiter, next(csv.reader([lines[0]], delimiter=delimiter))


def _names(first: list[str], reading: Reading) -> tuple[list[str], bool]:
    """Return the column names, and whether the first line is a header."""
    stripped = [f.strip() for f in first]
    # With columns by number a header is a line without any number: whether a row counts as one must not depend
    # on its coordinates, and a first row with a bad one is a bad row.
    numbered = all(c.isdigit() and int(c) < len(stripped) for c in reading.coordinates)
    figures = (f.replace(reading.decimal, ".") for f in stripped)
    return stripped, not (numbered and any(map(reads_as_number, figures)))


# --- Parquet ----------------------------------------------------------------------------------------------


def open_parquet(source: Input, reading: Reading) -> OpenedTable:
    """Open a Parquet file, with its geometry if its metadata name one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    held = None if source.stream is None else source.stream.read()
    content = source.file() if held is None else pa.BufferReader(held)
    try:
        # Pages are read as they are needed: a row group may be as large as the file.
        file = pq.ParquetFile(content, buffer_size=source.buffer, pre_buffer=False)
    except (pa.ArrowException, OSError, ValueError) as problem:
        said = first_line(problem)
        raise InputError(f"input {source.name!r} is no readable Parquet file: {said} (cut short?)") from None
    names, number = file.schema_arrow.names, file.metadata.num_rows
    primary, crs = _geometry(file, source.name)
    size = source.size if held is None else len(held)

    def read(positions: list[int], geometry: bool, rows: int) -> Batches:
        wanted = [*(names[i] for i in positions), *([primary] if geometry else [])]
        with file:
            # All values of such types take the same few bytes.
            kinds = [file.schema_arrow.field(name).type for name in wanted]
            fixed = all(pa.types.is_primitive(kind) or pa.types.is_decimal(kind) for kind in kinds)
            if fixed and number <= _ROWS_PER_BYTE * size:
                for batch in file.iter_batches(batch_size=rows, columns=wanted):
                    yield [batch.column(name) for name in wanted], 0
                return
        with source.on_disk() as path:  # a few bytes may stand for any number of values
            child = Child("parquet", path, member=source.member, content=held)
            for batch in child.batches(columns=wanted, geometry=False, rows=rows):
                yield [batch.column(name) for name in wanted], 0

    place = names.index(primary) if primary in names else None
    return OpenedTable(names, read, geometry=place, crs=crs, rows=number, schema=file.schema_arrow)


def _geometry(file: Any, name: str) -> tuple[str | None, Any]:
    """Return the geometry column of a GeoParquet file and its CRS; (None, None) for another Parquet file."""
    described = (file.schema_arrow.metadata or {}).get(b"geo")
    if described is None:
        return None, None
    try:
        geo = json.loads(described)
        primary = geo["primary_column"]
        # A GeoParquet file without a CRS is in longitude and latitude.
        crs = geo["columns"][primary].get("crs", "OGC:CRS84")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise InputError(
            f"input {name!r} says in its metadata that it has geometries, but what it says of them is damaged "
            f"({type(problem).__name__}: {first_line(problem)}): write the file anew"
        ) from None
    return primary, json.dumps(crs) if isinstance(crs, dict) else crs


# --- JSON lines -------------------------------------------------------------------------------------------


def open_json_lines(source: Input, reading: Reading) -> OpenedTable:
    """Open a file with one JSON object per line; the first lines decide the types of its columns.

    Arrow's parser may end the process on deep nesting, where Python's raises an error.
    """
    with readable(source.name):
        kinds: dict[str, Any] = {}
        for line in source.head().splitlines():
            for name, value in _json_row(line, source.name).items():
                if kinds.setdefault(name, None) is None and value is not None:
                    kinds[name] = type(value)
    names = list(kinds)

    def read(positions: list[int], geometry: bool, rows: int) -> Batches:
        wanted = [names[i] for i in positions]
        makers = [_json_column(name, kinds[name], reading) for name in wanted]
        with io.BufferedReader(source.text()) as stream:
            for batch in _take_lines(stream, rows):
                found = [row for line in batch if (row := _json_row(line, source.name))]
                yield [make([row.get(name) for row in found]) for name, make in zip(wanted, makers, strict=True)], 0

    return OpenedTable(names, read)


def _take_lines(stream: io.BufferedIOBase, rows: int) -> Iterator[list[bytes]]:
    """Yield lines of text, some at a time: fewer where they are long."""
    batch: list[bytes] = []
    size = 0
    for line in iter(lambda: stream.readline(_BLOCK), b""):
        batch.append(line)
        size += len(line)
        if len(batch) == rows or size >= _BUFFER:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _json_row(line: bytes, name: str) -> dict[str, Any]:
    """Return the object that a line holds; none for an empty line."""
    try:
        row = json.loads(line) if line.strip() else {}
    except RecursionError:
        raise InputError(f"input {name!r} has brackets nested too deeply: rows of a table are not like that") from None
    if not isinstance(row, dict):
        raise InputError(
            f'input {name!r} has a line that is no object of JSON: each line must be one, such as {{"x": 1, "y": 2}}'
        )
    return row


def _json_column(name: str, kind: Any, reading: Reading) -> Callable[[list[Any]], Any]:
    """Return what makes an Arrow column of values: 1.5 may follow 1, and times are parsed later, in all their forms."""
    import pyarrow as pa

    if kind in (list, dict):
        raise InputError(f"column {name!r} holds a {kind.__name__} in each row: it must hold numbers or text")
    if kind is bool:
        return lambda values: pa.array(values, pa.bool_())
    if kind is int and name in (reading.user, reading.time):
        return lambda values: pa.array(values, pa.int64())
    if kind in (int, float) or (kind is None and name in reading.coordinates):
        return lambda values: pa.array(map(_json_number, values), pa.float64())
    return lambda values: pa.array(values, pa.string())


def _json_number(value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float):
        raise ValueError(f"{str(value)[:40]!r} stands where numbers stood before")
    return float(value)


# --- workbooks and layers of geometries ---------------------------------------------------------------------


def open_apart(source: Input, reading: Reading) -> OpenedTable:
    """Open a sheet of a workbook, whose cells become text, or a layer of a file that GDAL reads."""
    is_sheet, ending = source.format == "excel", source.path.suffix.lower()
    if is_sheet and importlib.util.find_spec("openpyxl") is None:
        raise InputError(
            f"input {source.name!r} is an Excel workbook, and openpyxl, which reads them, is not installed: "
            "pip install 'deltahist[excel]', or save the sheet as CSV"
        )
    if ending == ".shp":
        _check_length(source)
    try:
        child = Child(source.format, source.path, member=source.member, layer=reading.layer)
    except Unreadable as problem:
        cause = _CAUSES.get(ending, "cut short?")
        raise InputError(f"input {source.name!r} cannot be read: {problem} ({cause})") from None
    about = child.description
    if "names" not in about:
        chosen, layers = reading.layer, about["layers"]
        ask = ": choose one with layer=" if chosen is None else f", but no {chosen!r}{meant(chosen, layers)}"
        raise InputError(f"input {source.name!r} has {'sheets' if is_sheet else 'layers'} {', '.join(layers)}{ask}")
    if is_sheet and not about["names"]:
        raise InputError(f"input {source.name!r} is empty: it has no rows")
    names, header = _names(about["names"], reading) if is_sheet else (about["names"], True)

    def read(positions: list[int], geometry: bool, rows: int) -> Batches:
        sheet = {"columns": positions, "skip": int(header)}
        layer = {"columns": [names[i] for i in positions], "geometry": geometry}
        for batch in child.batches(rows=rows, **(sheet if is_sheet else layer)):
            yield batch.columns, 0

    place = None if is_sheet else -1
    return OpenedTable(names, read, header, place, about.get("crs"), about.get("rows"), has_layers=True)


def _check_length(source: Input) -> None:
    """Raise InputError if a shapefile is shorter than it says: its missing points would pass for rows without one."""
    with source.path.open("rb") as file:
        header = file.read(28)
    words = int.from_bytes(header[24:28], "big")
    if len(header) < 28 or 2 * words > source.path.stat().st_size:
        raise InputError(f"input {source.name!r} is shorter than it says: was it cut short?")


@dataclass(frozen=True)
class Format:
    """A format of tables: what opens it, the endings of its files, and whether they may come as one stream."""

    open: Callable[[Input, Reading], OpenedTable]
    endings: tuple[str, ...]
    streamed: bool = False


FORMATS = {
    "csv": Format(open_text, (".csv", ".tsv", ".txt", ".dat"), streamed=True),
    "jsonl": Format(open_json_lines, (".jsonl", ".ndjson"), streamed=True),
    "parquet": Format(open_parquet, (".parquet", ".pq", ".geoparquet")),
    "excel": Format(open_apart, (".xlsx", ".xlsm")),
    "geo": Format(open_apart, tuple(DRIVERS)),
}


def format_of(name: str) -> str | None:
    """Return the format of a file by its ending; None if there is none."""
    endings = [ending.lower() for ending in PurePosixPath(name).suffixes]
    gzipped = endings[-1:] == [".gz"]
    last = "".join(endings[-2:-1] if gzipped else endings[-1:])
    found = next((name for name, kind in FORMATS.items() if last in kind.endings), None)
    return None if gzipped and not (found and FORMATS[found].streamed) else found


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
    if is_number(kind):
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
        return _floats(text.cast(pa.float64()))
    except pa.ArrowInvalid:
        import pandas as pd

    out = pd.to_numeric(text.to_pandas(), errors="coerce").to_numpy(np.float64, na_value=np.nan)
    if some and np.isnan(out).all():
        shown = next((str(v)[:40] for v in column.to_pylist() if v), "")
        other = "," if decimal == "." else "."
        swapped = other in shown and reads_as_number(shown.replace(other, "."))
        cause = f"written with another decimal mark? then decimal={other!r}" if swapped else "is it the right column?"
        raise InputError(
            f"column {name!r} holds no numbers (it starts with {shown!r}): coordinates must be numbers ({cause})"
        )
    return np.asarray(out)


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


def is_number(kind: Any) -> bool:
    """Return whether an Arrow type is a number."""
    import pyarrow as pa

    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def from_wkb(column: Any, axes: int, name: str) -> list[NDArray[np.float64]]:
    """Return coordinates from an Arrow column of points as WKB, one array per axis; NaN where there is none."""
    import shapely

    try:
        points = shapely.from_wkb(column.to_numpy(zero_copy_only=False))
    except (shapely.errors.GEOSException, TypeError) as problem:
        raise InputError(f"input {name!r} has an unreadable geometry: {first_line(problem)}") from None
    kinds = shapely.get_type_id(points)
    if not np.isin(kinds, (0, -1)).all():  # -1: missing, a bad row
        raise InputError(f"input {name!r} has geometries that are not points: each row must be one point")
    points[shapely.is_empty(points)] = None  # a point without coordinates: a bad row as well
    return [shapely.get_x(points), shapely.get_y(points)][:axes]
