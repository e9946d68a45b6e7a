"""Routes to pictures of a map: tiles, and the legend of their colours."""

from __future__ import annotations

import functools
import io
import math
from typing import Any

import numpy as np
from fastapi import APIRouter, Path, Query, Request, Response
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from deltahist._http import JSON, Workers, as_json, copy_headers, negotiate
from deltahist.plots.ground import figure_of, unit_of_area
from deltahist.server.answers import Source
from deltahist.server.blocks import FINEST, PIXELS, TILE, choose_width, longest_side, pixels_per_cell
from deltahist.server.catalogue import Served
from deltahist.server.pictures import HATCHED, OUTSIDE, Colours, Gallery
from deltahist.server.schemas import Legend, file_of, shape
from deltahist.server.service import Service, tag_of
from deltahist.space.crs import Operation, degrees_east, lattice_of
from deltahist.space.domain import Domain
from deltahist.space.geometries import LONGITUDE_LATITUDE

#: The two grids of tiles: of the world, and of a plane without a CRS.
WORLD, PLANE = "WebMercatorQuad", "plane"
#: What a hatch means.
_HATCHED = (
    "Hatched: does not stand out from the noise (the 95% interval holds zero, or the standard error is more than a "
    "third of the estimate)"
)
#: Pixels from one line of a hatch to the next, and of a line.
_PITCH, _LINE = 8, 2
#: Places along each axis of a map whose longitudes and latitudes say where it lies.
_PLACES = 33
#: Height of a colour of a legend, in pixels.
_ROW = 18


def make_router(service: Service) -> APIRouter:
    """Return the routes to tiles and legends."""
    router, gallery = APIRouter(tags=["maps"]), Gallery()
    # A browser asks for many tiles at once: answers must not wait for them.
    painter = Workers(most=service.settings.max_requests, at_once=1)
    compared = Query(None, description="another release: colours are its points less those of this")

    @router.get(
        "/releases/{name}/tiles/{grid}/{z}/{x}/{y}.png", response_class=Response, responses=file_of("image/png")
    )
    async def draw_tile(
        request: Request,
        name: str,
        grid: str,
        z: int = Path(ge=0, le=FINEST),
        x: int = Path(ge=0),
        y: int = Path(ge=0),
        compare: str | None = compared,
    ) -> Response:
        """Draw a tile of 256 pixels a side: densities of points, hatched where they do not stand out from the noise.

        The grid is WebMercatorQuad, or of a release without a CRS `plane`: one tile as wide as its longer side, from
        its upper left corner, then twice as many along each axis at each zoom.
        """
        source, asked = service.find_source(name, compare)
        own = PLANE if source.domain.crs is None else WORLD
        if grid != own:
            raise HTTPException(404, f"grid is {grid[:80]!r}: the release has tiles of {own} alone")
        if max(x, y) >= 1 << z:
            raise HTTPException(404, f"tile is {x}, {y}: at zoom {z} both are less than {1 << z:,}")
        headers = copy_headers(request, tag_of(asked, "tile"))
        content = await painter.run(_draw, gallery, source, asked, (z, x, y))
        return Response(content, media_type="image/png", headers=headers)

    @router.get("/releases/{name}/legend", responses=shape(Legend, "image/svg+xml"))
    async def explain_colours(request: Request, name: str, compare: str | None = compared) -> Response:
        """Explain the colours of tiles: values and their colours as JSON, or a picture (Accept: image/svg+xml)."""
        source, asked = service.find_source(name, compare)
        form = negotiate(request, {JSON: "json", "image/svg+xml": "svg"})
        headers = copy_headers(request, tag_of(asked, f"legend-{form}"), by_accept=True)
        picture = await painter.run(gallery.find, source, asked)
        unit = f"points per {unit_of_area(source.domain)}"
        if form == "svg":
            return Response(_draw_legend(picture.colours, unit), media_type="image/svg+xml", headers=headers)
        stops = picture.colours.stops
        ends = {"minimum": stops[0][0], "maximum": stops[-1][0]}
        return as_json({"unit": unit, "stops": stops, "hatched": _HATCHED, **ends}, headers)

    return router


def _draw(gallery: Gallery, source: Source, asked: list[Served], tile: tuple[int, int, int]) -> bytes:
    """Return a tile as PNG."""
    from PIL import Image

    domain, picture = source.domain, gallery.find(source, asked)
    codes = np.full(TILE * TILE, OUTSIDE, dtype=np.uint8)
    seen, places = places_of_pixels(domain, *tile)
    if not len(seen):
        return _empty()
    whole = [(0, n) for n in domain.shape]
    cell = pixels_per_cell(domain, tile[0])
    width, broad = (choose_width(domain, whole, cell, pixels=each, most=domain.size) for each in (1, PIXELS))
    codes[seen] = picture.codes(width, broad, *np.divmod(domain.flat_cells(places), domain.shape[1]))
    image = Image.frombytes("P", (TILE, TILE), (codes & _mask()).tobytes())
    image.putpalette(picture.colours.palette.tobytes())
    return _as_png(image)


def places_of_pixels(domain: Domain, z: int, x: int, y: int) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]]:
    """Return the pixels (k,) of a tile whose centres are on the map, from the north, and these places."""
    side = 1 << z
    across, down = ((first + (np.arange(TILE) + 0.5) / TILE) / side for first in (x, y))
    if domain.crs is None:
        longest = longest_side(domain)
        columns, rows = np.arange(TILE), np.arange(TILE)
        places = [np.tile(domain.low[0] + longest * across, TILE), np.repeat(domain.high[1] - longest * down, TILE)]
    else:
        lon, lat = 360 * across - 180, np.degrees(np.arctan(np.sinh(math.pi * (1 - 2 * down))))
        (middle, half), (south, north) = _surroundings(domain)
        columns = np.flatnonzero(np.abs(degrees_east(lon, middle)) <= half)
        rows = np.flatnonzero((south <= lat) & (lat <= north))
        there = np.tile(lon[columns], len(rows)), np.repeat(lat[rows], len(columns))
        places = Operation.off(domain, LONGITUDE_LATITUDE).back(*there)
    ends = zip(places, domain.low, domain.high, strict=True)
    inside = np.logical_and.reduce([(low <= each) & (each < high) for each, low, high in ends])
    pixels = (TILE * rows[:, None] + columns).ravel()
    return pixels[inside], [each[inside] for each in places]


@functools.lru_cache(maxsize=64)
def _surroundings(domain: Domain) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the middle and half the width of the longitudes of a map, and its southern and northern latitudes.

    They reach a little further than the map: beyond them, a projection may bring other places onto it.
    """
    lon, lat = Operation.off(domain, LONGITUDE_LATITUDE)(*lattice_of(domain.low, domain.high, _PLACES))
    middle = float(lon[_PLACES // 2, _PLACES // 2])
    turns = degrees_east(lon, middle)
    spare = max(float(np.ptp(lat)), float(np.ptp(turns))) * 2 / _PLACES
    return (middle, float(np.abs(turns).max()) + spare), (float(lat.min()) - spare, float(lat.max()) + spare)


@functools.cache
def _mask() -> NDArray[np.uint8]:
    """Return the bits of codes (65,536,) that are drawn: on a line of the hatch all, beside it not whether it is."""
    along = np.arange(TILE)
    return np.where((along[:, None] + along) % _PITCH < _LINE, 255, 255 - HATCHED).astype(np.uint8).ravel()


@functools.cache
def _empty() -> bytes:
    from PIL import Image

    image = Image.frombytes("P", (TILE, TILE), bytes([OUTSIDE]) * (TILE * TILE))
    image.putpalette(bytes(768))
    return _as_png(image)


def _as_png(image: Any) -> bytes:
    alpha = bytearray([255] * 256)
    alpha[OUTSIDE] = alpha[OUTSIDE | HATCHED] = 0
    file = io.BytesIO()
    image.save(file, "PNG", transparency=bytes(alpha), compress_level=3)
    return file.getvalue()


def _draw_legend(colours: Colours, unit: str) -> str:
    """Return a legend as SVG: the colour of each round value, the largest on top."""
    stops = colours.stops[::-1]
    rows = []
    for number, (value, colour) in enumerate(stops):
        words = figure_of(value, 6)
        if colours.scale.beyond and number == 0:
            words = f"≥ {words}"
        top = (number + 1) * _ROW
        rows.append(f'<rect x="0" y="{top}" width="24" height="{_ROW}" fill="{colour}"/>')
        rows.append(f'<text x="32" y="{top + 13}">{words}</text>')
    size = f'width="220" height="{(len(stops) + 2) * _ROW + 4}"'
    foot = f'<text x="0" y="{(len(stops) + 2) * _ROW - 3}">Hatched: does not stand out</text>'
    head = f'<text x="0" y="13">{unit}</text>'
    font = 'font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>{head}{"".join(rows)}{foot}</svg>'
