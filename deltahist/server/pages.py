"""Pages for browsers: the map, its scripts and styles, and what they show besides answers."""

from __future__ import annotations

import functools
import hashlib
import mimetypes
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import xstatic.pkg.leaflet
from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from deltahist._http import GEOJSON, JSON, as_json, copy_headers, negotiate, plain
from deltahist.errors import InputError
from deltahist.plots import protection_curve
from deltahist.plots.ground import context_on
from deltahist.releases.base import BaseRelease
from deltahist.server.blocks import longest_side
from deltahist.server.landing import list_links
from deltahist.server.service import Service, tag_of
from deltahist.server.settings import Settings
from deltahist.space.crs import Operation
from deltahist.space.domain import Domain
from deltahist.space.geometries import LONGITUDE_LATITUDE, read_geometries
from deltahist.statement import bound_guess

#: Lines of a context lose bends that are smaller than this part of the map's longer side.
_SIMPLE = 1 / 4000
#: Of Leaflet those files that the map loads.
_LEAFLET = ("leaflet-src.esm.js", "leaflet.css")


def make_router(service: Service) -> APIRouter:
    """Return the routes to the map and to what it shows of a release."""
    router = APIRouter(tags=["map"])
    files = _read_files()
    policy = _policy(service.settings)

    @router.get("/", responses={200: {"content": {"text/html": {"schema": {}}}}})
    async def land(request: Request) -> Response:
        """Link to all that there is; a browser (Accept: text/html) gets the map."""
        if negotiate(request, {JSON: "json", "text/html": "html"}) == "json":
            return list_links(service.address(request))
        return hand_out("index.html", request)

    @router.get("/favicon.ico", include_in_schema=False)
    async def show_icon(request: Request) -> Response:
        """Hand out the icon that browsers ask for beside pages that name none."""
        return hand_out("icon.svg", request)

    @router.get("/static/settings.json", include_in_schema=False)
    async def tell_settings() -> Response:
        """Tell the map what the operator chose."""
        chosen = service.settings
        about = {"tiles": chosen.tiles, "attribution": chosen.attribution, "context": chosen.context is not None}
        return as_json(about)

    @router.get("/static/{path:path}", include_in_schema=False)
    async def show_file(path: str, request: Request) -> Response:
        """Hand out a script, a style or a picture of the map."""
        return hand_out(path, request)

    @router.get("/releases/{name}/explanation")
    async def explain(name: str, request: Request) -> Response:
        """Explain in plain words what a release promises, and how often a guess is right, by distance."""
        served = service.find(name)
        headers = copy_headers(request, tag_of(served, "explanation"))
        return as_json(await service.workers.run(_explain, served.release), headers)

    @router.get("/releases/{name}/context", include_in_schema=False)
    async def show_context(name: str) -> Response:
        """Hand out what the map draws besides a release, in its extent."""
        served, path = service.find(name), service.settings.context
        if path is None:
            raise HTTPException(404, "context is not there: the service was started without --context")
        content = await service.workers.run(_read_context, path, served.release.domain)
        return Response(content, media_type=GEOJSON, headers={"cache-control": "max-age=3600"})

    def hand_out(path: str, request: Request) -> Response:
        if path not in files:
            raise HTTPException(404, f"path is {path[:80]!r}: there is no such file of the map")
        content, media, tag = files[path]
        headers = {"content-security-policy": policy, "referrer-policy": "no-referrer"}
        return Response(content, media_type=media, headers=headers | copy_headers(request, tag, by_accept=True))

    return router


def _read_files() -> dict[str, tuple[bytes, str, str]]:
    """Return content, type and digest of the map's files, and of Leaflet's, by their paths."""
    found = {each.name: each for each in (Path(__file__).parent / "static").iterdir() if each.is_file()}
    found |= {f"leaflet/{name}": Path(xstatic.pkg.leaflet.BASE_DIR) / name for name in _LEAFLET}
    return {path: _read(file) for path, file in found.items()}


@functools.lru_cache(maxsize=16)
def _read_context(path: Path, domain: Domain) -> str:
    """Return the lines and points of a file that lie on a map as GeoJSON, in degrees; simple enough to be drawn."""
    import shapely

    try:
        parts = context_on(domain, read_geometries(path, domain, "context"))
    except InputError:  # none of it is on this map
        return '{"type": "GeometryCollection", "geometries": []}'
    parts = shapely.simplify(parts, longest_side(domain) * _SIMPLE)
    if domain.crs is not None:
        parts = Operation.off(domain, LONGITUDE_LATITUDE).shapes(parts)
    return str(shapely.to_geojson(shapely.geometrycollections(parts)))


def _read(file: Path) -> tuple[bytes, str, str]:
    content = file.read_bytes()
    return content, mimetypes.guess_type(file.name)[0] or "text/plain", hashlib.sha256(content).hexdigest()[:32]


def _policy(settings: Settings) -> str:
    """Return the Content-Security-Policy: nothing but this service, and the operator's background."""
    # Leaflet's empty tile is a data: address.
    pictures = "'self' data:"
    if settings.tiles is not None:
        parts = urlsplit(settings.tiles)
        pictures += f" {parts.scheme}://{parts.netloc}"
    own = "; ".join(f"{each}-src 'self'" for each in ("script", "style", "connect"))
    return f"default-src 'none'; {own}; img-src {pictures}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


@functools.lru_cache(maxsize=64)
def _explain(release: BaseRelease) -> dict[str, Any]:
    """Return the words of the statement, and the curve of guesses by distance."""
    facts, mechanism = release.facts(), release.mechanism
    curve = protection_curve(mechanism)
    near = mechanism.neighbourhood.delta_ground
    pairs = zip(curve["exact"].tolist(), curve["distance"].tolist(), strict=True)
    guess = [bound_guess(facts, plain(cost), distance / near) for cost, distance in pairs]
    return {
        "sections": dict(release.rows()),
        "points_per_user": facts["points_per_user"],
        "unit": facts["unit"],
        "delta": near,
        "curve": {"distance": curve["distance"].tolist(), "guess": guess},
    }
