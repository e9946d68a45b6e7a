"""`deltahist serve`: a service that answers range queries from published releases."""

from __future__ import annotations

import contextlib
import re
import socket
from functools import partial
from pathlib import Path

from deltahist.cli import console
from deltahist.cli.options import argument, flag, option, whole_number
from deltahist.errors import InputError

_LIMITS = "Limits of each worker"
_TILES = re.compile(r"https?://[\w.-]+(:\d+)?/(?=\S*\{z\})(?=\S*\{x\})(?=\S*\{y\})\S*", re.ASCII)


def _port(text: str, option: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65535:
        raise InputError(f"{option} is {text[:80]!r}: it must be from 0 to 65535")
    return int(text)


def _tiles(text: str, option: str) -> str:
    if not _TILES.fullmatch(text):
        raise InputError(f"{option} is {text!r}: it must be https://server/path with {{z}}, {{x}} and {{y}}")
    return text


def serve(
    releases: list[Path] | None = argument("RELEASES", "Release files, and folders of them.", default=None),
    private: Path | None = option("CONFIG", "Answer questions that people pay for instead (docs/service-private.md)."),
    new_key: str | None = option("NAME", "Make a key for a client of a private service, and end."),
    host: str = option("HOST", "Address to listen at; by default only this machine is answered.", default="127.0.0.1"),
    port: int = option("PORT", "Port to listen at; 0 takes any free port.", _port, default=8000),
    workers: int = option("N", "Processes that answer; each reads the releases.", whole_number, default=1),
    cors: list[str] | None = option(
        "ORIGIN", "Origin of web pages that may ask (https://maps.example.org, or *); repeatable."
    ),
    root_path: str = option("PATH", "Path of the service behind a proxy that removes it, such as /maps.", default=""),
    tiles: str | None = option("URL", "Background of the map: https://tiles.example.org/{z}/{x}/{y}.png.", _tiles),
    attribution: str = option("TEXT", "Whom the map credits for its background.", default=""),
    check: bool = flag("Read the releases, list what would be served, and end."),
    max_bytes: int = option("N", "Bytes of a request's body.", whole_number, default=16 << 20, panel=_LIMITS),
    max_boxes: int = option("N", "Boxes or features of a request.", whole_number, default=100_000, panel=_LIMITS),
    max_requests: int = option("N", "Open connections; others get 503.", whole_number, default=1000, panel=_LIMITS),
) -> int:
    """Answer range queries over HTTP from published releases, with errors and intervals; no private data is read.

    At / is a map for browsers. Files of a folder that appear, change or go are noticed while the service runs. All
    paths are listed in docs/service.md and at /openapi.json.

    With --private CONFIG private data are read instead: clients with keys ask about people's records, and each
    question is charged to the people whose records it uses.

    \b
    Examples:
      deltahist serve city.parquet
      deltahist serve --private night.toml
      curl 'http://127.0.0.1:8000/releases/city/answer?bbox=-74.0,40.7,-73.9,40.8'
      deltahist serve published/ --port 9000 --workers 2 --cors https://maps.example.org
    """
    if private is not None or new_key is not None:
        return _serve_private(private, new_key, check)
    if not releases:
        raise InputError("RELEASES is missing: name release files or folders, or --private CONFIG")
    try:
        import uvicorn
        from uvicorn.supervisors import Multiprocess

        from deltahist.server.app import serve_files
        from deltahist.server.catalogue import Catalogue
        from deltahist.server.service import Settings
    except ImportError:
        raise InputError("a service needs packages that are not installed: pip install 'deltahist[serve]'") from None
    catalogue = Catalogue(releases)
    for problem in catalogue.problems:
        console.note(f"not served: {problem}")
    if not len(catalogue):
        console.note("there is no release yet: files in a folder are served when they end in .parquet")
    with contextlib.ExitStack() as stack:
        listening = None if check else stack.enter_context(socket.create_server((host, port)))
        address = f"http://{host}:{listening.getsockname()[1] if listening else port}{root_path}"
        for served in catalogue:
            notice = served.release.withdrawn
            gone = "" if notice is None else f" (withdrawn {notice.words})"
            console.note(f"{address}/releases/{served.quoted}{gone}")
        console.note(f"{address}/")
        if listening is None:
            return 2 if catalogue.problems else 0
        config = uvicorn.Config(
            partial(serve_files, releases, Settings(tuple(cors or ()), max_bytes, max_boxes, tiles, attribution)),
            factory=True,
            workers=workers,
            root_path=root_path,
            limit_concurrency=max_requests,
            ws="none",
            access_log=False,  # addresses hold what is asked
            server_header=False,
            timeout_graceful_shutdown=10,
        )
        if workers > 1:
            Multiprocess(config, [listening]).run()
        else:
            uvicorn.Server(config).run([listening])
    return 0


def _serve_private(config: Path | None, new_key: str | None, check: bool) -> int:
    """Run the private service, or make a key for one of its clients."""
    try:
        from deltahist.personal.service import make_key, run_private
    except ImportError:
        raise InputError("a private service needs more packages: pip install 'deltahist[serve-private]'") from None
    if new_key is not None:
        key, hashed = make_key()
        console.note(f'key of {new_key}, shown once; for the file:\n[clients.{new_key}]\nkeys = ["{hashed}"]')
        console.put(key)
    if config is not None:
        run_private(config, check)
    return 0
