"""Export: every cell of a release with its place, estimate and standard error, for other programs."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deltahist._files import form_of, write_whole
from deltahist._progress import progress
from deltahist.errors import InputError, fits_memory, whole
from deltahist.releases.about import describe_answers, describe_cells, tabulate_statement
from deltahist.releases.base import BaseRelease
from deltahist.releases.forms import FileTable, in_degrees, save_layers
from deltahist.releases.tables import cells_frame, geo_frame

if TYPE_CHECKING:
    import geopandas as gpd
    import pandas as pd

#: Form of a file by its suffix.
FORMS = {
    ".parquet": "parquet",
    ".geoparquet": "parquet",
    ".geojson": "geojson",
    ".json": "geojson",
    ".csv": "csv",
    ".gpkg": "gpkg",
    ".tif": "geotiff",
    ".tiff": "geotiff",
}
#: Rough bytes per cell while a form is made: geometries are objects.
_BYTES = {"parquet": 1000, "geojson": 3000, "csv": 400, "gpkg": 1200, "geotiff": 60}
#: Estimates in text are rounded to a part of their standard error; and decimals of a degree that are a centimetre.
_PART_OF_ERROR, _CENTIMETRE = 10, 7
#: Level of the intervals of answers beside cells.
LEVEL = 0.95


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


def check_blocks(widths: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Return widths of blocks in cells, in order; InputError unless they are different, from 2 to the longer side."""
    found = sorted(whole(least=2, blocks=width) for width in widths)
    if len(set(found)) < len(found) or (found and found[-1] > max(shape)):
        raise InputError(
            f"blocks is {','.join(map(str, widths))}: it must be different numbers of cells, from 2 to {max(shape):,}, "
            "the map's longer side"
        )
    return found


def export(
    release: BaseRelease,
    path: str | Path,
    *,
    nonnegative: bool | None = None,
    blocks: Sequence[int] = (),
    answers: gpd.GeoDataFrame | None = None,
    bar: bool | None = False,
) -> None:
    """Write all cells of a release to a file; the suffix says in which form.

    GeoParquet, GeoJSON and CSV have a row per cell: `column` and `row` (its index from the west and the south),
    on a grid in EPSG:3035 `cell` (INSPIRE's name, such as "1kmN2689E4337"), its geometry or its edges, its
    centre `x`, `y`, `estimate` and `std_error` in points. GeoJSON is in longitude and latitude, as its standard
    demands (a plane without CRS keeps its figures); the others, and x and y everywhere, are in the release's
    CRS. GeoTIFF has two bands, estimate and standard error.
    A GeoPackage has the layers `cells` and `statement`, a table, and a style that QGIS takes up by itself.

    Each file says what its columns are, in which units, and what was promised: in Parquet's metadata and a member of
    GeoJSON (both "deltahist_export"), the metadata of a GeoPackage's layer and of its columns, the tags of a GeoTIFF;
    beside a CSV file lies the same for "CSV on the Web", called like it with "-metadata.json" at its end.
    The file appears whole or not at all. In text (CSV, GeoJSON) estimates have the digits that mean something: they are
    rounded to a tenth of the least standard error.

    Parameters
    ----------
    release : what was published.
    path : of the file.
    nonnegative : write the non-negative estimates with their standard errors, or else the unbiased ones with theirs
        (`Release.estimates`); by default non-negative ones of up to 32,768 cells (`Release.shows_nonnegative`).
        The file says which they are.
    blocks : write sums over blocks of this many cells a side, too, with their own standard errors, which do not follow
        from cells' own: layers `blocks_2` and so on of a GeoPackage; elsewhere rows with the column `block`, which
        is 1 for cells, and `cells`, their number. Blocks at the eastern and northern rims may be narrower.
    answers : what `dh.answer(release, frame)` said of a GeoDataFrame: the layer `answers` of a GeoPackage.
    bar : whether to show one; None for "where stderr is a terminal".

    Raises
    ------
    InputError
        On an unknown suffix, a 1-D release in any form but CSV, too many cells for memory, or blocks or answers in a
        form that has no place for them.
    """
    path, form, domain = Path(path), check_form(path), release.domain
    if domain.ndim == 1 and form != "csv":
        raise InputError(f"output is {str(path)!r}: a release in one dimension has no geometry, it must be .csv")
    widths = check_blocks(blocks, domain.shape)
    check_more(path, blocks=bool(widths), answers=answers is not None)
    fits_memory(_BYTES[form] * domain.size, f"{domain.size:,} cells as {form}")
    shown = release.shows_nonnegative(nonnegative)
    with progress(f"exporting {domain.size:,} cells", 2, bar) as done:
        if form == "geotiff":
            write = _to_geotiff(release, shown)
            done(1)
            write_whole(path, write)
            return
        frames = {width: _frame(release, shown, width, form) for width in (1, *widths)}
        if form != "gpkg" and widths:
            frames = {0: _stack(frames)}
        layers = []
        for width, frame in frames.items():
            name, each = _name(width, domain.ndim)
            layers.append(FileTable(name, frame, describe_cells(release, frame, shown, each), each))
        if form == "gpkg":
            if answers is not None:
                about = describe_answers(release.facts(), answers, LEVEL)
                layers.append(FileTable("answers", answers, about, "answer"))
            layers.append(FileTable("statement", tabulate_statement(release, layers[0].about), {}))
        done(1)
        save_layers(path, form, layers, domain)


def check_more(path: str | Path, *, blocks: bool, answers: bool) -> None:
    """Raise InputError if blocks, or answers to regions, have no place in the form that a file's suffix asks for."""
    form = check_form(path)
    if blocks and form == "geotiff":
        raise InputError(
            f"blocks are asked for in {str(path)!r}: a GeoTIFF has one size of cells, and its overviews are means to "
            "whoever reads them, not sums; write .gpkg, .parquet, .geojson or .csv"
        )
    if answers and form != "gpkg":
        raise InputError(
            f"regions are asked for in {str(path)!r}, which holds one table: write .gpkg, or take "
            "`deltahist query --regions ... --out` for the answers alone"
        )


def _frame(release: BaseRelease, nonnegative: bool, width: int, form: str) -> pd.DataFrame:
    """Return cells, or blocks of `width` cells a side, as a form has them."""
    make: Callable[..., pd.DataFrame] = cells_frame if form == "csv" else geo_frame
    frame: Any = make(release, nonnegative=nonnegative, width=width)
    if form not in ("csv", "geojson"):
        return frame
    if form == "geojson" and release.domain.crs is not None:
        frame = in_degrees(frame, release.domain)
        frame = frame.set_geometry(frame.geometry.transform(lambda places: places.round(_CENTIMETRE)))
    return _round(frame)


def _stack(frames: dict[int, pd.DataFrame]) -> pd.DataFrame:
    """Return one table of cells and blocks, whose column `block` says which a row is of."""
    import pandas as pd

    frame = pd.concat([each.assign(block=width) for width, each in frames.items()], ignore_index=True)
    frame["cells"] = frame["cells"].fillna(1).astype(np.int64)
    frame.insert(0, "block", frame.pop("block"))
    return frame


def _name(width: int, ndim: int) -> tuple[str, str]:
    """Return the name of a layer, and what a row of it is, in words; of width 0 it holds cells and blocks."""
    if width < 2:
        return "cells", "cell" if width else "cell or block"
    return f"blocks_{width}", f"block of {width} × {width} cells" if ndim == 2 else f"block of {width} cells"


def _round(frame: Any) -> Any:
    """Return cells with the digits that mean something in text: a tenth of the least standard error, or less."""
    errors = frame["std_error"].to_numpy()
    least = errors[errors > 0].min(initial=np.inf)
    digits = 0 if np.isinf(least) else max(0, math.ceil(-math.log10(least / _PART_OF_ERROR)))
    return frame.round({"estimate": digits, "std_error": digits + 1})


def _to_geotiff(release: BaseRelease, nonnegative: bool) -> Callable[[Path], None]:
    rasterio = _rasterio()
    domain = release.domain
    (west, _), (_, north) = domain.low, domain.high
    bands = dict(zip(("estimate", "std_error"), release.estimates(nonnegative=nonnegative), strict=True))
    about = describe_cells(release, bands, nonnegative)
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
            tags = {key: about[key] for key in ("how_to_read", "estimator", "promise", "statement")}
            file.update_tags(TIFFTAG_IMAGEDESCRIPTION=about["title"], **tags)
        part.write_bytes(content.getbuffer())

    return write


def _rasterio() -> Any:
    try:
        import rasterio
    except ImportError:
        raise InputError("GeoTIFF needs rasterio, which is not installed: pip install 'deltahist[geotiff]'") from None
    return rasterio
