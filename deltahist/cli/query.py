"""`deltahist query`: answers from a release, a file or at a service, to boxes, regions and quantiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from deltahist._objects import is_stored_file
from deltahist.cli import console
from deltahist.cli.groups import PUBLISHED, Zones, is_folder, open_release, open_series, warn_of
from deltahist.cli.options import (
    corners,
    decimal,
    flag,
    listed,
    option,
    read_boxes,
)
from deltahist.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.releases import Series
    from deltahist.releases.sums import Difference
    from deltahist.space.domain import Domain

#: Columns of answers, in a frame or by their names.
Table: TypeAlias = "pd.DataFrame | dict[str, Any]"
Form = Literal["table", "csv", "json", "geojson", "parquet", "gpkg"]
#: How columns of a table are shown, and values that are missing.
_SHOWN: dict[str, Callable[[Any], str]] = {
    "name": str,
    "step": str,
    "steps": "{:,}".format,
    "rank": "{:.0f}".format,
    "above_next": lambda sure: ">99.9%" if sure > 0.999 else f"{sure:.1%}",
    "q": "{:g}".format,
    "cut": "{:.0%}".format,
    "unresolved": "{:.1%}".format,
    "note": str,
}
_GAPS = {"name": "", "note": "", "unresolved": "unknown"}


@dataclass(frozen=True, kw_only=True)
class QueryOptions(Zones):
    """The question: boxes, regions, or quantiles of sorted points."""

    box: list[Any] | None = option(
        "W,S,E,N", "A box, in the release's coordinates or in degrees; may be repeated.", corners, several=True
    )
    boxes: Path | None = option(
        "FILE.csv", "Boxes: columns west,south,east,north (1-D: low,high) and maybe name."
    )
    quantiles: Any = option("Q,...", "Of sorted points: quantiles instead of counts.", listed(decimal))

    def __post_init__(self) -> None:
        if bool(self.box or self.boxes) + bool(self.regions) + (self.quantiles is not None) != 1:
            raise InputError(
                "the question is missing or double: give --box or --boxes, or else --regions, or else --quantiles"
            )
        super().__post_init__()

    def table(
        self, domain: Domain, ask: Callable[[Any], Table], rank: Callable[..., dict[str, Any]] | None = None
    ) -> Table:
        """Return a row for each thing asked, with its name, its own columns and its answer; a GeoDataFrame of regions.

        With `rank` (`rank_answers`) rows are in order; regions come in order from `ask`.

        Where there are several answers to each, such as one per step, all of them stand one after another. Boxes on the
        map need no frame: pandas takes longer to import than such answers to work out.
        """
        import numpy as np

        from deltahist import workloads
        from deltahist.space.fitting import boxes_in_degrees, fit
        from deltahist.space.geometries import LONGITUDE_LATITUDE

        zones = self.read(domain)
        if zones is not None:
            return ask(zones)
        sides, names = read_boxes(self.box, self.boxes, domain)
        own = {"name": np.array(names, dtype=object), **dict(zip(_corners(domain), sides.T, strict=True))}
        shapes, fitted = boxes_in_degrees(sides, domain), None
        if shapes is not None:
            own["geometry"], fitted = shapes, fit(shapes, domain, LONGITUDE_LATITUDE)
        work = workloads.boxes(sides) if fitted is None else workloads.regions(fitted.shapes[fitted.held])
        found = {str(name): np.asarray(each) for name, each in ask(work).items()}
        if rank is not None:
            found |= rank(work, found)
        if fitted is not None:
            found = fitted.spread_over_regions(found)
        times = len(found["estimate"]) // len(names)
        table = {name: np.tile(each, times) for name, each in own.items()} | found
        if rank is not None:
            order = np.argsort(table.pop("order"), kind="stable")  # what has no answer comes last
            table = {name: each[order] for name, each in table.items()}
        return table


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """The steps of a folder that are asked, and how they are summed up."""

    between: tuple[str, str] | None = option(
        "FIRST LAST", "Of a folder: the steps from FIRST to LAST, both included. [default: all]"
    )
    compare: tuple[str, str] | None = option(
        "FIRST LAST", "Of a folder: another period; the answers are the change from it."
    )
    each: bool = flag("Of a folder: a row for each step, instead of their sum.")
    mean: bool = flag("Of a folder: the mean per step, instead of the sum.")
    missing: Literal["stop", "skip"] = option(
        "HOW",
        "Of a folder: stop if a step has no release, or skip it; it is never taken for empty.",
        default="stop",
    )

    def refuse_for(self, release: Path | str) -> None:
        """Raise InputError if an option is about steps, but the release is a single one."""
        for name, value in vars(self).items():
            if value not in (None, False, "stop"):
                raise InputError(
                    f"--{name} is given, but {str(release)!r} is one release: it goes with a folder that `deltahist "
                    "stream` wrote"
                )

    def choose(self, series: Series, *, nonnegative: bool, rank: bool) -> Series | Difference:
        """Return the steps that are asked, or the change between two periods; of --each step by itself if that is."""
        for one, other, given in (
            ("--each", "--mean", self.each and self.mean),
            ("--each", "--compare", self.each and self.compare is not None),
            ("--nonnegative", "--compare", nonnegative and self.compare is not None),
            ("--rank", "--each", rank and self.each),
            ("--rank", "--compare", rank and self.compare is not None),
        ):
            if given:
                raise InputError(f"{one} is given with {other}: it must be one of them")
        period = self._period(series, self.between)
        if self.each:
            return period
        period = self._without_gaps(period)
        if self.compare is None:
            return period
        change = period.change_from(self._without_gaps(self._period(series, self.compare)))
        before, after = len(change.before.releases), len(change.after.releases)
        if before != after and not self.mean:
            console.note(
                f"note: the periods have {before:,} and {after:,} steps, and sums are compared: --mean compares "
                "means per step"
            )
        return change

    def _period(self, series: Series, ends: tuple[str, str] | None) -> Series:
        """Return a part of the series; note the steps that are missing."""
        period = series if ends is None else series.between(*ends)
        if period.missing and (self.each or self.missing == "skip"):
            console.note(f"note: steps without a release, {len(period.missing):,}: {', '.join(period.missing_words)}")
        period = period.present() if self.missing == "skip" else period
        return period.per_step() if self.mean else period

    def _without_gaps(self, period: Series) -> Series:
        """Return a period; InputError if a step is missing and may not be skipped."""
        try:
            period.summed  # noqa: B018
        except InputError as problem:
            raise InputError(f"{problem} (--missing skip leaves them out)") from None
        return period


def query(
    *,
    release: Path | str = PUBLISHED,
    question: QueryOptions,
    steps: StepOptions,
    level: float = option("L", "Of the interval, between 0 and 1.", decimal, default=0.95),
    nonnegative: bool = flag(
        "Answer from non-negative estimates: usually nearer to the truth where many cells are empty, no longer "
        "unbiased; the answers say so."
    ),
    rank: bool = flag(
        "Rows in order, the largest estimate first, and how sure it is that each is above the next; neighbours that "
        "are less sure than --level share a rank."
    ),
    form: Form | None = option(
        "FORM",
        "table, csv, json, geojson, parquet or gpkg. [default: what --out says, or table]",
        names="--format",
    ),
    out: Path | None = option(
        "FILE", "Write to a file: .csv, .json, .geojson, .parquet, .gpkg or .txt (a table)."
    ),
) -> None:
    """Count the points in boxes or regions: estimate, standard error and interval.

    Boxes are in the release's coordinates (`statement` shows its bounds), or in longitude and latitude. The standard
    error and the interval cover the noise and, where a query cuts cells, where in them the points lie (all forms but
    the table have both parts); `cut` is the share of its area in such cells, `inner` and `outer` the answers with all
    their points outside or inside. `unresolved` is the share of a query that the release did not measure.

    Regions are clipped to the map: `outside` is the share of a region's area beyond it. Rings that cross themselves are
    repaired. What has no area on the map keeps its row, without an answer; `note` says what was done, and why.

    Of a folder of `deltahist stream` the answers are sums over its steps, with the error of them together.

    With --rank `above_next` is the probability that a row is above the next, from the joint error of their difference.

    \b
    Examples:
      deltahist query city.parquet --box 583000,4505000,588000,4512000
      deltahist query city.parquet --box 583000,4505000,588000,4512000 --box 580000,4500000,590000,4510000
      deltahist query city.parquet --boxes boxes.csv --out answers.csv
      deltahist query city.parquet --regions zones.geojson --name zone --out answers.gpkg
      deltahist query city.parquet --regions atlas.gpkg --layer districts --format geojson
      deltahist query city.parquet --regions zones.geojson --name zone --rank
      deltahist query http://127.0.0.1:8000/releases/city --boxes boxes.csv     # of `deltahist serve`
      deltahist query ages.parquet --quantiles 0.25,0.5,0.75      # of a release made with --sorted
      deltahist query city/ --between 2010-05-01 2010-05-31 --regions zones.geojson     # of a folder: the sum
      deltahist query city/ --between 2010-06-01 2010-06-30 --compare 2010-05-01 2010-05-31 --mean --boxes boxes.csv
    """
    from deltahist.answers import answer, answer_each
    from deltahist.decode import check_level
    from deltahist.releases.export import SHAPED, describe_answers, facts_of
    from deltahist.releases.ranking import rank_answers
    from deltahist.space.workloads import Workload

    check_level(level)
    chosen = _form(form, out)
    console.check_target(out, release, question.boxes, question.regions)
    if rank and question.quantiles is not None:
        raise InputError("--rank is given with --quantiles: quantiles are in order already; leave it out")
    published: Any
    how: dict[str, Any] = {"level": level, "nonnegative": nonnegative}
    if is_folder(release) and question.quantiles is None:
        series = open_series(release)
        published = steps.choose(series, nonnegative=nonnegative, rank=rank)
    else:
        steps.refuse_for(release)
        # Joint errors of two answers are worked out here.
        if isinstance(release, str) and not is_stored_file(release) and question.quantiles is None and not rank:
            from deltahist.remote import connect

            published = connect(release)
            facts = published.facts()
            warn_of(release, facts.get("publishable") is True, facts.get("weak_protection"))
        else:
            published = open_release(release, nonnegative and question.quantiles is None)
    domain = published.domain

    def ask(asked: Any) -> Table:
        if steps.each:
            return answer_each(published, asked, **how)
        if isinstance(asked, Workload):
            return published.answers(asked, **how)
        return answer(published, asked, rank=rank, **how)

    if chosen in SHAPED and (domain.ndim == 1 or question.quantiles is not None):
        raise InputError(f"the form is {chosen!r}: in one dimension it must be table, csv, json or parquet")
    if question.quantiles is None:
        found = question.table(domain, ask, partial(rank_answers, published, **how) if rank else None)
    elif hasattr(published, "quantiles"):
        found = published.quantiles(question.quantiles, level=level)
    else:
        raise InputError(
            "--quantiles asks a release of sorted points (`deltahist publish --sorted`): this one holds counts"
        )
    # Of a folder the answers are of the steps that were asked, not of all.
    about = describe_answers(facts_of(published), dict(found), level)
    _deliver(found, domain, chosen, out, about, boxes=bool(question.box or question.boxes))


def _form(form: str | None, out: Path | None) -> str:
    """Choose the form by its option or by the suffix of a file; both must agree.

    >>> _form(None, Path("answers.gpkg")), _form(None, None), _form("json", Path("answers"))
    ('gpkg', 'table', 'json')
    """
    from deltahist.releases.export import TABLES

    forms = {**TABLES, ".txt": "table"}
    suggested = None if out is None else forms.get(out.suffix.lower())
    if form in ("parquet", "gpkg") and out is None:
        raise InputError(f"--format is {form!r}, which is not for terminals: add --out with a file")
    if form is not None and suggested not in (None, form) and (form, suggested) != ("geojson", "json"):
        raise InputError(
            f"--format is {form!r}, but --out is {str(out)!r}, which says {suggested}: leave --format out, or change "
            "the suffix"
        )
    if form is None and out is not None and suggested is None:
        raise InputError(
            f"--out is {str(out)!r}: its suffix must be one of {', '.join(forms)}, or --format must say the form"
        )
    return form or suggested or "table"


def _deliver(
    table: Table, domain: Domain, form: str, out: Path | None, about: dict[str, Any], *, boxes: bool
) -> None:
    """Write answers in a form, to a file or the terminal; answers to boxes have their corners in front."""
    from deltahist.releases.export import encode_table, explain_below, write_table

    if form == "table":
        console.put(f"{_text(table)}\n\n{explain_below(about)}", out)
        return
    import pandas as pd

    frame = pd.DataFrame(table) if isinstance(table, dict) else table
    frame = frame.astype({"rank": "Int64"}) if "rank" in frame else frame  # what has no answer has no rank
    frame = _with_boxes(frame, domain, form) if boxes else frame
    if out is not None:
        write_table(out, form, frame, about, domain)
        return
    console.put(encode_table(frame, form, domain, about).decode())
    if form == "csv":  # which has no place for it
        console.note(explain_below(about))


def _corners(domain: Domain) -> list[str]:
    """Return the columns of a box's corners; on a line, the columns of an interval's ends."""
    return ["west", "south", "east", "north"] if domain.ndim == 2 else ["box_low", "box_high"]


def _with_boxes(frame: pd.DataFrame, domain: Domain, form: str) -> pd.DataFrame:
    """Return answers to boxes as a form has them: corners in one value in JSON, shapes where they are wanted."""
    from deltahist.releases.export import SHAPED
    from deltahist.space.geometries import LONGITUDE_LATITUDE

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

    usual: Any = "{:,.6g}".format
    names = list(map(str, table))
    if "name" in table:
        hidden = ("noise_error", "placement_error", "estimator", "outside")
        names = ["name", *(c for c in COLUMNS if c in table and c not in hidden)]
        usual = "{:,.1f}".format
    columns = [
        [
            _GAPS.get(name, "-") if value != value or value is None else _SHOWN.get(name, usual)(value)
            for value in table[name]
        ]
        for name in names
    ]
    return console.table(names, zip(*columns, strict=True), words=["note"])
