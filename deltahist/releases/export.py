"""Export: every cell of a release with its place, estimate and standard error, for other programs."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from deltahist._files import form_of, write_whole
from deltahist.errors import InputError, fits_memory
from deltahist.releases.base import BaseRelease
from deltahist.releases.tables import cells_frame, columns_of, geo_frame, in_degrees, write_layer
from deltahist.statement import BY_DISTANCE, VERDICT, list_rows

if TYPE_CHECKING:
    import pandas as pd

_Write: TypeAlias = Callable[[Path], Any]
_Frame = TypeVar("_Frame", bound="pd.DataFrame")

#: Form of a file by its suffix.
FORMS = {
    ".parquet": "geoparquet",
    ".geoparquet": "geoparquet",
    ".geojson": "geojson",
    ".json": "geojson",
    ".csv": "csv",
    ".gpkg": "geopackage",
    ".tif": "geotiff",
    ".tiff": "geotiff",
}
#: Rough bytes per cell while a form is made: geometries are objects.
_BYTES = {"geoparquet": 1000, "geojson": 3000, "csv": 400, "geopackage": 1200, "geotiff": 60}
#: Key of Parquet metadata, and name of the member of GeoJSON; not that of a release's own description.
KEY = "deltahist_export"
#: Layers of a GeoPackage, and the table in which QGIS looks for their styles.
_CELLS, _STATEMENT, _STYLES = "cells", "statement", "layer_styles"
#: Types of columns in "CSV on the Web", by NumPy's kinds.
_DATATYPES = {"i": "integer", "f": "double", "O": "string"}
#: Standard errors of a cell that noise alone rarely makes; classes above; share of the cells that they tell apart.
_CLEAR, _CLASSES, _TOP = 3, 6, 0.9995
#: Points below which a cell is pale however surely it is not empty: where most cells surely are, errors are tiny.
_SPECK = 0.5
#: Estimates in text are rounded to a part of their standard error; and decimals of a degree that are a millimetre.
_PART_OF_ERROR, _MILLIMETRE = 10, 8


def check_form(path: str | Path) -> str:
    """Return the form that a file's suffix asks for.

    Raises
    ------
    InputError
        On an unknown suffix, or when the package for GeoTIFF is not installed.

    >>> check_form("cells.tif")
    'geotiff'
    """
    form = form_of(path, FORMS)
    if form == "geotiff":
        _rasterio()
    return form


def export(release: BaseRelease, path: str | Path, *, nonnegative: bool | None = None) -> None:
    """Write all cells of a release to a file; the suffix says in which form.

    GeoParquet, GeoJSON and CSV have a row per cell: `column` and `row` (its index from the west and the south),
    on a grid in EPSG:3035 `cell` (INSPIRE's name, such as "1kmN2689E4337"), its geometry or its edges, its
    centre `x`, `y`, `estimate` and `std_error` in points. GeoJSON is in longitude and latitude, as its standard
    demands (a plane without CRS keeps its figures); the others, and x and y everywhere, are in the release's
    CRS. GeoTIFF has two bands, estimate and standard error.
    A GeoPackage has the layers `cells` and `statement`, a table, and a style that QGIS takes up by itself.

    Each file says what its columns are, in which units, and what was promised: in Parquet's metadata and a member of
    GeoJSON (both "deltahist_export"), the metadata of a GeoPackage's layer, the tags of a GeoTIFF; beside a CSV file
    lies the same for "CSV on the Web", called like it with "-metadata.json" at its end.
    The file appears whole or not at all. In text (CSV, GeoJSON) estimates have the digits that mean something: they are
    rounded to a tenth of the least standard error.

    Parameters
    ----------
    release : what was published.
    path : of the file.
    nonnegative : write the non-negative estimates with their standard errors, or else the unbiased ones with theirs
        (`Release.estimates`); by default non-negative ones of up to 32,768 cells (`Release.shows_nonnegative`).
        The file says which they are.

    Raises
    ------
    InputError
        On an unknown suffix, a 1-D release in any form but CSV, or too many cells for memory.
    """
    form = check_form(path)
    if release.domain.ndim == 1 and form != "csv":
        raise InputError(f"output is {str(path)!r}: a release in one dimension has no geometry, it must be .csv")
    fits_memory(_BYTES[form] * release.domain.size, f"{release.domain.size:,} cells as {form}")
    write_whole(Path(path), _WRITERS[form](release, release.shows_nonnegative(nonnegative), Path(path)))


def _to_geoparquet(release: BaseRelease, nonnegative: bool, path: Path) -> _Write:
    frame = geo_frame(release, nonnegative=nonnegative)
    about = describe_file(release, frame, nonnegative)

    def write(part: Path) -> None:
        frame.to_parquet(part, index=False)
        _annotate_parquet(part, about)

    return write


def _to_geojson(release: BaseRelease, nonnegative: bool, path: Path) -> _Write:
    frame = geo_frame(release, nonnegative=nonnegative)
    about = describe_file(release, frame, nonnegative)
    frame = in_degrees(_round(frame), release.domain)
    members = {
        **({} if release.domain.crs is None else {"COORDINATE_PRECISION": str(_MILLIMETRE)}),
        "NATIVE_DATA": json.dumps({"type": "FeatureCollection", KEY: about}, ensure_ascii=False),
        "NATIVE_MEDIA_TYPE": "application/vnd.geo+json",
    }
    return lambda part: write_layer(frame, part, "GeoJSON", layer=path.stem, layer_options=members)


def _to_geopackage(release: BaseRelease, nonnegative: bool, path: Path) -> _Write:
    import pandas as pd

    frame = geo_frame(release, nonnegative=nonnegative)
    about = describe_file(release, frame, nonnegative)
    columns = {f"{name}_{key}": text for name, column in about["columns"].items() for key, text in column.items()}
    meta = {key: about[key] for key in ("title", "estimator", "promise", "statement")} | columns
    described = {"DESCRIPTION": f"{about['title']}. {about['promise']}"}
    style = {
        "f_table_catalog": "",
        "f_table_schema": "",
        "f_table_name": _CELLS,
        "f_geometry_column": "geom",
        "styleName": "estimates",
        "styleQML": qgis_style(frame["estimate"].to_numpy(), frame["std_error"].to_numpy()),
        "styleSLD": "",
        "useAsDefault": True,
        "description": "points per cell",
        "owner": "",
        "ui": "",
        "update_time": pd.Timestamp.now("UTC").floor("s"),
    }

    def write(part: Path) -> None:
        part.unlink()  # a GeoPackage begins with its first layer
        write_layer(frame, part, "GPKG", layer=_CELLS, layer_options=described, layer_metadata=meta)
        write_layer(tabulate_statement(release), part, "GPKG", layer=_STATEMENT, append=True)
        options = {"FID": "id", "DATETIME_PRECISION": "MILLISECOND"}
        write_layer(pd.DataFrame([style]), part, "GPKG", layer=_STYLES, append=True, layer_options=options)

    return write


def _to_csv(release: BaseRelease, nonnegative: bool, path: Path) -> _Write:
    frame = _round(cells_frame(release, nonnegative=nonnegative))
    companion = _describe_csv(path.name, frame, describe_file(release, frame, nonnegative))

    def write(part: Path) -> None:
        frame.to_csv(part, index=False)
        beside = path.with_name(f"{path.name}-metadata.json")
        write_whole(beside, lambda other: other.write_text(companion, encoding="utf-8"))

    return write


def _round(frame: _Frame) -> _Frame:
    """Return cells with the digits that mean something in text: a tenth of the least standard error, or less."""
    errors = frame["std_error"].to_numpy()
    least = errors[errors > 0].min(initial=np.inf)
    digits = 0 if np.isinf(least) else max(0, math.ceil(-math.log10(least / _PART_OF_ERROR)))
    return frame.round({"estimate": digits, "std_error": digits + 1})


def _to_geotiff(release: BaseRelease, nonnegative: bool, path: Path) -> _Write:
    rasterio = _rasterio()
    domain = release.domain
    (west, _), (_, north) = domain.low, domain.high
    bands = dict(zip(("estimate", "std_error"), release.estimates(nonnegative=nonnegative), strict=True))
    about = describe_file(release, bands, nonnegative)
    profile = {
        "driver": "GTiff",
        "width": domain.shape[0],
        "height": domain.shape[1],
        "count": len(bands),
        "dtype": "float64",
        "crs": domain.crs,
        # from_origin would do, but warns of its own multiplication with some versions of its packages
        "transform": rasterio.Affine(domain.cell[0], 0.0, west, 0.0, -domain.cell[1], north),
        "compress": "deflate",
    }

    def write(part: Path) -> None:
        content = io.BytesIO()  # to a full disk GDAL would write a part of the file, and say nothing
        with rasterio.open(content, "w", **profile) as file:
            for number, (name, cells) in enumerate(bands.items(), start=1):
                file.write(cells.T[::-1], number)  # rows of a picture run from north to south
                file.set_band_description(number, name)
                file.set_band_unit(number, about["columns"][name]["unit"])
                file.update_tags(number, description=about["columns"][name]["description"])
            tags = {key: about[key] for key in ("estimator", "promise", "statement")}
            file.update_tags(TIFFTAG_IMAGEDESCRIPTION=about["title"], **tags)
        part.write_bytes(content.getbuffer())

    return write


def describe_file(release: BaseRelease, names: Iterable[Hashable], nonnegative: bool) -> dict[str, Any]:
    """Describe a file of cells as JSON: promise, statement, and the columns with their units."""
    estimator = release.estimator(nonnegative)
    known = columns_of(release.domain, estimator)
    return {
        "title": f"Estimates of points per cell, {estimator}, with standard errors",
        "estimator": estimator,
        "promise": release.mechanism.promise,
        "may_be_published": release.may_be_published,
        "columns": {name: known[name] for name in map(str, names) if name in known},
        "statement": release.statement(),
    }


def _annotate_parquet(part: Path, about: dict[str, Any]) -> None:
    """Add a description to a Parquet file: the whole under a key of its own, units at their columns."""
    import pyarrow.parquet as pq

    table = pq.read_table(part)
    meta = {**(table.schema.metadata or {}), KEY.encode(): json.dumps(about, ensure_ascii=False).encode()}
    schema = table.schema
    for name, column in about["columns"].items():
        place = schema.get_field_index(name)
        schema = schema.set(place, schema.field(place).with_metadata(column))
    pq.write_table(table.cast(schema).replace_schema_metadata(meta), part, compression="zstd")


def _describe_csv(name: str, frame: pd.DataFrame, about: dict[str, Any]) -> str:
    """Return the companion of a CSV file for "CSV on the Web": types, units and the statement (CSVW, W3C 2015)."""
    columns = [
        {
            "name": column,
            "titles": column,
            "datatype": _DATATYPES[frame[column].dtype.kind],
            "dc:description": about["columns"][column]["description"],
            "schema:unitText": about["columns"][column]["unit"],
        }
        for column in frame
    ]
    key = [column for column in ("column", "row") if column in frame]
    content = {
        "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
        "url": name,
        "dc:title": about["title"],
        "dc:description": f"{about['promise']}\n\n{about['statement']}",
        "tableSchema": {"columns": columns, "primaryKey": key},
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def tabulate_statement(release: BaseRelease) -> pd.DataFrame:
    """Return the statement as a table of labels and texts."""
    import pandas as pd

    rows = [row for row in list_rows(release.mechanism, release.facts()) if row[0] not in (VERDICT, BY_DISTANCE)]
    allowed = (VERDICT, [release.may_be_published])
    promise = ("Promise", [release.mechanism.promise])
    return pd.DataFrame(
        [(label, " ".join(" ".join(lines).split())) for label, lines in (allowed, promise, *rows)],
        columns=["label", "text"],
    )


def class_edges(estimates: NDArray[np.float64], errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the edges of classes of colour: three standard errors of a cell, then equal ratios up to the most.

    >>> class_edges(np.array([-3.0, 0.0, 1.0, 192.0]), np.ones(4)).round(6).tolist()
    [-3.0, 3.0, 6.0, 12.0, 24.0, 48.0, 96.0, 192.0]
    """
    noise, top = _CLEAR * float(np.median(errors)), float(np.quantile(estimates, _TOP, method="higher"))
    least, most = float(estimates.min()), float(estimates.max())
    if noise <= 0:  # exact cells: nothing is lost in noise
        noise = top / 2**_CLASSES
    noise = max(noise, _SPECK)
    if top <= noise:
        return np.array([least, max(noise, most)])
    edges = np.geomspace(noise, top, _CLASSES + 1)
    edges[-1] = most
    return np.array([min(least, noise), *edges])


def qgis_style(estimates: NDArray[np.float64], errors: NDArray[np.float64]) -> str:
    """Return a style for QGIS (.qml, or `layer_styles` of a GeoPackage): cells lost in the noise are pale.

    Parameters
    ----------
    estimates, errors : of all cells; published figures.
    """
    from matplotlib import colormaps

    edges = class_edges(estimates, errors)
    shades = colormaps["magma_r"](np.linspace(0.05, 0.95, max(len(edges) - 1, 2)))[:, :3]
    root = ElementTree.Element("qgis", version="3.28.0", styleCategories="Symbology")
    kind = {"type": "graduatedSymbol", "attr": "estimate", "graduatedMethod": "GraduatedColor"}
    off = dict.fromkeys(("symbollevels", "enableorderby", "forceraster"), "0")
    renderer = ElementTree.SubElement(root, "renderer-v2", kind | off)
    ranges, symbols = (ElementTree.SubElement(renderer, name) for name in ("ranges", "symbols"))
    for number in range(len(edges) - 1):
        low, high = edges[number : number + 2]
        label = f"{low:,.3g} to {high:,.3g} points"
        if number == 0:
            label = f"below {high:,.3g} points"
            if np.isclose(high, _CLEAR * np.median(errors)):
                label += f": {_CLEAR} standard errors of a cell"
        limits = {"lower": repr(float(low)), "upper": repr(float(high))}
        ElementTree.SubElement(ranges, "range", limits, symbol=str(number), label=label, render="true")
        symbol = ElementTree.SubElement(
            symbols, "symbol", type="fill", name=str(number), alpha="0.8" if number else "0.3"
        )
        layer = ElementTree.SubElement(symbol, "layer", {"class": "SimpleFill"}, enabled="1", locked="0")
        colour = ",".join(str(round(255 * part)) for part in shades[number]) + ",255"
        properties = {"color": colour, "style": "solid", "outline_style": "no"}
        options = ElementTree.SubElement(layer, "Option", type="Map")
        for name, value in properties.items():
            ElementTree.SubElement(options, "Option", name=name, type="QString", value=value)
    kind_of_file = "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>\n"
    return kind_of_file + ElementTree.tostring(root, encoding="unicode")


def _rasterio() -> Any:
    try:
        import rasterio
    except ImportError:
        raise InputError("GeoTIFF needs rasterio, which is not installed: pip install 'deltahist[geotiff]'") from None
    return rasterio


_WRITERS: dict[str, Callable[[BaseRelease, bool, Path], _Write]] = {
    "geoparquet": _to_geoparquet,
    "geojson": _to_geojson,
    "csv": _to_csv,
    "geopackage": _to_geopackage,
    "geotiff": _to_geotiff,
}
