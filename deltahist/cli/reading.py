"""`deltahist query`, `inspect`, `plot` and `export`: what anybody can do with a release file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from deltahist.cli import console, options
from deltahist.cli.groups import BoxFile, NonNegative, ReleaseFile, flag, option
from deltahist.errors import InputError

#: Cells from which on non-negative estimates take longer than people expect.
_PATIENCE = 100_000

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.domain import Domain
    from deltahist.releases import BaseRelease


def _open(path: Path, nonnegative: bool = False) -> BaseRelease:
    """A release of any kind; with a warning if it must not be published, or if it takes its time."""
    from deltahist.releases import load

    release = load(path)
    if not release.publishable:
        console.note(f"warning: {path} is not for publication: its noise came from a seeded generator")
    elif release.mechanism.weakness is not None:
        console.note(f"warning: {path} hardly protects anybody: {release.mechanism.weakness}")
    if nonnegative and release.domain.size > _PATIENCE:
        console.note(
            f"finding non-negative estimates of {release.domain.size:,} cells: this can take minutes"
        )
    return release


def query(
    release: ReleaseFile,
    box: Annotated[
        list[str] | None, option("W,S,E,N", "A box, in the release's coordinates; may be repeated.")
    ] = None,
    boxes: BoxFile = None,
    regions: Annotated[
        Path | None, option("FILE", "Polygons (GeoJSON, GeoPackage, ...), projected to the release's CRS.")
    ] = None,
    name: Annotated[
        str | None, option("COLUMN", "Column of --regions that names them. [default: name or id]")
    ] = None,
    level: Annotated[str, option("L", "Of the interval, between 0 and 1.")] = "0.95",
    nonnegative: NonNegative = False,
    quantiles: Annotated[
        str | None, option("Q,...", "Of sorted points: quantiles instead of counts.")
    ] = None,
    layout: Annotated[
        Literal["table", "csv", "json", "geojson"], option("FORM", "table, csv, json or geojson.", "--format")
    ] = "table",
    out: Annotated[Path | None, option("FILE", "Write to a file.")] = None,
) -> None:
    """How many points are in a box or a region: estimate, standard error and interval.

    Boxes are in the release's coordinates (`inspect` shows its bounds). The standard error and the
    interval cover the noise and, where a query cuts cells, where in them the points lie (csv and json have
    both parts); `cut` is the share of its area in such cells, `inner` and `outer` the answers with all their
    points outside or inside. `unresolved` is the share of a query that the release did not measure.

    \b
    Examples:
      deltahist query city.parquet --box 583000,4505000,588000,4512000
      deltahist query city.parquet --box 583000,4505000,588000,4512000 --box 580000,4500000,590000,4510000
      deltahist query city.parquet --boxes boxes.csv --format csv --out answers.csv
      deltahist query city.parquet --regions zones.geojson --name zone --format geojson
      deltahist query ages.parquet --quantiles 0.25,0.5,0.75      # of a release made with --sorted
    """
    from deltahist.answers import answer

    if bool(box or boxes) + bool(regions) + (quantiles is not None) != 1:
        raise InputError(
            "the question is missing or double: give --box or --boxes, or else --regions, or else --quantiles"
        )
    if name is not None and regions is None:
        raise InputError(f"--name is {name!r}, but it names --regions, which is missing")
    share = options.level_of(level)
    console.check_target(out, release, *filter(None, [boxes, regions]))
    published = _open(release, nonnegative and quantiles is None)
    if quantiles is not None:
        frame, shapes = _quantiles(published, quantiles, share), None
    else:
        work, names, shapes = _question(published.domain, box, boxes, regions, name)
        frame = answer(published, work, level=share, nonnegative=nonnegative).reset_index(drop=True)
        frame.insert(0, "name", names)
    console.put(_lay_out(frame, shapes, layout, published.domain), out)


def _question(
    domain: Domain, box: list[str] | None, boxes: Path | None, regions: Path | None, column: str | None
) -> tuple[Any, list[str], Any]:
    """Boxes or regions: the queries, their names, and their corners (m, 2 d) or polygons (m,)."""
    from deltahist import workloads
    from deltahist.domain.geometries import read_geometries, region_names

    if regions is None:
        corners, names = options.read_boxes(box, boxes, domain)
        return workloads.boxes(corners), names, corners
    zones = read_geometries(regions, domain, "--regions")
    names = region_names(zones, column, "--name")
    return workloads.regions(zones.geometry, names), names, zones.geometry.to_numpy()


def _quantiles(release: BaseRelease, text: str, level: float) -> pd.DataFrame:
    from deltahist.releases import SortedRelease

    if not isinstance(release, SortedRelease):
        raise InputError(
            "--quantiles asks a release of sorted points (`deltahist publish --sorted`): this one holds counts"
        )
    try:
        wanted = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--quantiles is {text!r}: it must be numbers between 0 and 1, separated by commas"
        ) from None
    return release.quantiles(wanted, level=level)


def _lay_out(frame: pd.DataFrame, shapes: Any, layout: str, domain: Domain) -> str:
    """The answers as text; `shapes` are corners (m, 2 d), polygons (m,), or None for quantiles."""
    are_boxes = shapes is not None and shapes.dtype != object
    if layout == "table":
        usual = "{:,.6g}".format if shapes is None else "{:,.1f}".format
        shown: dict[str, Any] = {
            "name": str,
            "q": "{:g}".format,
            "cut": "{:.0%}".format,
            "unresolved": lambda v: f"{v:.1%}" if v == v else "unknown",
        }
        # A line of a screen: the parts of the error are in the other formats.
        frame = frame.drop(columns=["noise_error", "placement_error"], errors="ignore")
        columns = [frame[str(column)].map(shown.get(str(column), usual)) for column in frame]
        return console.table(list(map(str, frame)), zip(*columns, strict=True))
    if layout == "csv":
        if are_boxes:
            names = ["west", "south", "east", "north"] if domain.ndim == 2 else ["low", "high"]
            for place, (corner, values) in enumerate(zip(names, shapes.T, strict=True), start=1):
                frame.insert(place, f"box_{corner}" if corner in frame.columns else corner, values)
        return str(frame.to_csv(index=False))
    if layout == "geojson":
        import shapely

        from deltahist.domain.geometries import as_geojson

        if domain.ndim == 1:
            raise InputError("--format is 'geojson': in one dimension it must be table, csv or json")
        return as_geojson(shapely.box(*shapes.T) if are_boxes else shapes, frame, domain)
    records = frame.astype(object).where(frame.notna(), None).to_dict(orient="records")
    if are_boxes:
        pairs = zip(records, shapes.tolist(), strict=True)
        records = [{"name": r.pop("name"), "box": corners, **r} for r, corners in pairs]
    return json.dumps(records, indent=2, ensure_ascii=False)


def inspect(
    release: ReleaseFile, as_json: Annotated[bool, flag("--json", "The same as data.")] = False
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
    published = _open(release, nonnegative)
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
    published = _open(release, nonnegative)
    if not isinstance(published, Release):
        raise InputError(
            f"{release} holds no counts but {published.mechanism.words}, which `export` does not take: it must be a "
            "release of counts (`deltahist query` answers boxes and --quantiles from sorted points)"
        )
    write(published, out, nonnegative=nonnegative)
    console.note(f"wrote {out}")
