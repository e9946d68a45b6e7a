"""Files of geometries and of boxes, in the coordinates of a domain; GeoJSON."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.domain.operations import Operation
from deltahist.errors import InputError

if TYPE_CHECKING:
    import geopandas as gpd
    from shapely.geometry.base import BaseGeometry

    from deltahist.domain.domain import Domain

#: GeoJSON is always in longitude and latitude (RFC 7946).
LONGITUDE_LATITUDE = "EPSG:4326"
#: What columns of degrees are called.
_ANGLES = {"lon", "lng", "long", "longitude", "lat", "latitude"}
#: Degrees that one UTM zone can be stretched to.
_WIDEST = 12.0


def looks_like_degrees(box: Sequence[float]) -> bool:
    """Whether W,S,E,N could be longitudes and latitudes."""
    return len(box) == 4 and max(map(abs, box[::2])) <= 180 and max(map(abs, box[1::2])) <= 90


def are_degrees(box: Sequence[float], *columns: str | None) -> bool:
    """Whether W,S,E,N without a CRS are longitudes and latitudes rather than numbers of some plane.

    They must look like it, and either all columns be called so, or the box not hold the origin: that is a place in the
    ocean, but a corner or the middle of most planes.
    """
    if not looks_like_degrees(box):
        return False
    named = all(str(name).lower() in _ANGLES for name in columns)
    return named or not (box[0] <= 0 <= box[2] and box[1] <= 0 <= box[3])


def in_utm(box: Sequence[float]) -> tuple[str, tuple[float, ...]]:
    """UTM zone of the middle of a box in degrees, and the box there, outwards to whole kilometres."""
    from deltahist.domain.crs import utm_code

    code = utm_code((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
    return code, on_map(box, code)


def projected(box: Sequence[float]) -> tuple[str, str]:
    """A projected CRS for a box in degrees, and the box in it, as text; words where one zone cannot hold it."""
    if box[2] - box[0] > _WIDEST or max(map(abs, box[1::2])) > 84:
        return "with a projected CRS for the region, such as EPSG:32618,", "in its metres"
    code, metres = in_utm(box)
    return code, ",".join(f"{m:.0f}" for m in metres)


def on_map(box: Sequence[float], crs: str) -> tuple[float, ...]:
    """A box in degrees on a map in metres, outwards to whole kilometres."""
    import pyproj

    project = pyproj.Transformer.from_crs(LONGITUDE_LATITUDE, crs, always_xy=True)
    west, south, east, north = box
    there = project.transform_bounds(west, south, east, north)
    low, high = there[:2], there[2:]
    return (*(math.floor(v / 1000) * 1000 for v in low), *(math.ceil(v / 1000) * 1000 for v in high))


def onto_map(frame: gpd.GeoDataFrame, domain: Domain, name: str) -> gpd.GeoDataFrame:
    """Geometries that say their CRS, or none, in a domain's coordinates, by one operation for all of them.

    Raises
    ------
    InputError
        If they say a CRS and the domain has none, or no operation leads to the domain's.
    """
    if frame.crs is None:
        return frame
    if domain.crs is None:
        raise InputError(
            f"{name} is in {frame.crs.to_string()}, but the map is a plane without a CRS: give the geometries in the "
            "plane's own coordinates"
        )
    operation = Operation.onto(domain, frame.crs)
    try:
        return frame if operation is None else operation.frame(frame, domain.crs)
    except InputError as problem:
        raise InputError(f"{name} cannot be projected to {domain.crs}: {problem}") from None


def read_geometries(file: str | Path, domain: Domain, name: str = "file") -> gpd.GeoDataFrame:
    """A file of geometries, in the domain's coordinates; `name` is what messages call it.

    A file that says its CRS is projected to the domain's. GeoJSON is in longitude and latitude unless its
    figures cannot be degrees: then they are taken to be in the domain's CRS, as on a plane without a CRS.

    Raises
    ------
    InputError
        If the file is missing, unreadable or empty, or its CRS cannot be brought to the domain's.
    """
    import geopandas as gpd
    import pyogrio

    file = Path(file)
    if not file.is_file():
        raise InputError(f"{name} is {str(file)!r}: there is no such file")
    try:
        if file.suffix.lower() in (".csv", ".tsv", ".txt", ".gz"):
            raise ValueError("it is a table of text without geometries")
        columnar = file.suffix.lower() in (".parquet", ".geoparquet")
        with warnings.catch_warnings():
            # What the readers notice (repeated ids, empty geometries) is no matter here, and may quote the file.
            warnings.simplefilter("ignore")
            frame = gpd.read_parquet(file) if columnar else gpd.read_file(file)
            frame = frame[~frame.geometry.is_empty & frame.geometry.notna()]
    except (pyogrio.errors.DataSourceError, ValueError, AttributeError, OSError) as problem:
        raise InputError(f"{name} {str(file)!r} is not a readable file of geometries: {problem}") from None
    if not len(frame):
        raise InputError(f"{name} {str(file)!r} has no geometries")
    degrees = frame.crs is not None and frame.crs.is_geographic
    if frame.crs is None or (degrees and not looks_like_degrees(frame.total_bounds.tolist())):
        return frame
    if domain.crs is None and degrees and file.suffix.lower() in (".geojson", ".json"):
        return frame
    return onto_map(frame, domain, f"{name} {str(file)!r}")


def read_sources(text: str, domain: Domain, name: str = "sources") -> str | BaseGeometry | None:
    """What a text says of sources: none, boundary, left or right, or the union of a file's geometries."""
    if text == "none":
        return None
    if text == "boundary" or (domain.ndim == 1 and text in ("left", "right")):
        return text
    if text in ("left", "right"):
        raise InputError(
            f"{name} is {text!r}: that is for one dimension, here it must be none, boundary or a file"
        )
    file = Path(text)
    if not file.is_file():
        raise InputError(
            f"{name} is {text!r}: it must be none, boundary, left or right (1-D), or a file of geometries "
            "(there is no such file)"
        )
    return read_geometries(file, domain, name).union_all()


def read_box_file(file: Path, wanted: int, name: str = "boxes") -> tuple[NDArray[np.float64], list[str]]:
    """Boxes (m, wanted) and their names from a CSV file, with a header or with figures only."""
    import pandas as pd

    columns = ["west", "south", "east", "north"] if wanted == 4 else ["low", "high"]
    rule = f"it must have the columns {','.join(columns)} and may have name; without a header, figures in that order"
    if not file.is_file():
        raise InputError(f"{name} is {str(file)!r}: there is no such file")
    try:
        frame = pd.read_csv(file)
        if all(reads_as_number(str(column)) for column in frame.columns):
            frame = pd.read_csv(file, header=None)
            frame.columns = pd.Index(columns if frame.shape[1] == wanted else frame.columns)
    except (ValueError, OSError) as problem:  # pandas' own errors are ValueErrors
        raise InputError(f"{name} {str(file)!r} is not readable as CSV ({problem}): {rule}") from None
    frame.columns = pd.Index([str(column).strip().lower() for column in frame.columns])
    if not set(columns) <= set(frame.columns):
        raise InputError(f"{name} {str(file)!r} has the columns {','.join(frame.columns)}: {rule}")
    figures = frame[columns].apply(pd.to_numeric, errors="coerce").to_numpy(dtype=np.float64)
    if not len(figures):
        raise InputError(f"{name} {str(file)!r} is empty: {rule}")
    bad = np.flatnonzero(~np.isfinite(figures).all(axis=1))
    if len(bad):
        raise InputError(
            f"{name} {str(file)!r} has {len(bad)} row(s) with missing, non-numeric or infinite corners, "
            f"the first at box {bad[0]}: all must be finite numbers"
        )
    names = (
        frame["name"].astype(str).tolist() if "name" in frame.columns else list(map(str, range(len(frame))))
    )
    return figures, names


def reads_as_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def region_names(frame: gpd.GeoDataFrame, column: str | None, name: str = "name") -> list[str]:
    """Names of regions: a column, by default `name` or `id` if there is one, else their numbers."""
    others = [str(c) for c in frame.columns if c != frame.geometry.name]
    if column is None:
        column = next((c for c in others if c.lower() in ("name", "id")), None)
        if column is None:
            return [str(i) for i in range(len(frame))]
    if column not in others:
        raise InputError(
            f"{name} is {column!r}: it must be one of the file's columns, {', '.join(others) or 'none'}"
        )
    return [str(v) for v in frame[column]]


def as_geojson(shapes: Sequence[Any] | NDArray[Any], properties: Any, domain: Domain) -> str:
    """GeoJSON of shapes on a map, brought to longitude and latitude; a plane without CRS stays as it is."""
    import geopandas as gpd

    frame = gpd.GeoDataFrame(properties, geometry=list(shapes), crs=domain.crs)
    if domain.crs is not None:
        frame = Operation.off(domain, LONGITUDE_LATITUDE).frame(frame, LONGITUDE_LATITUDE)
    return str(frame.to_json(drop_id=True))
