"""`deltahist inspect`, `plot` and `export`: what anybody can do with a release file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from deltahist.cli import console
from deltahist.cli.groups import NonNegative, ReleaseFile, flag, option
from deltahist.errors import InputError

#: Cells from which on non-negative estimates take longer than people expect.
_PATIENCE = 100_000

if TYPE_CHECKING:
    from deltahist.releases import BaseRelease


def open_release(path: Path, nonnegative: bool = False) -> BaseRelease:
    """A release of any kind; with a warning if it must not be published, or if it takes its time."""
    from deltahist.releases import load

    release = load(path)
    if not release.publishable:
        console.note(f"warning: {path} is not for publication: its noise came from a seeded generator")
    if nonnegative and release.domain.size > _PATIENCE:
        console.note(
            f"finding non-negative estimates of {release.domain.size:,} cells: this can take minutes"
        )
    return release


def inspect(
    release: ReleaseFile, as_json: Annotated[bool, flag("--json", "The same as data.")] = False
) -> None:
    """Print the privacy statement of a release: who is protected, how well, at which distance.

    \b
    Examples:
      deltahist inspect city.parquet
      deltahist inspect city.parquet --json
    """
    published = open_release(release)
    if as_json:
        console.put(json.dumps(published.facts(), indent=2, ensure_ascii=False), None)
    else:
        console.put(published.statement(), None)


def plot(
    release: ReleaseFile,
    out: Annotated[Path, option("FILE", "The picture: .png, .svg or .pdf.")],
    only: Annotated[Literal["map", "curve"] | None, option("PART", "map or curve, instead of both.")] = None,
    plain: Annotated[
        bool, flag("--plain", "Every cell's own estimate, instead of merging cells lost in the noise.")
    ] = False,
    nonnegative: NonNegative = False,
) -> None:
    """Draw the published map and, beside it, what protection is left at which distance.

    \b
    Examples:
      deltahist plot city.parquet --out city.png
      deltahist plot city.parquet --out protection.pdf --only curve
    """
    from deltahist.plots import check_picture, save_picture

    check_picture(out, only)
    console.check_target(out, release)
    published = open_release(release, nonnegative)
    save_picture(published, out, only, plain=plain, nonnegative=nonnegative)
    console.note(f"wrote {out}")


def export(
    release: ReleaseFile,
    out: Annotated[
        Path, option("FILE", ".parquet (GeoParquet), .geojson, .csv, or .tif (needs the extra geotiff).")
    ],
    nonnegative: NonNegative = False,
) -> None:
    """Write every cell with its place, estimate and standard error, for other programs.

    \b
    Examples:
      deltahist export city.parquet --out cells.geojson     # in longitude and latitude, as GeoJSON must be
      deltahist export city.parquet --out cells.csv
      deltahist export city.parquet --out cells.tif         # GeoTIFF: band 1 estimate, band 2 standard error
    """
    from deltahist.releases import Release
    from deltahist.releases.export import check_form, export as write

    check_form(out)
    console.check_target(out, release)
    published = open_release(release, nonnegative)
    if not isinstance(published, Release):
        raise InputError(
            f"{release} holds no counts but {published.mechanism.words}, which `export` does not take: it must be a "
            "release of counts (`deltahist query` answers boxes and --quantiles from sorted points)"
        )
    write(published, out, nonnegative=nonnegative)
    console.note(f"wrote {out}")
