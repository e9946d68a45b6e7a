"""Counting the rows of a file, batch by batch, so that memory does not grow with the file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist._progress import progress
from deltahist.counting.arrays import PointPlaces, Tally, named_rows, user_bound
from deltahist.counting.conditions import Condition
from deltahist.counting.outside import Outside, check_outside, finite_rows
from deltahist.counting.private import Private, Unshown
from deltahist.counting.readers import STDIN, Batch, Source, open_source
from deltahist.counting.tables import TableRequest
from deltahist.errors import InputError, one_of
from deltahist.preprocessing import Preprocessing
from deltahist.space.domain import Domain
from deltahist.space.operations import Operation, read_crs

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.counting.steps import StepPlaces

#: Files from this size on show a progress bar on a terminal.
_LONG = 64 << 20


@dataclass(frozen=True)
class Reading:
    """How a file is read; see `count_file`."""

    x: str | int | None = None
    y: str | int | None = None
    crs: str | None = None
    user: str | int | None = None
    max_per_user: int | None = None
    outside: str | None = None
    drop_bad_rows: bool = False
    layer: str | None = None
    progress: bool | None = None
    key: bytes | None = None
    where: str | None = None
    decimal: str = "."
    format: str | None = None


@dataclass(frozen=True, eq=False, repr=False)
class CountedRows(Unshown):
    """Numbers of a file's rows by their use. All but `counting` is for the trusted side only.

    Parameters
    ----------
    rows : rows read. bad_rows : of them unusable, and left out. unmatched : of them not chosen by `where`.
    outside : usable rows outside the domain, clamped or left out.
    users : number of users, or None.
    counting : how rows became counts: what a release says of it.
    """

    rows: int
    bad_rows: int
    unmatched: int
    outside: int
    users: int | None
    counting: Preprocessing


def choice_notes(read: CountedRows | Any) -> list[str]:
    """Return notes on the rows that a condition left out, for the person at the keyboard."""
    if read.counting.where is None:
        return []
    notes = [f"{read.unmatched:,} rows left out that are not {read.counting.where}"]
    if read.unmatched + read.bad_rows == read.rows:
        notes.append("warning: no row meets the condition (is a value misspelt? case and spaces count)")
    return notes


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
    """Counts of a file, int64 (domain.shape), and numbers of its rows. Private."""

    counts: Private

    @property
    def kept(self) -> int:
        """Number of points counted."""
        return int(self.counts.sum())

    @property
    def dropped(self) -> tuple[str, ...]:
        """Kinds of rows that may have been left out, whether or not any were."""
        return self.counting.dropped


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
) -> Counted:
    """Count the points of a table: CSV, JSON lines, Parquet, Excel, GeoPackage, GeoJSON, FlatGeobuf or shapefile.

    Parameters
    ----------
    path : the file, or a zip archive of one table; "-" is standard input. Text may be gzipped, and tab, comma,
        semicolon and bar are told apart.
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
    progress : show a bar; on a terminal and for long files when None.
    key : 32 bytes for the choice of users' points, for tests; random when None.
    where : a condition on columns besides the place, such as "kind = 'bus' and speed > 3": only rows that meet it are
        counted, before users are bounded. It is public, and releases state it (docs/counting.md says what that means).
    decimal : "." or ",": of numbers in text.
    format : "csv", "jsonl", "parquet", "excel" or "geo"; told by the file's ending when None.

    Returns
    -------
    Counted

    Raises
    ------
    InputError
        If the file is missing, damaged or of an unknown kind, lacks a column, holds rows that cannot be used (with how
        many), its CRS does not go with the domain's, or the condition asks for coordinates; if it has no rows, unless
        `outside` is given.
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
    how = Reading(
        x, y, crs, user, max_per_user, outside, drop_bad_rows, layer, progress, key, where, decimal, format
    )
    read = read_rows(Path(path), domain, tally, how)
    return Counted(**vars(read), counts=Private.of(tally.counts(), read.counting, domain))


def points_file(path: str | Path, domain: Domain, **how: Any) -> Located:
    """Read the points of a file on a line, on the domain's lattice.

    Parameters
    ----------
    path, domain : as for `count_file`; the domain has one dimension.
    how : the other parameters of `count_file`, without `drop_bad_rows` and "drop": the number of points is public.

    Returns
    -------
    Located

    Raises
    ------
    InputError
        As `count_file` does.
    """
    places = PointPlaces(lambda columns: domain.lattice(columns[0])[:, 0])
    read = read_rows(Path(path), domain, places, Reading(**how))
    # `Domain.lattice` gives back the steps of these coordinates.
    points = np.asarray(domain.low[0] + places.places() * domain.step[0], dtype=np.float64)
    return Located(**vars(read), points=Private.of(points, read.counting, domain))


def read_rows(
    path: Path,
    domain: Domain,
    tally: Tally | PointPlaces,
    how: Reading,
    *,
    time: str | int | None = None,
    steps: StepPlaces | None = None,
    due: int = 0,
    seen: Outside | None = None,
) -> CountedRows:
    """Read all rows into a tally, checked, chosen, bounded per user and in the domain's coordinates.

    With `steps` places become step · cells + cell, and users are bounded within each step; points outside are looked
    for from step `due` on. What `seen` sees of points outside is for the caller to judge.
    """
    check_outside(how.outside)
    bound = user_bound(how.user is not None, how.max_per_user, how.key)
    source, operation, condition = _open(path, domain, how, time)
    judged = seen is None and how.outside is None
    seen = seen or Outside(domain)
    seen.operation = operation
    rows = bad = off = unmatched = 0
    first = None
    short = path == STDIN or path.stat().st_size < _LONG
    wanted = False if how.progress is None and short else how.progress
    with progress("counting rows", source.rows, wanted) as advance:
        for batch in source.batches:
            given, users = batch.columns, batch.users
            columns = given if operation is None else operation(*given)
            good = _usable(Batch(columns, users))
            step = None
            if steps is not None and len(good):
                step, timely = steps(batch, rows)
                good &= timely
            inside = seen.look(given, columns, None if step is None else step >= due)
            left = batch.malformed + len(batch.unread)
            unusable = left + int((~good).sum())
            if first is None and unusable:
                first = rows + 1 + batch.first_bad(good)
            unmatched += batch.read - left - len(good)
            rows, bad = rows + batch.read, bad + unusable
            advance(batch.read)
            # Once a file is to be refused, the rest of it is only looked through for more bad rows.
            if bad and not how.drop_bad_rows:
                continue
            if not good.all():
                columns, users = _take(columns, users, good)
                step, inside = None if step is None else step[good], inside[good]
            off += int((~inside).sum())
            cells = tally.locate(columns)
            if how.outside == "drop":
                cells[~inside] = -1
            if step is not None:
                cells = np.where((cells < 0) | (step < 0), -1, step * domain.size + cells)
                users = _by_step(users, step)
            if bound is None:
                tally.add(cells[cells >= 0])
            else:
                bound.add(users, cells)
    trouble = "" if steps is None else steps.trouble()
    # Before bad rows are: coordinates that are swapped or in another CRS often have no place on the map at all. Who
    # has said what becomes of points outside gets a release where nobody is, too: its absence would tell (counting.md).
    if judged:
        if not rows:
            raise InputError(
                f"input {source.name!r} is empty: it has no rows; if it is meant, say what becomes of points outside: "
                "outside='clamp' or outside='drop'"
            )
        seen.refuse_many()
    if bad and not how.drop_bad_rows:
        what = "coordinates or a missing user" if bound is not None else "coordinates"
        what += "" if steps is None else " or times"
        what += "" if condition is None else " or values that `where` asks for"
        raise InputError(
            f"{bad:,} of {rows:,} rows of {source.name!r} have missing, unreadable, NaN or infinite {what} (the first "
            f"is row {first:,}, about){trouble}: mend them, or leave them out with drop_bad_rows=True"
        )
    if rows and bad == rows:
        raise InputError(
            f"none of the {rows:,} rows of {source.name!r} can be used{trouble}: are these the right columns?"
        )
    if bound is not None:
        cells = bound.cells()
        tally.add(cells[cells >= 0])
    dropped = (
        *(["bad rows"] if how.drop_bad_rows else []),
        *(["points outside"] if how.outside == "drop" else []),
    )
    projection = None if operation is None else operation.projection
    where = None if condition is None else condition.text
    counting = Preprocessing(how.max_per_user or 1, bound is not None, dropped, projection, where)
    return CountedRows(rows, bad, unmatched, off, None if bound is None else bound.users, counting)


def look_through(paths: Iterable[Path], domain: Domain, **how: Any) -> list[Preprocessing]:
    """Look through files that are to be counted one after the other, and return how each is counted; `how` as there.

    Raises
    ------
    OutsideBounds
        If many points of all files together lie outside.
    InputError
        If one of them could not be counted.
    """
    reading, seen = Reading(**how), Outside(domain)
    nowhere = PointPlaces(lambda columns: np.full(len(columns[0]), -1))
    found = [read_rows(path, domain, nowhere, reading, seen=seen).counting for path in paths]
    if reading.outside is None:
        seen.refuse_many()
    return found


def _open(
    path: Path, domain: Domain, how: Reading, time: str | int | None = None
) -> tuple[Source, Operation | None, Condition | None]:
    """Return the rows of a file, the operation that brings them to the map, and the condition that chose them."""
    one_of((".", ","), decimal=how.decimal)
    condition = None if how.where is None else Condition.of(how.where)
    asked = () if condition is None else tuple(condition.kinds)
    names = _name(how.x), _name(how.y), _name(how.user), how.layer
    source = open_source(
        path, TableRequest(*names, domain.ndim, _name(time), asked, how.decimal), condition, how.format
    )
    return source, operation_of(how.crs, source.crs, domain, source.name), condition


def _name(column: str | int | None) -> str | None:
    return None if column is None else str(column)


def _usable(batch: Batch) -> NDArray[np.bool_]:
    good = finite_rows(batch.columns)
    return good if batch.users is None else good & named_rows(batch.users)


def _take(
    columns: list[NDArray[np.float64]], users: Any, rows: NDArray[np.bool_]
) -> tuple[list[NDArray[np.float64]], Any]:
    import pyarrow as pa

    return [c[rows] for c in columns], None if users is None else users.filter(pa.array(rows))


def _by_step(users: Any, step: NDArray[np.int64]) -> Any:
    """Return user ids that differ from step to step."""
    if users is None:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    # The number comes first and has a fixed end, so that no two pairs look alike.
    return pc.binary_join_element_wise(pa.array(step).cast(pa.string()), users.cast(pa.string()), ":")


def operation_of(stated: str | None, own: Any, domain: Domain | None, name: str) -> Operation | None:
    """Return the operation from a file's coordinates to the map; None if they are on it, or plain numbers.

    Raises InputError if their CRS is not known, contradicts the file's, or there is no map for it.
    """
    given = stated if stated is not None else own
    if given is None and (domain is None or domain.crs is None):
        return None
    if given is None:
        assert domain is not None
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
        raise InputError(
            f"coordinates of {name!r} are in {source.to_string()[:40]}: give the domain this CRS"
        )
    return Operation.onto(domain, source)


# --- what users own -----------------------------------------------------------------------------------------


def read_owners(
    path: str | Path,
    *,
    user: str,
    x: str | None = None,
    y: str | None = None,
    area: Domain | None = None,
    crs: str | None = None,
    where: str | None = None,
    layer: str | None = None,
    decimal: str = ".",
    format: str | None = None,
) -> pd.DataFrame:
    """Read what each user of a table owns: a frame with the users as index, a column for each of x and y. Private.

    Parameters
    ----------
    path, x, y, crs, where, layer, decimal, format : as for `count_file`; without y there is one column of numbers.
    user : column of user names.
    area : a domain whose map positions are brought to; None for plain numbers.

    Raises
    ------
    InputError
        If the file is missing, empty, damaged or of an unknown kind, lacks a column, or its CRS does not go with the
        area's; or rows have no user, or no finite number.
    """
    import pandas as pd

    # Points of a file with geometry need no columns.
    axes = 1 if x is not None and y is None else 2
    condition = None if where is None else Condition.of(where)
    asked = () if condition is None else tuple(condition.kinds)
    request = TableRequest(x, y, user, layer, axes, None, asked, decimal)
    source = open_source(Path(path), request, condition, format)
    operation = operation_of(crs, source.crs, area, source.name)
    frames, bad, rows = [], 0, 0
    for batch in source.batches:
        columns = batch.columns if operation is None else operation(*batch.columns)
        good = np.isfinite(np.stack(columns)).all(axis=0) & named_rows(batch.users)
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
