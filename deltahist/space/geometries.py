"""Files of geometries and of boxes, and how they come to a map."""

from __future__ import annotations

import csv
import io
import itertools
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist._confined import DRIVERS, Child
from deltahist.errors import DeltaHistWarning, InputError, meant, meant_file
from deltahist.space.crs import Operation, looks_like_degrees, read_crs

if TYPE_CHECKING:
    import geopandas as gpd
    from shapely.geometry.base import BaseGeometry

    from deltahist.space.domain import Domain

#: GeoJSON is always in longitude and latitude (RFC 7946).
LONGITUDE_LATITUDE = "EPSG:4326"
#: Rows of a file of geometries that come at once.
_ROWS = 1 << 14


def onto_map(frame: gpd.GeoDataFrame, domain: Domain, name: str) -> gpd.GeoDataFrame:
    """Return geometries that say their CRS, or none, in a domain's coordinates, by one operation for all of them.

    Raises InputError as of `way_to_map`, or if a vertex has no place on the map.
    """
    operation = way_to_map(frame.crs, domain, name)
    try:
        return frame if operation is None else operation.frame(frame, domain.crs)
    except InputError as problem:
        raise InputError(f"{name} cannot be projected to {domain.crs}: {problem}") from None


def way_to_map(crs: Any, domain: Domain, name: str) -> Operation | None:
    """Return the operation that brings geometries in a CRS to a domain's map; None if they are in its coordinates.

    Raises InputError if they say a CRS and the domain has none, or no operation leads to the domain's.
    """
    if crs is None:
        return None
    if domain.crs is None:
        raise InputError(
            f"{name} is in {crs.to_string()}, but the map is a plane without a CRS: give the geometries in the "
            "plane's own coordinates"
        )
    return Operation.onto(domain, crs)


def read_geometries(
    file: str | Path,
    domain: Domain,
    name: str = "file",
    layer: str | None = None,
    *,
    crs: str | None = None,
    choosable: bool = True,
) -> gpd.GeoDataFrame:
    """Read a file of geometries, unchanged; without a CRS, they are in the domain's coordinates.

    `crs` is that of a file which says none; `choosable` is whether the caller can name a layer. The file is GeoPackage,
    GeoJSON, FlatGeobuf, a shapefile, each also in a .zip, or GeoParquet. GeoJSON is in longitude and latitude unless
    its figures cannot be degrees: then they are taken to be in the domain's coordinates, as on a plane without a CRS,
    and so are other files that say degrees which they cannot be. It warns where there is a map. Whole numbers
    and truths stay what they are where some are missing. Raises InputError if the file is missing or unreadable, has no
    geometries, has several layers and none is chosen, or contradicts `crs`.
    """
    file = Path(file)
    frame = _read(file, name, layer, _from_layer, choosable)
    found = _stated(frame.geometry.to_numpy(), frame.crs, file, domain, name, crs)
    return frame if found is frame.crs else frame.set_crs(found, allow_override=True)


def read_shapes(
    file: str | Path, domain: Domain, name: str = "file", crs: str | None = None
) -> tuple[NDArray[Any], Any]:
    """Return the geometries (m,) of `read_geometries` alone, and their CRS, mostly without pandas and geopandas."""
    file = Path(file)
    found = _read(file, name, None, _shapes_of, choosable=False)
    shapes, stated = found if isinstance(found, tuple) else (found.geometry.to_numpy(), found.crs)
    return shapes, _stated(shapes, stated, file, domain, name, crs)


def _stated(shapes: NDArray[Any], crs: Any, file: Path, domain: Domain, name: str, given: str | None) -> Any:
    """Return the CRS of a file's geometries: the one that is `given`, or that it says; None if it cannot be that.

    Warns if a file says degrees that its figures cannot be. Raises InputError if there are no geometries, or the file
    contradicts `given`.
    """
    import shapely

    if (shapely.is_missing(shapes) | shapely.is_empty(shapes)).all():
        raise InputError(f"{name} {str(file)!r} has no geometries")
    bounds = shapely.total_bounds(shapes).tolist()
    possible, geojson = looks_like_degrees(bounds), file.suffix.lower() in (".geojson", ".json")
    reach = f"its coordinates reach from {bounds[0]:.7g},{bounds[1]:.7g} to {bounds[2]:.7g},{bounds[3]:.7g}"
    if given is not None:
        own = read_crs(given)
        if own.is_geographic and not possible:
            raise InputError(
                f"{name} {str(file)!r} is said to be in {given}, but {reach}: degrees lie within ±180 and ±90; are "
                "they metres, of another CRS?"
            )
        # GeoJSON is in degrees by its standard, whether or not its writer knew.
        if crs is not None and not geojson and not crs.equals(own, ignore_axis_order=True):
            raise InputError(
                f"{name} {str(file)!r} is said to be in {given}, but it says {crs.to_string()} itself: only a file "
                "that says no CRS takes one; leave it out, or correct the file"
            )
        return own
    if crs is None or not crs.is_geographic or (possible and not (geojson and domain.crs is None)):
        return crs
    if domain.crs is not None:
        warnings.warn(
            f"{name} {str(file)!r} says {crs.to_string()}, but {reach}: degrees lie within ±180 and ±90, so that they "
            f"are taken to be in {domain.crs}, as the map is (metres that are labelled as degrees?)",
            DeltaHistWarning,
            stacklevel=4,
        )
    return None


def _read(file: Path, name: str, layer: str | None, make: Callable[[Child], Any], choosable: bool) -> Any:
    """Return the frame of a GeoParquet file, or the result of `make` on a layer.

    Raises InputError if the file is missing, unreadable, or has several layers and none is chosen.
    """
    from shapely.errors import ShapelyError

    if not file.is_file():
        raise InputError(f"{name} is {str(file)!r}: there is no such file{meant_file(file)}")

    suffix = file.suffix.lower()
    try:
        with warnings.catch_warnings():
            # What the readers notice (empty geometries) is no matter here, and may quote the file.
            warnings.simplefilter("ignore")
            if suffix in (".parquet", ".geoparquet"):
                layers: list[str] = []
                if layer is None:
                    return _from_parquet(Child("parquet", file))
            else:
                child = Child("geo", file, member=_member(file, suffix), layer=layer, spatial=True)
                layers = child.description["layers"]
                if "names" in child.description:
                    return make(child)
                if not layers:
                    raise ValueError("it is a table without geometries")
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OSError, ShapelyError) as problem:
        said = " ".join(str(problem).split())[:300] or type(problem).__name__
        raise InputError(f"{name} {str(file)!r} is not a readable file of geometries: {said}") from None
    if layer is None:
        raise InputError(
            f"{name} {str(file)!r} has the layers {', '.join(layers)}: "
            + "choose one with layer=, or " * choosable + "make a file of one"
        )
    raise InputError(
        f"layer is {layer!r}: it must be one of those of {name} {str(file)!r}, "
        f"{', '.join(layers) or 'which has none'}{meant(layer, layers)}"
    )


def _member(file: Path, suffix: str) -> str | None:
    """Return the name of the one file of geometries in an archive; None if the file is no archive."""
    if suffix in DRIVERS:
        return None
    rule = f"it must be one of {', '.join((*DRIVERS, '.parquet'))}, or a .zip of one of them"
    if suffix != ".zip":
        raise ValueError(f"its ending is {suffix!r}; {rule}")
    try:
        with zipfile.ZipFile(file) as archive:
            members = [Path(each) for each in archive.namelist()]
    except zipfile.BadZipFile as problem:
        raise ValueError(str(problem)) from None
    found = [each for each in members if each.suffix.lower() in DRIVERS and "__MACOSX" not in each.parts]
    if len(found) != 1:
        raise ValueError(f"it is an archive of {len(found):,} files of geometries; {rule}")
    return found[0].as_posix()


def _from_parquet(child: Child) -> gpd.GeoDataFrame:
    """Read the frame of a GeoParquet file; its values come from the process, and its metadata are read here."""
    import geopandas as gpd
    import pyarrow.parquet as pq

    table = _table(child, None, geometry=False)
    if b"geo" not in (table.schema.metadata or {}):
        raise ValueError("it is a table without geometries")
    pq.write_table(table, held := io.BytesIO())
    held.seek(0)
    return _with_gaps(gpd.read_parquet(held), table.schema)


def _from_layer(child: Child) -> gpd.GeoDataFrame:
    """Read the frame of a layer that GDAL reads in the process."""
    import geopandas as gpd

    table = _table(child, None, geometry=True)
    values = table.select(table.column_names[:-1])
    values.validate(full=True)  # texts that are none would be found at any time later
    frame = values.to_pandas(date_as_object=False)
    made = gpd.GeoDataFrame(frame, geometry=_last_as_shapes(table), crs=child.description["crs"])
    return _with_gaps(made, values.schema)


def _shapes_of(child: Child) -> tuple[NDArray[Any], Any]:
    """Read the geometries (m,) of a layer by GDAL in the process, and their CRS."""
    crs = child.description["crs"]
    return _last_as_shapes(_table(child, [], geometry=True)), None if crs is None else read_crs(crs)


def _table(child: Child, columns: list[str] | None, geometry: bool) -> Any:
    """Read columns, all or some, as an Arrow table, whose last one may hold geometries."""
    import pyarrow as pa

    batches = list(child.batches(columns=columns, geometry=geometry, rows=_ROWS))
    if not batches:
        raise ValueError("it has no rows")
    return pa.Table.from_batches(batches)


def _last_as_shapes(table: Any) -> NDArray[Any]:
    """Return the geometries (m,) of an Arrow table's last column."""
    import shapely

    # As a list: Arrow's own way to NumPy would import pandas first.
    return np.asarray(shapely.from_wkb(np.array(table.column(table.num_columns - 1).to_pylist(), dtype=object)))


def _with_gaps(frame: gpd.GeoDataFrame, schema: Any) -> gpd.GeoDataFrame:
    """Return a frame with whole numbers and truths as such: readers make others of them where some are missing."""
    for field in schema:
        if field.name in frame and frame[field.name].dtype in (np.float64, object):
            if str(field.type).startswith(("int", "uint")):
                frame[field.name] = frame[field.name].astype("Int64")
            elif str(field.type) == "bool":
                frame[field.name] = frame[field.name].astype("boolean")
    return frame


def read_sources(text: str, domain: Domain, name: str = "sources") -> str | BaseGeometry | None:
    """Return the sources that a text names: none, boundary, left or right, or the union of a file's geometries."""
    if text == "none":
        return None
    if text == "boundary" or (domain.ndim == 1 and text in ("left", "right")):
        return text
    file = Path(text)
    if not file.is_file():
        raise InputError(
            f"{name} is {text!r}: it must be none, boundary, left or right (in 1-D only), or a file of geometries "
            f"(there is no such file){meant_file(file) or meant(text, ('none', 'boundary', 'left', 'right'))}"
        )
    from shapely.errors import ShapelyError

    frame = onto_map(read_geometries(file, domain, name, choosable=False), domain, f"{name} {str(file)!r}")
    try:
        return frame.union_all()
    except ShapelyError as problem:
        raise InputError(
            f"{name} {str(file)!r} has geometries that cannot be put together: {problem} (repair them first, for "
            "example with `make_valid`)"
        ) from None


def read_box_file(file: Path, wanted: int, name: str = "boxes") -> tuple[NDArray[np.float64], list[str]]:
    """Read boxes (m, wanted) and their names from a CSV file, with a header or with figures only."""
    columns = ["west", "south", "east", "north"] if wanted == 4 else ["low", "high"]
    rule = f"it must have the columns {','.join(columns)} and may have name; without a header, figures in that order"
    if not file.is_file():
        raise InputError(f"{name} is {str(file)!r}: there is no such file{meant_file(file)}")
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            rows = [row for row in csv.reader(lines, strict=True) if row]
    except (ValueError, OSError, csv.Error) as problem:
        raise InputError(f"{name} {str(file)!r} is not readable as CSV ({problem}): {rule}") from None
    header = [text.strip().lower() for text in (rows or [columns])[0]]
    if len(header) == wanted and all(map(reads_as_number, header)):
        header = columns
    else:
        del rows[:1]
    if not set(columns) <= set(header) or not rows:
        raise InputError(f"{name} {str(file)!r} has {len(rows):,} rows of {','.join(header)}: {rule}")
    if long := next((row for row in rows if len(row) > len(header)), None):
        raise InputError(f"{name} {str(file)!r} has more values than columns in {','.join(long)!r}: {rule}")
    texts = {head: column for head, *column in itertools.zip_longest(header, *rows, fillvalue="")}
    figures = np.array(
        [[float(text) if reads_as_number(text) else np.nan for text in texts[column]] for column in columns]
    ).T
    bad = np.flatnonzero(~np.isfinite(figures).all(axis=1))
    if len(bad):
        raise InputError(
            f"{name} {str(file)!r} has {len(bad)} row(s) with missing, non-numeric or infinite corners, "
            f"the first at box {bad[0]}: all must be finite numbers"
        )
    return figures, texts.get("name") or list(map(str, range(len(rows))))


def reads_as_number(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


#: Columns that name regions, whatever their case; the first that a file has is taken.
_NAMES = ("name", "nom", "nombre", "nome", "naam", "navn", "namn", "label")
#: The same, if they tell all regions apart.
_CODES = ("id", "code", "geoid")


def named(frame: gpd.GeoDataFrame, column: str | None = None, name: str = "name") -> gpd.GeoDataFrame:
    """Return a frame with the names of its regions in front, as texts, in the column `name`.

    They come from a column or, where none is chosen, from one that is called as names are (name, nom, ...), or as codes
    are (id, code, geoid) and tells all regions apart, the only text that does, or the only column with values; without
    any column they are the regions' numbers. Another column that is called `name`, in any case, gets "_region" behind
    it. Raises InputError if the column is missing, or none is chosen and it is not plain which one it is.

    >>> import geopandas as gpd, shapely
    >>> zones = gpd.GeoDataFrame({"code": [7, 8]}, geometry=[shapely.Point(0, 0), shapely.Point(1, 1)])
    >>> named(zones)["name"].tolist()
    ['7', '8']
    """
    others = [str(c) for c in frame.columns if c != frame.geometry.name]
    if column is None and others:
        column = _naming_column(frame, others, name)
    if column is None:
        texts: list[str | None] = [str(number) for number in range(len(frame))]
    elif column in others:
        texts = [_as_text(value) for value in frame[column].astype(object)]
    else:
        cut = f" (shapefiles cut names to {column[:10]!r})" if column[:10] in others else meant(column, others)
        raise InputError(
            f"{name} is {column!r}: it must be one of the file's columns, {', '.join(others) or 'none'}{cut}"
        )
    out = frame.drop(columns=[column] if str(column).lower() == "name" else [])
    out = out.rename(columns={c: f"{c}_region" for c in others if c.lower() == "name" and c in out})
    out.insert(0, "name", texts)
    return out


def _naming_column(frame: gpd.GeoDataFrame, columns: list[str], name: str) -> str:
    """Return the column that plainly names the regions; raise InputError with all columns if none does."""
    filled = [c for c in columns if frame[c].notna().any()]
    apart = [c for c in filled if frame[c].notna().all() and frame[c].astype(str).is_unique]
    for usual, among in ((_NAMES, filled), (_CODES, apart)):
        called = {c.lower(): c for c in reversed(among)}
        if found := [called[word] for word in usual if word in called]:
            return found[0]
    texts = [c for c in apart if all(isinstance(value, str) for value in frame[c])]
    for group in (texts, [c for c in texts if "name" in c.lower()], filled):
        if len(group) == 1:
            return group[0]
    raise InputError(
        f"{name} is missing: the regions' names may be in any of the columns {', '.join(columns)}; say in which"
    )


def _as_text(value: Any) -> str | None:
    """Return a value of a column of names as text; a whole number among decimals is written as one."""
    import pandas as pd

    if pd.isna(value):
        return None
    return f"{value:.15g}" if isinstance(value, float) else str(value)
