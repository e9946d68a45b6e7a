"""`deltahist query`: answers from a release file to boxes, regions and quantiles, as tables and maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from deltahist.cli import console, options
from deltahist.cli.groups import BoxFile, NonNegative, Zones, open_release, option, spread
from deltahist.cli.series import ReleaseOrFolder, StepOptions
from deltahist.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.domain import Domain
    from deltahist.releases import BaseRelease

#: Columns of answers, in a frame or by their names.
Table: TypeAlias = "pd.DataFrame | dict[str, Any]"
Form = Literal["table", "csv", "json", "geojson", "parquet", "gpkg"]


@dataclass(frozen=True, kw_only=True)
class QueryOptions(Zones):
    """What is asked: boxes, regions, or quantiles of sorted points."""

    box: Annotated[
        list[str] | None,
        option("W,S,E,N", "A box, in the release's coordinates or in degrees; may be repeated."),
    ] = None
    boxes: BoxFile = None
    quantiles: Annotated[str | None, option("Q,...", "Of sorted points: quantiles instead of counts.")] = None

    def __post_init__(self) -> None:
        if bool(self.box or self.boxes) + bool(self.regions) + (self.quantiles is not None) != 1:
            raise InputError(
                "the question is missing or double: give --box or --boxes, or else --regions, or else --quantiles"
            )
        super().__post_init__()

    def table(self, domain: Domain, ask: Callable[[Any], Table]) -> Table:
        """Return a row for each thing asked, with its name, its own columns and its answer; a GeoDataFrame of regions.

        Where there are several answers to each, such as one per step, all of them stand one after another. Boxes on the
        map need no frame: pandas takes longer to import than such answers to work out.
        """
        import numpy as np

        from deltahist import workloads
        from deltahist.domain.fitting import boxes_in_degrees, fit
        from deltahist.domain.geometries import LONGITUDE_LATITUDE

        zones = self.read(domain)
        if zones is not None:
            return ask(zones)
        corners, names = options.read_boxes(self.box, self.boxes, domain)
        own = {"name": np.array(names, dtype=object), **dict(zip(_corners(domain), corners.T, strict=True))}
        shapes = boxes_in_degrees(corners, domain)
        fitted = None if shapes is None else fit(shapes, domain, LONGITUDE_LATITUDE)
        work = workloads.boxes(corners) if fitted is None else workloads.regions(fitted.shapes[fitted.held])
        found = {str(name): np.asarray(each) for name, each in ask(work).items()}
        if fitted is not None:
            own["geometry"], found = shapes, fitted.joined(found)
        times = len(found["estimate"]) // len(names)
        return {name: np.tile(each, times) for name, each in own.items()} | found


@spread
def query(
    *,
    release: ReleaseOrFolder,
    question: QueryOptions,
    steps: StepOptions,
    level: Annotated[str, option("L", "Of the interval, between 0 and 1.")] = "0.95",
    nonnegative: NonNegative = False,
    form: Annotated[
        Form | None,
        option(
            "FORM",
            "table, csv, json, geojson, parquet or gpkg. [default: what --out says, or table]",
            "--format",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option("FILE", "Write to a file: .csv, .json, .geojson, .parquet, .gpkg or .txt (a table)."),
    ] = None,
) -> None:
    """How many points are in a box or a region: estimate, standard error and interval.

    Boxes are in the release's coordinates (`inspect` shows its bounds), or in longitude and latitude. The standard
    error and the interval cover the noise and, where a query cuts cells, where in them the points lie (all forms but
    the table have both parts); `cut` is the share of its area in such cells, `inner` and `outer` the answers with all
    their points outside or inside. `unresolved` is the share of a query that the release did not measure.

    Regions are clipped to the map: `outside` is the share of a region's area beyond it. Rings that cross themselves are
    repaired. What has no area on the map keeps its row, without an answer; `note` says what was done, and why.

    Of a folder of `deltahist stream` the answers are sums over its steps, with the error of them together.

    \b
    Examples:
      deltahist query city.parquet --box 583000,4505000,588000,4512000
      deltahist query city.parquet --box 583000,4505000,588000,4512000 --box 580000,4500000,590000,4510000
      deltahist query city.parquet --boxes boxes.csv --out answers.csv
      deltahist query city.parquet --regions zones.geojson --name zone --out answers.gpkg
      deltahist query city.parquet --regions atlas.gpkg --layer districts --format geojson
      deltahist query ages.parquet --quantiles 0.25,0.5,0.75      # of a release made with --sorted
      deltahist query city/ --between 2010-05-01 2010-05-31 --regions zones.geojson     # of a folder: the sum
      deltahist query city/ --between 2010-06-01 2010-06-30 --compare 2010-05-01 2010-05-31 --mean --boxes boxes.csv
    """
    from deltahist.answers import answer, answers
    from deltahist.workloads import Workload

    share = options.level_of(level)
    chosen = _form(form, out)
    console.check_target(out, release, *filter(None, [question.boxes, question.regions]))
    if release.is_dir() and question.quantiles is None:
        series = steps.open(release)
        domain = series.domain
        ask: Callable[[Any], Table] = steps.asking(series, level=share, nonnegative=nonnegative)
    else:
        steps.refuse_for(release)
        published = open_release(release, nonnegative and question.quantiles is None)
        domain = published.domain

        def ask(asked: Any) -> Table:
            way: Callable[..., Table] = answers if isinstance(asked, Workload) else answer
            return way(published, asked, level=share, nonnegative=nonnegative)

    _check_shapes(chosen, domain, question)
    found: Table
    if question.quantiles is not None:
        found = _quantiles(published, question.quantiles, share)
    else:
        found = question.table(domain, ask)
    deliver(found, domain, chosen, out, boxes=bool(question.box or question.boxes))


def deliver(table: Table, domain: Domain, form: str, out: Path | None, *, boxes: bool) -> None:
    """Write answers in a form, to a file or the terminal; those to boxes have their corners in front."""
    if form == "table":
        console.put(_text(table), out)
        return
    import pandas as pd

    from deltahist.releases.tables import encode_table

    frame = pd.DataFrame(table) if isinstance(table, dict) else table
    if boxes:
        frame = _with_boxes(frame, domain, form)
    content = encode_table(frame, form, domain)
    if out is None:
        console.put(content.decode(), None)
    else:
        from deltahist._files import write_whole

        write_whole(out, lambda part: part.write_bytes(content))


def _form(form: str | None, out: Path | None) -> str:
    """The form that is asked for, by itself or by the suffix of a file; both must agree.

    >>> _form(None, Path("answers.gpkg")), _form(None, None), _form("json", Path("answers"))
    ('gpkg', 'table', 'json')
    """
    from deltahist.releases.tables import FORMS

    forms = {**FORMS, ".txt": "table"}
    said = None if out is None else forms.get(out.suffix.lower())
    if form in ("parquet", "gpkg") and out is None:
        raise InputError(f"--format is {form!r}, which is not for terminals: add --out with a file")
    if form is not None and said not in (None, form) and (form, said) != ("geojson", "json"):
        raise InputError(
            f"--format is {form!r}, but --out is {str(out)!r}, which says {said}: leave --format out, or change "
            "the suffix"
        )
    if form is None and out is not None and said is None:
        raise InputError(
            f"--out is {str(out)!r}: its suffix must be one of {', '.join(forms)}, or --format must say the form"
        )
    return form or said or "table"


def _check_shapes(form: str, domain: Domain, question: QueryOptions) -> None:
    """Raise InputError if a form needs shapes where there are none."""
    from deltahist.releases.tables import SHAPED

    if form in SHAPED and (domain.ndim == 1 or question.quantiles is not None):
        raise InputError(f"the form is {form!r}: in one dimension it must be table, csv, json or parquet")


def _corners(domain: Domain) -> list[str]:
    """Columns of a box's corners; on a line, `low` and `high` are those of the interval."""
    return ["west", "south", "east", "north"] if domain.ndim == 2 else ["box_low", "box_high"]


def _with_boxes(frame: pd.DataFrame, domain: Domain, form: str) -> pd.DataFrame:
    """Answers to boxes as a form has them: corners in one value in JSON, shapes where they are wanted."""
    from deltahist.domain.geometries import LONGITUDE_LATITUDE
    from deltahist.releases.tables import SHAPED

    # Boxes in degrees have their shapes with them.
    shapes = frame.pop("geometry") if "geometry" in frame else None
    corners = frame[_corners(domain)].to_numpy()
    if form == "json":
        frame = frame.drop(columns=_corners(domain))
        frame.insert(1, "box", corners.tolist())
    elif (form in SHAPED or form == "parquet") and domain.ndim == 2:
        import geopandas as gpd
        import shapely

        crs = domain.crs if shapes is None else LONGITUDE_LATITUDE
        frame = gpd.GeoDataFrame(frame, geometry=shapely.box(*corners.T) if shapes is None else shapes, crs=crs)
    return frame


def _quantiles(release: BaseRelease, text: str, level: float) -> pd.DataFrame:
    from deltahist.kinds import SortedRelease

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


def _text(table: Table) -> str:
    """The answers as a table for the eye: names and answers, and of counts not the parts of their errors."""
    from deltahist.answers import COLUMNS

    usual: Any = "{:,.6g}".format
    names = list(map(str, table))
    kinds = [each for each in dict.fromkeys(table["estimator"]) if each == each] if "estimator" in table else []
    if "name" in table:
        hidden = ("noise_error", "placement_error", "estimator", "outside")
        names = ["name", *(c for c in COLUMNS if c in table and c not in hidden)]
        usual = "{:,.1f}".format
    shown: dict[str, Any] = {
        "name": str,
        "step": str,
        "steps": "{:,}".format,
        "q": "{:g}".format,
        "cut": "{:.0%}".format,
        "unresolved": "{:.1%}".format,
        "note": str,
    }
    gaps = {"name": "", "note": "", "unresolved": "unknown"}
    columns = [
        [
            gaps.get(name, "-") if value != value or value is None else shown.get(name, usual)(value)
            for value in table[name]
        ]
        for name in names
    ]
    aligned = console.table(names, zip(*columns, strict=True), words=["note"])
    return "\n\nEstimates: ".join([aligned, *kinds])
