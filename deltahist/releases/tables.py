"""Tables of answers, with the shapes they are about, in the forms that other programs read."""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deltahist.domain.geometries import LONGITUDE_LATITUDE, way_to_map
from deltahist.domain.operations import Operation

if TYPE_CHECKING:
    import geopandas as gpd
    import pandas as pd

    from deltahist.domain.domain import Domain

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
