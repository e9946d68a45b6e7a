"""`deltahist plot`: the map of a release, and its protection by distance; of a folder, all steps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from deltahist.cli import console
from deltahist.cli.groups import PUBLISHED, Estimates, Zones, is_folder, open_release, open_series
from deltahist.cli.options import flag, option
from deltahist.errors import InputError


@dataclass(frozen=True, kw_only=True)
class _Zones(Zones):
    regions: Path | None = option("FILE", "Polygons: draw the answers for them, with intervals, instead of cells.")


def plot(
    *,
    release: Path | str = PUBLISHED,
    out: Path = option("FILE", "The picture: .png, .svg or .pdf; of a folder .gif, too.", default=...),
    zones: _Zones,
    only: str | None = option("PART", "One part alone, such as map or curve."),
    plain: bool = flag("Every cell's own unbiased estimate, instead of merging cells lost in the noise."),
    estimates: Estimates,
    rank: bool = flag("With --regions: show whose order is not sure, as `query --rank` says: they stand on one band."),
    per: Literal["area", "region"] | None = option(
        "WHAT",
        "area: points per km², so that large regions do not stand out by size; region (or cell). [default: area; "
        "lines over time are per region]",
    ),
    context: list[Path] | None = option("FILE", "Geometries drawn thin and grey, such as roads; may be repeated."),
    axes: Literal["km", "degrees"] = option("UNIT", "km (easting and northing) or degrees.", default="km"),
    title: str | None = option("TEXT", "Stands above. [default: what is drawn]"),
    between: tuple[str, str] | None = option("FIRST LAST", "Of a folder: the steps from FIRST to LAST. [default: all]"),
) -> None:
    """Draw the published map and, beside it, what protection is left at which distance.

    The map has the non-negative estimate of every cell; with --unbiased, of more than 32,768 cells, or where they are
    not sure of themselves, unbiased ones, merged until they stand out from the noise. Above it stands which they are.

    With --regions the map has a colour for each region, hatched where nothing stands out from the noise,
    and beside it are all values with their intervals, as `query` gives them. Below every picture stands what was
    promised.

    Of a folder of `deltahist stream` it is small maps of all steps, or, of more than 24, of longer periods; with
    --regions lines over time; into a .gif an animation.

    \b
    Examples:
      deltahist plot city.parquet --out city.png
      deltahist plot city.parquet --regions districts.gpkg --context roads.gpkg --out districts.png
      deltahist plot city.parquet --regions districts.gpkg --rank --out ranking.png
      deltahist plot city.parquet --regions districts.gpkg --per region --only map --axes degrees --out a.pdf
      deltahist plot city.parquet --unbiased --only map --out unbiased.png
      deltahist plot city.parquet --out protection.pdf --only curve
      deltahist plot city/ --out year.png     # of a folder: small maps of its steps
      deltahist plot city/ --regions districts.gpkg --between 2010-05-01 2010-08-31 --out summer.png
      deltahist plot city/ --out year.gif
    """
    from deltahist.answers import answer, asker
    from deltahist.plots import check_picture, check_series_picture, save_picture, save_series
    from deltahist.plots.ground import region_areas
    from deltahist.plots.regions import shapes_on_map
    from deltahist.space.geometries import read_geometries

    folder, regions = is_folder(release), zones.regions is not None
    if folder:
        check_series_picture(out, lines=regions)
    else:
        check_picture(out, only)
    for one, other, given in (
        ("--only curve", "--regions", only == "curve" and regions),
        ("--plain", "--regions", plain and regions),
        ("--only", "--rank", rank and only is not None),
        ("--plain", "--nonnegative", plain and estimates.nonnegative),
        ("--rank", "a folder", folder and rank),
        ("--only", "a folder", folder and only is not None),
        ("--axes", "a folder", folder and axes != "km"),
        ("--between", "one release", not folder and between is not None),
        ("--per area", "the lines of --regions", folder and regions and per == "area"),
        ("--context", "the lines of --regions", folder and regions and context),
    ):
        if given:
            raise InputError(f"{one} is given with {other}: they do not go together; leave one of them out")
    if rank and not regions:
        raise InputError("--rank is given without --regions: it is the order of regions")
    console.check_target(out, release, zones.regions, *(context or ()))
    if is_folder(release):
        series = open_series(release)
        series = series if between is None else series.between(*between)
        look: dict[str, Any] = {"plain": plain, "nonnegative": estimates.asked, "title": title}
        look["context"] = [read_geometries(file, series.domain, "--context") for file in context or ()]
        zoned = zones.read(series.domain)
        if zoned is not None:
            look["ask"] = asker(series.domain, zoned, nonnegative=estimates.nonnegative)
        save_series(series, out, per="cell" if per == "region" else "area", **look)
        console.note(f"wrote {out}")
        return
    per = per or "area"
    published = open_release(release, estimates.nonnegative)
    domain = published.domain
    if axes == "degrees" and domain.crs is None:
        raise InputError("--axes is 'degrees', but the map is a plane without a CRS: it must be 'km'")
    ways: dict[str, Any] = {
        "per": "cell" if per == "region" and not regions else per,
        "context": [read_geometries(file, domain, "--context", choosable=False) for file in context or ()],
        "axes": axes,
        "title": title,
    }
    asked = zones.read(domain)
    if asked is not None:
        order: Any = rank
        if rank and per == "area":
            order = region_areas(domain, shapes_on_map(asked, domain))
        ways["answers"] = answer(published, asked, nonnegative=estimates.nonnegative, rank=order)
    elif only != "curve" and not plain:
        estimates.note(published)
    save_picture(published, out, only, plain=plain, nonnegative=estimates.asked, **ways)
    console.note(f"wrote {out}")
