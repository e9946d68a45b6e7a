"""A service as its routes see it: releases, settings, and threads for long work."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException

from deltahist import __version__
from deltahist._http import Workers
from deltahist.errors import InputError
from deltahist.releases.sums import ReleaseDifference
from deltahist.server.answers import Batcher, Source
from deltahist.server.catalogue import Catalogue, Served

#: Address of tiles; its server is named in a header.
_TILES = re.compile(r"https?://[\w.-]+(:\d+)?/(?=\S*\{z\})(?=\S*\{x\})(?=\S*\{y\})\S*", re.ASCII)


@dataclass(frozen=True)
class Settings:
    """Choices of an operator.

    Parameters
    ----------
    origins : web pages of these origins may ask ("*": all).
    most_bytes : of a request's body.
    most_boxes : in one request, features included.
    tiles, attribution : address of the map's background, with {z}, {x} and {y}, and whom to name for it.

    Raises
    ------
    InputError
        If the background is no such address.
    """

    origins: tuple[str, ...] = ()
    most_bytes: int = 16 << 20
    most_boxes: int = 100_000
    tiles: str | None = None
    attribution: str = ""

    def __post_init__(self) -> None:
        if self.tiles is not None and not _TILES.fullmatch(self.tiles):
            raise InputError(f"tiles is {self.tiles!r}: it must be https://server/path with {{z}}, {{x}} and {{y}}")


@dataclass
class Service:
    """Releases, an operator's choices, boxes that wait, and threads for long work."""

    catalogue: Catalogue
    settings: Settings
    batcher: Batcher = field(default_factory=Batcher)
    workers: Workers = field(default_factory=Workers)

    def find(self, name: str, field: str = "release") -> Served:
        """Return the release of a name that a field gives; HTTPException 404 if there is none."""
        served = self.catalogue.find(name)
        if served is None:
            raise HTTPException(404, f"{field} is {name[:80]!r}: it must be one of those at /releases")
        return served

    def find_source(self, name: str, compare: str | None) -> tuple[Source, list[Served]]:
        """Return a release, or another less this one, and the one or two that these are.

        Raises HTTPException 404 if there is none, InputError if the two cannot be compared.
        """
        served = self.find(name)
        if compare is None:
            return served.release, [served]
        other = self.find(compare, "compare")
        return ReleaseDifference(served.release, other.release), [served, other]


def tag_of(served: Served | Iterable[Served], form: str) -> str:
    """Return the entity tag of releases in a form: it changes with each release, the form and the software."""
    if isinstance(served, Served):
        digest = served.release.digest
    else:
        digest = hashlib.sha256("".join(each.release.digest for each in served).encode()).hexdigest()
    return f"{digest[:32]}-{form}-{__version__}"
