"""Export: every cell of a release with its place, estimate and standard error, for other programs."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from deltahist._files import write_whole
from deltahist.errors import InputError, fits_memory
from deltahist.releases import BaseRelease
from deltahist.releases.described import KEY, about, csv_metadata, in_parquet, statement_frame
from deltahist.releases.frames import cells_frame, geo_frame
from deltahist.releases.style import qml
from deltahist.releases.tables import in_degrees, write_layer

_Write: TypeAlias = Callable[[Path], Any]

#: What the suffix of a file says.
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
#: Layers of a GeoPackage, and the table in which QGIS looks for their styles.
_CELLS, _STATEMENT, _STYLES = "cells", "statement", "layer_styles"


def check_form(path: str | Path) -> str:
    """The form that a file's suffix asks for.

    Raises
    ------
    InputError
        On an unknown suffix, or when the package for GeoTIFF is not installed.

    >>> check_form("cells.tif")
    'geotiff'
    """
    form = FORMS.get(Path(path).suffix.lower())
    if form is None:
        raise InputError(f"output is {str(path)!r}: its suffix must be one of {', '.join(FORMS)}")
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
    The file appears whole or not at all.

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
        raise InputError(
            f"output is {str(path)!r}: a release in one dimension has no geometry, it must be .csv"
        )
    fits_memory(_BYTES[form] * release.domain.size, f"{release.domain.size:,} cells as {form}")
    write_whole(Path(path), _WRITERS[form](release, release.shows_nonnegative(nonnegative), Path(path)))


def _to_geoparquet(release: BaseRelease, nonnegative: bool, path: Path) -> _Write:
    frame = geo_frame(release, nonnegative=nonnegative)
    said = about(release, frame, nonnegative)

    def write(part: Path) -> None:
        frame.to_parquet(part, index=False)
        in_parquet(part, said)

    return write


def _to_geojson(release: BaseRelease, nonnegative: bool, path: Path) -> _Write:
    frame = geo_frame(release, nonnegative=nonnegative)
    said = about(release, frame, nonnegative)
    frame = in_degrees(frame, release.domain)
    members = {
        "NATIVE_DATA": json.dumps({"type": "FeatureCollection", KEY: said}, ensure_ascii=False),
        "NATIVE_MEDIA_TYPE": "application/vnd.geo+json",
    }
    return lambda part: write_layer(frame, part, "GeoJSON", layer=path.stem, layer_options=members)


def _to_geopackage(release: BaseRelease, nonnegative: bool, path: Path) -> _Write:
    import pandas as pd

    frame = geo_frame(release, nonnegative=nonnegative)
    said = about(release, frame, nonnegative)
    columns = {
        f"{name}_{key}": text for name, column in said["columns"].items() for key, text in column.items()
    }
    meta = {key: said[key] for key in ("title", "estimator", "promise", "statement")} | columns
    described = {"DESCRIPTION": f"{said['title']}. {said['promise']}"}
    style = {
        "f_table_catalog": "",
        "f_table_schema": "",
        "f_table_name": _CELLS,
        "f_geometry_column": "geom",
        "styleName": "estimates",
        "styleQML": qml(frame["estimate"].to_numpy(), frame["std_error"].to_numpy()),
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
        write_layer(statement_frame(release), part, "GPKG", layer=_STATEMENT, append=True)
        write_layer(
            pd.DataFrame([style]),
            part,
            "GPKG",
            layer=_STYLES,
            append=True,
            layer_options={"FID": "id", "DATETIME_PRECISION": "MILLISECOND"},
        )

    return write


def _to_csv(release: BaseRelease, nonnegative: bool, path: Path) -> _Write:
    frame = cells_frame(release, nonnegative=nonnegative)
    companion = csv_metadata(path.name, frame, about(release, frame, nonnegative))

    def write(part: Path) -> None:
        frame.to_csv(part, index=False)
        beside = path.with_name(f"{path.name}-metadata.json")
        write_whole(beside, lambda other: other.write_text(companion, encoding="utf-8"))

    return write


def _to_geotiff(release: BaseRelease, nonnegative: bool, path: Path) -> _Write:
    rasterio = _rasterio()
    domain = release.domain
    (west, _), (_, north) = domain.low, domain.high
    bands = dict(zip(("estimate", "std_error"), release.estimates(nonnegative=nonnegative), strict=True))
    said = about(release, bands, nonnegative)
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
                file.set_band_unit(number, said["columns"][name]["unit"])
                file.update_tags(number, description=said["columns"][name]["description"])
            told = {key: said[key] for key in ("estimator", "promise", "statement")}
            file.update_tags(TIFFTAG_IMAGEDESCRIPTION=said["title"], **told)
        part.write_bytes(content.getbuffer())

    return write


def _rasterio() -> Any:
    try:
        import rasterio
    except ImportError:
        raise InputError(
            "GeoTIFF needs rasterio, which is not installed: pip install 'deltahist[geotiff]'"
        ) from None
    return rasterio


_WRITERS: dict[str, Callable[[BaseRelease, bool, Path], _Write]] = {
    "geoparquet": _to_geoparquet,
    "geojson": _to_geojson,
    "csv": _to_csv,
    "geopackage": _to_geopackage,
    "geotiff": _to_geotiff,
}
