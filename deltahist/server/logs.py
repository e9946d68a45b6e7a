"""Logs of the service: a line of JSON for each event on stderr; none tells the content of a query."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from typing import Any

import orjson
from starlette.types import Scope

from deltahist._http import route_of
from deltahist._progress import TELLING
from deltahist.server.catalogue import Catalogue

_LOG = logging.getLogger("deltahist.server")


class _Lines(logging.Formatter):
    """Events as lines of JSON. Of an exception they have type and place: its message may hold what was asked."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        stamp += f".{record.msecs:03.0f}Z"
        event: dict[str, Any] = {"time": stamp, "level": record.levelname.lower(), "process": record.process}
        event |= {"event": record.getMessage()} | getattr(record, "facts", {})
        if record.exc_info and record.exc_info[0]:
            frames = traceback.extract_tb(record.exc_info[2])
            event["error"] = record.exc_info[0].__name__
            event["at"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return orjson.dumps(event, default=str).decode()


def write_logs() -> None:
    """Let this process write all logs to stderr, as lines of JSON, and nothing else."""
    TELLING.quiet = True
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    _LOG.setLevel(logging.INFO)


def release_of(scope: Scope, catalogue: Catalogue) -> str | None:
    """Return the name of the release that a request was about; None unless it is served."""
    name = (scope.get("path_params") or {}).get("name")
    return str(name) if isinstance(name, str) and catalogue.find(name) is not None else None


def log_request(scope: Scope, catalogue: Catalogue, status: int, seconds: float, number: str) -> None:
    """Log a request that ended: its id, route, release, status and duration, and no more of what was asked."""
    facts = {"id": number, "method": scope["method"], "route": route_of(scope), "status": status}
    facts |= {"seconds": round(seconds, 4), "release": release_of(scope, catalogue)}
    _LOG.info("request", extra={"facts": facts})
