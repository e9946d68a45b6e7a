"""Files of geometries and of boxes, and how they come to a map."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.space.crs import Operation, read_crs
from deltahist.space.domain import Domain

if TYPE_CHECKING:
    import geopandas as gpd

#: Endings of files of geometries, and the one driver of GDAL that may read them.
DRIVERS = {".gpkg": "GPKG", ".geojson": "GeoJSON", ".json": "GeoJSON", ".fgb": "FlatGeobuf", ".shp": "ESRI Shapefile"}
#: Nothing listens there: a file may name addresses (that of its CRS, say), which GDAL then asks for.
_NO_NETWORK = {f"GDAL_{kind}_PROXY": "http://127.0.0.1:0" for kind in ("HTTP", "HTTPS")}
#: Columns that name regions, whatever their case; the first that a file has is taken.
_NAMES = ("name", "nom", "nombre", "nome", "naam", "navn", "namn", "label", "id", "code", "geoid")


def onto_map(frame: gpd.GeoDataFrame, domain: Domain, name: str) -> gpd.GeoDataFrame:
    """Return geometries that say their CRS, or none, in a domain's coordinates, by one operation for all of them.

    Raises InputError as of `way_to_map`, or if a vertex has no place on the map.
    """
    operation = way_to_map(frame.crs, domain, name)
    if operation is None:
        return frame
    moved = operation.shapes(frame.geometry.to_numpy())
    if (shapely.is_missing(moved) & frame.geometry.notna().to_numpy()).any():
        raise InputError(f"{name} lies partly outside the area where {domain.crs} is defined: cut it to the map")
    return frame.set_geometry(moved, crs=read_crs(domain.crs))


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


def read_geometries(file: str | Path, domain: Domain, name: str = "file", layer: str | None = None) -> gpd.GeoDataFrame:
    """Read a file of geometries, unchanged; without a CRS, they are in the domain's coordinates.

    The file is GeoPackage, GeoJSON, FlatGeobuf, a shapefile, each also in a .zip, or GeoParquet. GeoJSON always says
    degrees; for a plane it is in the plane's coordinates all the same.
    Raises InputError if the file is missing or unreadable, has no geometries, or has several layers and none is chosen.
    """
    import geopandas as gpd
    from shapely.errors import ShapelyError

    file = Path(file)
    if not file.is_file():
        raise InputError(f"{name} is {str(file)!r}: there is no such file")
    try:
        with warnings.catch_warnings():
            # What the readers notice (empty geometries) is no matter here, and may quote the file.
            warnings.simplefilter("ignore")
            if file.suffix.lower() in (".parquet", ".geoparquet"):
                frame = gpd.read_parquet(file)
            else:
                place, layer = _layer_of(file, layer)
                frame = gpd.read_file(place, layer=layer, engine="pyogrio")
            shapes = frame.geometry.to_numpy()
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OSError, ShapelyError) as problem:
        said = " ".join(str(problem).split())[:300] or type(problem).__name__
        raise InputError(f"{name} {str(file)!r} is not a readable file of geometries: {said}") from None
    if (shapely.is_missing(shapes) | shapely.is_empty(shapes)).all():
        raise InputError(f"{name} {str(file)!r} has no geometries")
    for column in [c for c in frame.columns if c != frame.geometry.name and frame[c].dtype == object]:
        frame[column] = [_text_of(value) for value in frame[column]]
    plain = domain.crs is None and file.suffix.lower() in (".geojson", ".json")
    return frame.set_crs(None, allow_override=True) if plain else frame


def _text_of(value: Any) -> Any:
    """Return a list among the properties of a region as text, which any file of answers can hold."""
    listed = value.tolist() if isinstance(value, np.ndarray) else value
    return json.dumps(listed, ensure_ascii=False, default=str) if isinstance(listed, list | dict) else value


def _layer_of(file: Path, layer: str | None) -> tuple[str, str]:
    """Return what GDAL opens, and the layer.

    Raises InputError if the file is of another kind than its ending says, or has several layers and none is chosen.
    """
    import pyogrio

    pyogrio.set_gdal_config_options(_NO_NETWORK)
    suffix = file.suffix.lower()
    if suffix not in (*DRIVERS, ".zip"):
        raise ValueError(f"its ending is {suffix!r}: it must be one of {', '.join((*DRIVERS, '.parquet', '.zip'))}")
    place = f"/vsizip/{file}" if suffix == ".zip" else str(file)
    layers = [str(each) for each, kind in pyogrio.list_layers(place) if kind is not None]
    if layer is None and len(layers) == 1:
        layer = layers[0]
    if layer is None or layer not in layers:
        known = ", ".join(layers) or "none"
        raise InputError(f"layer is {layer!r}: it must be one of the layers of {file.name!r}, which are {known}")
    driver = pyogrio.read_info(place, layer=layer)["driver"]
    if driver not in DRIVERS.values() or driver != DRIVERS.get(suffix, driver):
        raise ValueError(f"it is of the kind {driver}, which its ending does not say")
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
    place, layer = _layer_of(file, layer)
    info = pyogrio.read_info(place, layer=layer)
    fields = [str(field) for field in info["fields"]]
    wanted = {fields[int(c)] if c not in fields and c.isdigit() and int(c) < len(fields) else c for c in columns}
    read = [field for field in fields if field in wanted] if wanted <= set(fields) else fields
    how: Any = {"encoding": info["encoding"]} if file.suffix.lower() == ".shp" else {}  # Latin-1 without a .cpg
    with pyogrio.raw.open_arrow(place, layer=layer, columns=read, use_pyarrow=True, **how) as (about, rows):
        yield rows, about["crs"]


def read_sources(text: str, domain: Domain, name: str = "sources") -> str | shapely.Geometry | None:
    """Return the sources that a text names: none, boundary, left or right, or the union of a file's geometries."""
    if text == "none":
        return None
    if text == "boundary" or (domain.ndim == 1 and text in ("left", "right")):
        return text
    if not Path(text).is_file():
        raise InputError(
            f"{name} is {text!r}: it must be none, boundary, left or right (in 1-D only), or a file of geometries"
        )
    return onto_map(read_geometries(text, domain, name), domain, f"{name} {text!r}").union_all()


def read_box_file(file: Path, wanted: int, name: str = "boxes") -> tuple[NDArray[np.float64], list[str]]:
    """Read boxes (m, wanted) and their names from a CSV file, with a header or with figures only."""
    import pandas as pd

    columns = ["west", "south", "east", "north"] if wanted == 4 else ["low", "high"]
    rule = f"it must have the columns {','.join(columns)} and may have name; without a header, figures in that order"
    if not file.is_file():
        raise InputError(f"{name} is {str(file)!r}: there is no such file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of rows that are longer than the header
            how: dict[str, Any] = {"dtype": str, "encoding": "utf-8-sig", "index_col": False, "skipinitialspace": True}
            frame = pd.read_csv(file, **how)
            if len(frame.columns) == wanted and pd.to_numeric(frame.columns.to_series(), errors="coerce").notna().all():
                frame = pd.read_csv(file, header=None, names=columns, **how)
        frame.columns = [str(each).strip().lower() for each in frame.columns]
        figures = frame[columns].to_numpy(np.float64)
    except (ValueError, KeyError, OSError, pd.errors.ParserWarning) as problem:
        said = " ".join(str(problem).split())[:200]
        raise InputError(f"{name} {str(file)!r} is not readable as CSV ({said}): {rule}") from None
    if not len(figures) or not np.isfinite(figures).all():
        raise InputError(f"{name} {str(file)!r} has {len(figures):,} rows: all corners must be finite numbers")
    return figures, frame["name"].fillna("").tolist() if "name" in frame else list(map(str, range(len(frame))))


def named(frame: gpd.GeoDataFrame, column: str | None = None, name: str = "name") -> gpd.GeoDataFrame:
    """Return a frame with the names of its regions in front, as texts, in the column `name`.

    They come from a column or, where none is chosen, from one that is called as names are (name, nom, id, code, ...),
    else the first text column that tells all regions apart, else they are numbers. Another column that is called
    `name`, in any case, gets "_region" behind it. Raises InputError if the column is missing.

    >>> import geopandas as gpd, shapely
    >>> zones = gpd.GeoDataFrame({"code": [7, 8]}, geometry=[shapely.Point(0, 0), shapely.Point(1, 1)])
    >>> named(zones)["name"].tolist()
    ['7', '8']
    """
    import pandas as pd

    others = [str(c) for c in frame.columns if c != frame.geometry.name]
    if column is not None and column not in others:
        raise InputError(f"{name} is {column!r}: it must be one of the file's columns, {', '.join(others) or 'none'}")
    if column is None:
        filled = [c for c in others if frame[c].notna().any()]
        called = {c.lower(): c for c in reversed(filled)}
        known = [called[word] for word in _NAMES if word in called]
        known += [c for c in filled if frame[c].is_unique and all(isinstance(value, str) for value in frame[c])]
        column = known[0] if known else None
    names: list[str | None] = [str(number) for number in range(len(frame))]
    if column is not None:
        # A whole number among decimals is written as one.
        values = [f"{v:.15g}" if isinstance(v, float) else str(v) for v in frame[column].astype(object)]
        names = [None if gone else text for gone, text in zip(pd.isna(frame[column]), values, strict=True)]
    out = frame.drop(columns=[column] if str(column).lower() == "name" else [])
    out = out.rename(columns={c: f"{c}_region" for c in others if c.lower() == "name" and c in out})
    out.insert(0, "name", names)
    return out
