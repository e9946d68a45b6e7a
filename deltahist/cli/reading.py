"""`deltahist inspect`, `plot` and `export`: what anybody can do with a release file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from deltahist.cli import console
from deltahist.cli.groups import NonNegative, ReleaseFile, Zones, flag, option, spread
from deltahist.errors import InputError

#: Cells from which on non-negative estimates take longer than people expect.
_PATIENCE = 500_000

if TYPE_CHECKING:
    from deltahist.domain import Domain
    from deltahist.releases import BaseRelease


def warn_of(path: Path, publishable: bool, weakness: str | None) -> None:
    """Say so where what is opened must not be published, or protects hardly anybody."""
    if not publishable:
        console.note(f"warning: {path} is not for publication: its noise came from a seeded generator")
    elif weakness is not None:
        console.note(f"warning: {path} hardly protects anybody: {weakness}")


def open_release(path: Path, nonnegative: bool = False) -> BaseRelease:
    """A release of any kind; with a warning if it must not be published, or if it takes its time."""
    from deltahist.releases import load

    release = load(path)
    warn_of(path, release.publishable, release.mechanism.weakness)
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


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a picture shows of a release besides its numbers."""

    per: Annotated[
        Literal["area", "region"],
        option(
            "WHAT", "area: points per km², so that large regions do not stand out by size; region (or cell)."
        ),
    ] = "area"
    context: Annotated[
        list[Path] | None,
        option("FILE", "Geometries drawn thin and grey, such as roads; may be repeated."),
    ] = None
    axes: Annotated[Literal["km", "degrees"], option("UNIT", "km (easting and northing) or degrees.")] = "km"
    title: Annotated[str | None, option("TEXT", "Stands above. [default: what is drawn]")] = None

    def keywords(self, domain: Domain, regions: bool) -> dict[str, Any]:
        """What `save_picture` takes."""
        from deltahist.domain.geometries import read_geometries

        per = self.per if regions or self.per == "area" else "cell"
        layers = [read_geometries(file, domain, "--context") for file in self.context or ()]
        return {"per": per, "context": layers, "axes": self.axes, "title": self.title}


@dataclass(frozen=True, kw_only=True)
class _Zones(Zones):
    regions: Annotated[
        Path | None, option("FILE", "Polygons: draw the answers for them, with intervals, instead of cells.")
    ] = None


@spread
def plot(
    *,
    release: ReleaseFile,
    out: Annotated[Path, option("FILE", "The picture: .png, .svg or .pdf.")],
    zones: _Zones,
    only: Annotated[Literal["map", "curve"] | None, option("PART", "map or curve, instead of both.")] = None,
    plain: Annotated[
        bool, flag("--plain", "Every cell's own estimate, instead of merging cells lost in the noise.")
    ] = False,
    nonnegative: NonNegative = False,
    look: Look,
) -> None:
    """Draw the published map and, beside it, what protection is left at which distance.

    With --regions the map has a colour for each region, hatched where nothing stands out from the noise,
    and beside it are all values with their intervals. Below every picture stands what was promised.

    \b
    Examples:
      deltahist plot city.parquet --out city.png
      deltahist plot city.parquet --regions districts.gpkg --context roads.gpkg --out districts.png
      deltahist plot city.parquet --regions districts.gpkg --per region --only map --axes degrees --out a.pdf
      deltahist plot city.parquet --out protection.pdf --only curve
    """
    from deltahist.answers import answer
    from deltahist.plots import check_picture, save_picture

    check_picture(out, only)
    if zones.regions is not None and only == "curve":
        raise InputError("--only is 'curve' with --regions: the curve has no regions; leave one of them out")
    if zones.regions is not None and plain:
        raise InputError("--plain is given with --regions: it is about cells; leave one of them out")
    console.check_target(out, release, *filter(None, [zones.regions, *(look.context or [])]))
    published = open_release(release, nonnegative)
    ways: dict[str, Any] = look.keywords(published.domain, zones.regions is not None)
    asked = zones.read(published.domain)
    if asked is not None:
        ways["answers"] = answer(published, asked, nonnegative=nonnegative)
    save_picture(published, out, only, plain=plain, nonnegative=nonnegative, **ways)
    console.note(f"wrote {out}")


def export(
    release: ReleaseFile,
    out: Annotated[
        Path,
        option("FILE", ".parquet (GeoParquet), .geojson, .gpkg, .csv, or .tif (needs the extra geotiff)."),
    ],
    nonnegative: NonNegative = False,
) -> None:
    """Write every cell with its place, estimate and standard error, for other programs.

    \b
    Examples:
      deltahist export city.parquet --out cells.geojson     # in longitude and latitude, as GeoJSON must be
      deltahist export city.parquet --out cells.gpkg        # GeoPackage with a style that QGIS takes up by itself
      deltahist export city.parquet --out cells.csv         # and cells.csv-metadata.json with units and statement
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
