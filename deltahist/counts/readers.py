"""Reading files in batches of columns: CSV, Parquet, GeoParquet, GeoPackage, GeoJSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.domain.geometries import reads_as_number
from deltahist.errors import InputError

_ROWS = 1 << 18
_BUFFER = 1 << 20
_TEXT = {".csv", ".tsv", ".txt", ".dat"}
_DELIMITERS = "\t,;|"


@dataclass(frozen=True)
class Batch:
    """Some rows: a float column per axis (NaN where unusable), user ids and times (Arrow arrays) or None.

    `malformed` counts rows beside these that have no columns at all: lines with too few or too many fields.
    """

    columns: list[NDArray[np.float64]]
    users: Any
    malformed: int = 0
    times: Any = None


@dataclass(frozen=True)
class Source:
    """A file opened for reading: its batches, its CRS if it states one, and its number of rows if known."""

    batches: Iterator[Batch]
    crs: Any = None
    rows: int | None = None


@dataclass(frozen=True)
class Request:
    """What is read: columns of coordinates (none: the geometry), of users and of times, and the layer."""

    x: str | None
    y: str | None
    user: str | None
    layer: str | None
    axes: int
    time: str | None = None

    @property
    def coordinates(self) -> list[str]:
        """Names or numbers of the coordinate columns."""
        return [c for c in (self.x, self.y) if c is not None]

    @property
    def columns(self) -> list[str]:
        """All columns that are read, each once."""
        return list(dict.fromkeys([*self.coordinates, *(c for c in (self.user, self.time) if c is not None)]))


def open_source(path: Path, request: Request) -> Source:
    """Open a file by its ending.

    Raises InputError if it is missing, empty, of an unknown kind, unreadable, or lacks a column.
    """
    if not path.is_file():
        raise InputError(f"input {str(path)!r} does not exist")
    if path.stat().st_size == 0:
        raise InputError(f"input {str(path)!r} is empty: it has no rows")
    endings = [e.lower() for e in path.suffixes]
    last = endings[-1] if endings else ""
    inner = endings[-2] if last == ".gz" and len(endings) > 1 else last
    if inner in _TEXT:
        return _open_text(path, request)
    if last in (".parquet", ".pq", ".geoparquet"):
        return _open_parquet(path, request)
    if last in (".gpkg", ".geojson", ".json", ".fgb"):
        return _open_vector(path, request)
    raise InputError(
        f"input {str(path)!r} has the ending {last!r}: it must be .csv, .tsv or .txt (also .gz), .parquet, "
        ".gpkg, .geojson or .fgb"
    )


def numbers(column: Any, name: str, *, some: bool = False) -> NDArray[np.float64]:
    """A float column from an Arrow column of numbers or text; NaN where there is none.

    Raises InputError if the column's type holds no numbers, or, when `some` are expected, no row of it does.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        out = column.cast(pa.float64(), safe=False)
        return out.to_numpy(zero_copy_only=False) if isinstance(out, pa.Array) else out.to_numpy()
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InputError(f"column {name!r} has the type {kind}: coordinates must be numbers")
    text = pc.utf8_trim_whitespace(column)
    try:
        out = text.cast(pa.float64())
    except pa.ArrowInvalid:
        import pandas as pd

        out = pd.to_numeric(text.to_pandas(), errors="coerce").to_numpy(np.float64, na_value=np.nan)
        if some and np.isnan(out).all():
            shown = next((str(v)[:40] for v in text.to_pylist() if v), "")
            raise InputError(
                f"column {name!r} holds no numbers (it starts with {shown!r}): coordinates must be numbers "
                "(is it the right column?)"
            ) from None
        return out
    return np.asarray(out.to_numpy(zero_copy_only=False) if isinstance(out, pa.Array) else out.to_numpy())


def _missing(wanted: list[str], names: list[str], path: Path) -> None:
    for column in wanted:
        if names.count(column) > 1:
            raise InputError(
                f"column {column!r} is {names.count(column)} times in {path.name!r}: rename the others, or give its "
                "number, from 0"
            )
        if column not in names:
            listed = ", ".join(n[:40] for n in names[:20]) + (", ..." if len(names) > 20 else "")
            raise InputError(f"column {column!r} is not in {path.name!r}: its columns are {listed}")


def _need_columns(request: Request, path: Path) -> None:
    if len(request.coordinates) != request.axes:
        need = "x and y" if request.axes == 2 else "x only"
        raise InputError(f"input {path.name!r} needs columns for its coordinates: name {need} (x=, y=)")


# --- text -------------------------------------------------------------------------------------------------


def _open_text(path: Path, request: Request) -> Source:
    import pyarrow as pa
    import pyarrow.csv as pc

    _need_columns(request, path)
    delimiter, first = _first_line(path)
    names, header = _names(first, request)
    wanted = [_position(c, names, header, path) for c in request.columns]
    labels = [f"column {i}" for i in range(len(first))]
    read = pc.ReadOptions(column_names=labels, skip_rows=1 if header else 0, block_size=1 << 24)
    kept = [labels[i] for i in wanted]
    convert = pc.ConvertOptions(
        include_columns=kept, column_types={k: pa.string() for k in kept}, strings_can_be_null=True
    )

    malformed: list[int] = []

    def skip(row: Any) -> str:
        malformed.append(1)
        return "skip"

    # Quoted fields may hold line breaks, also where the reader cuts the file into blocks.
    parse = pc.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=skip)

    def batches() -> Iterator[Batch]:
        counted, some = 0, True
        try:
            with (
                pa.input_stream(str(path), compression="gzip" if _gzipped(path) else None) as stream,
                pc.open_csv(stream, read, parse, convert) as reader,
            ):
                for batch in reader:
                    by_name = dict(zip(request.columns, batch.columns, strict=True))
                    columns = [numbers(by_name[c], c, some=some) for c in request.coordinates]
                    bad, some = len(malformed), some and not len(columns[0])
                    users = by_name[request.user] if request.user is not None else None
                    times = by_name[request.time] if request.time is not None else None
                    yield Batch(columns, users, bad - counted, times)
                    counted = bad
            if len(malformed) > counted:
                none = np.empty(0)
                yield Batch([none] * request.axes, None, len(malformed) - counted)
        except (pa.ArrowException, OSError) as problem:
            raise InputError(f"input {path.name!r} cannot be read: {_short(problem)} (cut short?)") from None

    return Source(batches())


def _first_line(path: Path) -> tuple[str, list[str]]:
    """Delimiter and fields of the first line."""
    import csv
    import gzip

    opener: Any = gzip.open if _gzipped(path) else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
            lines = [line for line in (file.readline() for _ in range(20)) if line.strip()]
    except (OSError, EOFError) as problem:
        raise InputError(f"input {path.name!r} cannot be read: {_short(problem)} (cut short?)") from None
    if not lines:
        raise InputError(f"input {path.name!r} is empty: it has no rows")
    if any("\0" in line for line in lines):
        raise InputError(f"input {path.name!r} is not text in UTF-8: convert it, or correct its ending")
    # A delimiter stands equally often in every line; of several, the one that stands most often.
    counts = {d: [line.count(d) for line in lines] for d in _DELIMITERS}
    steady = {d: c[0] for d, c in counts.items() if c[0] > 0 and min(c) == max(c)}
    some = steady or {d: c[0] for d, c in counts.items() if c[0] > 0}
    delimiter = max(some, key=lambda d: some[d]) if some else ","
    return delimiter, next(csv.reader([lines[0]], delimiter=delimiter))


def _names(first: list[str], request: Request) -> tuple[list[str], bool]:
    """Column names, and whether the first line is a header."""
    stripped = [f.strip() for f in first]
    # With columns by number a header is a line without any number: whether a row counts as one must not depend
    # on its coordinates, and a first row with a bad one is a bad row.
    numbered = all(c.isdigit() and int(c) < len(stripped) for c in request.coordinates)
    return stripped, not (numbered and any(map(reads_as_number, stripped)))


def _position(column: str, names: list[str], header: bool, path: Path) -> int:
    if header and names.count(column) == 1:
        return names.index(column)
    if column.isdigit():
        if int(column) < len(names):
            return int(column)
        raise InputError(f"column {column} is not in {path.name!r}: it has columns 0 to {len(names) - 1}")
    _missing([column], names, path)
    return names.index(column)


def _gzipped(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


# --- Parquet ----------------------------------------------------------------------------------------------


def _open_parquet(path: Path, request: Request) -> Source:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Pages are read as they are needed: a row group may be as large as the file.
        file = pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
    except (pa.ArrowException, OSError) as problem:
        raise InputError(
            f"input {path.name!r} is no readable Parquet file: {_short(problem)} (cut short?)"
        ) from None
    names = file.schema_arrow.names
    geo = json.loads((file.schema_arrow.metadata or {}).get(b"geo", b"null"))
    by_geometry = not request.coordinates and geo is not None
    if not by_geometry:
        _need_columns(request, path)
    geometry = geo["primary_column"] if by_geometry else None
    # A column of a file with names may also be given by its number.
    chosen = {c: c for c in request.columns}
    for column in request.columns:
        if column not in names and column.isdigit() and int(column) < len(names):
            chosen[column] = names[int(column)]
    wanted = [*chosen.values(), *([geometry] if geometry else [])]
    _missing(wanted, names, path)

    def batches() -> Iterator[Batch]:
        try:
            with file:
                for place, batch in enumerate(file.iter_batches(batch_size=_ROWS, columns=wanted)):
                    users = batch.column(chosen[request.user]) if request.user is not None else None
                    times = batch.column(chosen[request.time]) if request.time is not None else None
                    if geometry:
                        columns = _from_wkb(batch.column(geometry), request.axes, path)
                    else:
                        read = [(c, batch.column(chosen[c])) for c in request.coordinates]
                        columns = [numbers(values, c, some=not place) for c, values in read]
                    yield Batch(columns, users, times=times)
        except (pa.ArrowException, OSError) as problem:
            raise InputError(f"input {path.name!r} cannot be read: {_short(problem)} (cut short?)") from None

    crs = None
    if by_geometry:
        # A GeoParquet file without a CRS is in longitude and latitude.
        crs = geo["columns"][geometry].get("crs", "OGC:CRS84")
        crs = json.dumps(crs) if isinstance(crs, dict) else crs
    return Source(batches(), crs, file.metadata.num_rows)


def _from_wkb(column: Any, axes: int, path: Path) -> list[NDArray[np.float64]]:
    import shapely

    try:
        points = shapely.from_wkb(column.to_numpy(zero_copy_only=False))
    except (shapely.errors.GEOSException, TypeError) as problem:
        raise InputError(f"input {path.name!r} has an unreadable geometry: {_short(problem)}") from None
    kinds = shapely.get_type_id(points)
    if not np.isin(kinds, (0, -1)).all():  # -1: missing, a bad row
        raise InputError(
            f"input {path.name!r} has geometries that are not points: each row must be one point"
        )
    points[shapely.is_empty(points)] = None  # a point without coordinates: a bad row as well
    return [shapely.get_x(points), shapely.get_y(points)][:axes]


# --- GeoPackage, GeoJSON, FlatGeobuf ----------------------------------------------------------------------


def _open_vector(path: Path, request: Request) -> Source:
    import pyogrio

    try:
        layers = [str(name) for name, _ in pyogrio.list_layers(path)]
        if request.layer is None and len(layers) > 1:
            raise InputError(
                f"input {path.name!r} has layers {', '.join(layers)}: choose one with layer="
            )
        info = pyogrio.read_info(path, layer=request.layer)
    except InputError:
        raise
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError, ValueError) as problem:
        raise InputError(f"input {path.name!r} cannot be read: {_short(problem)}") from None
    _missing(request.columns, [str(f) for f in info["fields"]], path)
    by_geometry = not request.coordinates
    if not by_geometry:
        _need_columns(request, path)

    def batches() -> Iterator[Batch]:
        try:
            with pyogrio.open_arrow(
                path, layer=request.layer, columns=request.columns, batch_size=_ROWS, use_pyarrow=True
            ) as (meta, reader):
                geometry = meta["geometry_name"] or "wkb_geometry"
                for place, batch in enumerate(reader):
                    users = batch.column(request.user) if request.user is not None else None
                    times = batch.column(request.time) if request.time is not None else None
                    if by_geometry:
                        columns = _from_wkb(batch.column(geometry), request.axes, path)
                    else:
                        read = [(c, batch.column(c)) for c in request.coordinates]
                        columns = [numbers(values, c, some=not place) for c, values in read]
                    yield Batch(columns, users, times=times)
        except (pyogrio.errors.DataSourceError, OSError, RuntimeError) as problem:
            raise InputError(f"input {path.name!r} cannot be read: {_short(problem)}") from None

    rows = int(info["features"]) if info["features"] is not None and info["features"] >= 0 else None
    return Source(batches(), info["crs"] if by_geometry else None, rows)


def _short(problem: Exception) -> str:
    return str(problem).strip().splitlines()[0][:200] if str(problem).strip() else type(problem).__name__
