"""`deltahist statement`, `plot` and `export`: a release as text, as a picture, and as a file for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from deltahist.cli import shared
from deltahist.cli.console import check_target, note, put, put_json
from deltahist.errors import InputError


def statement(
    release: shared.Published,
    *,
    out: Annotated[Path | None, Option("--out", "-o", metavar="FILE", help=".html, .md or .txt.")] = None,
    title: shared.Title = None,
    as_json: shared.AsJson = False,
) -> None:
    """Print the privacy statement of a release, or write it as a page with --out.

    It says whether the release may be published, who is protected and how strongly at which distance, how rows were
    prepared, and how to use the figures. The statement of a folder of `deltahist stream` covers all steps and their
    cost together.

    \b
    Examples:
      deltahist statement city.parquet
      deltahist statement city.parquet --out statement.html --title "Check-ins in New York, 2010"
      deltahist statement city/ --out year.html     # of a folder
    """
    from deltahist._files import form_of
    from deltahist.statement import list_facts, save_statement, write_statement
    from deltahist.statement.page import FORMS

    if out is not None:
        form_of(out, FORMS)
        check_target(out, release)
    folder = shared.is_folder(release)
    published = shared.open_series(release) if folder else shared.open_release(release, refuse_withdrawn=False)
    if as_json:
        put_json(list_facts(published))
    elif out is None:
        put(write_statement(published, title=title))
    else:
        save_statement(published, out, title)
        note(f"wrote {out}")


def plot(
    release: shared.Published,
    *,
    out: Annotated[Path, Option("--out", "-o", metavar="FILE", help="A .png, .svg or .pdf.")],
    regions: Annotated[Path | None, Option(metavar="FILE", help="Draw answers of these polygons.")] = None,
    layer: shared.RegionLayer = None,
    name: shared.RegionName = None,
    only: Annotated[Literal["map", "curve"] | None, Option(help="Draw one part alone.")] = None,
    nonnegative: shared.Nonnegative = False,
    per: Annotated[Literal["area", "region"], Option(help="Points per km², or per region (or cell).")] = "area",
    context: Annotated[list[Path] | None, Option(metavar="FILE", help="Geometries drawn thin and grey.")] = None,
    title: shared.Title = None,
    between: Annotated[tuple[str, str] | None, Option(metavar="FIRST LAST", help="Of a folder: these steps.")] = None,
) -> None:
    """Draw the published map and, below it, the protection that is left at each distance.

    The map has unbiased estimates, merged where they do not differ from their surroundings; with --nonnegative, every
    cell has its non-negative estimate. What may be empty is grey. With --regions the map has a colour for each region,
    hatched where it does not stand out from the noise, and below it are all values with their intervals. The text below
    states the guarantee.

    A folder of `deltahist stream` becomes lines over time for --regions.

    \b
    Examples:
      deltahist plot city.parquet --out city.png
      deltahist plot city.parquet --regions districts.gpkg --context roads.gpkg --out districts.png
      deltahist plot city/ --regions districts.gpkg --between 2010-05-01 2010-08-31 --out summer.png
    """
    from deltahist.answers import answer, asker
    from deltahist.plots import check_picture, draw_lines, ground, save_picture
    from deltahist.space.geometries import read_geometries

    check_picture(out)
    check_target(out, release, regions, *(context or ()))
    look: dict[str, Any] = {"title": title}
    if shared.is_folder(release):
        if only or context or regions is None:
            raise InputError("a folder requires --regions, and takes no --only or --context")
        series = shared.open_series(release)
        series = series if between is None else series.between(*between)
        asked = shared.read_zones(regions, layer, name, series.domain)
        figure = draw_lines(series, asker(series.domain, asked, nonnegative=nonnegative), title=title)
        ground.write_figure(figure, out)
    else:
        if between is not None:
            raise InputError("--between is for a folder, not for one release")
        published: Any = shared.open_release(release)
        asked = shared.read_zones(regions, layer, name, published.domain)
        files = context or ()
        look["context"] = [read_geometries(file, published.domain, "--context") for file in files]
        if asked is None:
            look |= {"per": "cell" if per == "region" else per, "nonnegative": nonnegative}
        else:
            look |= {"per": per, "answers": answer(published, asked, nonnegative=nonnegative)}
        save_picture(published, out, only, **look)
    note(f"wrote {out}")


def export(
    release: shared.Release,
    *,
    out: Annotated[Path, Option("--out", "-o", metavar="FILE", help=".gpkg, .parquet, .geojson, .csv or .tif.")],
    nonnegative: shared.Nonnegative = False,
    blocks: Annotated[Any, Option(metavar="N,...", parser=shared.each(int), help="Also sums over N × N cells.")] = None,
) -> None:
    """Write every cell with its place, estimate and standard error, for other programs.

    Estimates are unbiased, as the answers of `query` are, so that some are negative. With --nonnegative none is. Each
    file says which it has. `stands_out` marks rows that surely hold points, all of them tested together. Standard
    errors of cells do not add up to that of a sum: --blocks writes sums with errors of their own, as layers of a
    GeoPackage, or as further rows that the column `block` marks.

    \b
    Examples:
      deltahist export city.parquet --out cells.gpkg
      deltahist export city.parquet --out cells.geojson     # in longitude and latitude, as GeoJSON must be
      deltahist export city.parquet --out cells.tif         # GeoTIFF: band 1 estimate, band 2 standard error
      deltahist export city.parquet --nonnegative --blocks 2,4,8 --out cells.parquet
    """
    from deltahist.exports import check_form, export as write
    from deltahist.releases import Release

    check_form(out, blocks=bool(blocks))
    check_target(out, release)
    published = shared.open_release(release)
    if not isinstance(published, Release):
        raise InputError(f"{release} holds {published.mechanism.words}: export takes a release of counts")
    write(published, out, nonnegative=nonnegative, blocks=blocks or ())
    note(f"wrote {out}")
