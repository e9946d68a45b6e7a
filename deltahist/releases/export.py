"""Export: every cell of a release with its place, estimate and standard error, for other programs."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from deltahist._files import write_whole
from deltahist.domain.operations import Operation
from deltahist.errors import InputError, fits_memory
from deltahist.releases import BaseRelease
from deltahist.releases.frames import cells_frame, geo_frame

#: What the suffix of a file says.
FORMS = {
    ".parquet": "geoparquet",
    ".geoparquet": "geoparquet",
    ".geojson": "geojson",
    ".json": "geojson",
    ".csv": "csv",
    ".tif": "geotiff",
    ".tiff": "geotiff",
}
#: Rough bytes per cell while a form is made: geometries are objects.
_BYTES = {"geoparquet": 900, "geojson": 3000, "csv": 400, "geotiff": 60}


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


def export(release: BaseRelease, path: str | Path, *, nonnegative: bool = False) -> None:
    """Write all cells of a release to a file; the suffix says in which form.

    GeoParquet, GeoJSON and CSV have a row per cell: `column` and `row` (its index from the west and the south),
    on a grid in EPSG:3035 `cell` (INSPIRE's name, such as "1kmN2689E4337"), its geometry or its edges, its
    centre `x`, `y`, `estimate` and `std_error` in points. GeoJSON is in longitude and latitude, as its standard
    demands (a plane without CRS keeps its figures); the others, and x and y everywhere, are in the release's
    CRS. GeoTIFF has two bands, estimate and standard error.
    The file appears whole or not at all. With `nonnegative` the estimates are those of
    `Release.cells(nonnegative=True)`; standard errors stay those of the unbiased ones.

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
    write_whole(Path(path), _WRITERS[form](release, nonnegative))


def _to_geoparquet(release: BaseRelease, nonnegative: bool) -> Any:
    frame = geo_frame(release, nonnegative=nonnegative)
    return lambda part: frame.to_parquet(part, index=False)


def _to_geojson(release: BaseRelease, nonnegative: bool) -> Any:
    frame = geo_frame(release, nonnegative=nonnegative)
    if release.domain.crs is not None:
        frame = Operation.off(release.domain, "EPSG:4326").frame(frame, "EPSG:4326")

    def write(part: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a plane without CRS is meant
            frame.to_file(part, driver="GeoJSON", engine="pyogrio")

    return write


def _to_csv(release: BaseRelease, nonnegative: bool) -> Any:
    frame = cells_frame(release, nonnegative=nonnegative)
    return lambda part: frame.to_csv(part, index=False)


def _to_geotiff(release: BaseRelease, nonnegative: bool) -> Any:
    rasterio = _rasterio()
    domain = release.domain
    (west, _), (_, north) = domain.low, domain.high
    bands = dict(zip(("estimate", "std_error"), release.estimates(nonnegative=nonnegative), strict=True))
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
        with rasterio.open(part, "w", **profile) as file:
            for number, (name, cells) in enumerate(bands.items(), start=1):
                file.write(cells.T[::-1], number)  # rows of a picture run from north to south
                file.set_band_description(number, name)

    return write


def _rasterio() -> Any:
    try:
        import rasterio
    except ImportError:
        raise InputError(
            "GeoTIFF needs rasterio, which is not installed: pip install 'deltahist[geotiff]'"
        ) from None
    return rasterio


_WRITERS = {"geoparquet": _to_geoparquet, "geojson": _to_geojson, "csv": _to_csv, "geotiff": _to_geotiff}
