"""Export cells and answers to GeoPackage, GeoParquet, GeoJSON, CSV and GeoTIFF."""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deltahist._files import form_of, write_whole
from deltahist.decode import stands_out
from deltahist.errors import check_choice, check_memory
from deltahist.releases.base import PLACED, UNBIASED
from deltahist.releases.series import Difference, Series
from deltahist.space.crs import LONGITUDE_LATITUDE, Operation
from deltahist.space.domain import Domain
from deltahist.space.geometries import to_degrees
from deltahist.statement import list_facts, write_statement

if TYPE_CHECKING:
    import geopandas as gpd
    import pandas as pd

    from deltahist.releases.base import BaseRelease
    from deltahist.releases.histogram import Release

#: Table formats by file suffix.
TABLES = {f".{form}": form for form in ("csv", "json", "geojson", "parquet", "gpkg")} | {".geoparquet": "parquet"}
#: Formats of cells by file suffix.
FORMS = {**TABLES, ".json": "geojson", ".tif": "geotiff", ".tiff": "geotiff"}
#: Metadata key of a table's description in Parquet and GeoJSON files.
KEY = "deltahist_export"
#: Unit and meaning of each column. An empty unit means the unit of the estimate.
_COLUMNS = {
    "column": ("1", "number of the cell from the west, starting at 0"),
    "row": ("1", "number of the cell from the south, starting at 0"),
    "level": ("1", "number of the cell from the bottom, starting at 0"),
    **{side: ("units of the map", f"{side} edge") for side in ("west", "south", "bottom", "east", "north", "top")},
    **{axis: ("units of the map", f"{axis} of the centre") for axis in "xyz"},
    "rank": ("1", "possible ranks, where 1 is the largest; the level is the probability that all rows are right"),
    "step": ("1", "step of the series"),
    "before": ("", "estimate of the earlier period"),
    "after": ("", "estimate of the later period"),
    "estimate": ("", "estimate"),
    "std_error": ("", "standard error of the estimate, before making it non-negative"),
    "low": ("", "lower end of the interval"),
    "high": ("", "upper end of the interval"),
    "noise_error": ("", "part of std_error from noise"),
    "placement_error": ("", "part of std_error from positions in cut cells"),
    "cut": ("1", "share of the area in cut cells"),
    "inner": ("", "answer if all points of cut cells lay outside"),
    "outer": ("", "answer if all points of cut cells lay inside"),
    "steps": ("1", "number of steps in the answer"),
    "unresolved": ("1", "share of the query that was not measured"),
    "estimator": ("1", "name of the estimate"),
    "stands_out": ("1", "whether the cell almost certainly has points; in 95 of 100 files, every marked cell has some"),
    "outside": ("1", "share of the region's area outside the map"),
    "note": ("1", "what was changed or assumed about the region, or why it has no answer"),
    "q": ("1", "share of the points below the quantile"),
}


def export(release: Release, path: str | Path, *, nonnegative: bool = False) -> None:
    """Write all cells of a release to a file, in the format that its suffix names.

    Each row states the index, centre, box, estimate and standard error of a cell, and whether it almost certainly
    contains points (`stands_out` tests all cells together). A GeoTIFF has a band of estimates and one of standard
    errors. GeoJSON is in longitude and latitude, and other formats are in the release's CRS. Estimates in CSV and
    GeoJSON have three decimals. All formats except CSV contain units and the privacy statement.

    Parameters
    ----------
    release : release of counts.
    path : file ending in .gpkg, .parquet, .geojson, .csv or .tif. The last requires `pip install '.[geotiff]'`.
    nonnegative : write non-negative estimates instead of unbiased ones.

    Raises InputError if the suffix is unknown, a 1-D release is not written as CSV, or there is too little memory.

    >>> import tempfile, pandas as pd, deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 4, 4), (4, 4)), delta=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export(dh.publish(np.ones((4, 4), int), near, epsilon=1), f"{folder}/cells.csv")
    ...     len(pd.read_csv(f"{folder}/cells.csv"))
    16
    """
    path, form, domain = Path(path), form_of(path, FORMS), release.domain
    check_memory((100 if form == "geotiff" else 1000) * domain.size, f"writing {domain.size:,} cells as {form}")
    if form == "geotiff":
        content = _encode_geotiff(release, nonnegative)
    else:
        frame: Any = (release.to_pandas if form == "csv" else release.to_geopandas)(nonnegative=nonnegative)
        noise = release.block_moments(1)
        frame["stands_out"] = stands_out(release.cells().ravel(), np.sqrt(noise.variance), noise.kurtosis)
        if form in ("csv", "geojson"):
            frame = frame.round({"estimate": 3, "std_error": 3})
        content = encode_table(frame, form, domain, describe_cells(release, nonnegative, frame), layer="cells")
    write_whole(path, lambda part: part.write_bytes(content))


def synthetic(release: Release, number: int | None = None, rng: np.random.Generator | None = None) -> pd.DataFrame:
    """Return synthetic points that are distributed like the points of a release, for tools that need points.

    Each cell gets points in proportion to its non-negative estimate. Rounding changes the sum over any run of cells by
    less than one point. Inside a cell, the density is linear, with the slope that `dh.answer` assumes. The points cost
    no privacy, belong to nobody, and clump less than real points. Source: docs/internals/placement.md.

    Parameters
    ----------
    release : release of counts.
    number : number of points. The default is the total or, if it is unknown, the sum of the non-negative estimates.
    rng : generator, for repeatable points.

    Returns a frame with one column per axis (x, y, z), in units of the map. Its `attrs` state that it is synthetic.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 4, 4), (4, 4)), delta=1)
    >>> points = synthetic(dh.publish(np.full((4, 4), 5), near, epsilon=1))
    >>> points.shape, points.attrs["synthetic"]
    ((80, 2), True)
    """
    import pandas as pd

    rng, domain, cells = rng or np.random.default_rng(), release.domain, release.cells(nonnegative=True)
    number = round(float(cells.sum()) if release.total is None else release.total) if number is None else number
    steps = np.append(np.cumsum(cells)[:-1] / max(cells.sum(), 1e-300), 1.0) * number
    own = np.repeat(np.arange(domain.size), np.diff(np.floor(steps + rng.random()), prepend=0.0).astype(np.int64))
    # The density 1 + Σ b_i u_i on the unit cell, |u_i| ≤ ½, is a mixture of densities that each vary along one axis. To
    # draw from one, draw a uniform place, and mirror it if the density there is below a random level.
    everywhere = (slice(None),) * domain.ndim
    slopes = 2 * np.stack(release.placement.slope_terms(np.ones(domain.shape), everywhere)).reshape(domain.ndim, -1)
    steep = np.minimum(abs(slopes).sum(axis=0), 2.0)
    share = np.cumsum(abs(slopes), axis=0) / np.maximum(abs(slopes).sum(axis=0), 1e-300)
    axis = np.minimum((share[:, own] < rng.random(len(own))).sum(axis=0), domain.ndim - 1)
    place, each = rng.random((domain.ndim, len(own))) - 0.5, np.arange(len(own))
    lean = steep[own] * np.sign(slopes[axis, own])
    place[axis, each] *= np.where(rng.random(len(own)) < (1 + lean * place[axis, each]) / 2, 1, -1)
    index = np.stack(np.unravel_index(own, domain.shape))
    found = np.array(domain.low) + (index + 0.5 + place).T * domain.cell
    points = pd.DataFrame(rng.permutation(found), columns=list("xyz"[: domain.ndim]))
    points.attrs = {"synthetic": True, "release": release.digest}
    return points


def encode_table(
    frame: pd.DataFrame, form: str, domain: Domain, about: dict[str, Any] | None = None, *, layer: str = "answers"
) -> bytes:
    """Encode a table as the content of a file.

    frame : a table, or a GeoDataFrame in any CRS. Geometries without a CRS are in the domain's coordinates.
    form : the format. csv and json omit geometries, geojson uses degrees, and the others use the CRS of the domain.
    about : the description that all formats except csv contain (`describe_cells`, `describe_answers`).
    layer : the name of the layer in a GeoPackage.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow, parquet as pq

    about, shape = about or {}, getattr(frame, "_geometry_column_name", None)
    file = io.BytesIO()
    if form == "geojson":
        members = json.dumps({"type": "FeatureCollection", KEY: about})
        options = {"NATIVE_DATA": members, "NATIVE_MEDIA_TYPE": "application/vnd.geo+json"}
        shown: Any = frame
        if domain.crs is not None and (shown.crs is None or not shown.crs.equals(LONGITUDE_LATITUDE, True)):
            shown = _on_map(shown, domain)
            shown = shown.set_geometry(to_degrees(shown.geometry.to_numpy(), domain), crs=LONGITUDE_LATITUDE)
        _write_layer(shown, file, "GeoJSON", layer_options={**options, "COORDINATE_PRECISION": "7"})
        return file.getvalue()
    if form == "gpkg":
        units = {f"unit of {name}": column["unit"] for name, column in about["columns"].items()}
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in about.items()}
        taken = [str(name).lower() for name in frame.columns]
        options = {
            "FID": next(name for name in ("fid", "fid_", "fid__") if name not in taken),
            "GEOMETRY_NAME": next(name for name in ("geom", "geom_", "geom__") if name not in taken),
            "DESCRIPTION": f"{about['title']}. {about['how_to_read']} {about['promise']}",
        }
        more: dict[str, Any] = {"layer": layer, "layer_metadata": texts | units, "layer_options": options}
        _write_layer(_on_map(frame, domain), file, "GPKG", **more)
        return file.getvalue()
    if form == "parquet":
        (_on_map(frame, domain) if shape else frame).to_parquet(file, index=False)
        table = pq.read_table(file)
        schema = table.schema
        for name, column in about.get("columns", {}).items():
            if (place := schema.get_field_index(name)) >= 0:
                schema = schema.set(place, schema.field(place).with_metadata(column))
        meta = {**(schema.metadata or {}), KEY.encode(): json.dumps(about, ensure_ascii=False).encode()}
        described = io.BytesIO()
        pq.write_table(table.cast(schema).replace_schema_metadata(meta), described, compression="zstd")
        return described.getvalue()
    frame = frame.drop(columns=shape) if shape else frame
    if form == "json":
        rows = frame.astype(object).where(frame.notna(), None).to_dict(orient="records")
        keys = ("how_to_read", "unit", "level", "estimator", "promise", "may_be_published", "digest", "about")
        content = {"answers": rows, **{key: about[key] for key in keys if key in about}}
        return (json.dumps(content, indent=2, ensure_ascii=False, default=_as_json) + "\n").encode()
    if form == "csv" and about and "estimator" not in frame:
        frame = frame.assign(estimator=about["estimator"])
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(frame.columns)
    file.write(header.getvalue().encode())
    table = pa.Table.from_pandas(_plain(frame), preserve_index=False)
    arrow.write_csv(table, file, arrow.WriteOptions(include_header=False))
    return file.getvalue()


def describe_cells(release: BaseRelease, nonnegative: bool, names: Iterable[str]) -> dict[str, Any]:
    """Return a JSON-ready description of a file of cells, with its promise, privacy statement and columns."""
    estimator = release.name_estimator(nonnegative)
    return {
        "title": f"Estimates of points per cell, {estimator}, with standard errors",
        "how_to_read": "estimate ± two std_error. Do not add std_error or its square: query the sum.",
        **_describe(list_facts(release), estimator),
        "columns": _describe_columns(names, "points"),
        "statement": write_statement(release),
    }


def describe_answers(facts: dict[str, Any], table: Mapping[str, Any], level: float) -> dict[str, Any]:
    """Return a JSON-ready description of answers and their columns, from the facts that `facts_of` returns."""
    names = list(map(str, table))
    kinds = [each for each in dict.fromkeys(table["estimator"]) if each == each] if "estimator" in names else []
    unbiased = PLACED if "cut" in names else UNBIASED
    about = _describe(facts, "; ".join(kinds) or str(facts["estimator"]).replace(UNBIASED, unbiased))
    share = f"{100 * level:.10g}%"
    read = f"The {share} interval is from low to high."
    what, how = "Estimates", f"{read} Do not add std_error or its square: query the sum."
    if "before" in names:
        what, how = "Changes", f"{how} The estimate is after minus before."
    if "q" in names:
        about["unit"] = "units of the map" if facts["unit"] == "units" else facts["unit"]
        what, how = "Quantiles", f"The estimate lies above a share q of all points. {read}"
    title = f"{what}, {about['estimator']}, with {share} intervals"
    columns = _describe_columns(names, about["unit"])
    return {"title": title, "how_to_read": how, "level": level, **about, "columns": columns}


def facts_of(source: Any) -> dict[str, Any]:
    """Return the facts of a local or remote release, or the joint facts of the releases of a series or change."""
    if not isinstance(source, Series | Difference):
        return list_facts(source)
    periods = [source.before, source.after] if isinstance(source, Difference) else [source]
    digests = {label: each.digest for period in periods for label, each in period if each is not None}
    verdict = next((each for period in periods if (each := period.may_be_published) != "yes"), "yes")
    own: dict[str, Any] = {"digest": digests, "may_be_published": verdict, "estimator": UNBIASED}
    if isinstance(source, Difference):
        own["promise"] = source.promise
    return list_facts(periods[-1]) | own


def explain_below(about: dict[str, Any]) -> str:
    """Return two lines to print below a table of answers."""
    digest = about["digest"]
    # The promise of a folder begins with the number of its releases, including withdrawn ones.
    whose = "" if isinstance(digest, dict) else f"Release {str(digest)[:16]}: "
    return f"Unit: {about['unit']}. Estimates: {about['estimator']}. {about['how_to_read']}\n{whose}{about['promise']}."


def _describe(facts: dict[str, Any], estimator: str) -> dict[str, Any]:
    most = facts["points_per_user"]
    each = " in a step" if isinstance(facts["digest"], dict) else ""
    unit = "points" if most is None else f"points, at most {most:,} of each user{each}"
    own = {key: facts[key] for key in ("promise", "may_be_published", "digest", "about") if facts.get(key)}
    return {"unit": unit, "estimator": estimator, **own}


def _describe_columns(names: Iterable[str], unit: str) -> dict[str, dict[str, str]]:
    texts = {name: _COLUMNS[name] for name in names if name in _COLUMNS}
    return {name: {"unit": own or unit, "description": text} for name, (own, text) in texts.items()}


def _on_map(frame: gpd.GeoDataFrame, domain: Domain) -> gpd.GeoDataFrame:
    """Project a frame to the domain's CRS. Geometries that cannot be projected become missing."""
    operation = Operation.onto(domain, frame.crs)
    shapes = frame.geometry.to_numpy()
    return frame.set_geometry(shapes if operation is None else operation.shapes(shapes), crs=domain.crs)


def _plain(frame: Any) -> Any:
    """Convert objects in a table to text, and drop geometries other than the active one."""
    shape = getattr(frame, "_geometry_column_name", None)
    objects = {name for name in frame.columns if frame[name].dtype == object}
    others = {name for name in frame.columns if str(frame[name].dtype) == "geometry" and name != shape}
    frame = frame.assign(**{name: frame[name].map(_as_text, na_action="ignore") for name in objects})
    return frame.drop(columns=list(others))


def _as_text(value: Any) -> Any:
    return json.dumps(value, default=_as_json) if isinstance(value, list | dict | np.ndarray) else value


def _as_json(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


def _write_layer(frame: gpd.GeoDataFrame, file: io.BytesIO, driver: str, **more: Any) -> None:
    import pyogrio

    frame = _plain(frame)
    fast = not any(frame[name].dtype == object for name in frame.columns)  # Arrow would alter columns of mixed types
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # planar maps have no CRS
        pyogrio.write_dataframe(frame, file, driver=driver, use_arrow=fast, **more)


def _encode_geotiff(release: BaseRelease, nonnegative: bool) -> bytes:
    import rasterio

    domain, content = release.domain, io.BytesIO()
    check_choice((2,), dimensions=domain.ndim)
    about = describe_cells(release, nonnegative, ("estimate", "std_error"))
    transform = rasterio.Affine(domain.cell[0], 0.0, domain.low[0], 0.0, -domain.cell[1], domain.high[1])
    profile = {"driver": "GTiff", "dtype": "float64", "compress": "deflate", "crs": domain.crs, "transform": transform}
    width, height = domain.shape
    with rasterio.open(content, "w", width=width, height=height, count=2, **profile) as file:
        bands = zip(("estimate", "std_error"), release.estimate_cells(nonnegative=nonnegative), strict=True)
        for number, (name, cells) in enumerate(bands, start=1):
            file.write(cells.T[::-1], number)  # the first row of a raster is the northernmost
            file.set_band_description(number, name)
            file.set_band_unit(number, about["columns"][name]["unit"])
            file.update_tags(number, description=about["columns"][name]["description"])
        tags = {key: about[key] for key in ("how_to_read", "estimator", "promise", "statement")}
        file.update_tags(TIFFTAG_IMAGEDESCRIPTION=about["title"], **tags)
    return content.getvalue()
