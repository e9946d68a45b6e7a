"""Options that mend what went wrong, to be pasted behind a command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from deltahist.cli import options
from deltahist.errors import OutsideBounds

if TYPE_CHECKING:
    from deltahist.cli.places import Coordinates, MapOptions


@contextlib.contextmanager
def mending(coordinates: Coordinates, place: MapOptions) -> Iterator[None]:
    """Let a refusal of points outside say with which options they would lie inside."""
    try:
        yield
    except OutsideBounds as problem:
        said = str(problem)
        cure = _cure(problem.kind, coordinates, place)
        if cure:  # before the way around it
            cause, _, around = said.partition(". ")
            said = f"{cause}; mend it by {cure}. {around}"
        raise OutsideBounds(said, problem.kind) from None


def _cure(kind: str, coordinates: Coordinates, place: MapOptions) -> str:
    """What to change for each cause that can be found; nothing for others."""
    box, crs = place.box(coordinates)
    match kind:
        case "swapped" if coordinates.x is not None:
            mended = f"--x {coordinates.y} --y {coordinates.x}"
            said = options.corners(place.bounds, "--bounds", around=True)
            if coordinates.project == "auto" and max(map(abs, said)) <= 90:  # they may be latitudes first
                turned = _text([said[i] for i in (1, 0, 3, 2)])
                mended += f" or, if --x is the longitude already, by --bounds {turned} (longitudes first)"
            return mended
        case "projected":
            return f"--crs {crs}"
        case "degrees" if crs is not None:
            return f"--crs EPSG:4326 --project {crs}"
        case "degrees":
            return "--crs EPSG:4326 --project with the projected CRS of the bounds, such as EPSG:32618"
        case "bounds" if crs is not None:
            from deltahist.domain.extents import extent_on

            return f"--bounds {_text(extent_on(box, crs).bounds)}"
        case "small bounds":
            return f"--bounds {_text([1000 * b for b in box])}{_plain(crs)}"
        case "large bounds" if crs is None:
            return f"--bounds {_text([b / 1000 for b in box])}{_plain(crs)}"
    return ""


def _text(box: tuple[float, ...] | list[float]) -> str:
    return ",".join(f"{b:.10g}" for b in box)


def _plain(crs: str | None) -> str:
    return "" if crs is not None else " (with --cell and --delta in the same units)"
