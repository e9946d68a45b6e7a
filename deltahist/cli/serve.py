"""`deltahist serve`: a service that answers range queries from published releases."""

from __future__ import annotations

import socket
from pathlib import Path

from deltahist.cli import console
from deltahist.cli.options import argument, flag, option
from deltahist.errors import InputError


def serve(
    releases: list[Path] = argument("RELEASES", "Files that `deltahist publish` wrote, and folders of them."),
    host: str = option("HOST", "Address to listen at; by default only this machine is answered.", default="127.0.0.1"),
    port: int = option("PORT", "Port to listen at; 0: any that is free.", default=8000),
    origins: list[str] | None = option(
        "ORIGIN", "Origin of web pages that may ask (https://maps.example.org, or *); repeat it.", names="--cors"
    ),
    tiles: str | None = option("URL", "Background of the map at /: https://tiles.example.org/{z}/{x}/{y}.png."),
    attribution: str = option("TEXT", "Whom the map names for its background.", default=""),
    check: bool = flag("Read the releases, tell what would be served, and end."),
) -> None:
    """Answer range queries over HTTP from published releases, with errors and intervals; no private data is read.

    At / is a map: whoever draws a box on it gets an answer. Files of a folder that appear, change or go are noticed
    while the service runs. docs/service.md lists all addresses, as does /openapi.json.

    \b
    Examples:
      deltahist serve city.parquet
      curl 'http://127.0.0.1:8000/releases/city/answer?bbox=-74.0,40.7,-73.9,40.8'
      deltahist serve published/ --port 9000 --cors https://maps.example.org
    """
    if not 0 <= port < 1 << 16:
        raise InputError(f"--port is {port}: it must be from 0 to 65535")
    try:
        import uvicorn

        from deltahist.server.app import create_app
        from deltahist.server.catalogue import Catalogue
        from deltahist.server.service import Settings
    except ImportError:
        raise InputError("a service needs packages that are not installed: pip install 'deltahist[serve]'") from None
    settings = Settings(tuple(origins or ()), tiles=tiles, attribution=attribution)
    catalogue = Catalogue(releases)
    with socket.create_server((host, port)) as listening:
        address = f"http://{host}:{listening.getsockname()[1]}"
        for served in catalogue:
            console.note(f"{address}/releases/{served.name}")
        if not check:
            app = create_app(catalogue, settings)
            how = uvicorn.Config(app, log_level="warning", server_header=False, limit_concurrency=1_000)
            uvicorn.Server(how).run([listening])
