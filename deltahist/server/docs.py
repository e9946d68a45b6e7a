"""Documentation for browsers at /docs: Swagger UI, of which every file comes from this service."""

from __future__ import annotations

import importlib.resources

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from deltahist import __version__
from deltahist._http import copy_headers

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>deltahist: documentation</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<script src="docs/swagger-ui-bundle.js" defer></script>
<script src="docs/start.js" defer></script>
</head>
<body><main id="docs"><noscript>Without scripts: <a href="openapi.json">openapi.json</a></noscript></main></body>
</html>
"""
#: Without an address, no validator elsewhere is told of the description.
_START = """SwaggerUIBundle({url: "openapi.json", dom_id: "#docs", validatorUrl: null, deepLinking: true});
"""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def make_router() -> APIRouter:
    """Return the routes to the page and its files."""
    router = APIRouter(include_in_schema=False)
    bundle = importlib.resources.files("fastapi_swagger") / "resources"
    files = {
        "start.js": (_START.encode(), "text/javascript"),
        "swagger-ui-bundle.js": ((bundle / "swagger-ui-bundle.js").read_bytes(), "text/javascript"),
        "swagger-ui.css": ((bundle / "swagger-ui.css").read_bytes(), "text/css"),
    }

    @router.get("/docs")
    async def show() -> Response:
        """Show the documentation of all routes."""
        headers = {"content-security-policy": _POLICY, "referrer-policy": "no-referrer"}
        return Response(_PAGE, media_type="text/html", headers=headers)

    @router.get("/docs/{path}")
    async def show_file(path: str, request: Request) -> Response:
        """Hand out a script or style of the page."""
        if path not in files:
            raise HTTPException(404, f"path is {path[:80]!r}: the documentation has no such file")
        content, media = files[path]
        headers = copy_headers(request, f"docs-{len(content)}-{__version__}")
        return Response(content, media_type=media, headers=headers)

    return router
