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
    out: Path = option("FILE", "The picture: .png, .svg or .pdf.", default=...),
    zones: _Zones,
    only: Literal["map", "curve"] | None = option("PART", "Draw one part alone."),
    estimates: Estimates,
    hatch: bool = flag("Hatch cells that do not stand out from the noise, all cells considered at once."),
    per: Literal["area", "region"] = option(
        "WHAT", "area: points per km², so that large regions do not stand out; region (or cell).", default="area"
    ),
    context: list[Path] | None = option("FILE", "Geometries drawn thin and grey, such as roads; may be repeated."),
    title: str | None = option("TEXT", "Title of the picture. [default: what is drawn]"),
    between: tuple[str, str] | None = option("FIRST LAST", "Of a folder: the steps from FIRST to LAST. [default: all]"),
) -> None:
    """Draw the published map and, below it, what protection is left at which distance.

    The map has unbiased estimates, merged until they stand out from the noise; with --nonnegative, every cell has its
    non-negative estimate. With --regions the map has a colour for each region, hatched
    where nothing stands out from the noise, and below it are all values with their intervals, as `query` gives them.
    The text below every picture states what was promised.

    A folder of `deltahist stream` becomes small maps of all steps, or, of more than 24, of longer periods; with
    --regions lines over time.

    \b
    Examples:
      deltahist plot city.parquet --out city.png
      deltahist plot city.parquet --regions districts.gpkg --context roads.gpkg --out districts.png
      deltahist plot city.parquet --regions districts.gpkg --per region --only map --out a.pdf
      deltahist plot city.parquet --unbiased --only map --out unbiased.png
      deltahist plot city/ --out year.png     # of a folder: small maps of its steps
      deltahist plot city/ --regions districts.gpkg --between 2010-05-01 2010-08-31 --out summer.png
    """
    from deltahist.answers import answer, asker
    from deltahist.plots import check_picture, save_picture, save_series
    from deltahist.space.geometries import read_geometries

    check_picture(out)
    console.check_target(out, release, zones.regions, *(context or ()))
    look: dict[str, Any] = {"title": title}
    if is_folder(release):
        if only or hatch or context:
            raise InputError("--only, --hatch and --context are for one release, not for a folder")
        series = open_series(release)
        series = series if between is None else series.between(*between)
        asked = zones.read(series.domain)
        if asked is not None:
            look["ask"] = asker(series.domain, asked, nonnegative=estimates.nonnegative)
        save_series(series, out, nonnegative=estimates.asked, per="cell" if per == "region" else per, **look)
    else:
        if between is not None:
            raise InputError("--between is for a folder, not for one release")
        published = open_release(release, estimates.nonnegative)
        asked = zones.read(published.domain)
        files = context or ()
        look["context"] = [read_geometries(file, published.domain, "--context", choosable=False) for file in files]
        if asked is None:
            look |= {"per": "cell" if per == "region" else per, "hatched": hatch, "nonnegative": estimates.asked}
        else:
            look |= {"per": per, "answers": answer(published, asked, nonnegative=estimates.nonnegative)}
        save_picture(published, out, only, **look)
    console.note(f"wrote {out}")
