"""`deltahist query`, `inspect`, `plot` and `export`: what anybody can do with a release file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltahist.cli import console, options
from deltahist.errors import InputError

#: Cells from which on non-negative estimates take longer than people expect.
_PATIENCE = 100_000

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.releases import BaseRelease, Release


def _open(path: Path) -> BaseRelease:
    """A release of any kind, with a warning if it must not be published."""
    from deltahist.releases import load

    release = load(path)
    if not release.publishable:
        console.note(f"warning: {path} is not for publication: its noise came from a seeded generator")
    return release


def _of_counts(path: Path, command: str) -> Release:
    """A release of counts; other kinds have no cells of their own."""
    from deltahist.releases import Release

    release = _open(path)
    if not isinstance(release, Release):
        raise InputError(
            f"{path} holds no counts but {release.mechanism.words}, which `{command}` does not take: it must be a "
            "release of counts (`deltahist query` answers boxes and --quantiles from sorted points)"
        )
    return release


def query(
    release: options.ReleaseFile,
    box: options.Box = None,
    boxes: options.BoxFile = None,
    regions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Polygons (GeoJSON, GeoPackage, ...), projected to the release's CRS."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of --regions that names them. [default: name or id]"),
    ] = None,
    level: Annotated[str, typer.Option(metavar="L", help="Of the interval, between 0 and 1.")] = "0.95",
    nonnegative: options.NonNegative = False,
    quantiles: Annotated[
        str | None, typer.Option(metavar="Q,...", help="Of sorted points: quantiles instead of counts.")
    ] = None,
    layout: Annotated[
        str, typer.Option("--format", metavar="FORM", help="table, csv, json or geojson.")
    ] = "table",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to a file.")] = None,
) -> None:
    """How many points are in a box or a region: estimate, standard error and interval.

    Boxes are in the release's coordinates (`inspect` shows its bounds). Where a query cuts cells, `inner`
    and `outer` say how much it matters where in a cell its points lie; `unresolved` is the share of a query
    that the release did not measure.

    \b
    Examples:
      deltahist query city.parquet --box 583000,4505000,588000,4512000
      deltahist query city.parquet --box 583000,4505000,588000,4512000 --box 580000,4500000,590000,4510000
      deltahist query city.parquet --boxes boxes.csv --format csv --out answers.csv
      deltahist query city.parquet --regions zones.geojson --name zone --format geojson
      deltahist query ages.parquet --quantiles 0.25,0.5,0.75      # of a release made with --sorted
    """
    if layout not in ("table", "csv", "json", "geojson"):
        raise InputError(f"--format is {layout!r}: it must be table, csv, json or geojson")
    if bool(box or boxes) + bool(regions) + (quantiles is not None) != 1:
        raise InputError(
            "the question is missing or double: give --box or --boxes, or else --regions, or else --quantiles"
        )
    if name is not None and regions is None:
        raise InputError(f"--name is {name!r}, but it names --regions, which is missing")
    share = options.level_of(level)
    console.check_target(out, release, *filter(None, [boxes, regions]))
    published = _open(release)
    if quantiles is not None:
        console.put(_lay_out_quantiles(published, quantiles, share, layout), out)
        return
    if nonnegative:
        _note_patience(published)
    if regions is not None:
        frame, shapes = _answer_regions(published, regions, name, share, nonnegative)
    else:
        frame, shapes = _answer_boxes(published, box, boxes, share, nonnegative)
    console.put(_lay_out(frame, shapes, layout, published), out)


def _note_patience(release: BaseRelease) -> None:
    """Say that the nearest non-negative estimates of a large grid take their time."""
    if release.domain.size > _PATIENCE:
        console.note(
            f"finding non-negative estimates of {release.domain.size:,} cells: this can take minutes"
        )


def _answer_boxes(
    release: BaseRelease,
    box: list[str] | None,
    file: Path | None,
    level: float,
    nonnegative: bool,
) -> tuple[pd.DataFrame, Any]:
    from deltahist.answers import answer
    from deltahist.workloads import boxes

    corners, names = options.read_boxes(box, file, release.domain)
    frame = answer(release, boxes(corners), level=level, nonnegative=nonnegative)
    frame.insert(0, "name", names)
    return frame, corners


def _answer_regions(
    release: BaseRelease, file: Path, column: str | None, level: float, nonnegative: bool
) -> tuple[pd.DataFrame, Any]:
    from deltahist.answers import answer
    from deltahist.domain.geometries import read_geometries, region_names
    from deltahist.workloads import regions

    zones = read_geometries(file, release.domain, "--regions")
    names = region_names(zones, column, "--name")
    frame = answer(release, regions(zones.geometry, names), level=level, nonnegative=nonnegative).reset_index(
        drop=True
    )
    frame.insert(0, "name", names)
    return frame, zones.geometry.to_numpy()


def _lay_out(frame: pd.DataFrame, shapes: Any, layout: str, release: BaseRelease) -> str:
    """The answers as text; `shapes` are corners (m, 2 d) or polygons."""
    are_boxes = shapes.dtype != object
    if layout == "csv":
        if are_boxes:
            names = ["west", "south", "east", "north"] if shapes.shape[1] == 4 else ["low", "high"]
            for place, (corner, values) in enumerate(zip(names, shapes.T, strict=True), start=1):
                frame.insert(place, f"box_{corner}" if corner in frame.columns else corner, values)
        return str(frame.to_csv(index=False))
    if layout == "table":
        figures = [c for c in frame.columns if c != "name"]
        rows = zip(frame["name"], *(frame[c].map(_figure(c)) for c in figures), strict=True)
        return console.table(["name", *figures], list(rows))
    if layout == "geojson":
        from deltahist.domain.geometries import as_geojson

        if are_boxes:
            if release.domain.ndim == 1:
                raise InputError("--format is 'geojson': in one dimension it must be table, csv or json")
            import shapely

            shapes = shapely.box(*shapes.T)
        return as_geojson(shapes, frame, release.domain)
    records = frame.astype(object).where(frame.notna(), None).to_dict(orient="records")
    if are_boxes:
        records = [
            {"name": r.pop("name"), "box": corners, **r}
            for r, corners in zip(records, shapes.tolist(), strict=True)
        ]
    return json.dumps(records, indent=2, ensure_ascii=False)


def _lay_out_quantiles(release: BaseRelease, text: str, level: float, layout: str) -> str:
    from deltahist.releases import SortedRelease

    if not isinstance(release, SortedRelease):
        raise InputError(
            "--quantiles asks a release of sorted points (`deltahist publish --sorted`): this one holds counts"
        )
    if layout == "geojson":
        raise InputError("--format is 'geojson': for quantiles it must be table, csv or json")
    try:
        wanted = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--quantiles is {text!r}: it must be numbers between 0 and 1, separated by commas"
        ) from None
    frame = release.quantiles(wanted, level=level)
    if layout == "csv":
        return str(frame.to_csv(index=False))
    if layout == "json":
        return json.dumps(frame.to_dict(orient="records"), indent=2)
    rows = [[f"{q:g}", *(f"{v:,.6g}" for v in found)] for q, *found in frame.to_numpy().tolist()]
    return console.table(list(frame.columns), rows)


def _figure(column: str) -> Any:
    """How a column's figures are shown to people."""
    return (
        (lambda v: f"{v:.1%}" if v == v else "unknown") if column == "unresolved" else (lambda v: f"{v:,.1f}")
    )


def inspect(
    release: options.ReleaseFile,
    as_json: Annotated[bool, typer.Option("--json", help="The same as data.")] = False,
) -> None:
    """Print the privacy statement of a release: who is protected, how well, at which distance.

    \b
    Examples:
      deltahist inspect city.parquet
      deltahist inspect city.parquet --json
    """
    published = _open(release)
    if as_json:
        console.put(json.dumps(published.facts(), indent=2, ensure_ascii=False), None)
    else:
        console.put(published.statement(), None)


def plot(
    release: options.ReleaseFile,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The picture: .png, .svg or .pdf.")],
    only: Annotated[str | None, typer.Option(metavar="PART", help="map or curve, instead of both.")] = None,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain", help="Every cell's own estimate, instead of merging cells lost in the noise."
        ),
    ] = False,
    nonnegative: options.NonNegative = False,
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
    published = _open(release)
    if nonnegative:
        _note_patience(published)
    save_picture(published, out, only, plain=plain, nonnegative=nonnegative)
    console.note(f"wrote {out}")


def export(
    release: options.ReleaseFile,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help=".parquet (GeoParquet), .geojson, .csv, or .tif (needs the extra geotiff)."
        ),
    ],
    nonnegative: options.NonNegative = False,
) -> None:
    """Write every cell with its place, estimate and standard error, for other programs.

    \b
    Examples:
      deltahist export city.parquet --out cells.geojson     # in longitude and latitude, as GeoJSON must be
      deltahist export city.parquet --out cells.csv
      deltahist export city.parquet --out cells.tif         # GeoTIFF: band 1 estimate, band 2 standard error
    """
    from deltahist.releases.export import check_form, export as write

    check_form(out)
    console.check_target(out, release)
    published = _of_counts(release, "export")
    if nonnegative:
        _note_patience(published)
    write(published, out, nonnegative=nonnegative)
    console.note(f"wrote {out}")
