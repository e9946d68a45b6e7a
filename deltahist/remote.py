"""Query a release behind a service (`deltahist serve`) as if it were local."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import pyarrow as pa
import shapely
from numpy.typing import NDArray

import deltahist.kinds  # noqa: F401  registers all kinds of releases
from deltahist.answers import COLUMNS
from deltahist.errors import InputError
from deltahist.kinds import parse_release
from deltahist.releases.base import BaseRelease, join_answers
from deltahist.space.domain import Domain
from deltahist.space.workloads import Boxes, Regions, Workload

#: Maximum numbers of queries and vertices in a request, as in the default settings of a service.
_MOST_QUERIES, _MOST_VERTICES = 100_000, 200_000


def connect(url: str) -> RemoteRelease:
    """Return the release that a service offers at a URL. Raises InputError if there is none.

    `dh.answer` then sends its queries to the service. Responses are treated as untrusted input.

    >>> connect("city.parquet")
    Traceback (most recent call last):
    ...
    deltahist.errors.InputError: url is 'city.parquet': it must name a release, as in http://127.0.0.1:8000/releases/city
    """
    address = quote(str(url).rstrip("/"), safe="/%:@[]")
    if re.fullmatch(r"https?://[^/]+/(.+/)?releases/[^/]+", address):
        content = _send(address, "application/json")
        with contextlib.suppress(ValueError, LookupError, TypeError):
            return RemoteRelease(address, dict(json.loads(content)["statement"]))
    raise InputError(f"url is {url!r}: it must name a release, as in http://127.0.0.1:8000/releases/city")


class RemoteRelease:
    """A release whose queries a service answers. Other attributes are read from the downloaded file."""

    def __init__(self, url: str, facts: dict[str, Any]) -> None:
        self.url, self.stated_facts = url, facts
        self.domain, self.digest = Domain(**facts["domain"]), str(facts["digest"])

    def answer_workload(self, work: Workload, *, level: float, nonnegative: bool) -> dict[str, NDArray[Any]]:
        """Return the columns of `dh.answer` for a workload, each of shape (m,)."""
        if not len(work):  # a service refuses empty requests
            return self.load().answer_workload(work, level=level, nonnegative=nonnegative)
        how: dict[str, Any] = {"level": float(level), "nonnegative": bool(nonnegative)}
        how |= {} if self.domain.crs is None else {"crs": self.domain.crs}
        return join_answers([self._ask(*each, how) for each in self._requests(work)])

    @functools.lru_cache(maxsize=8)  # noqa: B019  few releases, each read once
    def load(self) -> BaseRelease:
        """Download the release's file once, and return the release. Raises the same errors as `dh.load`."""
        release = parse_release(_send(f"{self.url}/download", "*/*", most=2 << 30), self.url)
        self._check_digest(release.digest)
        return release

    def __getattr__(self, name: str) -> Any:
        """Return another attribute of the release, such as `to_geopandas`, from the downloaded file."""
        return object.__getattribute__(self if name.startswith("_") else self.load(), name)

    def __repr__(self) -> str:
        return f"RemoteRelease({self.url!r})"

    def _requests(self, work: Workload) -> Iterator[tuple[int, Any]]:
        """Yield, for each request, the number of its queries, and their corners or geometries."""
        if isinstance(work, Regions):
            work.check(self.domain)
            shapes = shapely.force_2d(work.geometries)
            groups = np.cumsum(shapely.get_num_coordinates(shapes)) // (_MOST_VERTICES // 2)
            for some in np.split(shapes, np.flatnonzero(np.diff(groups)) + 1):
                yield len(some), some
            return
        spans = work.spans(self.domain)  # raises InputError if a query is not on the map
        ends = [[self.domain.edges(axis)[each.astype(int)] for each in span] for axis, span in enumerate(spans)]
        corners = work.corners if isinstance(work, Boxes) else np.column_stack([e[k] for k in (0, 1) for e in ends])
        for first in range(0, len(corners), _MOST_QUERIES):
            part = corners[first : first + _MOST_QUERIES].tolist()
            yield len(part), part

    def _ask(self, number: int, queries: Any, how: dict[str, Any]) -> dict[str, NDArray[Any]]:
        if isinstance(queries, list):
            body, media = json.dumps({"boxes": queries}), "application/json"
        else:
            shapes = ",".join(f'{{"type":"Feature","geometry":{each}}}' for each in shapely.to_geojson(queries))
            body, media = f'{{"type":"FeatureCollection","features":[{shapes}]}}', "application/geo+json"
        address = f"{self.url}/answers?{urlencode(how)}"
        content = _send(address, "application/vnd.apache.arrow.stream", body.encode(), media)
        try:
            table = pa.ipc.open_stream(content).read_all()
            digest = table.schema.metadata[b"digest"].decode()
            columns = {name: table[name].to_numpy() for name in table.column_names if name != "note"}
            columns = {name: each if name == "estimator" else each.astype(float) for name, each in columns.items()}
            reason = f"it has {table.num_rows:,} rows for {number:,} queries, and columns {', '.join(columns)}"
            named = {"estimate", "std_error", "low", "high"} <= columns.keys() <= set(COLUMNS)
            expected = named and table.num_rows == number
        except (pa.ArrowException, LookupError, TypeError, ValueError) as problem:
            expected, reason = False, str(problem)
        if not expected:
            raise InputError(f"url is {self.url!r}: the response cannot be read ({reason:.200})")
        self._check_digest(digest)
        return columns

    def _check_digest(self, digest: str) -> None:
        if digest != self.digest:  # never mix answers from two releases
            raise InputError(f"the release at {self.url} was replaced: connect again")


def _send(url: str, accept: str, body: bytes | None = None, media: str = "", most: int = 64 << 20) -> bytes:
    """Return the content of a URL, of at most `most` bytes. Retries a busy service for a minute. Raises InputError."""
    for left in reversed(range(60)):
        try:
            request = urllib.request.Request(url, body, {"Accept": accept} | ({"Content-Type": media} if media else {}))
            with urllib.request.urlopen(request, timeout=300) as answer:
                content: bytes = answer.read(most + 1)
            if len(content) <= most:
                return content
            reason = f"the response has more than {most:,} bytes"
        except urllib.error.HTTPError as problem:
            with problem:
                reason = f"it answered {problem.code}: {problem.read(1 << 12).decode(errors='replace')!r}"
            if problem.code == 503 and left:
                time.sleep(1)
                continue
        except (OSError, ValueError, http.client.HTTPException) as problem:
            reason = str(getattr(problem, "reason", problem))
        break
    raise InputError(f"url is {url!r}: {reason}")
