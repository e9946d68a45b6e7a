"""Choices of an operator of the service."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

from deltahist.errors import InputError

#: Address of tiles; its server is named in a header.
_TILES = re.compile(r"https?://[\w.-]+(:\d+)?/(?=\S*\{z\})(?=\S*\{x\})(?=\S*\{y\})\S*", re.ASCII)

#: Address of the service itself.
_PUBLIC = re.compile(r"https?://[\w.-]+(:\d+)?(/[\w.~%-]+)*/?", re.ASCII)


@dataclass(frozen=True)
class Settings:
    """Choices of an operator; the limits hold for each worker.

    Parameters
    ----------
    origins : web pages of these origins may ask ("*": all).
    max_bytes : of a request's body.
    max_boxes : in one request, features included.
    max_vertices : of all features of one request.
    max_seconds : from the head of a request to the end of its answer.
    max_requests : at work at a time; more are put off (503).
    max_waiting : places for requests with many boxes or features, at work or waiting, one for each 512 KiB of a body;
        more are put off (503).
    tiles, attribution : address of the map's background, with {z}, {x} and {y}, and whom to name for it.
    public_url : address of the service as clients know it, where a proxy gives it another; links begin with it.
    context : file of geometries that the map draws thin and grey, such as roads.

    Raises
    ------
    InputError
        If a limit is below 1, or an address is not of the form asked for.
    """

    origins: tuple[str, ...] = ()
    max_bytes: int = 16 << 20
    max_boxes: int = 100_000
    max_vertices: int = 200_000
    max_seconds: int = 60
    max_requests: int = 100
    max_waiting: int = 16
    tiles: str | None = None
    attribution: str = ""
    context: Path | None = None
    public_url: str | None = None

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self) if each.name.startswith("max_")):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.tiles is not None and not _TILES.fullmatch(self.tiles):
            raise InputError(f"tiles is {self.tiles!r}: it must be https://server/path with {{z}}, {{x}} and {{y}}")
        if self.public_url is not None and not _PUBLIC.fullmatch(self.public_url):
            raise InputError(f"public_url is {self.public_url!r}: it must be https://server or https://server/path")
