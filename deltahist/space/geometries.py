"""Read regions and boxes, project and repair them, and clip them to a map."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyproj
import shapely.affinity
from numpy.typing import ArrayLike, NDArray
from shapely.errors import ShapelyError

from deltahist.errors import DeltaHistWarning, InputError, check_choice, check_whole
from deltahist.space.crs import LONGITUDE_LATITUDE, Operation, area_of, metres_per_unit, read_crs, width_in_degrees
from deltahist.space.domain import Domain
from deltahist.space.workloads import reach_beyond

if TYPE_CHECKING:
    import geopandas as gpd

#: Suffixes of geometry files, and the only GDAL driver that may read each.
DRIVERS = {".gpkg": "GPKG", ".geojson": "GeoJSON", ".json": "GeoJSON", ".fgb": "FlatGeobuf", ".shp": "ESRI Shapefile"}


def project_frame(frame: gpd.GeoDataFrame, domain: Domain, name: str) -> gpd.GeoDataFrame:
    """Project geometries to a domain's map, all by the same operation. Geometries without a CRS do not change."""
    operation = Operation.onto(domain, frame.crs)
    if operation is None:
        return frame
    moved = operation.shapes(frame.geometry.to_numpy())
    if (shapely.is_missing(moved) & frame.geometry.notna().to_numpy()).any():
        raise InputError(f"{name} extends beyond the area where {domain.crs} is defined: clip it to the map")
    return frame.set_geometry(moved, crs=read_crs(domain.crs))


@contextmanager
def _open_untrusted(file: str | Path, name: str, rule: str = "") -> Iterator[None]:
    """Raise InputError if the `with` block cannot read a file. Hide warnings, because they may quote the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OSError, ShapelyError, Warning) as problem:
        reason = " ".join(str(problem).split())[:300] or type(problem).__name__
        raise InputError(f"{name} {str(file)!r} cannot be read: {reason}{rule}") from None


def read_geometries(
    file: str | Path, domain: Domain | None, name: str = "file", layer: str | None = None
) -> gpd.GeoDataFrame:
    """Read a file of geometries without projecting them. A file without a CRS is in the domain's coordinates.

    The format is GeoParquet, or GeoPackage, GeoJSON, FlatGeobuf or shapefile, which may be in a .zip. GeoJSON is in
    degrees, or in the plane's coordinates if the domain has no CRS.
    """
    import geopandas as gpd

    file = Path(file)
    with _open_untrusted(file, name):
        if file.suffix.lower() in (".parquet", ".geoparquet"):
            frame = gpd.read_parquet(file)
        else:
            place, layer = _find_layer(file, layer)
            frame = gpd.read_file(place, layer=layer, engine="pyogrio")
    plain = domain is not None and domain.crs is None and file.suffix.lower() in (".geojson", ".json")
    return frame.set_crs(None, allow_override=True) if plain else frame


def to_longitudes(frame: gpd.GeoDataFrame, name: str) -> gpd.GeoDataFrame:
    """Project shapes to longitude and latitude, unless they have no CRS. Shapes with infinite coordinates are dropped.

    Raises InputError if the CRS of the file (`name`) cannot be projected.
    """
    try:
        moved = frame if frame.crs is None else frame.to_crs(LONGITUDE_LATITUDE)
    except pyproj.exceptions.ProjError:
        raise InputError(f"CRS of {name} is {frame.crs.name!r}: it must be one that has longitudes") from None
    return moved.set_geometry(moved.geometry.where(np.isfinite(moved.bounds).all(axis=1)))


def _find_layer(file: Path, layer: str | None) -> tuple[str, str]:
    """Return GDAL's path for a file, and the layer. Raises InputError if the content does not match the suffix."""
    import pyogrio

    # Nothing listens at this proxy, so GDAL cannot open URLs in a file, such as the URL of its CRS.
    pyogrio.set_gdal_config_options({f"GDAL_{kind}_PROXY": "http://127.0.0.1:0" for kind in ("HTTP", "HTTPS")})
    suffix = check_choice((*DRIVERS, ".parquet", ".zip"), suffix=file.suffix.lower())
    place = f"/vsizip/{file}" if suffix == ".zip" else str(file)
    layers = [str(each) for each, kind in pyogrio.list_layers(place) if kind is not None]
    layer = layers[0] if layer is None and len(layers) == 1 else check_choice(tuple(layers), layer=layer)
    drivers = tuple(DRIVERS.values()) if suffix == ".zip" else (DRIVERS[suffix],)
    check_choice(drivers, **{f"format of {file.name!r}": pyogrio.read_info(place, layer=layer)["driver"]})
    return place, layer


@contextmanager
def open_layer(file: Path, columns: list[str]) -> Iterator[tuple[Any, Any]]:
    """Yield a single-layer file's Arrow rows and CRS. `columns` are names or numbers, and the geometry comes last."""
    import pyogrio

    if file.suffix.lower() == ".shp":
        with file.open("rb") as opened:
            header = opened.read(28)
        # Rows cut off a truncated file would look like rows without points.
        if len(header) < 28 or 2 * int.from_bytes(header[24:28], "big") > file.stat().st_size:
            raise InputError(f"input {file.name!r} is shorter than its header says: the file must be complete")
    place, layer = _find_layer(file, None)
    info = pyogrio.read_info(place, layer=layer)
    fields = [str(field) for field in info["fields"]]
    wanted = {fields[int(c)] if c not in fields and c.isdigit() and int(c) < len(fields) else c for c in columns}
    read = [field for field in fields if field in wanted] if wanted <= set(fields) else fields
    how: Any = {"encoding": info["encoding"]} if file.suffix.lower() == ".shp" else {}  # Latin-1 if it has no .cpg file
    with pyogrio.raw.open_arrow(place, layer=layer, columns=read, use_pyarrow=True, **how) as (about, rows):
        yield rows, about["crs"]


def read_sources(text: str, domain: Domain, name: str = "sources") -> str | shapely.Geometry | None:
    """Parse sources: none, boundary, left, right, or the name of a file, whose geometries are merged."""
    if domain.ndim == 3:
        check_choice(("none", "boundary"), **{name: text})
    if text == "none":
        return None
    if text == "boundary" or (domain.ndim == 1 and text in ("left", "right")):
        return text
    return project_frame(read_geometries(text, domain, name), domain, f"{name} {text!r}").union_all()


def read_box_file(file: Path, columns: list[str], name: str = "boxes") -> tuple[NDArray[np.float64], list[str]]:
    """Read boxes (m, 2 d) and their names from a CSV file with the columns that `Domain.sides` names."""
    import pandas as pd

    with _open_untrusted(file, name, f" (it must be CSV with the columns {','.join(columns)}, and may have name)"):
        warnings.simplefilter("error", pd.errors.ParserWarning)  # raised if a row is longer than the header
        frame = pd.read_csv(file, dtype=str, encoding="utf-8-sig", index_col=False, skipinitialspace=True)
        frame.columns = [str(each).strip().lower() for each in frame.columns]
        corners = np.asarray_chkfinite(frame[columns], np.float64)
        check_whole(rows=len(corners))
    return corners, frame["name"].fillna("").tolist() if "name" in frame else list(map(str, range(len(frame))))


def add_names(frame: gpd.GeoDataFrame, column: str | None = None, name: str = "name") -> gpd.GeoDataFrame:
    """Insert a first column `name` with the names of the regions as strings.

    Names are read from the chosen column, from a column with a usual name (name, nom, id, code, ...), or from the first
    text column with distinct values. Without such a column, regions are numbered. A different column called `name`
    (in upper or lower case) gets the suffix "_region".
    """
    import pandas as pd

    others = [str(c) for c in frame.columns if c != frame.geometry.name]
    if column is not None:
        check_choice(tuple(others), **{name: column})
    else:
        filled = [c for c in others if frame[c].notna().any()]
        called = {c.lower(): c for c in reversed(filled)}
        usual = ("name", "nom", "nombre", "nome", "naam", "navn", "namn", "label", "id", "code", "geoid")
        known = [called[word] for word in usual if word in called]
        known += [c for c in filled if all(isinstance(value, str) for value in frame[c]) and frame[c].is_unique]
        column = known[0] if known else None
    names: list[str | None] = [str(number) for number in range(len(frame))]
    if column is not None:
        # In a column of floats, write whole numbers without decimals.
        values = [f"{v:.15g}" if isinstance(v, float) else str(v) for v in frame[column].astype(object)]
        names = [None if gone else text for gone, text in zip(pd.isna(frame[column]), values, strict=True)]
    out = frame.drop(columns=[column] if str(column).lower() == "name" else [])
    out = out.rename(columns={c: f"{c}_region" for c in others if c.lower() == "name" and c in out})
    out.insert(0, "name", names)
    return out


#: Options with which make_valid treats overlapping rings as land, not as holes.
_OVERLAPS_ARE_LAND: Any = {"method": "structure", "keep_collapsed": False}


@dataclass(frozen=True, eq=False)
class Fitted:
    """Regions clipped to a map.

    shapes : (m,) valid polygons on the map, or None for a region that cannot be answered.
    outside : (m,) share of each region's area that lies outside the map, or NaN for a region without area.
    notes : (m,) how a region was changed or why it cannot be answered, or None for an unchanged region.
    """

    shapes: NDArray[Any]
    outside: NDArray[np.float64]
    notes: NDArray[Any]

    @property
    def held(self) -> NDArray[np.bool_]:
        """Mask (m,) of the regions that can be answered."""
        return np.array([shape is not None for shape in self.shapes], dtype=bool)

    def spread_over_regions(self, columns: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
        """Expand columns of answers (sorted by step) to all regions, and add the columns `outside` and `note`."""
        held, out = np.flatnonzero(self.held), {}
        for name, each in columns.items():
            values = np.asarray(each)
            if len(held) < len(self.shapes):
                some = values.reshape(-1, len(held))
                values = np.full((len(some), len(self.shapes)), np.nan, np.result_type(some, np.float64))
                values[:, held] = some
                values = values.ravel()
            out[name] = values
        times = len(values) // len(self.shapes)
        if "step" in out:
            out["step"] = np.repeat(np.asarray(columns["step"])[:: len(held)], len(self.shapes))
        if (self.outside > 0).any():
            out["outside"] = np.tile(self.outside, times)
        if (self.notes != None).any():  # noqa: E711
            out["note"] = np.tile(self.notes, times)
        return out


def fit(regions: ArrayLike, domain: Domain, crs: Any = None) -> Fitted:
    """Convert geometries (m,), in a CRS or in the domain's coordinates, to polygons on the domain's map.

    `fit` repairs rings that cross themselves and clips regions to the map. In longitude and latitude, edges are
    straight in degrees, and longitudes are taken modulo 360. An edge of more than 180 degrees is replaced by the
    shorter edge across the antimeridian (`read_rings`). Warns if regions are changed or cannot be answered.
    """
    given, crs = np.array(regions, dtype=object), None if crs is None else read_crs(crs)
    check_whole(**{"number of regions": len(given)})
    check_choice((2,), **{"number of dimensions of a map with regions": domain.ndim})
    operation = Operation.onto(domain, crs)
    parts = (given[start : start + 4096] for start in range(0, len(given), 4096))
    found = Fitted(*map(np.concatenate, zip(*(_fit(part, domain, crs, operation) for part in parts), strict=True)))
    if not found.held.any():
        raise InputError(
            f"0 of {len(given):,} regions can be answered (region 1: {found.notes[0]}): the map covers {domain.bounds} "
            f"and the regions cover {tuple(shapely.total_bounds(given).round(6).tolist())} in CRS {crs}"
        )
    if noted := int((found.notes != None).sum()):  # noqa: E711
        said = f"{noted:,} of {len(given):,} regions are clipped, repaired or not answered: see the column 'note'"
        warnings.warn(said, DeltaHistWarning, stacklevel=3)
    return found


def _fit(
    given: NDArray[Any], domain: Domain, crs: Any, operation: Operation | None
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[Any]]:
    """Return shapes, notes and the shares outside the map for a batch of regions (`Fitted`)."""
    shapes, notes = _repair(read_rings(given) if operation is not None and crs.is_geographic else given)
    near = np.ones(len(shapes))
    if operation is not None:
        shapes, near = _cut_surroundings(shapes, crs, domain)
        there, shapes = ~shapely.is_missing(shapes), operation.shapes(shapes)
        notes[there & shapely.is_missing(shapes)] = f"not answered: it leaves the area where {domain.crs} is defined"
        rounded = ~shapely.is_missing(shapes) & ~shapely.is_valid(shapes)
        shapes[rounded] = shapely.make_valid(shapes[rounded], **_OVERLAPS_ARE_LAND)

    outside = np.where(shapely.is_missing(shapes), np.nan, 0.0)
    bounds = shapely.box(*domain.bounds)
    for at in np.flatnonzero(reach_beyond(shapely.bounds(shapes), domain) | shapely.is_empty(shapes)):
        part = polygons_of(shapely.intersection(shapes[at], bounds))
        if part.area <= 1e-6 * np.prod(domain.cell):
            shapes[at], outside[at], notes[at] = None, 1.0, "not answered: outside the map"
            continue
        outside[at] = share = 1 - near[at] * part.area / shapes[at].area
        percent = "less than 1%" if share < 0.01 else "more than 99%" if share > 0.99 else f"{share:.0%}"
        clipped = f"clipped: {percent} of its area lies outside the map"
        shapes[at], notes[at] = part, "; ".join(filter(None, [notes[at], clipped]))
    return shapes, outside, notes


def read_rings(given: NDArray[Any]) -> NDArray[Any]:
    """Replace edges of more than 180 degrees of longitude by the shorter edges across the antimeridian.

    For example, an edge from -178 to 178 becomes one from -178 to -182. Two kinds of edges do not change: edges of 360
    degrees, and edges of an anticlockwise rectangle, whose corners RFC 7946 lists from west to east.

    >>> import shapely
    >>> read_rings(np.array([shapely.box(178, 0, -178, 1), shapely.box(-170, 0, 170, 1)]))[0].bounds
    (-182.0, 0.0, -178.0, 1.0)
    """
    places, owner = shapely.get_coordinates(given, return_index=True)
    step = np.abs(np.diff(places[:, 0]))
    given = given.copy()
    for at in np.unique(owner[1:][(owner[1:] == owner[:-1]) & (step > 180) & (step < 360)]):
        polygons = [each for each in shapely.get_parts(given[at]) if each.geom_type == "Polygon"]
        if polygons:
            given[at] = shapely.multipolygons([_shorten_edges(polygon) for polygon in polygons])
    return given


def _shorten_edges(polygon: Any) -> Any:
    """Shorten a polygon's edges of more than 180 degrees (see `read_rings`), and move its holes with them."""
    rings: list[Any] = []
    for ring in shapely.get_rings(polygon):
        places, step = shapely.get_coordinates(ring), np.diff(shapely.get_coordinates(ring)[:, 0])
        turns = np.cumsum(np.where(np.abs(step) < 360, np.rint(step / 360), 0))
        rectangle = len(places) == 5 and shapely.box(*ring.bounds).equals(shapely.Polygon(ring))
        if turns[-1] == 0 and not (rectangle and ring.is_ccw):  # a ring with a net turn surrounds a pole
            places[1:, 0] -= 360 * turns
        away = 0.0 if not rings else (rings[0][:, 0].mean() - places[:, 0].mean()) / 360
        rings.append(places + np.array([360 * np.rint(away), 0]))
    return shapely.Polygon(rings[0], rings[1:])


def to_degrees(shapes: NDArray[Any], domain: Domain) -> NDArray[Any]:
    """Convert shapes (m,) on a map to longitude and latitude. Cut them at the antimeridian as RFC 7946 requires."""
    found = read_rings(Operation.off(domain, LONGITUDE_LATITUDE).shapes(shapes))
    for at in np.flatnonzero((np.abs(shapely.bounds(found)[:, ::2]) > 180).any(axis=1)):
        moved = [shapely.affinity.translate(found[at], turn) for turn in (-360, 0, 360)]
        found[at] = shapely.union_all(shapely.intersection(moved, shapely.box(-180, -90, 180, 90)))
    return found


def _repair(given: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return valid polygons (m,), with None for geometries without area, and notes (m,) on repairs."""
    places, owner = shapely.get_coordinates(given, return_index=True)
    finite = np.ones(len(given), dtype=bool)
    finite[owner[~np.isfinite(places).all(axis=1)]] = False
    sound = np.isin(shapely.get_type_id(given), (3, 6)) & finite
    sound[sound] = shapely.is_valid(given[sound]) & (shapely.area(given[sound]) > 0)
    shapes, notes = given.copy(), np.full(len(given), None, dtype=object)
    for at in np.flatnonzero(~sound):
        shape, shapes[at] = given[at], None
        if shape is None or shapely.is_empty(shape) or not finite[at]:
            notes[at] = "not answered: no geometry"
            continue
        if not shapely.is_valid(shape):
            notes[at] = f"repaired: {shapely.is_valid_reason(shape).partition('[')[0].lower()}"
        part = polygons_of(shapely.make_valid(shape, **_OVERLAPS_ARE_LAND))
        if part.area > 0:
            shapes[at] = part
        else:
            notes[at] = f"not answered: {shape.geom_type} without an area"
    return shapes, notes


def polygons_of(shape: Any) -> Any:
    """Return the polygonal part of a valid geometry."""
    if shape.geom_type in ("Polygon", "MultiPolygon"):
        return shape
    parts = shapely.get_parts(shapely.get_parts(shape))
    return shapely.union_all([part for part in parts if part.geom_type == "Polygon"])


def _cut_surroundings(shapes: NDArray[Any], crs: Any, domain: Domain) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Clip shapes in a CRS to the surroundings of a map. Also return the share (m,) of each shape's area that is left.

    Far from its area of use, a projection may move a region from the other side of the earth onto the map. Edges in
    degrees also get more vertices, because straight edges in degrees are curves on the map.
    """
    share, area = np.ones(len(shapes)), area_of(domain.crs, domain.bounds, crs)
    if area is None:
        return shapes, share
    (west, south, east, north), turns, least = area, [0], 1000.0
    margin = max((east - west) / 20, least)
    if crs.is_geographic:
        east, turns, least = west + width_in_degrees(west, east), [-360, 0, 360], 0.01
        # If the map spans nearly all longitudes, leave a gap around the seam.
        margin = min(max((east - west) / 20, least), (360 - east + west) / 4)
    above = max((north - south) / 20, least)
    parts = [shapely.box(west - margin + t, south - above, east + margin + t, north + above) for t in turns]
    # Add vertices, because the window's sides are curves in the map's CRS, and these must stay outside the map.
    window = shapely.segmentize(shapely.union_all(parts), max(east - west, north - south) / 64)
    shapely.prepare(window)
    shapes = shapes.copy()
    for at in np.flatnonzero(~shapely.is_missing(shapes) & ~shapely.covered_by(shapes, window)):
        part = polygons_of(shapely.intersection(shapes[at], window))
        share[at] = _area(part, crs) / _area(shapes[at], crs)
        shapes[at] = part
    if crs.is_geographic:
        # On a sphere of radius r, an arc of length l deviates from its chord by l² / 8 r. Allow 0.2% of a cell.
        cell = min(domain.cell) * metres_per_unit(domain.crs)
        shapes = shapely.segmentize(shapes, math.degrees(math.sqrt(8 * 2e-3 * cell / 6_371_000)))
    return shapes, share


def _area(shape: Any, crs: Any) -> float:
    """Return a shape's area in units of its CRS or, for degrees, in proportion to its area on a sphere."""
    if crs.is_geographic:
        shape = shapely.transform(shape, lambda v: np.column_stack([v[:, 0], np.sin(np.radians(v[:, 1]))]))
    return float(shape.area)


def boxes_in_degrees(corners: NDArray[np.float64], domain: Domain) -> NDArray[Any] | None:
    """Convert boxes (m, 4) to polygons (m,) in degrees and warn, or return None if the boxes may be in map units.

    Boxes count as degrees if all corners could be longitudes and latitudes, and if either no point on the map has such
    small coordinates or a box crosses the antimeridian.
    """
    if domain.crs is None or domain.ndim != 2 or not corners.size:
        return None
    west, south, east, north = corners.T
    possible = (np.abs(corners) <= (360, 90, 360, 90)).all() and (west != east).all() and (south < north).all()
    near = shapely.intersects(shapely.box(*domain.bounds), shapely.box(-360, -90, 360, 90))
    if not possible or (near and (west < east).all()):
        return None
    bent = bend_boxes(corners, domain)
    said = f"the boxes look like degrees, and the map is in {domain.crs}: sides become curves on the map"
    warnings.warn(said, DeltaHistWarning, stacklevel=4)
    return bent


def bend_boxes(corners: NDArray[np.float64], domain: Domain) -> NDArray[Any]:
    """Convert boxes (m, 4) in longitude and latitude to polygons (m,) for `fit`.

    A box whose west exceeds its east crosses the antimeridian. Raises InputError if a box across the
    antimeridian spans more than 180 degrees but the map does not, because the box is probably reversed.
    """
    west, south, east, north = corners.T
    width = width_in_degrees(west, east)
    wide, area = (west > east) & (width > 180), area_of(domain.crs, domain.bounds)
    if wide.any() and area is not None and width_in_degrees(area[0], area[2]) < 180:
        raise InputError(
            f"box is {corners[np.argmax(wide)].tolist()}: it crosses the antimeridian (180°), as west exceeds east, "
            f"and must not span more than 180° if the map spans {area[0]:.6g} to {area[2]:.6g} (is the box reversed?)"
        )
    # Split long edges, because `fit` would replace them with shorter ones across the antimeridian. Nothing lies beyond
    # the poles, and edges there could be of any length.
    south, north = np.clip([south, north], -91, 91)
    return np.asarray(shapely.segmentize(shapely.box(west, south, west + width, north), 90))
