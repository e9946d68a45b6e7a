"""`deltahist serve`: a service that answers range queries from published releases."""

from __future__ import annotations

import contextlib
import re
import socket
from pathlib import Path
from urllib.parse import quote

from deltahist.cli import console
from deltahist.cli.options import argument, flag, option, whole_number
from deltahist.errors import InputError
from deltahist.server.settings import Settings

_USUAL = Settings()
_LIMITS = "Limits of each worker"


def _limit(metavar: str, text: str, usual: int) -> int:
    made: int = option(metavar, text, whole_number, default=usual, panel=_LIMITS)
    return made


def _port(text: str, option: str) -> int:
    """Read the number of a port."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65535:
        raise InputError(f"{option} is {text[:80]!r}: it must be from 0 to 65535")
    return int(text)


def serve(
    releases: list[Path] = argument("RELEASES", "Files that `deltahist publish` wrote, and folders of them."),
    host: str = option("HOST", "Address to listen at; by default only this machine is answered.", default="127.0.0.1"),
    port: int = option("PORT", "Port to listen at; 0: any that is free.", _port, default=8000),
    workers: int = option("N", "Processes that answer; they share the releases.", whole_number, default=1),
    cors: list[str] | None = option(
        "ORIGIN", "Origin of web pages that may ask (https://maps.example.org, or *); repeat it."
    ),
    tiles: str | None = option("URL", "Background of the map at /: https://tiles.example.org/{z}/{x}/{y}.png."),
    attribution: str = option("TEXT", "Whom the map names for its background.", default=""),
    context: Path | None = option("FILE", "Geometries that the map draws thin and grey, such as roads."),
    public_url: str | None = option(
        "URL", "Address of the service behind a proxy, with which links begin: https://example.org/maps."
    ),
    metrics_port: int | None = option(
        "PORT", "Port of this machine where Prometheus may read metrics; 0: any free.", _port
    ),
    check: bool = flag("Read the releases, tell what would be served, and end."),
    max_bytes: int = _limit("N", "Bytes of a request's body.", _USUAL.max_bytes),
    max_boxes: int = _limit("N", "Boxes or features of a request.", _USUAL.max_boxes),
    max_vertices: int = _limit("N", "Vertices of all features of a request.", _USUAL.max_vertices),
    max_seconds: int = _limit("SECONDS", "From a request to the end of its answer.", _USUAL.max_seconds),
    max_requests: int = _limit("N", "Requests at work; more are put off.", _USUAL.max_requests),
    max_waiting: int = _limit("N", "Requests with many boxes or features, at work or waiting.", _USUAL.max_waiting),
) -> int:
    """Answer range queries over HTTP from published releases, with errors and intervals; no private data is read.

    At / is a map: whoever draws a box on it gets an answer. Files of a folder that appear, change or go are noticed
    while the service runs. docs/service.md lists all addresses, as does /openapi.json. Every option may also stand in
    the environment: DELTAHIST_SERVE_PORT=9000.

    \b
    Examples:
      deltahist serve city.parquet
      curl 'http://127.0.0.1:8000/releases/city/answer?bbox=-74.0,40.7,-73.9,40.8'
      deltahist serve published/ --port 9000 --workers 2 --cors https://maps.example.org
    """
    try:
        from deltahist.server.catalogue import Catalogue
        from deltahist.server.logs import write_logs
        from deltahist.server.running import run
        from deltahist.server.series import series_of
        from deltahist.space.geometries import read_geometries
    except ImportError:
        raise InputError("a service needs packages that are not installed: pip install 'deltahist[serve]'") from None
    limits = (max_bytes, max_boxes, max_vertices, max_seconds, max_requests, max_waiting)
    settings = Settings(tuple(cors or ()), *limits, tiles, attribution, context, public_url)
    catalogue = Catalogue(releases)
    for problem in catalogue.problems:
        console.note(f"not served: {problem}")
    if not len(catalogue):
        console.note("there is no release yet: files in a folder are served when they end in .parquet")
    elif context is not None:
        read_geometries(context, next(iter(catalogue)).release.domain, "--context")  # whether it can be read
    with contextlib.ExitStack() as sockets:
        listening = None if check else sockets.enter_context(socket.create_server((host, port)))
        address = f"http://{host}:{listening.getsockname()[1] if listening else port}"
        for served in catalogue:
            notice = served.release.withdrawn
            gone = "" if notice is None else f" (withdrawn {notice.words})"
            console.note(f"{address}/releases/{served.quoted}{gone}")
        if not len(catalogue):
            console.note(f"{address}/")
        if listening is None:  # the service may run meanwhile, at this very port
            for name, steps in catalogue.folders().items():
                if series_of(steps) is not None:
                    console.note(f"{address}/series/{quote(name, safe='')}")
            for folder in catalogue.unseen():
                console.note(f"{folder} is not looked into: name it too if its releases are to be served")
            return 2 if catalogue.problems else 0
        watched = None
        if metrics_port is not None:
            watched = sockets.enter_context(socket.create_server(("127.0.0.1", metrics_port)))
            console.note(f"http://127.0.0.1:{watched.getsockname()[1]}/metrics")
        write_logs()
        run(catalogue, settings, listening, workers, watched)
    return 0
