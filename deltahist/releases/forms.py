"""Files of tables with shapes for other programs, each with what it says of itself."""

from __future__ import annotations

import contextlib
import io
import json
import sqlite3
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deltahist._files import write_whole
from deltahist.space.crs import Operation
from deltahist.space.domain import Domain
from deltahist.space.geometries import LONGITUDE_LATITUDE, way_to_map

if TYPE_CHECKING:
    import geopandas as gpd
    import pandas as pd

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
#: Key of Parquet metadata, and name of the member of GeoJSON; not that of a release's own description.
KEY = "deltahist_export"
#: The table of a GeoPackage in which QGIS looks for styles.
_STYLES = "layer_styles"
#: Types of columns in "CSV on the Web", by NumPy's kinds.
_DATATYPES = {"i": "integer", "u": "integer", "f": "double", "b": "boolean"}
#: Columns of tables that name a row.
_KEYS = ("number", "block", "column", "row")
#: Rows of GeoJSON that are written at a time.
_ROWS = 10_000
#: What JSON answers say besides the figures.
_BESIDE = ("how_to_read", "unit", "level", "estimator", "promise", "may_be_published", "digest")


@dataclass(frozen=True)
class FileTable:
    """A table of a file.

    Parameters
    ----------
    name : of the layer in a file of several.
    frame : may be a GeoDataFrame in any CRS; without one, its shapes are in the domain's coordinates.
    about : title, promise, units and descriptions of columns (`describe_cells`, `describe_answers`).
    each : a row, in words.
    """

    name: str
    frame: pd.DataFrame
    about: dict[str, Any]
    each: str = "cell"


def save_layers(path: Path, form: str, layers: Sequence[FileTable], domain: Domain) -> None:
    """Write a file that appears whole or not at all, with what it says of itself; beside CSV lies its description.

    Parameters
    ----------
    form : as of `encode_table`. layers : one; of a GeoPackage several.
    """
    first = layers[0]

    def write(part: Path) -> None:
        if form == "gpkg":
            _write_geopackage(part, layers, domain)
        elif form == "geojson":
            with part.open("w", encoding="utf-8") as file:
                file.writelines(_geojson(first.frame, domain, {KEY: first.about}))
        elif form == "csv" and "O" not in _kinds(first.frame):
            _write_numbers(part, first.frame)
        else:
            part.write_bytes(encode_table(first.frame, form, domain, first.about))
        if form == "csv":
            content = _describe_csv(path.name, first)
            beside = path.with_name(f"{path.name}-metadata.json")
            write_whole(beside, lambda other: other.write_text(content, encoding="utf-8"))

    write_whole(path, write)


def encode_table(frame: pd.DataFrame, form: str, domain: Domain, about: dict[str, Any] | None = None) -> bytes:
    """Return the content of a file with a table.

    Parameters
    ----------
    frame : as of `FileTable`.
    form : csv and json leave shapes out; geojson has them in longitude and latitude, as its standard demands (a plane
        without a CRS keeps its figures); parquet (GeoParquet if there are shapes) has them in the domain's CRS. A shape
        that has no place there is left out. Texts are in UTF-8.
    about : what JSON, GeoJSON and Parquet say of themselves.

    >>> import pandas as pd, deltahist as dh
    >>> encode_table(pd.DataFrame({"name": ["a"], "estimate": [2.5]}), "csv", dh.Domain((0, 1), (4,)))
    b'name,estimate\\na,2.5\\n'
    """
    shape = getattr(frame, "_geometry_column_name", None)
    about = about or {}
    if form == "geojson":
        return "".join(_geojson(frame, domain, {KEY: about})).encode()
    if form == "parquet":
        file = io.BytesIO()
        (_to_map(frame, domain) if shape else frame).to_parquet(file, index=False)
        return _annotate_parquet(file, about)
    plain = _geometries_as_text(frame.drop(columns=shape) if shape else frame)
    if form == "json":
        rows = plain.astype(object).where(plain.notna(), None).to_dict(orient="records")
        beside = {key: about[key] for key in _BESIDE if key in about}
        content = json.dumps({"answers": rows, **beside}, indent=2, ensure_ascii=False, default=_simplify)
        return f"{content}\n".encode()
    return str(plain.map(_simplify_cell).to_csv(index=False)).encode()


def _kinds(frame: pd.DataFrame) -> set[str]:
    """Return NumPy's kinds of the columns; "O" of texts, and of all that may be mixed."""
    return {dtype.kind for dtype in frame.dtypes}


def _write_numbers(part: Path, frame: pd.DataFrame) -> None:
    """Write a table of numbers as CSV, ten times as fast as pandas does."""
    import pyarrow as pa
    from pyarrow import csv

    with part.open("wb") as file:
        file.write(f"{','.join(map(str, frame.columns))}\n".encode())
        csv.write_csv(pa.Table.from_pandas(frame, preserve_index=False), file, csv.WriteOptions(include_header=False))


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


def _geojson(frame: gpd.GeoDataFrame, domain: Domain, members: dict[str, Any]) -> Iterator[str]:
    """Yield the text of a collection in pieces, column by column: an encoder of features takes ten times as long."""
    import shapely

    frame = _geometries_as_text(in_degrees(frame, domain))
    shapes, table = frame.geometry.to_numpy(), frame.drop(columns=frame.geometry.name)
    pairs = ",".join(json.dumps(str(name), ensure_ascii=False).replace("%", "%%") + ":%s" for name in table)
    feature = f'{{"type":"Feature","properties":{{{pairs}}},"geometry":%s}}'
    yield '{"type":"FeatureCollection",' + json.dumps(members, ensure_ascii=False)[1:-1] + ',"features":['
    for start in range(0, len(frame), _ROWS):
        rows = slice(start, start + _ROWS)
        columns = [_json_texts(table.iloc[rows, place]) for place in range(table.shape[1])]
        columns.append([each or "null" for each in shapely.to_geojson(shapes[rows])])
        yield ("," if start else "") + "\n" + ",\n".join(feature % each for each in zip(*columns, strict=True))
    yield "\n]}\n"


def _json_texts(column: pd.Series[Any]) -> list[str]:
    """Return the values of a column as JSON; missing and infinite ones are null."""
    values = column.to_numpy()
    if values.dtype.kind in "iuf":
        there = np.isfinite(values)
        texts = json.dumps(np.where(there, values, 0).tolist())[1:-1].split(", ")
        return texts if there.all() else [text if known else "null" for text, known in zip(texts, there, strict=True)]
    plain = column.astype(object).where(column.notna(), None)
    return [json.dumps(each, ensure_ascii=False, default=_simplify) for each in plain]


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


def _annotate_parquet(file: io.BytesIO, about: dict[str, Any]) -> bytes:
    """Return a Parquet file with a description: the whole under a key of its own, units at their columns."""
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    meta = {**(table.schema.metadata or {}), KEY.encode(): json.dumps(about, ensure_ascii=False).encode()}
    schema = table.schema
    for name, column in about.get("columns", {}).items():
        place = schema.get_field_index(name)
        schema = schema.set(place, schema.field(place).with_metadata(column))
    out = io.BytesIO()
    pq.write_table(table.cast(schema).replace_schema_metadata(meta), out, compression="zstd")
    return out.getvalue()


def _describe_csv(name: str, layer: FileTable) -> str:
    """Return the companion of a CSV file for "CSV on the Web": types, units and the statement (CSVW, W3C 2015)."""
    about, shape = layer.about, getattr(layer.frame, "_geometry_column_name", None)
    known = about["columns"]
    columns = []
    for column, dtype in layer.frame.dtypes.items():
        if column == shape:
            continue
        said = {"name": str(column), "titles": str(column), "datatype": _DATATYPES.get(dtype.kind, "string")}
        if column in known:
            said["dc:description"] = known[column]["description"]
            said["schema:unitText"] = known[column]["unit"]
        columns.append(said)
    key = [column for column in _KEYS if column in known and column in layer.frame]
    words = [about[key] for key in ("how_to_read", "promise", "statement") if key in about]
    content = {
        "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
        "url": name,
        "dc:title": about["title"],
        "dc:description": "\n\n".join(words),
        **{f"deltahist:{key}": about[key] for key in _BESIDE if key in about},
        "tableSchema": {"columns": columns, **({"primaryKey": key} if key else {})},
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


# --- GeoPackage ---------------------------------------------------------------------------------------------


def _write_geopackage(part: Path, layers: Sequence[FileTable], domain: Domain) -> None:
    """Write layers, with the descriptions of their columns and a style for those that have estimates."""
    import pandas as pd

    part.unlink()  # a GeoPackage begins with its first layer
    styles = []
    for number, layer in enumerate(layers):
        about, frame = layer.about, layer.frame
        more: dict[str, Any] = {"layer": layer.name, "append": number > 0}
        if hasattr(frame, "geometry"):
            frame, own = _named_for_databases(_geometries_as_text(_to_map(frame, domain)))
            columns = {f"{name}_{key}": text for name, each in about["columns"].items() for key, text in each.items()}
            texts = {key: each for key, each in about.items() if key != "columns"}
            meta = {key: each if isinstance(each, str) else json.dumps(each) for key, each in texts.items()} | columns
            described = {"DESCRIPTION": f"{about['title']}. {about['how_to_read']} {about['promise']}"}
            more |= {"layer_metadata": meta, "layer_options": described | own}
            styles += _styles(layer, own["GEOMETRY_NAME"])
        write_layer(frame, part, "GPKG", **more)
    if styles:
        options = {"FID": "id", "DATETIME_PRECISION": "MILLISECOND"}
        write_layer(pd.DataFrame(styles), part, "GPKG", layer=_STYLES, append=True, layer_options=options)
    _describe_columns(part, layers)


def _named_for_databases(frame: gpd.GeoDataFrame) -> tuple[gpd.GeoDataFrame, dict[str, str]]:
    """Return a frame whose columns a database tells apart from others, and its own; and how these are called."""
    shape = frame.geometry.name
    taken: list[str] = []
    for column in frame.columns.drop(shape):
        taken.append(_make_unique(str(column), taken))
    names = dict(zip(frame.columns.drop(shape), taken, strict=True))
    objects = {column: frame[column].map(_simplify_cell) for column in names if frame[column].dtype == object}
    own = {"FID": _make_unique("fid", taken), "GEOMETRY_NAME": _make_unique("geom", taken)}
    return frame.assign(**objects).rename(columns=names), own


def _styles(layer: FileTable, geometry: str) -> list[dict[str, Any]]:
    """Return the row of a layer in the table of styles; none of a layer without estimates of counts."""
    import pandas as pd

    from deltahist.releases.style import qgis_style

    frame = layer.frame
    if "std_error" not in frame or "before" in frame or not (there := frame["estimate"].notna()).any():
        return []
    estimates, errors = (frame.loc[there, name].to_numpy(dtype=np.float64) for name in ("estimate", "std_error"))
    return [
        {
            "f_table_catalog": "",
            "f_table_schema": "",
            "f_table_name": layer.name,
            "f_geometry_column": geometry,
            "styleName": "estimates",
            "styleQML": qgis_style(estimates, errors, layer.each),
            "styleSLD": "",
            "useAsDefault": True,
            "description": f"points per {layer.each}",
            "owner": "",
            "ui": "",
            "update_time": pd.Timestamp.now("UTC").floor("s"),
        }
    ]


def _describe_columns(part: Path, layers: Sequence[FileTable]) -> None:
    """Write the descriptions of columns where GDAL and QGIS look for them (GeoPackage's extension "schema")."""
    rows = [
        (layer.name, name, f"{name} ({each['unit']})" if each["unit"] not in ("", "1") else name, each["description"])
        for layer in layers
        for name, each in layer.about.get("columns", {}).items()
    ]
    try:
        with contextlib.closing(sqlite3.connect(part)) as file, file:
            file.execute(
                "CREATE TABLE IF NOT EXISTS gpkg_data_columns (table_name TEXT NOT NULL, column_name TEXT NOT NULL, "
                "name TEXT, title TEXT, description TEXT, mime_type TEXT, constraint_name TEXT, "
                "CONSTRAINT pk_gdc PRIMARY KEY (table_name, column_name))"
            )
            file.execute(
                "CREATE TABLE IF NOT EXISTS gpkg_extensions (table_name TEXT, column_name TEXT, "
                "extension_name TEXT NOT NULL, definition TEXT NOT NULL, scope TEXT NOT NULL, "
                "CONSTRAINT ge_tce UNIQUE (table_name, column_name, extension_name))"
            )
            url = "http://www.geopackage.org/spec121/#extension_schema"
            file.execute("INSERT INTO gpkg_extensions VALUES ('gpkg_data_columns', NULL, 'gpkg_schema', ?, ?)",
                         (url, "read-write"))  # fmt: skip
            names = "table_name, column_name, title, description"
            file.executemany(f"INSERT INTO gpkg_data_columns ({names}) VALUES (?, ?, ?, ?)", rows)
    except sqlite3.Error as problem:
        raise OSError(str(problem)) from None  # as of any file that cannot be written


def write_layer(frame: pd.DataFrame, file: Path, driver: str, **more: Any) -> None:
    """Write a layer of a file by GDAL; also a table without geometries."""
    import pyogrio.errors

    if driver == "GPKG" and not more.get("append"):  # the newest version of the format makes older programs warn
        more["dataset_options"] = {"VERSION": "1.2"}
    # Arrow is twice as fast, but takes other types for some texts.
    fast = hasattr(frame, "geometry") and "O" not in _kinds(frame.drop(columns=frame.geometry.name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a plane without CRS is meant
        try:
            pyogrio.write_dataframe(frame, file, driver=driver, use_arrow=fast, **more)
        except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError) as problem:
            raise OSError(str(problem)) from None  # as of any file that cannot be written


def _make_unique(name: str, taken: list[str]) -> str:
    """Return a name that differs from others not only in its case."""
    while name.lower() in map(str.lower, taken):
        name += "_"
    return name
