"""`deltahist plot`: the map of a release, and its protection by distance."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from deltahist.cli import console
from deltahist.cli.groups import Estimates, ReleaseFile, Zones, open_release
from deltahist.cli.options import flag, option
from deltahist.errors import InputError

if TYPE_CHECKING:
    from deltahist.space.domain import Domain


@dataclass(frozen=True, kw_only=True)
class _PictureOptions:
    """The look of a picture."""

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
        """Return keywords of `save_picture`."""
        from deltahist.space.geometries import read_geometries

        per = self.per if regions or self.per == "area" else "cell"
        layers = [read_geometries(file, domain, "--context") for file in self.context or ()]
        return {"per": per, "context": layers, "axes": self.axes, "title": self.title}


@dataclass(frozen=True, kw_only=True)
class _Zones(Zones):
    regions: Annotated[
        Path | None, option("FILE", "Polygons: draw the answers for them, with intervals, instead of cells.")
    ] = None


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
    look: _PictureOptions,
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
