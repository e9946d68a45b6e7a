"""Files of geometries and of boxes, and how they come to a map."""

from __future__ import annotations

import csv
import itertools
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import DeltaHistWarning, InputError, meant, meant_file
from deltahist.space.crs import Operation, looks_like_degrees, read_crs

if TYPE_CHECKING:
    import geopandas as gpd
    from shapely.geometry.base import BaseGeometry

    from deltahist.space.domain import Domain

#: GeoJSON is always in longitude and latitude (RFC 7946).
LONGITUDE_LATITUDE = "EPSG:4326"
#: Endings of files of geometries, and the one driver of GDAL that may read them.
DRIVERS = {
    ".gpkg": "GPKG",
    ".geojson": "GeoJSON",
    ".json": "GeoJSON",
    ".fgb": "FlatGeobuf",
    ".shp": "ESRI Shapefile",
}
#: Nothing listens there: a file may name addresses (that of its CRS, say), which GDAL then asks for.
_NO_NETWORK = {f"GDAL_{kind}_PROXY": "http://127.0.0.1:0" for kind in ("HTTP", "HTTPS")}


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
    frame = _read(file, name, layer, choosable)
    found = _stated(frame.geometry.to_numpy(), frame.crs, file, domain, name, crs)
    return frame if found is frame.crs else frame.set_crs(found, allow_override=True)


def read_shapes(
    file: str | Path, domain: Domain, name: str = "file", crs: str | None = None
) -> tuple[NDArray[Any], Any]:
    """Return the geometries (m,) of `read_geometries` alone, and their CRS."""
    file = Path(file)
    frame = _read(file, name, None, choosable=False)
    shapes = frame.geometry.to_numpy()
    return shapes, _stated(shapes, frame.crs, file, domain, name, crs)


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


def _read(file: Path, name: str, layer: str | None, choosable: bool = True) -> gpd.GeoDataFrame:
    """Return the frame of a GeoParquet file, or of a layer; raise InputError if there is none that can be read."""
    import geopandas as gpd
    import pyarrow as pa
    import pyogrio
    from shapely.errors import ShapelyError

    if not file.is_file():
        raise InputError(f"{name} is {str(file)!r}: there is no such file")
    try:
        with warnings.catch_warnings():
            # What the readers notice (empty geometries) is no matter here, and may quote the file.
            warnings.simplefilter("ignore")
            if file.suffix.lower() in (".parquet", ".geoparquet"):
                return _with_gaps(gpd.read_parquet(file), pa.parquet.read_schema(file))
            place, layer = _layer_of(file, layer, choosable)
            frame = gpd.read_file(place, layer=layer, use_arrow=True, engine="pyogrio")
            if not isinstance(frame, gpd.GeoDataFrame):
                raise ValueError("it is a table without geometries")
            info = pyogrio.read_info(place, layer=layer)
            kinds = zip(info["fields"], info["dtypes"], strict=True)
            return _with_gaps(frame, pa.schema([(n, pa.int64() if "int" in d else pa.bool_()) for n, d in kinds
                                                if "int" in d or d == "bool"]))  # fmt: skip
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OSError, ShapelyError) as problem:
        said = " ".join(str(problem).split())[:300] or type(problem).__name__
        raise InputError(f"{name} {str(file)!r} is not a readable file of geometries: {said}") from None


def _layer_of(file: Path, layer: str | None, choosable: bool) -> tuple[str, str]:
    """Return what GDAL opens, of an archive its one file of geometries, and the layer.

    Raises InputError if the file is of another kind than its ending says, or has several layers and none is chosen.
    """
    import pyogrio

    pyogrio.set_gdal_config_options(_NO_NETWORK)
    place, suffix = str(file), file.suffix.lower()
    if suffix == ".zip":
        with zipfile.ZipFile(file) as archive:
            members = [Path(each) for each in archive.namelist()]
        found = [each for each in members if each.suffix.lower() in DRIVERS and "__MACOSX" not in each.parts]
        if len(found) != 1:
            raise ValueError(f"it is an archive of {len(found):,} files of geometries: it must hold one")
        place, suffix = f"/vsizip/{file}/{found[0].as_posix()}", found[0].suffix.lower()
    if suffix not in DRIVERS:
        raise ValueError(f"its ending is {suffix!r}: it must be one of {', '.join((*DRIVERS, '.parquet', '.zip'))}")
    layers = [str(each) for each, kind in pyogrio.list_layers(place) if kind is not None]
    if layer is None and len(layers) == 1:
        layer = layers[0]
    if layer is None or layer not in layers:
        ask = "choose one with layer=" if choosable else "make a file of one"
        raise InputError(f"layer is {layer!r}: {file.name!r} has the layers {', '.join(layers) or 'none'}; {ask}")
    driver = pyogrio.read_info(place, layer=layer)["driver"]
    if driver != DRIVERS[suffix]:
        raise ValueError(f"it is of the kind {driver}: with this ending it must be {DRIVERS[suffix]}")
    return place, layer


@contextmanager
def open_layer(file: Path, layer: str | None, columns: list[str]) -> Iterator[tuple[Any, Any]]:
    """Open the rows of a layer, some columns (by number from 0, too) and the geometry last, as Arrow; and its CRS."""
    import pyogrio

    if file.suffix.lower() == ".shp":
        with file.open("rb") as opened:
            header = opened.read(28)
        # Of a file that was cut short the missing points would pass for rows without one.
        if len(header) < 28 or 2 * int.from_bytes(header[24:28], "big") > file.stat().st_size:
            raise InputError(f"input {file.name!r} is shorter than it says: was it cut short?")
    place, layer = _layer_of(file, layer, choosable=True)
    fields = [str(field) for field in pyogrio.read_info(place, layer=layer)["fields"]]
    wanted = {fields[int(c)] if c not in fields and c.isdigit() and int(c) < len(fields) else c for c in columns}
    read = [field for field in fields if field in wanted] if wanted <= set(fields) else fields
    with pyogrio.raw.open_arrow(place, layer=layer, columns=read, use_pyarrow=True) as (about, rows):
        yield rows, about["crs"]


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
