"""`deltahist query`, `statement`, `plot` and `export`: answers, text, pictures and cells from a release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from typer import Option

from deltahist.cli import check_target, format_table, options, print_note, show_progress, write_json, write_text
from deltahist.cli.options import File, OutFile, Period, require

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.releases import Series
    from deltahist.space.domain import Domain

#: Answers as a frame, or as a dictionary of columns.
Answers: TypeAlias = "pd.DataFrame | dict[str, Any]"
Steps: TypeAlias = tuple[str, str] | None


def query(
    release: options.Published,
    *,
    box: Annotated[
        list[Any] | None, Option(metavar="W,S,E,N", parser=options.parse_corners, help="Box to query (repeatable).")
    ] = None,
    boxes: Annotated[Path | None, File(help="CSV with columns west,south,east,north (or low,high) and name.")] = None,
    regions: Annotated[Path | None, File(help="File of polygons to query. Answers include the file's columns.")] = None,
    layer: options.RegionLayer = None,
    name: options.RegionName = None,
    quantiles: Annotated[
        Any, Option(metavar="Q,...", parser=options.parse_list(float), help="Quantiles to estimate from sorted values.")
    ] = None,
    between: options.Between = None,
    compare: Annotated[tuple[str, str] | None, Period(help="Compare the steps of --between with these steps.")] = None,
    each: Annotated[
        bool, Option("--each", help="Give one answer for each step in a folder, instead of one for their sum.")
    ] = False,
    mean: Annotated[bool, Option("--mean", help="Answer with the mean per step instead of the sum.")] = False,
    skip_missing: Annotated[bool, Option("--skip-missing", help="Skip steps that have no release.")] = False,
    level: Annotated[float, Option(metavar="L", help="Confidence level of the intervals.")] = 0.95,
    ranked: Annotated[
        bool, Option("--rank", help="Show the possible ranks of each row, at confidence --level.")
    ] = False,
    nonnegative: options.Nonnegative = False,
    form: Annotated[
        Literal["table", "csv", "json", "geojson"] | None,
        Option("--format", help="Output format. [default: inferred from --out, or else table]"),
    ] = None,
    out: Annotated[Path | None, OutFile(help="File to write: .csv, .json, .geojson, .parquet, .gpkg or .txt.")] = None,
) -> None:
    """Estimate the number of points in boxes or regions, with standard errors and intervals.

    Boxes are in the release's coordinates (`statement` shows its bounds), or in longitude and latitude. The standard
    error covers the noise and, if a query cuts cells, the unknown positions of points in these cells. `cut` is the
    share of the query's area in cut cells, and `unresolved` the share of the query that the release did not measure.
    Regions are clipped to the map, and `outside` is the share of a region outside it. Answers from a folder are sums
    over its steps.

    \b
    Examples:
      deltahist query city.parquet --box 583000,4505000,588000,4512000
      deltahist query city.parquet --regions zones.geojson --name zone --out answers.gpkg
      deltahist query city/ --between 2010-06-01 2010-06-30 --compare 2010-05-01 2010-05-31 --mean --boxes boxes.csv
    """
    from deltahist._files import form_of, is_stored_file
    from deltahist.answers import answer, answer_each, rank
    from deltahist.decode import check_level
    from deltahist.exports import TABLES, describe_answers, facts_of
    from deltahist.space.workloads import Workload

    given = bool(box or boxes) + (regions is not None) + (quantiles is not None)
    require(given == 1, "give --box or --boxes, or only --regions, or only --quantiles")
    check_level(level)
    chosen = form or ("table" if out is None else form_of(out, {**TABLES, ".txt": "table"}))
    check_target(out, release, boxes, regions)
    require(not ranked or not (nonnegative or quantiles), "--rank excludes --nonnegative and --quantiles")
    require(not each or not (mean or compare), "--each excludes --mean and --compare")
    require(not compare or between, "--compare requires --between")
    published: Any
    how: dict[str, Any] = {"level": level, "nonnegative": nonnegative}
    if options.is_folder(release) and quantiles is None:
        whole = options.open_series(release)
        published = _choose_steps(whole, between, compare, each, mean, skip_missing)
    else:
        require(
            not (between or compare or each or mean or skip_missing),
            "--between, --compare, --each, --mean and --skip-missing require a folder from "
            f"`deltahist stream`, and {str(release)!r} is not one",
        )
        if isinstance(release, str) and not is_stored_file(release) and quantiles is None:
            from deltahist.remote import connect

            published = connect(release)
            facts = published.stated_facts
            options.warn_of_release(release, facts.get("publishable") is True, facts.get("weak_protection"))
        else:
            published = options.open_release(release)
    domain = published.domain
    rule = "in one dimension it must be .csv, .json, .parquet or .txt"
    fits = chosen not in ("geojson", "gpkg") or (domain.ndim == 2 and quantiles is None)
    require(fits, f"--out is {str(out)!r}: {rule}")

    def ask(asked: Any) -> Answers:
        if ranked:
            return rank(published, asked, level=level)
        if each:
            return answer_each(published, asked, **how)
        if isinstance(asked, Workload):
            return published.answer_workload(asked, **how)
        return answer(published, asked, **how)

    if quantiles is not None:
        require(hasattr(published, "quantiles"), "--quantiles requires a release made by `deltahist sorted`")
        found = published.quantiles(quantiles, level=level)
    elif regions is not None:
        asked = options.read_regions(regions, layer, name, domain)
        with show_progress("Answering …"):
            found = ask(asked)
    else:
        found = _ask_boxes(box, boxes, domain, ask)
    if ranked:
        import pandas as pd

        table = pd.DataFrame(found) if isinstance(found, dict) else found
        found = table.sort_values("estimate", ascending=False, na_position="last", ignore_index=True)
    # Describe the selected steps of a folder, not all of them.
    about = describe_answers(facts_of(published), dict(found), level)
    _deliver(found, domain, chosen, out, about, boxes=bool(box or boxes))


def _choose_steps(series: Series, between: Steps, compare: Steps, each: bool, mean: bool, skip_missing: bool) -> Any:
    from deltahist.releases.series import Difference

    def choose_period(limits: Steps) -> Series:
        found = series if limits is None else series.between(*limits)
        if found.missing_steps and (each or skip_missing):
            print_note(f"note: {found.explain_missing()}")
        found = found.skip_missing() if skip_missing else found
        return found.per_step() if mean else found

    if compare is None:
        return choose_period(between)
    after, before = choose_period(between), choose_period(compare)
    one, other = len(before.releases), len(after.releases)
    if one != other and not mean:
        print_note(f"note: sums of {one:,} and {other:,} steps are compared: --mean compares means per step")
    return Difference(before, after)


def _ask_boxes(box: list[Any] | None, file: Path | None, domain: Domain, ask: Callable[[Any], Answers]) -> Answers:
    """Return the name, corners and answer of each box, in each step. To save time, import pandas only if necessary."""
    import numpy as np

    from deltahist import workloads
    from deltahist.answers import note_cut
    from deltahist.space.crs import LONGITUDE_LATITUDE
    from deltahist.space.geometries import boxes_in_degrees, fit

    sides, names = _read_boxes(box, file, domain)
    own = {"name": np.array(names, dtype=object), **dict(zip(_name_corners(domain), sides.T, strict=True))}
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


def _read_boxes(box: Sequence[tuple[float, ...]] | None, file: Path | None, domain: Domain) -> tuple[Any, list[str]]:
    """Return the boxes from --box and from a file as an array of shape (m, 2 d), and their names."""
    import numpy as np

    from deltahist.space.geometries import read_box_file

    wanted = 2 * domain.ndim
    names = [",".join(f"{v:.15g}" for v in values) for values in box or ()]
    wrong = next((name for values, name in zip(box or (), names, strict=True) if len(values) != wanted), None)
    require(wrong is None, f"--box is {wrong}: it must have {wanted} numbers, because the map is {domain.ndim}D")
    array = np.array(box or [], dtype=np.float64).reshape(-1, wanted)
    if file is None:
        return array, names
    more, labels = read_box_file(file, domain.sides, "--boxes")
    return np.concatenate([array, more]), names + labels


def _name_corners(domain: Domain) -> list[str]:
    return ["box_low", "box_high"] if domain.ndim == 1 else domain.sides


def _deliver(answers: Answers, domain: Domain, form: str, out: Path | None, about: dict[str, Any], boxes: bool) -> None:
    """Write answers. For boxes, include their corners (a list in JSON), and polygons if the format has geometries."""
    from deltahist._files import write_whole
    from deltahist.exports import encode_table, explain_below
    from deltahist.space.crs import LONGITUDE_LATITUDE

    if form == "table":
        write_text(f"{_format_answers(answers)}\n\n{explain_below(about)}", out)
        return
    import pandas as pd

    frame = pd.DataFrame(answers) if isinstance(answers, dict) else answers
    if boxes:
        # Boxes in degrees already have shapes.
        shapes = frame.pop("geometry") if "geometry" in frame else None
        sides = frame[_name_corners(domain)].to_numpy()
        if form == "json":
            frame = frame.drop(columns=_name_corners(domain))
            frame.insert(1, "box", sides.tolist())
        elif form in ("geojson", "gpkg", "parquet") and domain.ndim == 2:
            import geopandas as gpd
            import shapely

            crs = domain.crs if shapes is None else LONGITUDE_LATITUDE
            frame = gpd.GeoDataFrame(frame, geometry=shapely.box(*sides.T) if shapes is None else shapes, crs=crs)
    content = encode_table(frame, form, domain, about)
    if out is None:
        write_text(content.decode())
    else:
        write_whole(out, lambda part: part.write_bytes(content))


def _format_answers(answers: Answers) -> str:
    """Return answers as a text table, without the two parts of the standard errors."""
    from deltahist.answers import COLUMNS

    formats: dict[str, Callable[[Any], str]] = {
        **{"name": str, "step": str, "note": str, "rank": str, "steps": "{:,}".format},
        **{"q": "{:g}".format, "cut": "{:.0%}".format, "unresolved": "{:.1%}".format},
    }
    missing = {"name": "", "rank": "", "note": "", "unresolved": "unknown"}
    usual: Any = "{:z,.6g}".format
    names = list(map(str, answers))
    if "name" in answers:
        hidden = ("noise_error", "placement_error", "estimator", "outside")
        names = ["name", *(c for c in COLUMNS if c in answers and c not in hidden)]
        usual = "{:z,.1f}".format
    columns = [
        [
            missing.get(name, "-") if value != value or value is None else formats.get(name, usual)(value)
            for value in answers[name]
        ]
        for name in names
    ]
    return format_table(names, zip(*columns, strict=True), left=["note"])


def show_statement(
    release: options.Published,
    *,
    out: Annotated[Path | None, OutFile(help="Page to write: .html, .md or .txt.")] = None,
    title: options.Title = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the privacy statement of a release, or write it as a page with --out.

    The statement says whether the release may be published, how it protects people at each distance, how rows were
    preprocessed, and how to use the figures. For a folder, the statement covers all steps and their joint cost.

    \b
    Examples:
      deltahist statement city.parquet --out statement.html --title "Check-ins in New York, 2010"
      deltahist statement city/ --out year.html     # for a folder
    """
    from deltahist._files import form_of
    from deltahist.statement import list_facts, save_statement, write_statement
    from deltahist.statement.facts import FORMS

    if out is not None:
        form_of(out, FORMS)
        check_target(out, release)
    folder = options.is_folder(release)
    published = options.open_series(release) if folder else options.open_release(release, refuse_withdrawn=False)
    if as_json:
        write_json(list_facts(published))
    elif out is None:
        write_text(write_statement(published, title=title))
    else:
        save_statement(published, out, title)
        print_note(f"wrote {out}")


def plot(
    release: options.Published,
    *,
    out: Annotated[Path, OutFile(help="Picture to write: .png, .svg or .pdf.")],
    regions: Annotated[Path | None, File(help="Draw the answers for these polygons.")] = None,
    layer: options.RegionLayer = None,
    name: options.RegionName = None,
    only: Annotated[Literal["map", "curve"] | None, Option(help="Draw only the map or only the curve.")] = None,
    nonnegative: options.Nonnegative = False,
    per: Annotated[Literal["area", "region"], Option(help="Show points per km², or per region or cell.")] = "area",
    context: Annotated[list[Path] | None, File(help="File of lines or areas to draw in grey (repeatable).")] = None,
    title: options.Title = None,
    between: options.Between = None,
) -> None:
    """Draw the published map and, below it, the protection at each distance.

    The map shows unbiased estimates, averaged over cells that do not clearly differ. With --nonnegative, every cell
    shows its non-negative estimate. Grey cells may be empty. With --regions, a region is coloured if it stands out from
    the noise, and hatched otherwise. Values and intervals are listed below the map. The text at the bottom states the
    guarantee.

    For a folder, --regions draws a line over time for each region.

    \b
    Examples:
      deltahist plot city.parquet --regions districts.gpkg --context roads.gpkg --out districts.png
      deltahist plot city/ --regions districts.gpkg --between 2010-05-01 2010-08-31 --out summer.png
    """
    from deltahist._files import form_of
    from deltahist.answers import answer, make_answerer
    from deltahist.plots import draw_lines, figures, save_picture
    from deltahist.space.geometries import read_geometries

    form_of(out, figures.FORMS)
    check_target(out, release, regions, *(context or ()))
    if options.is_folder(release):
        rule = "a folder requires --regions, and excludes --only and --context"
        require(regions is not None and not (only or context), rule)
        series = options.open_series(release)
        series = series if between is None else series.between(*between)
        asked = options.read_regions(regions, layer, name, series.domain)
        figure = draw_lines(series, make_answerer(series.domain, asked, nonnegative=nonnegative), title=title)
        figures.write_figure(figure, out)
    else:
        require(between is None, "--between requires a folder from `deltahist stream`")
        published: Any = options.open_release(release)
        asked = options.read_regions(regions, layer, name, published.domain)
        look: dict[str, Any] = {"title": title, "per": per}
        look["context"] = [read_geometries(file, published.domain, "--context") for file in context or ()]
        if asked is None:
            look |= {"per": "cell" if per == "region" else per, "nonnegative": nonnegative}
        else:
            look["answers"] = answer(published, asked, nonnegative=nonnegative)
        save_picture(published, out, only, **look)
    print_note(f"wrote {out}")


def export(
    release: options.Release,
    *,
    out: Annotated[Path, OutFile(help="File to write: .gpkg, .parquet, .geojson, .csv or .tif.")],
    nonnegative: options.Nonnegative = False,
) -> None:
    """Write every cell with its location, estimate and standard error, for other programs.

    Without --nonnegative, estimates are unbiased, like the answers of `query`, so some are negative. The file states
    which kind of estimates it contains. `stands_out` marks cells that almost certainly contain points, in a joint test
    of all cells. Use `query` for sums, because their errors cannot be computed from the errors of cells.

    \b
    Examples:
      deltahist export city.parquet --out cells.gpkg
      deltahist export city.parquet --nonnegative --out cells.parquet
    """
    from deltahist._files import form_of
    from deltahist.exports import FORMS, export as write_cells
    from deltahist.releases import Release

    form_of(out, FORMS)
    check_target(out, release)
    published: Any = options.open_release(release)
    rule = f"{release} contains {published.mechanism.words}: only releases of counts can be exported"
    require(isinstance(published, Release), rule)
    write_cells(published, out, nonnegative=nonnegative)
    print_note(f"wrote {out}")
