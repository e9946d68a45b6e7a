"""`deltahist export`: the cells of a release as a table or a layer for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltahist.cli import console
from deltahist.cli.groups import RELEASE, Estimates, Zones, is_folder, open_release
from deltahist.cli.options import flag, listed, option, whole_number
from deltahist.errors import InputError


def export(
    *,
    release: Path | str = RELEASE,
    out: Path = option(
        "FILE", ".parquet (GeoParquet), .geojson, .gpkg, .csv, or .tif (needs the extra geotiff).", default=...
    ),
    estimates: Estimates,
    blocks: Any = option(
        "N,...", "Also sums over blocks of N × N cells, with standard errors of their own.", listed(whole_number)
    ),
    regions: Zones,
    tidy: bool = flag("Instead of cells the released numbers as they are (.csv or .parquet)."),
) -> None:
    """Write every cell with its place, estimate and standard error, for other programs.

    Estimates are non-negative; with --unbiased, or of more than 32,768 cells, unbiased. Each file says which.

    Standard errors of cells do not add up to that of a sum: --blocks and --regions write sums with their own. A
    GeoPackage has a layer for each size of blocks, and one for regions; other files have the blocks as further rows,
    which their column `block` tells from cells, and no regions.

    \b
    Examples:
      deltahist export city.parquet --out cells.geojson     # in longitude and latitude, as GeoJSON must be
      deltahist export city.parquet --out cells.gpkg        # GeoPackage with a style that QGIS takes up by itself
      deltahist export city.parquet --out cells.csv         # and cells.csv-metadata.json with units and statement
      deltahist export city.parquet --out cells.tif         # GeoTIFF: band 1 estimate, band 2 standard error
      deltahist export city.parquet --unbiased --out cells.parquet      # estimates that can be added up at will
      deltahist export city.parquet --blocks 2,4,8 --regions zones.geojson --out city.gpkg     # sums with their errors
      deltahist export city.parquet --tidy --out numbers.csv     # what was measured, with its noise; no cells
    """
    from deltahist.answers import answer
    from deltahist.releases import Release
    from deltahist.releases.export import LEVEL, check_form, check_more, export as write
    from deltahist.releases.tidy import check_tidy, export_numbers

    if is_folder(release):
        raise InputError(
            f"{str(release)!r} is a folder: `export` takes one release, whose cells it writes; name one of its files, "
            f"or ask for sums over steps: deltahist query {release} --regions districts.gpkg --out sums.gpkg (errors "
            "of steps must not be added up by hand)"
        )
    if tidy:
        given = {"--blocks": blocks, "--regions": regions.regions, "--nonnegative or --unbiased": estimates.asked}
        check_tidy(out, [name for name, value in given.items() if value is not None])
    else:
        check_form(out)
        check_more(out, blocks=bool(blocks), answers=regions.regions is not None)
    console.check_target(out, release, regions.regions)
    published = open_release(release, estimates.nonnegative)
    if tidy:
        export_numbers(published, out, bar=None)
        console.note(f"wrote {out}")
        return
    if not isinstance(published, Release):
        raise InputError(
            f"{release} holds no counts but {published.mechanism.words}, which `export` does not take: it must be a "
            "release of counts (`deltahist query` answers boxes and --quantiles from sorted points)"
        )
    estimates.note(published)
    zones, shown = regions.read(published.domain), published.shows_nonnegative(estimates.asked)
    answers: Any = None if zones is None else answer(published, zones, level=LEVEL, nonnegative=shown)
    write(published, out, nonnegative=shown, blocks=blocks or (), answers=answers, bar=None)
    console.note(f"wrote {out}")
