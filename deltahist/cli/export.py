"""`deltahist export`: the cells of a release as a table or a layer for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltahist.cli import console
from deltahist.cli.groups import RELEASE, Estimates, is_folder, open_release
from deltahist.cli.options import listed, option, whole_number
from deltahist.errors import InputError


def export(
    *,
    release: Path | str = RELEASE,
    out: Path = option("FILE", ".gpkg, .parquet (GeoParquet), .geojson, .csv, or .tif (extra geotiff).", default=...),
    estimates: Estimates,
    blocks: Any = option("N,...", "Also write sums over blocks of N × N cells.", listed(whole_number)),
) -> None:
    """Write every cell with its place, estimate and standard error, for other programs.

    Estimates are non-negative; with --unbiased, or of more than 32,768 cells, unbiased. Each file says which.

    Standard errors of cells do not add up to that of a sum: --blocks writes sums with errors of their own. They are
    layers of a GeoPackage. In other files they are further rows, marked in the column `block`.

    \b
    Examples:
      deltahist export city.parquet --out cells.gpkg
      deltahist export city.parquet --out cells.geojson     # in longitude and latitude, as GeoJSON must be
      deltahist export city.parquet --out cells.tif         # GeoTIFF: band 1 estimate, band 2 standard error
      deltahist export city.parquet --unbiased --blocks 2,4,8 --out cells.parquet
    """
    from deltahist.releases import Release
    from deltahist.releases.export import check_form, export as write

    if is_folder(release):
        raise InputError(f"{str(release)!r} is a folder: export takes one release")
    check_form(out, blocks=bool(blocks))
    console.check_target(out, release)
    published = open_release(release, estimates.nonnegative)
    if not isinstance(published, Release):
        raise InputError(f"{release} holds {published.mechanism.words}: export takes a release of counts")
    estimates.note(published)
    write(published, out, nonnegative=estimates.asked, blocks=blocks or ())
    console.note(f"wrote {out}")
