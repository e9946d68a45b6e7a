"""The first documents that clients of OGC read: links, conformance, and the API as OpenAPI 3.0 (Common, Features)."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from deltahist._http import JSON, as_json, negotiate
from deltahist.server.service import Service

#: Type of OpenAPI 3.0, which the requirements class "oas30" demands; FastAPI's own document is of 3.1.
OPENAPI = "application/vnd.oai.openapi+json;version=3.0"
_SPEC = "http://www.opengis.net/spec"
#: Requirements classes that the service meets.
CONFORMANCE = (
    *(f"{_SPEC}/ogcapi-common-1/1.0/conf/{name}" for name in ("core", "landing-page", "json", "oas30")),
    f"{_SPEC}/ogcapi-common-2/1.0/conf/collections",
    *(f"{_SPEC}/ogcapi-features-1/1.0/conf/{name}" for name in ("core", "geojson", "oas30")),
    *(f"{_SPEC}/ogcapi-tiles-1/1.0/conf/{name}" for name in ("core", "tileset", "tilesets-list", "png")),
)


def make_router(service: Service) -> APIRouter:
    """Return the routes of conformance and of the API's definition."""
    router = APIRouter(tags=["OGC API"])

    @router.get("/conformance")
    async def conform(request: Request) -> Response:
        """List the requirements classes of OGC's standards that the service meets."""
        negotiate(request, {JSON: "json"})
        return as_json({"conformsTo": CONFORMANCE})

    @router.get("/api", response_class=Response, responses={200: {"content": {OPENAPI: {"schema": {}}}}})
    async def define(request: Request) -> Response:
        """Define all addresses and parameters, as OpenAPI 3.0."""
        servers = [{"url": service.address(request).rstrip("/")}]
        definition = lower_definition(request.app.openapi() | {"servers": servers})
        return Response(orjson.dumps(definition), media_type=OPENAPI)

    return router


def list_links(base: str) -> Response:
    """Return the links from `/`, whose address is `base`, as JSON."""
    links = [
        link("self", base, "this document"),
        link("alternate", f"{base}?f=html", "the map", "text/html"),
        link("service-desc", f"{base}api", "all addresses and parameters", OPENAPI),
        link("service-doc", f"{base}docs", "the same for reading", "text/html"),
        link("conformance", f"{base}conformance", "requirements classes of OGC's standards"),
        link("data", f"{base}collections", "cells of the releases, as features and tiles"),
        link("http://www.opengis.net/def/rel/ogc/1.0/tiling-schemes", f"{base}tileMatrixSets", "grids of tiles"),
        link("items", f"{base}releases", "releases and their promises"),
        link("items", f"{base}series", "series of releases"),
    ]
    about = "Counts of points on maps that were published under differential privacy, with errors and intervals."
    content = {"title": "Range queries over private maps", "description": about, "links": links}
    return as_json(content, {"vary": "Accept"})


def link(relation: str, address: str, title: str, media: str = JSON) -> dict[str, str]:
    """Return a link to an address, as OGC's documents have it."""
    return {"rel": relation, "type": media, "title": title, "href": address}


def lower_definition(definition: Any) -> Any:
    """Return an OpenAPI 3.1 document, or a part of it, as OpenAPI 3.0.

    Only what FastAPI writes is changed: types that may be null, lists of examples, and exclusive bounds.

    >>> lower_definition({"openapi": "3.1.0", "schema": {"anyOf": [{"type": "string"}, {"type": "null"}]}})
    {'openapi': '3.0.3', 'schema': {'type': 'string', 'nullable': True}}
    """
    if isinstance(definition, list):
        return [lower_definition(each) for each in definition]
    if not isinstance(definition, dict):
        return definition
    lowered = {name: lower_definition(value) for name, value in definition.items()}
    if "openapi" in lowered:
        lowered["openapi"] = "3.0.3"
    kinds = lowered.get("anyOf")
    if isinstance(kinds, list) and {"type": "null"} in kinds:
        kinds.remove({"type": "null"})
        lowered["nullable"] = True
        if len(kinds) == 1:
            del lowered["anyOf"]
            lowered = {**kinds[0], **lowered}
    examples = lowered.get("examples")
    if isinstance(examples, list):
        del lowered["examples"]
        lowered["example"] = examples[0]
    for bound in ("Minimum", "Maximum"):
        value = lowered.get(f"exclusive{bound}")
        if isinstance(value, int | float) and not isinstance(value, bool):
            lowered |= {bound.lower(): value, f"exclusive{bound}": True}
    if "const" in lowered:
        lowered["enum"] = [lowered.pop("const")]
    return lowered


