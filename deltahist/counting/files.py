"""Counting the rows of a file, batch by batch, so that memory does not grow with the file."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from deltahist._objects import is_address
from deltahist._progress import progress
from deltahist.counting.arrays import (
    CHUNK,
    Batch,
    CountedRows,
    Outside,
    PlaceTally,
    Reading,
    Tally,
    collect,
    finite_rows,
    named_rows,
)
from deltahist.counting.conditions import Condition, refuse_place, refuse_times
from deltahist.counting.engines import is_duckdb
from deltahist.counting.folders import open_folder
from deltahist.counting.iceberg import is_metadata
from deltahist.counting.lakes import LakeTable
from deltahist.counting.parts import PartedTable
from deltahist.counting.private import Private
from deltahist.counting.tables import (
    FORMATS,
    HEAD,
    Input,
    OpenedTable,
    format_of,
    from_wkb,
    numbers,
    readable,
    version_of,
)
from deltahist.errors import InputError, list_names, meant, meant_file, one_of
from deltahist.preprocessing import Preprocessing
from deltahist.space.crs import Operation, read_crs
from deltahist.space.domain import Domain
from deltahist.space.geometries import reads_as_number

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.counting.steps import StepPlaces

#: The path that stands for standard input.
STDIN = Path("-")


@dataclass(frozen=True, eq=False, repr=False)
class Located(CountedRows):
    """Points of a file on the domain's lattice, (m,) coordinates, and numbers of its rows. Private."""

    points: Private

    @property
    def kept(self) -> int:
        """Number of points."""
        return len(self.points)


@dataclass(frozen=True, eq=False, repr=False)
class Counted(CountedRows):
    """Counts of a file, int64 (domain.shape) or of full cells alone, and numbers of its rows. Private."""

    counts: Private

    @property
    def kept(self) -> int:
        """Number of points counted."""
        return int(self.counts.sum())


def count_file(
    path: str | Path,
    domain: Domain,
    *,
    x: str | int | None = None,
    y: str | int | None = None,
    crs: str | None = None,
    user: str | int | None = None,
    max_per_user: int | None = None,
    outside: str | None = None,
    drop_bad_rows: bool = False,
    layer: str | None = None,
    progress: bool | None = None,
    key: bytes | None = None,
    where: str | None = None,
    decimal: str = ".",
    format: str | None = None,
    table: str | None = None,
) -> Counted:
    """Count the points of a table: Parquet, CSV, JSON lines, Excel, GeoPackage, GeoJSON, FlatGeobuf or shapefile.

    Parameters
    ----------
    path : the file, or a zip archive of one table; "-" is standard input. Text may be gzipped, and tab, comma,
        semicolon and bar are told apart. A folder of Parquet files, whose folders may be partitions ("day=2026-11-01");
        a Parquet file or such a folder in object storage ("s3://bucket/visits", "gs://…", "az://…"). Such a folder may
        be a table of Delta or Iceberg, of which one version is counted.
    domain : Domain, with the projected CRS if there is one.
    x, y : columns by name, or by number from 0 (for text without a header); none for files with geometry.
    crs : of the file's coordinates, needed if the domain has one; files with geometry state it themselves.
    user, max_per_user : column of user ids, and how many points each may keep; both or neither. The points
        are chosen by a keyed hash that depends on no coordinate (docs/counting.md).
    outside : "clamp", "drop" or None, as in `count`. Users' points are chosen before any are dropped for lying
        outside, since the choice must not depend on where points are.
    drop_bad_rows : leave out rows with missing, unreadable, NaN or infinite coordinates or a missing user,
        instead of refusing the file.
    layer : of a GeoPackage; the sheet of a workbook.
    progress : show a bar; where it takes longer than a second when None.
    key : 32 bytes for the choice of users' points, for tests; random when None.
    where : a condition on columns besides the place, such as "kind = 'bus' and speed > 3": only rows that meet it are
        counted, before users are bounded. It is public, and releases state it (docs/counting.md says what that means).
    decimal : "." or ",": of numbers in text.
    format : "csv", "jsonl", "parquet", "excel" or "geo"; told by the file's ending when None.
    table : of a database, which `path` is the file or the address of (as of `count_table`).

    Returns
    -------
    Counted

    Raises
    ------
    InputError
        If the file is missing, damaged, of an unknown kind or changes while it is read, lacks a column, holds rows that
        cannot be used (with how many), its CRS does not go with the domain's, or the condition asks for coordinates; if
        it has no rows, unless `outside` is given.
    OutsideBounds
        If many points lie outside, unless `outside` says what becomes of them.

    >>> import pathlib, tempfile, deltahist as dh
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "p.csv").write_text("x,y\\n0.5,0.5\\n1.5,0.2\\n")
    ...     counted = dh.count_file(f"{folder}/p.csv", dh.Domain((0, 0, 2, 2), (2, 2)), x="x", y="y")
    >>> counted.rows, counted.counts.tolist()
    (2, [[1, 0], [1, 0]])
    """
    tally = Tally(domain)
    how = Reading(x, y, crs, user, max_per_user, outside, drop_bad_rows, layer, progress, key, where, decimal, format,
                  table)  # fmt: skip
    read = read_file(path, tally, how)
    return Counted(**vars(read), counts=tally.private(read.counting))


def count_table(
    table: str,
    domain: Domain,
    *,
    database: str | Path | Any,
    x: str,
    y: str | None = None,
    crs: str | None = None,
    where: str | None = None,
    outside: str | None = None,
    drop_bad_rows: bool = False,
    user: str | None = None,
    max_per_user: int | None = None,
    key: bytes | None = None,
) -> Counted:
    """Count the points of a table in each cell, in the database that holds it.

    Parameters
    ----------
    table : a table or view, "visits" or "part.visits".
    domain : Domain
    database : a DuckDB file ("city.duckdb"), an address ("postgresql://user@host/city", "sc://host:15002" or
        "spark://host:7077" of Spark), or an open connection of DuckDB or session of Spark.
    x, y : columns of coordinates; x alone in 1-D.
    crs : of the coordinates; the domain's own when None. Others are projected here, in batches.
    where : a condition on columns besides these, "kind = 'bus' and extract(hour from time) >= 22" (docs/queries.md).
    outside, drop_bad_rows, max_per_user, key : as for `count_file`.
    user : the column that says whose a point is.

    Returns
    -------
    Counted : what `count_file` gives for the same rows. On Spark it does not know the number of users.

    Raises
    ------
    InputError
        On NULL, NaN or infinite coordinates or missing users (with how many), no rows unless `outside` is given, no
        such table or column, a condition that cannot be taken or asks for coordinates, a CRS that Spark would have to
        project, or a database that does not answer.
    OutsideBounds
        If many points lie outside, unless `outside` says what becomes of them.

    >>> import duckdb
    >>> city = duckdb.connect()
    >>> _ = city.execute("CREATE TABLE visits AS SELECT * FROM (VALUES (0.1, 0.1), (0.1, 0.2), (0.7, 0.9)) AS v (x, y)")
    >>> count_table("visits", Domain((0, 0, 1, 1), (2, 2)), database=city, x="x", y="y").counts.tolist()
    [[2, 0], [0, 1]]
    """
    tally = Tally(domain)
    own = domain.crs if crs is None else crs
    how = Reading(x, y, own, user, max_per_user, outside, drop_bad_rows, key=key, where=where, table=table)
    read = read_file(database, tally, how)
    return Counted(**vars(read), counts=tally.private(read.counting))


def points_file(path: str | Path, domain: Domain, **how: Any) -> Located:
    """Read the points of a file on a line, on the domain's lattice, as `count_file` reads them."""
    places = PlaceTally(domain, lambda columns: domain.lattice(columns[0])[:, 0])
    read = read_file(path, places, Reading(**how))
    # `Domain.lattice` gives back the steps of these coordinates.
    points = np.asarray(domain.low[0] + places.places() * domain.step[0], dtype=np.float64)
    return Located(**vars(read), points=Private.of(points, read.counting, domain))


def look_through(paths: Iterable[Path], domain: Domain, **how: Any) -> list[Preprocessing]:
    """Look through files that are to be counted one after the other, and return how each is counted.

    Raises OutsideBounds if many points of all files together lie outside, and InputError if one could not be counted.
    """
    reading, seen = Reading(**how), Outside(domain)
    nowhere = PlaceTally(domain, lambda columns: np.full(len(columns[0]), -1))
    found = [read_file(path, nowhere, reading, seen=seen).counting for path in paths]
    if reading.outside is None:
        seen.refuse_many()
    return found


def read_file(
    path: str | Path | OpenRows | Any,
    into: Tally | PlaceTally,
    reading: Reading,
    *,
    steps: StepPlaces | None = None,
    seen: Outside | None = None,
) -> CountedRows:
    """Read all rows of a file, or of a database's table, into a tally, as `collect` does."""
    with nullcontext(path) if isinstance(path, OpenRows) else _opened(path, reading, into.domain.ndim) as opened:
        name, own = opened.name, None if opened.source is None else opened.source.crs
        operation = operation_of(reading.crs, own, into.domain, name)
        if opened.source is None:
            from deltahist.counting.databases import read_table

            engine, rows = opened.table
            read = read_table(engine, rows, into, reading, operation, steps=steps, seen=seen)
        else:
            batches = _show_progress(opened.source, reading.progress)
            read = collect(batches, f"rows of {name!r}", into, reading, operation, steps=steps, seen=seen)
    # Whoever says what becomes of points outside gets a release where nobody is, too: its absence would tell
    # (docs/counting.md).
    if not read.rows and seen is None and reading.outside is None:
        raise InputError(
            f"input {name!r} is empty: it has no rows; if it is meant, say what becomes of points outside: "
            "outside='clamp' or outside='drop'"
        )
    return read


@dataclass(frozen=True, repr=False)
class OpenRows:
    """A file, or a database's table, that is open: `count_file` takes it in place of its path, once.

    Parameters
    ----------
    path : of the file, or the database. name : in messages.
    source : of a file. table : engine and rows of a database's table.
    """

    path: Any
    name: str
    source: Source | None = None
    table: Any = None

    def __fspath__(self) -> str:
        """Return the path."""
        return str(self.path)


@contextmanager
def _opened(path: str | Path | Any, reading: Reading, axes: int) -> Iterator[OpenRows]:
    """Open a file or a database's table; raise InputError if it is missing, or lacks a column."""
    if reading.table is not None:
        from deltahist.counting.databases import open_table

        with open_table(path, reading, axes) as table:
            yield OpenRows(path, reading.table, table=table)
        return
    source = open_source(Path(path), reading, axes)
    with closing(source.batches):
        yield OpenRows(path, source.name, source)


@contextmanager
def open_rows(
    path: str | Path, *, axes: int, check: Callable[[Batch], None] = lambda batch: None, **how: Any
) -> Iterator[OpenRows]:
    """Open a file or a database's table before anything takes long, as `count_file` does with the same keywords.

    Raises InputError if it is missing, lacks a column, or the first rows of a file hold no numbers where coordinates
    should be; and as `check` does, which looks at these rows.
    """
    with _opened(path, Reading(**how), axes) as opened:
        source = opened.source
        if source is not None and (first := next(source.batches, None)) is not None:
            check(first)
            opened = replace(opened, source=replace(source, batches=(each for each in chain([first], source.batches))))
        yield opened


def list_columns(path: Path) -> list[str]:
    """Return the names of a table's columns, without reading its rows; none where a file of text has no header."""
    if is_address(path) or is_metadata(path) or path.is_dir():
        table = open_folder(path, Reading())[1]
    else:
        source = find_input(path)
        table = FORMATS[source.format].open(source, Reading())
    return table.names if table.header else []


def choice_notes(read: CountedRows | Any) -> list[str]:
    """Return notes on the rows that a condition left out, for the person at the keyboard."""
    if read.counting.where is None:
        return []
    notes = [f"{read.unmatched:,} rows left out that are not {read.counting.where}"]
    if read.unmatched + read.bad_rows == read.rows:
        notes.append("warning: no row meets the condition (is a value misspelt? case and spaces count)")
    return notes


def operation_of(stated: str | None, own: Any, domain: Domain | None, name: str) -> Operation | None:
    """Return the operation from a file's coordinates to the map; None if they are on it, or plain numbers.

    Raises InputError if their CRS is not known, contradicts the file's, or there is no map for it.
    """
    given = stated if stated is not None else own
    if given is None:
        if domain is None or domain.crs is None:
            return None
        raise InputError(
            f"the CRS of the coordinates in {name!r} is not known, but the domain's is {domain.crs}: add "
            f"crs='EPSG:4326' for longitudes and latitudes, or crs={domain.crs!r} if they are in it"
        )
    source = read_crs(given)
    if stated is not None and own is not None and not source.equals(read_crs(own), ignore_axis_order=True):
        raise InputError(
            f"crs is {stated!r}, but {name!r} states {read_crs(own).to_string()[:40]!r}: leave crs= out, or "
            "correct the file"
        )
    if domain is None or domain.crs is None:
        if source.is_geographic:
            raise InputError(
                f"coordinates of {name!r} are degrees ({source.to_string()[:40]}): they are never treated as "
                "planar; project them, for example to EPSG:32618 (the zone of the region)"
            )
        raise InputError(f"coordinates of {name!r} are in {source.to_string()[:40]}: give the domain this CRS")
    return Operation.onto(domain, source)


def read_owners(path: str | Path | OpenRows, *, user: str, area: Domain | None = None, **how: Any) -> pd.DataFrame:
    """Read one row for each user of a table: a frame with the users as index, a column for each of x and y. Private.

    Rows are read as by `count_file`, without y as one column of numbers, and brought to the map of an area. Raises
    InputError if the file cannot be read, has no rows, or its CRS does not go with the area's; or rows have no user, or
    no finite number.
    """
    import pandas as pd

    reading = Reading(user=user, max_per_user=1, **how)
    # Points of a file with geometry need no columns.
    axes = 1 if len(reading.coordinates) == 1 else 2
    source = path.source if isinstance(path, OpenRows) else open_source(Path(path), reading, axes)
    assert source is not None
    operation = operation_of(reading.crs, source.crs, area, source.name)
    frames, bad, rows = [], 0, 0
    for batch in source.batches:
        columns = batch.columns if operation is None else operation(*batch.columns)
        good = finite_rows(columns) & named_rows(batch.users)
        bad += int((~good).sum()) + batch.malformed + len(batch.unread)
        rows += batch.read
        # As text: user 7 is the same in a CSV file and in a Parquet file.
        index = pd.Index([str(name) for name in batch.users.to_pylist()], dtype=object)
        frames.append(pd.DataFrame(dict(enumerate(columns)), index=index))
    if bad:
        raise InputError(
            f"{bad:,} of {rows:,} rows of {source.name!r} have no user, or missing, unreadable, NaN or infinite "
            f"numbers{'' if operation is None else ', or places that the CRS of the points does not know'}: mend them, "
            "or take them out"
        )
    if not rows:
        raise InputError(f"input {source.name!r} is empty: it has no rows")
    return pd.concat(frames)


# --- batches of a file ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A table opened for reading: its name, bytes and batches; its CRS and number of rows if known."""

    name: str
    size: int
    batches: Generator[Batch]
    crs: Any = None
    rows: int | None = None


def open_source(path: Path, reading: Reading, axes: int) -> Source:
    """Open a table of points with some axes.

    Raises InputError if it is missing, empty, of an unknown kind, unreadable, lacks a column, or the condition asks for
    coordinates.
    """
    condition = None if reading.where is None else Condition.of(reading.where)
    source: Input | PartedTable | LakeTable
    if is_address(path) or is_metadata(path) or (path != STDIN and path.is_dir()):
        source, table = open_folder(path, reading)
    else:
        source = find_input(path, reading.format)
        table = FORMATS[source.format].open(source, reading)
    if reading.layer is not None and not table.has_layers:
        raise InputError(
            f"layer is {reading.layer!r}, but input {source.name!r} has no layers: leave it out (it is about "
            "workbooks and files of geometries)"
        )
    by_geometry = not reading.coordinates and table.geometry is not None
    if not by_geometry and len(reading.coordinates) != axes:
        need = "x and y" if axes == 2 else "x only"
        raise InputError(f"input {source.name!r} needs columns for its coordinates: name {need}, as x= and y=")
    asked = list(condition.kinds) if condition is not None else []
    named = [*reading.coordinates, *(str(c) for c in (reading.user, reading.time) if c is not None), *asked]
    places = {c: _position(c, table, source.name) for c in named}
    if condition is not None:
        _check_condition(condition, places, table, reading)
    positions = list(dict.fromkeys(places.values()))

    def batches() -> Iterator[Batch]:
        some = True
        with readable(source.name):
            for columns, malformed in table.read(positions, by_geometry, CHUNK):
                chosen, unread = None, np.zeros(0, dtype=np.int64)
                by_name = {c: columns[positions.index(place)] for c, place in places.items()}
                if condition is not None:
                    chosen, good = condition.choose({c: by_name[c] for c in asked}, reading.decimal)
                    chosen &= good
                    unread = np.flatnonzero(~good)
                    by_name = {c: column.filter(chosen) for c, column in by_name.items()}
                if by_geometry:
                    points = columns[-1] if chosen is None else columns[-1].filter(chosen)
                    found = from_wkb(points, axes, source.name)
                else:
                    found = [numbers(by_name[c], c, some=some, decimal=reading.decimal) for c in reading.coordinates]
                some = some and not len(found[0])
                users, times = (None if c is None else by_name[str(c)] for c in (reading.user, reading.time))
                yield Batch(found, users, malformed, times, chosen, unread)
            source.check_unchanged()

    return Source(source.name, source.size, _read_ahead(batches()), table.crs if by_geometry else None, table.rows)


def _read_ahead(batches: Iterator[Batch]) -> Generator[Batch]:
    """Yield batches, while a thread reads the next one."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, batches, None)
            yield batch


def _show_progress(source: Source, wanted: bool | None) -> Iterator[Batch]:
    with progress("counting rows", source.rows, wanted) as advance:
        for batch in source.batches:
            yield batch
            advance(batch.read)


def _position(column: str, table: OpenedTable, name: str) -> int:
    """Return the position of a column that is given by its name, or by its number from 0."""
    names = table.names
    if names.count(column) == 1 and (table.header or not column.isdigit()):
        return names.index(column)
    if column.isdigit():
        if int(column) < len(names):
            return int(column)
        raise InputError(f"column {column} is not in {name!r}: it has columns 0 to {len(names) - 1}")
    if column in names:
        raise InputError(
            f"column {column!r} is {names.count(column)} times in {name!r}: rename the others, or give its "
            "number, from 0"
        )
    listed = list_names(names)
    if "\ufffd" in listed:
        listed += " (is the file in UTF-8? convert it, or give the column's number, from 0)"
    elif any(map(reads_as_number, names)):
        listed += " (a first row with numbers: has it no header? then give columns by their numbers, from 0)"
    raise InputError(f"column {column!r} is not in {name!r}: its columns are {listed}{meant(column, names)}")


def _check_condition(condition: Condition, places: dict[str, int], table: OpenedTable, reading: Reading) -> None:
    """Raise InputError if a condition asks for a value that changes as a point moves, or that is never there."""
    coordinates = {places[c] for c in reading.coordinates} | {table.geometry}
    stated = f"where is {condition.text!r}"
    for column in condition.kinds:
        refuse_place(stated, column, places[column] in coordinates)
        refuse_times(stated, column, reading.time is not None and places[column] == places[str(reading.time)])
    for value in condition.texts:
        if value in table.missing:
            raise InputError(f"{stated}: {value!r} stands for a missing value in a file of text; write: is null")


# --- finding a table ------------------------------------------------------------------------------------------


def find_input(path: Path, format: str | None = None) -> Input:
    """Return the table that a path names; its ending tells the format unless it is given.

    Raises InputError if it is missing, empty, of an unknown kind, or an archive of no or several tables.
    """
    if format is not None:
        one_of(tuple(FORMATS), format=format)
    if path == STDIN:
        return _standard_input(format)
    if not path.is_file():
        raise InputError(f"input {str(path)!r} does not exist{meant_file(path)}")
    seen = version_of(path)
    if path.stat().st_size == 0:
        raise InputError(f"input {str(path)!r} is empty: it has no rows")
    member = _member(path, format) if path.suffix.lower() == ".zip" else None
    found = format or format_of(member or path.name)
    if found is None and is_duckdb(path):
        raise InputError(f"input {str(path)!r} is a database: say which of its tables, table='visits'")
    if found is None:
        packed, plain = (
            ", ".join(e for kind in FORMATS.values() if kind.streamed == streamed for e in kind.endings)
            for streamed in (True, False)
        )
        raise InputError(
            f"input {str(path)!r} has the ending {path.suffix.lower()!r}: it must be {packed} (also .gz), {plain}, or "
            "a .zip of one of them; or give its format, such as format='csv'"
        )
    return Input(path, member, found, seen=seen)


def _member(path: Path, format: str | None) -> str:
    """Return the name of the one table in an archive, beside a licence or the parts of a shapefile."""
    with readable(path.name), zipfile.ZipFile(path) as archive:
        members = [m for m in archive.infolist() if not m.is_dir() and not _is_hidden(m.filename)]
    tables = [m for m in members if format_of(m.filename) is not None] or (members if format else [])
    if len(tables) != 1:
        listed = ", ".join(m.filename[:60] for m in (tables or members)[:20]) or "nothing"
        what = f"{len(tables):,} tables" if tables else "no table"
        raise InputError(f"input {path.name!r} is an archive with {what}: it holds {listed}; unpack it, give one table")
    if tables[0].flag_bits & 1:
        raise InputError(f"input {path.name!r} is an archive with a password: unpack it, and give the table in it")
    if tables[0].file_size == 0:
        raise InputError(f"input {path.name!r} is empty: {tables[0].filename!r} in it has no rows")
    return tables[0].filename


def _is_hidden(name: str) -> bool:
    """Return whether an operating system left this member there."""
    parts = PurePosixPath(name).parts
    return parts[0] == "__MACOSX" or parts[-1].startswith(".")


def _standard_input(format: str | None) -> Input:
    if sys.stdin.isatty():
        raise InputError("input is '-', standard input, but that is a terminal: lead a table into it, or name a file")
    stream = io.BufferedReader(_FullReads(sys.stdin.buffer), HEAD)
    with readable("standard input"):
        head = Input(STDIN, None, format or "csv", stream).head()
    found = format or _guess(head)
    streamed = [name for name, kind in FORMATS.items() if kind.streamed]
    if found not in (*streamed, "parquet"):
        raise InputError(
            f"input '-', standard input, holds a table of format {found!r}: it must be "
            f"{', '.join(streamed)} or parquet; save it to a file, and give its name"
        )
    return Input(STDIN, None, found, stream)


def _guess(head: bytes) -> str:
    """Return the format of a table by its first bytes; text unless they say something else."""
    starts = {b"PAR1": "parquet", b"PK": "zip", b"SQLite format": "geo"}
    known = next((format for start, format in starts.items() if head.startswith(start)), None)
    if known is not None or not head.lstrip().startswith(b"{"):
        return known or "csv"
    try:
        first = json.loads(head.lstrip().split(b"\n", 1)[0])
    except (ValueError, RecursionError):
        return "geo"
    return "geo" if str(first.get("type", "")).startswith("Feature") else "jsonl"


class _FullReads(io.RawIOBase):
    """A stream whose reads are as long as they can be, so that one look shows the whole head; it is left open."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
