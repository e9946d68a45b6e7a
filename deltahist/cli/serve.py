"""`deltahist serve`: a service that answers range queries from published releases."""

from __future__ import annotations

import contextlib
import socket
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from deltahist.cli import print_note, write_text


def serve(
    releases: Annotated[list[Path] | None, Argument(metavar="RELEASES", help="Release files and folders.")] = None,
    *,
    private: Annotated[Path | None, Option(metavar="CONFIG", help="Settings for serving private data (TOML).")] = None,
    new_key: Annotated[str | None, Option(metavar="NAME", help="Create a key for this client, then exit.")] = None,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on, or 0 for any free port.")] = 8000,
    workers: Annotated[int, Option(min=1, help="Number of processes. Each keeps all releases in memory.")] = 1,
    cors: Annotated[list[str] | None, Option(metavar="ORIGIN", help="Web origin that may send queries, or *.")] = None,
    root_path: Annotated[str, Option(metavar="PATH", help="Path prefix that a proxy removes, such as /maps.")] = "",
    tiles: Annotated[str | None, Option(help="URL of background tiles, such as https://a.org/{z}/{x}/{y}.png.")] = None,
    attribution: Annotated[str, Option(metavar="TEXT", help="Credit for the background tiles.")] = "",
    regions: Annotated[Path | None, Option(help="Districts to show on the map, as GeoPackage or GeoJSON.")] = None,
    context: Annotated[Path | None, Option(help="Lines or areas, such as roads, to draw on the map.")] = None,
    check: Annotated[bool, Option("--check", help="Read and list the releases, then exit.")] = False,
    max_bytes: Annotated[int, Option(min=1, help="Size limit of a request body, in bytes.")] = 16 << 20,
    max_boxes: Annotated[int, Option(min=1, help="Limit on boxes or features per request.")] = 100_000,
    max_requests: Annotated[int, Option(min=1, help="Connections per worker before it returns status 503.")] = 1000,
) -> int:
    """Answer range queries over HTTP from published releases, with errors and intervals. No private data are read.

    The page / shows a map. The service notices when files in a folder appear, change or disappear. docs/service.md and
    /openapi.json list all paths.

    With --private CONFIG, clients with keys query private data instead, and each query is charged to the people whose
    records it uses.

    \b
    Examples:
      deltahist serve city.parquet
      deltahist serve --private night.toml
      deltahist serve city.parquet --regions districts.gpkg
      deltahist serve published/ --port 9000 --workers 2 --cors https://maps.example.org
    """
    if private is not None or new_key is not None:
        from deltahist.personal.service import make_key, run_private

        if new_key is not None:
            key, hashed = make_key()
            lines = f'[clients.{new_key}]\nkeys = ["{hashed}"]'
            print_note(f"key of {new_key}, shown only once. Add these lines to the configuration:\n{lines}")
            write_text(key)
        if private is not None:
            run_private(private, check)
        return 0
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    from deltahist.server.app import serve_files
    from deltahist.server.catalogue import Catalogue
    from deltahist.server.places import read_context
    from deltahist.server.service import Settings

    catalogue = Catalogue(releases := releases or [])
    for problem in catalogue.problems:
        print_note(f"not served: {problem}")
    if not len(catalogue):
        print_note("there is no release yet: the service will publish any .parquet file added to its folders")
    domain = next((each.release.domain for each in catalogue), None)
    districts = None
    if regions is not None:
        from deltahist.server.districts import Districts

        districts = Districts.read(regions, domain)
    outlines = None if context is None else read_context(context, domain)
    settings = Settings(tuple(cors or ()), max_bytes, max_boxes, tiles, attribution, districts, outlines)
    with contextlib.ExitStack() as stack:
        listening = None if check else stack.enter_context(socket.create_server((host, port)))
        address = f"http://{host}:{listening.getsockname()[1] if listening else port}{root_path}"
        for served in catalogue:
            ending = f" (withdrawn {served.release.withdrawn})" if served.release.withdrawn else ""
            print_note(f"{address}/releases/{served.quoted}{ending}")
        print_note(f"{address}/")
        if listening is None:
            return 2 if catalogue.problems else 0
        config = uvicorn.Config(
            partial(serve_files, releases, settings),
            factory=True,
            workers=workers,
            root_path=root_path,
            limit_concurrency=max_requests,
            ws="none",
            access_log=False,  # a log would record the queries
            server_header=False,
            timeout_graceful_shutdown=10,
        )
        if workers > 1:
            Multiprocess(config, [listening]).run()
        else:
            uvicorn.Server(config).run([listening])
    return 0
