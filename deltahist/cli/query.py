"""`deltahist query`: answers from a release, a file or at a service, to boxes, regions and quantiles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from typer import Option

from deltahist._files import form_of
from deltahist._objects import is_stored_file
from deltahist.cli import console, shared
from deltahist.cli.console import note
from deltahist.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.releases import Series
    from deltahist.releases.sums import Difference
    from deltahist.space.domain import Domain

#: Columns of answers, in a frame or by their names.
Table: TypeAlias = "pd.DataFrame | dict[str, Any]"
#: How columns of a table are shown, and values that are missing.
_SHOWN: dict[str, Callable[[Any], str]] = {
    "name": str,
    "step": str,
    "steps": "{:,}".format,
    "q": "{:g}".format,
    "cut": "{:.0%}".format,
    "unresolved": "{:.1%}".format,
    "note": str,
    "rank": str,
}
_GAPS = {"name": "", "rank": "", "note": "", "unresolved": "unknown"}


def query(
    release: shared.Published,
    *,
    box: Annotated[
        list[Any] | None, Option(metavar="W,S,E,N", parser=shared.corners, help="A box (repeatable).")
    ] = None,
    boxes: Annotated[
        Path | None, Option(metavar="FILE", help="CSV: west,south,east,north (or low,high), name.")
    ] = None,
    regions: Annotated[Path | None, Option(metavar="FILE", help="Polygons. Answers keep their columns.")] = None,
    layer: shared.RegionLayer = None,
    name: shared.RegionName = None,
    quantiles: Annotated[
        Any, Option(metavar="Q,...", parser=shared.each(float), help="Quantiles of sorted points.")
    ] = None,
    between: Annotated[tuple[str, str] | None, Option(metavar="FIRST LAST", help="Of a folder: these steps.")] = None,
    compare: Annotated[tuple[str, str] | None, Option(metavar="FIRST LAST", help="Change from these steps.")] = None,
    overlapping: Annotated[bool, Option("--overlapping", help="Include steps that a period covers in part.")] = False,
    each: Annotated[bool, Option("--each", help="Of a folder: a row for each step, not their sum.")] = False,
    mean: Annotated[bool, Option("--mean", help="Of a folder: the mean per step, not the sum.")] = False,
    skip_missing: Annotated[bool, Option("--skip-missing", help="Of a folder: skip steps without a release.")] = False,
    level: Annotated[float, Option(metavar="L", help="Level of the interval.")] = 0.95,
    ranked: Annotated[bool, Option("--rank", help="Largest first. --level holds for all ranks together.")] = False,
    nonnegative: shared.Nonnegative = False,
    form: Annotated[
        Literal["table", "csv", "json", "geojson"] | None, Option("--format", help="[default: by --out, or table]")
    ] = None,
    out: Annotated[
        Path | None, Option("--out", "-o", metavar="FILE", help=".csv, .json, .geojson, .parquet, .gpkg or .txt.")
    ] = None,
) -> None:
    """Count the points in boxes or regions: estimate, standard error and interval.

    Boxes are in the release's coordinates (`statement` shows its bounds), or in longitude and latitude. The standard
    error covers the noise and, where a query cuts cells, the unknown places of points in them. `cut` is the share of
    the area in such cells, `unresolved` the share that the release did not measure. Regions are clipped to the map, and
    `outside` is the share of their area beyond it. Answers of a folder are sums over its steps.

    
    Examples:
      deltahist query city.parquet --box 583000,4505000,588000,4512000
      deltahist query city.parquet --boxes boxes.csv --out answers.csv
      deltahist query city.parquet --regions zones.geojson --name zone --out answers.gpkg
      deltahist query http://127.0.0.1:8000/releases/city --boxes boxes.csv     # of `deltahist serve`
      deltahist query city.parquet --regions zones.geojson --name zone --rank
      deltahist query ages.parquet --quantiles 0.25,0.5,0.75      # of `deltahist sorted`
      deltahist query city/ --between 2010-06-01 2010-06-30 --compare 2010-05-01 2010-05-31 --mean --boxes boxes.csv
    """
    from deltahist.answers import answer, answer_each, rank
    from deltahist.decode import check_level
    from deltahist.exports import SHAPED, TABLES, describe_answers, facts_of
    from deltahist.space.workloads import Workload

    if bool(box or boxes) + (regions is not None) + (quantiles is not None) != 1:
        raise InputError("give --box or --boxes, or else --regions, or else --quantiles")
    check_level(level)
    chosen = form or ("table" if out is None else form_of(out, {**TABLES, ".txt": "table"}))
    console.check_target(out, release, boxes, regions)
    if ranked and (nonnegative or quantiles is not None):
        raise InputError("--rank excludes --nonnegative and --quantiles")
    if (each and (mean or compare)) or (nonnegative and compare):
        raise InputError("--each excludes --mean and --compare, and --compare excludes --nonnegative")
    published: Any
    how: dict[str, Any] = {"level": level, "nonnegative": nonnegative}
    if shared.is_folder(release) and quantiles is None:
        whole = shared.open_series(release)
        published = _choose_steps(whole, between, compare, overlapping, each, mean, skip_missing)
    else:
        if between or compare or overlapping or each or mean or skip_missing:
            raise InputError(
                f"{str(release)!r} is one release: --between, --compare, --overlapping, --each, --mean and "
                "--skip-missing require a folder of `deltahist stream`"
            )
        if isinstance(release, str) and not is_stored_file(release) and quantiles is None:
            from deltahist.remote import connect

            published = connect(release)
            facts = published.stated_facts
            shared.warn_of(release, facts.get("publishable") is True, facts.get("weak_protection"))
        else:
            published = shared.open_release(release)
    domain = published.domain
    if chosen in SHAPED and (domain.ndim == 1 or quantiles is not None):
        raise InputError(f"--out is {str(out)!r}: in one dimension it must be .csv, .json, .parquet or .txt")
    if quantiles is not None and not hasattr(published, "quantiles"):
        raise InputError("--quantiles requires a release of sorted points (`deltahist sorted`)")

    def ask(asked: Any) -> Table:
        if ranked:
            return rank(published, asked, level=level)
        if each:
            return answer_each(published, asked, **how)
        if isinstance(asked, Workload):
            return published.answers(asked, **how)
        return answer(published, asked, **how)

    if quantiles is not None:
        found = published.quantiles(quantiles, level=level)
    elif regions is not None:
        zones = shared.read_zones(regions, layer, name, domain)
        with console.show_progress("Answering …"):
            found = ask(zones)
    else:
        found = _ask_boxes(box, boxes, domain, ask)
    if ranked:
        import pandas as pd

        table = pd.DataFrame(found) if isinstance(found, dict) else found
        found = table.sort_values("estimate", ascending=False, na_position="last", ignore_index=True)
    # Of a folder the answers are of the steps that were asked, not of all.
    about = describe_answers(facts_of(published), dict(found), level)
    _deliver(found, domain, chosen, out, about, boxes=bool(box or boxes))


def _choose_steps(
    series: Series,
    between: tuple[str, str] | None,
    compare: tuple[str, str] | None,
    overlapping: bool,
    each: bool,
    mean: bool,
    skip_missing: bool,
) -> Series | Difference:
    """Return the steps that are asked, or the change between two periods."""

    def period(ends: tuple[str, str] | None) -> Series:
        found = series if ends is None else series.between(*ends, overlapping=overlapping)
        note(f"note: steps {found.labels[0]} to {found.labels[-1]}")
        if found.missing and (each or skip_missing):
            note(f"note: steps without a release, {len(found.missing):,}: {', '.join(found.describe_missing())}")
        found = found.present() if skip_missing else found
        found = found.per_step() if mean else found
        if not each:
            found.summed  # noqa: B018 - refuses a step without a release
        return found

    if compare is None:
        return period(between)
    change = period(between).change_from(period(compare))
    before, after = len(change.before.releases), len(change.after.releases)
    if before != after and not mean:
        note(f"note: sums of {before:,} and {after:,} steps are compared: --mean compares means per step")
    return change


def _ask_boxes(box: list[Any] | None, file: Path | None, domain: Domain, ask: Callable[[Any], Table]) -> Table:
    """Return a row for each box, with its name, its corners and its answer.

    Several answers to each, such as one per step, follow one another. Boxes on the map need no frame, as importing
    pandas takes longer than answering.
    """
    import numpy as np

    from deltahist import workloads
    from deltahist.answers import note_cut
    from deltahist.space.crs import LONGITUDE_LATITUDE
    from deltahist.space.geometries import boxes_in_degrees, fit

    sides, names = shared.read_boxes(box, file, domain)
    own = {"name": np.array(names, dtype=object), **dict(zip(_corners(domain), sides.T, strict=True))}
    shapes, fitted = boxes_in_degrees(sides, domain), None
    if shapes is not None:
        own["geometry"], fitted = shapes, fit(shapes, domain, LONGITUDE_LATITUDE)
    work = workloads.boxes(sides) if fitted is None else workloads.regions(fitted.shapes[fitted.held])
    found = {str(name): np.asarray(each) for name, each in ask(work).items()}
    if fitted is not None:
        found = fitted.spread_over_regions(found)
    found = note_cut(found)
    times = len(found["estimate"]) // len(names)
    return {name: np.tile(each, times) for name, each in own.items()} | found


def _deliver(table: Table, domain: Domain, form: str, out: Path | None, about: dict[str, Any], *, boxes: bool) -> None:
    """Write answers in a form, to a file or the terminal; answers to boxes have their corners in front."""
    from deltahist.exports import encode_table, explain_below, write_table

    if form == "table":
        console.put(f"{_text(table)}\n\n{explain_below(about)}", out)
        return
    import pandas as pd

    frame = pd.DataFrame(table) if isinstance(table, dict) else table
    frame = _with_boxes(frame, domain, form) if boxes else frame
    if out is not None:
        write_table(out, form, frame, about, domain)
        return
    console.put(encode_table(frame, form, domain, about).decode())


def _corners(domain: Domain) -> list[str]:
    """Return the columns of a box's corners; on a line, the columns of an interval's ends."""
    return ["west", "south", "east", "north"] if domain.ndim == 2 else ["box_low", "box_high"]


def _with_boxes(frame: pd.DataFrame, domain: Domain, form: str) -> pd.DataFrame:
    """Return answers to boxes as a form has them: corners in one value in JSON, shapes where they are wanted."""
    from deltahist.exports import SHAPED
    from deltahist.space.crs import LONGITUDE_LATITUDE

    # Boxes in degrees have their shapes with them.
    shapes = frame.pop("geometry") if "geometry" in frame else None
    sides = frame[_corners(domain)].to_numpy()
    if form == "json":
        frame = frame.drop(columns=_corners(domain))
        frame.insert(1, "box", sides.tolist())
    elif (form in SHAPED or form == "parquet") and domain.ndim == 2:
        import geopandas as gpd
        import shapely

        crs = domain.crs if shapes is None else LONGITUDE_LATITUDE
        frame = gpd.GeoDataFrame(frame, geometry=shapely.box(*sides.T) if shapes is None else shapes, crs=crs)
    return frame


def _text(table: Table) -> str:
    """Render answers as a table for the eye, without the parts of the errors of counts."""
    from deltahist.answers import COLUMNS

    usual: Any = "{:z,.6g}".format
    names = list(map(str, table))
    if "name" in table:
        hidden = ("noise_error", "placement_error", "estimator", "outside")
        names = ["name", *(c for c in COLUMNS if c in table and c not in hidden)]
        usual = "{:z,.1f}".format
    columns = [
        [
            _GAPS.get(name, "-") if value != value or value is None else _SHOWN.get(name, usual)(value)
            for value in table[name]
        ]
        for name in names
    ]
    return console.table(names, zip(*columns, strict=True), words=["note"])
