"""A service as its routes see it: releases, settings, and threads for long work."""

from __future__ import annotations

from dataclasses import dataclass, field

from starlette.exceptions import HTTPException

from deltahist import __version__
from deltahist._http import Workers
from deltahist.server.answers import Batcher
from deltahist.server.catalogue import Catalogue, Served


@dataclass(frozen=True)
class Settings:
    """Choices of an operator.

    Parameters
    ----------
    origins : web pages of these origins may ask ("*": all).
    most_bytes : of a request's body.
    most_boxes : in one request, features included.
    """

    origins: tuple[str, ...] = ()
    most_bytes: int = 16 << 20
    most_boxes: int = 100_000


@dataclass
class Service:
    """Releases, an operator's choices, boxes that wait, and threads for long work."""

    catalogue: Catalogue
    settings: Settings
    batcher: Batcher = field(default_factory=Batcher)
    workers: Workers = field(default_factory=Workers)

    def find(self, name: str) -> Served:
        """Return the release of a name; HTTPException 404 if there is none."""
        served = self.catalogue.find(name)
        if served is None:
            raise HTTPException(404, f"release is {name[:80]!r}: it must be one of those at /releases")
        return served


def tag_of(served: Served, form: str) -> str:
    """Return the entity tag of a release in a form: it changes with the release, the form and the software."""
    return f"{served.release.digest[:32]}-{form}-{__version__}"
