"""Routes to pictures of a map: tiles, and the legend of their colours."""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter, Path, Query, Request, Response
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from deltahist._http import JSON, Workers, as_json, copy_headers, negotiate
from deltahist.errors import InputError
from deltahist.plots.colours import Ends
from deltahist.plots.ground import figure_of, unit_of_area
from deltahist.server.answers import Source
from deltahist.server.blocks import FINEST, PIXELS, TILE, choose_width, longest_side, pixels_per_cell
from deltahist.server.catalogue import Served
from deltahist.server.pictures import HATCHED, OUTSIDE, Colours, Gallery, Picture, choose_steps
from deltahist.server.schemas import Legend, file_of, shape
from deltahist.server.series import series_of
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
#: The last line of a legend that is a picture.
_FOOT = "Hatched: does not stand out"
#: What tiles are.
_ABOUT_TILES = """\
Draw a tile of 256 pixels a side: densities of points, hatched where they do not stand out from the noise.

The grid is WebMercatorQuad, or of a release without a CRS `plane`: one tile as wide as its longer side, from
its upper left corner, then twice as many along each axis at each zoom."""
#: Height of a colour of a legend, in pixels.
_ROW = 18


def make_router(service: Service) -> APIRouter:
    """Return the routes to tiles and legends."""
    router, gallery = APIRouter(tags=["maps"]), Gallery()
    # A browser asks for many tiles at once: answers must not wait for them.
    painter = Workers(most=service.settings.max_requests, at_once=1)
    compared = Query(None, description="another release: colours are its points less those of this")
    scaled = Query(None, description="of colours, as a legend has it; that of the legend if left out")

    def find_alike(asked: list[Served], others: Sequence[str]) -> list[Served]:
        """Return maps that have one scale: asked for, named, and the other steps of their series."""
        named = [*asked, *(service.find(each, "alike") for each in others)]
        folders = service.catalogue.folders().values()
        series = [steps for steps in folders if any(each in steps for each in named) and series_of(steps) is not None]
        in_force = ([each for each in steps if each.release.withdrawn is None] for steps in series)
        return [*named, *(step for steps in in_force for step in choose_steps(steps))]

    def colours_of(source: Source, asked: list[Served], alike: list[Served]) -> Colours:
        """Return the scale of several maps, or of a source alone, whose `alike` is what it is made of."""
        return gallery.find(source, asked).colours if alike == asked else gallery.find_colours(alike)

    def add_tiles(name_of_route: str, mark: str, density: int, about: str) -> None:
        """Add the route to tiles whose names end with a mark, of a density that `_draw` takes."""

        @router.get(
            f"/releases/{{name}}/tiles/{{grid}}/{{z}}/{{x}}/{{y}}{mark}.png",
            name=name_of_route,
            description=about,
            response_class=Response,
            responses=file_of("image/png"),
        )
        async def draw_tile(
            request: Request,
            name: str,
            grid: str,
            z: int = Path(ge=0, le=FINEST),
            x: int = Path(ge=0),
            y: int = Path(ge=0),
            compare: str | None = compared,
            scale: str | None = scaled,
        ) -> Response:
            source, asked = service.find_source(name, compare)
            own = PLANE if source.domain.crs is None else WORLD
            if grid != own:
                raise HTTPException(404, f"grid is {grid[:80]!r}: the release has tiles of {own} alone")
            if max(x, y) >= 1 << z:
                raise HTTPException(404, f"tile is {x}, {y}: at zoom {z} both are less than {1 << z:,}")
            ends = None if scale is None else _read_scale(scale)
            alike = asked if ends or compare is not None else find_alike(asked, ())
            form = f"tile{density}" if ends is None else f"tile{density}-{ends.linear}-{ends.top}"
            headers = copy_headers(request, tag_of(alike, form))

            def make() -> bytes:
                colours = Colours(ends, compare is not None) if ends else colours_of(source, asked, alike)
                return _draw(gallery.find(source, asked), colours, (z, x, y), density)

            content = await painter.run(make)
            return Response(content, media_type="image/png", headers=headers)

    add_tiles("draw_fine_tile", "@2x", 2, "Draw a tile with twice as many pixels along each side, for dense screens.")
    add_tiles("draw_tile", "", 1, _ABOUT_TILES)

    @router.get("/releases/{name}/legend", responses=shape(Legend, "image/svg+xml", "image/png"))
    async def explain_colours(
        request: Request,
        name: str,
        compare: str | None = compared,
        alike: str | None = Query(None, description="another release, whose tiles are to have the same scale"),
    ) -> Response:
        """Explain the colours of tiles: values and their colours as JSON, or a picture (image/svg+xml, image/png).

        A step of a series has the scale of all steps. `scale` is what tiles take, to be drawn on this very one.
        """
        source, asked = service.find_source(name, compare)
        if compare is not None and alike is not None:
            raise InputError("alike is given with compare: a difference has a scale of its own; leave one of them out")
        same = asked if compare is not None else find_alike(asked, [] if alike is None else [alike])
        form = negotiate(request, {JSON: "json", "image/svg+xml": "svg", "image/png": "png"})
        headers = copy_headers(request, tag_of(same, f"legend-{form}"), by_accept=True)
        colours = await painter.run(colours_of, source, asked, same)
        unit = f"points per {unit_of_area(source.domain)}"
        if form == "svg":
            return Response(_draw_legend(colours, unit), media_type="image/svg+xml", headers=headers)
        if form == "png":
            return Response(_paint_legend(colours, unit), media_type="image/png", headers=headers)
        stops = colours.stops
        ends = {"scale": f"{colours.ends.linear},{colours.ends.top}", "minimum": stops[0][0], "maximum": stops[-1][0]}
        return as_json({"unit": unit, "stops": stops, "hatched": _HATCHED, **ends}, headers)

    return router


def _read_scale(text: str) -> Ends:
    """Return the ends of a scale, as a legend writes them; InputError on another text."""
    try:
        linear, top = map(float, text.split(","))
    except ValueError:
        linear, top = math.nan, math.nan
    if not 1e-12 <= linear <= 1e12 or not 1e-12 <= top <= 1e12:
        raise InputError(f"scale is {text[:80]!r}: it must be as a legend has it, two numbers above 0")
    return Ends(linear, top, top)


def _draw(picture: Picture, colours: Colours, tile: tuple[int, int, int], density: int) -> bytes:
    """Return a tile as PNG, whose `density` is its dots along a pixel."""
    from PIL import Image

    domain, side = picture.source.domain, TILE * density
    codes = np.full(side * side, OUTSIDE, dtype=np.uint8)
    seen, places = places_of_pixels(domain, *tile, side)
    if not len(seen):
        return _empty(side)
    whole = [(0, n) for n in domain.shape]
    cell = pixels_per_cell(domain, tile[0])
    width, broad = (choose_width(domain, whole, cell, pixels=each, most=domain.size) for each in (1 / density, PIXELS))
    codes[seen] = picture.codes(colours, width, broad, *np.divmod(domain.flat_cells(places), domain.shape[1]))
    image = Image.frombytes("P", (side, side), (codes & _mask(density)).tobytes())
    image.putpalette(colours.palette.tobytes())
    return _as_png(image)


def places_of_pixels(
    domain: Domain, z: int, x: int, y: int, side: int
) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]]:
    """Return the pixels (k,) of a tile, from the north, whose centres are on the map, and these places."""
    across, down = ((first + (np.arange(side) + 0.5) / side) / (1 << z) for first in (x, y))
    if domain.crs is None:
        longest = longest_side(domain)
        columns, rows = np.arange(side), np.arange(side)
        places = [np.tile(domain.low[0] + longest * across, side), np.repeat(domain.high[1] - longest * down, side)]
    else:
        lon, lat = 360 * across - 180, np.degrees(np.arctan(np.sinh(math.pi * (1 - 2 * down))))
        (middle, half), (south, north) = _surroundings(domain)
        columns = np.flatnonzero(np.abs(degrees_east(lon, middle)) <= half)
        rows = np.flatnonzero((south <= lat) & (lat <= north))
        there = np.tile(lon[columns], len(rows)), np.repeat(lat[rows], len(columns))
        places = Operation.off(domain, LONGITUDE_LATITUDE).back(*there)
    ends = zip(places, domain.low, domain.high, strict=True)
    inside = np.logical_and.reduce([(low <= each) & (each < high) for each, low, high in ends])
    pixels = (side * rows[:, None] + columns).ravel()
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
def _mask(density: int) -> NDArray[np.uint8]:
    """Return the bits of codes (side²,) that are drawn: on a line of the hatch all, beside it not whether it is."""
    along = np.arange(TILE * density) // density
    return np.where((along[:, None] + along) % _PITCH < _LINE, 255, 255 - HATCHED).astype(np.uint8).ravel()


@functools.cache
def _empty(side: int) -> bytes:
    from PIL import Image

    image = Image.frombytes("P", (side, side), bytes([OUTSIDE]) * (side * side))
    image.putpalette(bytes(768))
    return _as_png(image)


def _as_png(image: Any) -> bytes:
    alpha = bytearray([255] * 256)
    alpha[OUTSIDE] = alpha[OUTSIDE | HATCHED] = 0
    file = io.BytesIO()
    image.save(file, "PNG", transparency=bytes(alpha), compress_level=3)
    return file.getvalue()


def _rows_of(colours: Colours) -> list[tuple[str, str]]:
    """Return colours with their values in words, the largest first."""
    rows = [(colour, figure_of(value, 6)) for value, colour in colours.stops[::-1]]
    return [(rows[0][0], f"≥ {rows[0][1]}"), *rows[1:]] if colours.scale.beyond else rows


def _paint_legend(colours: Colours, unit: str) -> bytes:
    """Return a legend as PNG, as `_draw_legend` has it, on white."""
    from matplotlib.font_manager import findfont
    from PIL import Image, ImageDraw, ImageFont

    rows = _rows_of(colours)
    image = Image.new("RGB", (220, (len(rows) + 2) * _ROW + 4), "white")
    pen, font = ImageDraw.Draw(image), ImageFont.truetype(findfont("DejaVu Sans"), 11)
    pen.text((2, 3), unit, "black", font)
    for number, (colour, words) in enumerate(rows, 1):
        pen.rectangle((0, number * _ROW, 24, (number + 1) * _ROW - 1), colour)
        pen.text((32, number * _ROW + 3), words, "black", font)
    pen.text((2, (len(rows) + 1) * _ROW + 3), _FOOT, "black", font)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _draw_legend(colours: Colours, unit: str) -> str:
    """Return a legend as SVG: the colour of each round value, the largest on top."""
    known, rows = _rows_of(colours), []
    for number, (colour, words) in enumerate(known, 1):
        top = number * _ROW
        rows.append(f'<rect x="0" y="{top}" width="24" height="{_ROW}" fill="{colour}"/>')
        rows.append(f'<text x="32" y="{top + 13}">{words}</text>')
    size = f'width="220" height="{(len(known) + 2) * _ROW + 4}"'
    foot = f'<text x="0" y="{(len(known) + 2) * _ROW - 3}">{_FOOT}</text>'
    head = f'<text x="0" y="13">{unit}</text>'
    font = 'font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>{head}{"".join(rows)}{foot}</svg>'
