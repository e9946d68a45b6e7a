"""The landing page for programs: links to all that a service has (OGC API – Common)."""

from __future__ import annotations

from fastapi import Request, Response

from deltahist._http import JSON, as_json


def list_links(request: Request) -> Response:
    """Return the links from `/` as JSON."""
    base = str(request.base_url)
    links = [
        {"rel": "self", "type": JSON, "title": "this document", "href": base},
        {"rel": "alternate", "type": "text/html", "title": "the map", "href": f"{base}?f=html"},
        {"rel": "service-desc", "type": JSON, "title": "all addresses", "href": f"{base}openapi.json"},
        {"rel": "items", "type": JSON, "title": "releases and their promises", "href": f"{base}releases"},
    ]
    return as_json({"title": "Range queries over private maps", "links": links}, {"vary": "Accept"})
