"""A service as its routes see it: releases, settings, and threads for long work."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from fastapi import Request
from starlette.exceptions import HTTPException

from deltahist import __version__
from deltahist._http import ProblemError, Workers
from deltahist.releases.base import BaseRelease
from deltahist.releases.sums import ReleaseDifference
from deltahist.server.answers import Batcher, Source
from deltahist.server.catalogue import Catalogue, Served
from deltahist.server.settings import Settings


@dataclass
class Service:
    """Releases, an operator's choices, boxes that wait, and threads for long work."""

    catalogue: Catalogue
    settings: Settings
    batcher: Batcher = field(default_factory=Batcher)
    workers: Workers = field(init=False)

    def __post_init__(self) -> None:
        self.workers = Workers(most=self.settings.max_waiting)

    def address(self, request: Request) -> str:
        """Return the address of `/` as clients know it: behind a proxy that which the operator names."""
        if self.settings.public_url is not None:
            return self.settings.public_url.rstrip("/") + "/"
        # Of a mounted application, `base_url` is the address of the outer one.
        return str(request.base_url.replace(path=request.scope.get("root_path", "").rstrip("/") + "/"))

    def tag_links(self, served: Served, form: str, request: Request) -> str:
        """Return the entity tag of a form that holds links: it changes with the service's own address, too."""
        address = hashlib.sha256(self.address(request).encode()).hexdigest()[:8]
        return tag_of(served, f"{form}-{address}")

    def find(self, name: str, field: str = "release") -> Served:
        """Return the release of a name that a field gives; HTTPException 404 if there is none, 410 if withdrawn."""
        served = self.catalogue.find(name)
        if served is None:
            raise HTTPException(404, f"{field} is {name[:80]!r}: it must be one of those at /releases")
        return self.refuse_withdrawn(served)

    def refuse_withdrawn(self, served: Served) -> Served:
        """Return a release that is in force; for another raise 410, with the reason and a link to its replacement."""
        notice = served.release.withdrawn
        if notice is None:
            return served
        about, headers = describe_withdrawal(served.release), {"cache-control": "no-cache"}
        for other in self.catalogue:
            if notice.replacement is not None and other.release.digest == notice.replacement.digest:
                about["replacement"]["href"] = f"/releases/{other.quoted}"
                headers["link"] = f'</releases/{other.quoted}>; rel="successor-version"'
        raise ProblemError(410, f"release {served.name!r} was withdrawn {notice.words}", headers, withdrawn=about)

    def find_chain(self, served: Served) -> list[Served]:
        """Return the releases that share noise with one, and it, from coarse to fine."""
        shared = [each for each in self.catalogue.in_force() if each.release.origin == served.release.origin]
        return sorted(shared, key=lambda each: each.release.mechanism.budget.amount)

    def find_source(self, name: str, compare: str | None) -> tuple[Source, list[Served]]:
        """Return a release, or another less this one, and the one or two that these are.

        Raises HTTPException 404 if there is none, InputError if the two cannot be compared.
        """
        served = self.find(name)
        if compare is None:
            return served.release, [served]
        other = self.find(compare, "compare")
        return ReleaseDifference(served.release, other.release), [served, other]


def describe_withdrawal(release: BaseRelease) -> dict[str, Any]:
    """Return the notice of a release that was withdrawn, as JSON."""
    assert release.withdrawn is not None
    return asdict(release.withdrawn)


def tag_of(served: Served | Iterable[Served], form: str) -> str:
    """Return the entity tag of releases in a form: it changes with each release, the form and the software."""
    digests = [each.release.digest for each in ([served] if isinstance(served, Served) else served)]
    digest = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    return f"{digest[:32]}-{form}-{__version__}"
