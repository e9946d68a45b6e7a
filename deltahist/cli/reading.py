"""`deltahist inspect`, `plot` and `export`: what anybody can do with a release file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from deltahist.cli import console
from deltahist.cli.groups import ReleaseFile, Zones, flag, option, spread
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.domain import Domain
    from deltahist.releases import BaseRelease


def warn_of(path: Path, publishable: bool, weakness: str | None) -> None:
    """Say so where what is opened must not be published, or protects hardly anybody."""
    if not publishable:
        console.note(
            f"warning: {path} is not for publication: its noise came from a seeded generator, or from no publisher of "
            "this toolkit"
        )
    elif weakness is not None:
        console.note(f"warning: {path} hardly protects anybody: {weakness}")


def open_release(path: Path, nonnegative: bool = False) -> BaseRelease:
    """A release of any kind; with a warning if it must not be published, or if it takes its time."""
    from deltahist.releases import load
    from deltahist.releases.histogram import MOST_NONNEGATIVE

    release = load(path)
    warn_of(path, release.publishable, release.mechanism.weakness)
    if nonnegative and release.domain.size > MOST_NONNEGATIVE:
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
class Estimates:
    """Which estimates of cells are shown."""

    nonnegative: Annotated[
        bool,
        flag(
            "--nonnegative",
            "Non-negative estimates, usually nearer to the truth; so are those of up to 32,768 cells by default. For "
            "more it can take minutes.",
        ),
    ] = False
    unbiased: Annotated[
        bool,
        flag("--unbiased", "Unbiased estimates, some of them below zero, whose sums are right on average."),
    ] = False

    def __post_init__(self) -> None:
        if self.nonnegative and self.unbiased:
            raise InputError("--nonnegative is given with --unbiased: it must be one of them")

    @property
    def asked(self) -> bool | None:
        """What exports and pictures take; None if nothing is said."""
        return self.nonnegative if self.nonnegative or self.unbiased else None

    def note(self, release: BaseRelease) -> None:
        """Say so where a map is too large for what is usual."""
        from deltahist.releases import Release
        from deltahist.releases.histogram import MOST_NONNEGATIVE

        small = release.domain.size <= MOST_NONNEGATIVE
        if self.asked is None and not small and isinstance(release, Release) and release.strategy.determines_cells:
            console.note(
                f"note: estimates are unbiased: to find non-negative ones of {release.domain.size:,} cells, more than "
                f"{MOST_NONNEGATIVE:,}, can take minutes (--nonnegative)"
            )


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
        bool,
        flag("--plain", "Every cell's own unbiased estimate, instead of merging cells lost in the noise."),
    ] = False,
    estimates: Estimates,
    look: Look,
) -> None:
    """Draw the published map and, beside it, what protection is left at which distance.

    The map has the non-negative estimate of every cell; with --unbiased, of more than 32,768 cells, or where they are
    not sure of themselves, unbiased ones, merged until they stand out from the noise. Above it stands which they are.

    With --regions the map has a colour for each region, hatched where nothing stands out from the noise,
    and beside it are all values with their intervals, as `query` gives them. Below every picture stands what was
    promised.

    \b
    Examples:
      deltahist plot city.parquet --out city.png
      deltahist plot city.parquet --regions districts.gpkg --context roads.gpkg --out districts.png
      deltahist plot city.parquet --regions districts.gpkg --per region --only map --axes degrees --out a.pdf
      deltahist plot city.parquet --unbiased --only map --out unbiased.png
      deltahist plot city.parquet --out protection.pdf --only curve
    """
    from deltahist.answers import answer
    from deltahist.plots import check_picture, save_picture

    check_picture(out, only)
    if zones.regions is not None and only == "curve":
        raise InputError("--only is 'curve' with --regions: the curve has no regions; leave one of them out")
    if zones.regions is not None and plain:
        raise InputError("--plain is given with --regions: it is about cells; leave one of them out")
    if plain and estimates.nonnegative:
        raise InputError(
            "--plain is given with --nonnegative: it draws unbiased estimates; leave one of them out"
        )
    console.check_target(out, release, *filter(None, [zones.regions, *(look.context or [])]))
    published = open_release(release, estimates.nonnegative)
    ways: dict[str, Any] = look.keywords(published.domain, zones.regions is not None)
    asked = zones.read(published.domain)
    if asked is not None:
        ways["answers"] = answer(published, asked, nonnegative=estimates.nonnegative)
    elif only != "curve" and not plain:
        estimates.note(published)
    save_picture(published, out, only, plain=plain, nonnegative=estimates.asked, **ways)
    console.note(f"wrote {out}")


@spread
def export(
    *,
    release: ReleaseFile,
    out: Annotated[
        Path,
        option("FILE", ".parquet (GeoParquet), .geojson, .gpkg, .csv, or .tif (needs the extra geotiff)."),
    ],
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
    from deltahist.releases import Release
    from deltahist.releases.export import check_form, export as write

    check_form(out)
    console.check_target(out, release)
    published = open_release(release, estimates.nonnegative)
    if not isinstance(published, Release):
        raise InputError(
            f"{release} holds no counts but {published.mechanism.words}, which `export` does not take: it must be a "
            "release of counts (`deltahist query` answers boxes and --quantiles from sorted points)"
        )
    estimates.note(published)
    write(published, out, nonnegative=estimates.asked)
    console.note(f"wrote {out}")
