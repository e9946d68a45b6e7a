"""Tables of cells and of answers, and files of tables with shapes for other programs."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.space.crs import Operation
from deltahist.space.domain import Domain, cell_codes, has_codes
from deltahist.space.geometries import LONGITUDE_LATITUDE, way_to_map

if TYPE_CHECKING:
    import geopandas as gpd
    import pandas as pd
    import xarray as xr

    from deltahist.releases.base import BaseRelease

#: Names of estimates: right on average; never below zero; and the nearest cells, which stand in where the posterior is
#: not sure of itself (errors are then those of the unbiased estimates).
UNBIASED, CALIBRATED, NEAREST = "unbiased", "non-negative (calibrated)", "non-negative (nearest cells)"
#: Columns that tell of cells that a query cuts: what they are where it cuts none.
UNCUT: dict[str, Callable[[dict[str, NDArray[Any]]], NDArray[Any]]] = {
    "noise_error": lambda found: found["std_error"],
    "placement_error": lambda found: np.zeros(len(found["estimate"])),
    "cut": lambda found: np.zeros(len(found["estimate"])),
    "inner": lambda found: found["estimate"],
    "outer": lambda found: found["estimate"],
}
#: Form of a file by its suffix.
FORMS = {
    ".csv": "csv",
    ".json": "json",
    ".geojson": "geojson",
    ".parquet": "parquet",
    ".geoparquet": "parquet",
    ".gpkg": "gpkg",
}
#: Forms that need shapes.
SHAPED = ("geojson", "gpkg")
#: The layer of a GeoPackage.
LAYER = "answers"


def join_answers(found: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Return columns of answers that were given in parts, one after another."""
    names = max(found, key=len)
    return {
        name: np.concatenate([each[name] if name in each else UNCUT[name](each) for each in found]) for name in names
    }


def cells_frame(release: BaseRelease, *, nonnegative: bool = False) -> pd.DataFrame:
    """Return a row per cell: index, edges, centre, estimate and standard error.

    Columns: column, row, west, south, east, north, x, y, estimate, std_error; in 1-D column, low, high, x,
    estimate, std_error. On a grid in EPSG:3035, cell has INSPIRE's names of the cells after column and row. The
    order is that of the arrays: x varies slowest.
    """
    import pandas as pd

    domain = release.domain
    index = np.indices(domain.shape).reshape(domain.ndim, -1)
    sides = [("low", "high")] if domain.ndim == 1 else [("west", "east"), ("south", "north")]
    edges = [domain.edges(axis) for axis in range(domain.ndim)]
    table: dict[str, NDArray[Any]] = dict(zip(("column", "row"), index, strict=False))
    codes = cell_codes(domain)
    if codes is not None:
        table["cell"] = codes.ravel()
    for end in (0, 1):
        for axis, names in enumerate(sides):
            table[names[end]] = edges[axis][index[axis] + end]
    for axis, name in zip(range(domain.ndim), ("x", "y"), strict=False):
        table[name] = domain.centres(axis)[index[axis]]
    cells, errors = release.estimates(nonnegative=nonnegative)
    table["estimate"], table["std_error"] = cells.ravel(), errors.ravel()
    return pd.DataFrame(table)


def columns_of(domain: Domain, estimator: str) -> dict[str, dict[str, str]]:
    """Return unit and description of each column of `cells_frame`; `estimator` is the name of the estimates.

    >>> columns_of(Domain((0, 4), (4,)), "unbiased")["estimate"]
    {'unit': 'points', 'description': 'points in the cell, unbiased; may be below zero'}
    """
    where = domain.crs or "units of the bounds"
    sides = ("low", "high") if domain.ndim == 1 else ("west", "south", "east", "north")
    axes = ("x", "y")[: domain.ndim]
    kind = f"{estimator}; may be below zero" if estimator == UNBIASED else estimator
    out = {"column": ("1", "number of the cell from the west, from 0")}
    if domain.ndim == 2:
        out["row"] = ("1", "number of the cell from the south, from 0")
    if has_codes(domain):
        out["cell"] = ("1", "INSPIRE's name of the cell")
    out |= {side: (where, f"{side} edge of the cell") for side in sides}
    out |= {axis: (where, f"{axis} of the cell's centre") for axis in axes}
    out["estimate"] = ("points", f"points in the cell, {kind}")
    whose = "unbiased estimate" if estimator == NEAREST else f"estimate beside it, which is {estimator}"
    sums = "errors of cells depend on each other and do not add up to that of a sum, for which the release is asked"
    out["std_error"] = ("points", f"standard error of the {whose}; {sums}")
    return {name: {"unit": unit, "description": text} for name, (unit, text) in out.items()}


def geo_frame(release: BaseRelease, *, nonnegative: bool = False) -> gpd.GeoDataFrame:
    """Return `cells_frame` with the cells' boxes as geometry, in the release's CRS, in place of their edges."""
    import geopandas as gpd
    import shapely

    if release.domain.ndim == 1:
        raise InputError("the release has one dimension, and so no geometry: use to_pandas()")
    frame = cells_frame(release, nonnegative=nonnegative)
    shapes = shapely.box(*(frame.pop(side).to_numpy() for side in ("west", "south", "east", "north")))
    return gpd.GeoDataFrame(frame, geometry=shapes, crs=release.domain.crs)


def dataset(release: BaseRelease, *, nonnegative: bool = False) -> xr.Dataset:
    """Return estimates and standard errors over the centres of the cells; dimensions y and x (x in 1-D)."""
    try:
        import xarray as xr
    except ImportError:
        raise InputError("to_xarray needs xarray, which is not installed: pip install 'deltahist[xarray]'") from None
    domain = release.domain
    axes = ("x", "y")[: domain.ndim]
    # Arrays of maps run along y first, so that pictures of them are right side up.
    dims = tuple(reversed(axes))
    variables = {
        name: (dims, cells.T, {"units": "points", "long_name": long})
        for name, long, cells in zip(
            ("estimate", "std_error"),
            (f"points per cell, {release.estimator(nonnegative)}", "standard error"),
            release.estimates(nonnegative=nonnegative),
            strict=True,
        )
    }
    unit = "1" if domain.crs is None else "map units"
    along = {name: (name, domain.centres(axis), {"units": unit}) for axis, name in enumerate(axes)}
    return xr.Dataset(variables, coords=along, attrs={} if domain.crs is None else {"crs": domain.crs})


def encode_table(frame: pd.DataFrame, form: str, domain: Domain) -> bytes:
    """Return the content of a file with a table.

    Parameters
    ----------
    frame : may be a GeoDataFrame in any CRS; without one, its shapes are in the domain's coordinates.
    form : csv and json leave shapes out; geojson has them in longitude and latitude, as its standard demands (a plane
        without a CRS keeps its figures); parquet (GeoParquet if there are shapes) and gpkg have them in the domain's
        CRS. A shape that has no place there is left out. Texts are in UTF-8.

    >>> import pandas as pd, deltahist as dh
    >>> encode_table(pd.DataFrame({"name": ["a"], "estimate": [2.5]}), "csv", dh.Domain((0, 1), (4,)))
    b'name,estimate\\na,2.5\\n'
    """
    shape = getattr(frame, "_geometry_column_name", None)
    if form in ("csv", "json"):
        plain = _geometries_as_text(frame.drop(columns=shape) if shape else frame)
        if form == "csv":
            return str(plain.map(_simplify_cell).to_csv(index=False)).encode()
        return _encode_json(plain.astype(object).where(plain.notna(), None).to_dict(orient="records"), indent=2)
    file = io.BytesIO()
    if not shape:
        frame.to_parquet(file, index=False)
        return file.getvalue()
    if form == "geojson":
        return _encode_json(_geometries_as_text(in_degrees(frame, domain)).to_geo_dict(na="null", drop_id=True))
    shaped: gpd.GeoDataFrame = _to_map(frame, domain)
    if form == "parquet":
        shaped.to_parquet(file, index=False)
    else:
        _to_geopackage(_geometries_as_text(shaped), file)
    return file.getvalue()


def _to_map(frame: gpd.GeoDataFrame, domain: Domain) -> gpd.GeoDataFrame:
    """Return a frame in the domain's CRS, without the shapes that have no place there."""
    import geopandas as gpd

    operation = way_to_map(frame.crs, domain, "the table")
    shapes = frame.geometry.to_numpy()
    moved = shapes if operation is None else operation.shapes(shapes)
    name = frame.geometry.name
    return frame.set_geometry(gpd.GeoSeries(moved, index=frame.index, crs=domain.crs, name=name))


def in_degrees(frame: gpd.GeoDataFrame, domain: Domain) -> gpd.GeoDataFrame:
    """Return a frame in longitude and latitude; a frame on a plane without a CRS is not changed."""
    if domain.crs is None or (frame.crs is not None and frame.crs.equals(LONGITUDE_LATITUDE, True)):
        return frame
    return Operation.off(domain, LONGITUDE_LATITUDE).frame(_to_map(frame, domain), LONGITUDE_LATITUDE)


def _geometries_as_text(frame: Any) -> Any:
    """Return a table whose further columns of geometries are texts: only Parquet has several."""
    others = [
        name
        for name in frame.columns[(frame.dtypes == "geometry").to_numpy()]
        if name != getattr(frame, "_geometry_column_name", None)
    ]
    return frame.assign(**{name: frame[name].to_wkt() for name in others})


def _simplify_cell(value: Any) -> Any:
    """Return a value of a column; lists and the like, which GeoJSON may have, as JSON."""
    return json.dumps(value, default=_simplify) if isinstance(value, list | dict | np.ndarray) else value


def _simplify(value: Any) -> Any:
    """Return a value that JSON does not know as a list (of an array), or as text."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _encode_json(value: Any, indent: int | None = None) -> bytes:
    return (json.dumps(value, indent=indent, ensure_ascii=False, default=_simplify) + "\n").encode()


def _to_geopackage(frame: gpd.GeoDataFrame, file: io.BytesIO) -> None:
    """Write one layer; columns that a database takes to be the same, or its own, get other names."""
    shape = frame.geometry.name
    taken: list[str] = []
    for column in frame.columns.drop(shape):
        taken.append(_make_unique(str(column), taken))
    names = dict(zip(frame.columns.drop(shape), taken, strict=True))
    objects = {column: frame[column].map(_simplify_cell) for column in names if frame[column].dtype == object}
    own = {"FID": _make_unique("fid", taken), "GEOMETRY_NAME": _make_unique("geom", taken)}
    write_layer(frame.assign(**objects).rename(columns=names), file, "GPKG", layer=LAYER, layer_options=own)


def write_layer(frame: pd.DataFrame, file: Path | io.BytesIO, driver: str, **more: Any) -> None:
    """Write a layer of a file by GDAL; also a table without geometries."""
    import pyogrio.errors

    if driver == "GPKG" and not more.get("append"):  # the newest version of the format makes older programs warn
        more["dataset_options"] = {"VERSION": "1.2"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a plane without CRS is meant
        try:
            pyogrio.write_dataframe(frame, file, driver=driver, **more)
        except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError) as problem:
            raise OSError(str(problem)) from None  # as of any file that cannot be written


def _make_unique(name: str, taken: list[str]) -> str:
    """Return a name that differs from others not only in its case."""
    while name.lower() in map(str.lower, taken):
        name += "_"
    return name
