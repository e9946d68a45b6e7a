"""`deltahist export`: the cells of a release as a table or a layer for other programs."""

from __future__ import annotations

from pathlib import Path

from deltahist.cli import console
from deltahist.cli.groups import RELEASE, Estimates, open_release
from deltahist.cli.options import option
from deltahist.errors import InputError


def export(
    *,
    release: Path | str = RELEASE,
    out: Path = option(
        "FILE", ".parquet (GeoParquet), .geojson, .gpkg, .csv, or .tif (needs the extra geotiff).", default=...
    ),
    estimates: Estimates,
) -> None:
    """Write every cell with its place, estimate and standard error, for other programs.

    Estimates are non-negative; with --unbiased, or of more than 32,768 cells, unbiased. Each file says which.

    \b
    Examples:
      deltahist export city.parquet --out cells.geojson     # in longitude and latitude, as GeoJSON must be
      deltahist export city.parquet --out cells.gpkg        # GeoPackage with a style that QGIS takes up by itself
      deltahist export city.parquet --out cells.csv         # and cells.csv-metadata.json with units and statement
      deltahist export city.parquet --out cells.tif         # GeoTIFF: band 1 estimate, band 2 standard error
      deltahist export city.parquet --unbiased --out cells.parquet      # estimates that can be added up at will
    """
    from deltahist.releases import Release, TiledRelease
    from deltahist.releases.export import check_form, export as write

    check_form(out)
    console.check_target(out, release)
    published = open_release(release, estimates.nonnegative)
    if isinstance(published, TiledRelease):
        published.cells()  # refuses, with the reason
    if not isinstance(published, Release):
        raise InputError(
            f"{release} holds no counts but {published.mechanism.words}, which `export` does not take: it must be a "
            "release of counts (`deltahist query` answers boxes and --quantiles from sorted points)"
        )
    estimates.note(published)
    write(published, out, nonnegative=estimates.asked)
    console.note(f"wrote {out}")
