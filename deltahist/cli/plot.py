"""`deltahist plot`: the map of a release, and its protection by distance."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from deltahist.cli import console
from deltahist.cli.groups import RELEASE, Estimates, Zones, open_release
from deltahist.cli.options import flag, option
from deltahist.errors import InputError


@dataclass(frozen=True, kw_only=True)
class _Zones(Zones):
    regions: Path | None = option("FILE", "Polygons: draw the answers for them, with intervals, instead of cells.")


def plot(
    *,
    release: Path | str = RELEASE,
    out: Path = option("FILE", "The picture: .png, .svg or .pdf.", default=...),
    zones: _Zones,
    only: str | None = option("PART", "One part alone, such as map or curve."),
    plain: bool = flag("Every cell's own unbiased estimate, instead of merging cells lost in the noise."),
    estimates: Estimates,
    per: Literal["area", "region"] = option(
        "WHAT",
        "area: points per km², so that large regions do not stand out by size; region (or cell).",
        default="area",
    ),
    context: list[Path] | None = option("FILE", "Geometries drawn thin and grey, such as roads; may be repeated."),
    axes: Literal["km", "degrees"] = option("UNIT", "km (easting and northing) or degrees.", default="km"),
    title: str | None = option("TEXT", "Stands above. [default: what is drawn]"),
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
    from deltahist.space.geometries import read_geometries

    check_picture(out, only)
    regions = zones.regions is not None
    for one, other, given in (
        ("--only curve", "--regions", only == "curve" and regions),
        ("--plain", "--regions", plain and regions),
        ("--plain", "--nonnegative", plain and estimates.nonnegative),
    ):
        if given:
            raise InputError(f"{one} is given with {other}: they do not go together; leave one of them out")
    console.check_target(out, release, zones.regions, *(context or ()))
    published = open_release(release, estimates.nonnegative)
    domain = published.domain
    if axes == "degrees" and domain.crs is None:
        raise InputError("--axes is 'degrees', but the map is a plane without a CRS: it must be 'km'")
    ways: dict[str, Any] = {
        "per": "cell" if per == "region" and not regions else per,
        "context": [read_geometries(file, domain, "--context") for file in context or ()],
        "axes": axes,
        "title": title,
    }
    asked = zones.read(domain)
    if asked is not None:
        ways["answers"] = answer(published, asked, nonnegative=estimates.nonnegative)
    elif only != "curve" and not plain:
        estimates.note(published)
    save_picture(published, out, only, plain=plain, nonnegative=estimates.asked, **ways)
    console.note(f"wrote {out}")
