"""A release behind a service (`deltahist serve`), with the methods of a release."""

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

import deltahist.kinds  # noqa: F401  registers every kind of release
from deltahist.answers import COLUMNS
from deltahist.errors import InputError
from deltahist.kinds import parse_release
from deltahist.releases.base import BaseRelease, join_answers
from deltahist.space.domain import Domain
from deltahist.space.workloads import Boxes, Regions, Workload

#: Maximum queries and vertices per request (defaults of a service), and maximum bytes of an answer and of a file.
_MOST_QUERIES, _MOST_VERTICES, _MOST_ANSWER, _MOST_FILE = 100_000, 200_000, 64 << 20, 2 << 30


def connect(url: str) -> RemoteRelease:
    """Return the release at an address of a service. Raises InputError if there is none.

    `dh.answer` sends its queries to the service, whose responses are untrusted input.

    >>> connect("city.parquet")
    Traceback (most recent call last):
    ...
    deltahist.errors.InputError: url is 'city.parquet': it must be that of a release, like http://127.0.0.1:8000/releases/city
    """
    address = quote(str(url).rstrip("/"), safe="/%:@[]")
    if re.fullmatch(r"https?://[^/]+/(.+/)?releases/[^/]+", address):
        content = _send(address, "application/json")
        with contextlib.suppress(ValueError, LookupError, TypeError):
            return RemoteRelease(address, dict(json.loads(content)["statement"]))
    raise InputError(f"url is {url!r}: it must be that of a release, like http://127.0.0.1:8000/releases/city")


class RemoteRelease:
    """A release behind a service that answers its queries. Everything else is read from the downloaded file."""

    def __init__(self, url: str, facts: dict[str, Any]) -> None:
        self.url, self.stated_facts = url, facts
        self.domain, self.digest = Domain(**facts["domain"]), str(facts["digest"])

    def answer_workload(self, work: Workload, *, level: float, nonnegative: bool) -> dict[str, NDArray[Any]]:
        """Return the columns of `dh.answer` for a workload, each an array (m,)."""
        if not len(work):  # services refuse empty requests
            return self.load().answer_workload(work, level=level, nonnegative=nonnegative)
        how: dict[str, Any] = {"level": float(level), "nonnegative": bool(nonnegative)}
        how |= {} if self.domain.crs is None else {"crs": self.domain.crs}
        return join_answers([self._ask(*each, how) for each in self._requests(work)])

    @functools.lru_cache(maxsize=8)  # noqa: B019  few releases, each read once
    def load(self) -> BaseRelease:
        """Download the release file once, and return its release. Raises the errors of `dh.load`."""
        release = parse_release(_send(f"{self.url}/download", "*/*", most=_MOST_FILE), self.url)
        self._check_digest(release.digest)
        return release

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of a release, such as `to_geopandas`, from the downloaded file."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.load(), name)

    def __repr__(self) -> str:
        return f"RemoteRelease({self.url!r})"

    def _requests(self, work: Workload) -> Iterator[tuple[int, Any]]:
        """Yield the number of queries in each request, and their corners or geometries."""
        if isinstance(work, Regions):
            work.check(self.domain)
            shapes = shapely.force_2d(work.geometries)
            groups = np.cumsum(shapely.get_num_coordinates(shapes)) // (_MOST_VERTICES // 2)
            for some in np.split(shapes, np.flatnonzero(np.diff(groups)) + 1):
                yield len(some), some
            return
        spans = work.spans(self.domain)  # raises InputError on queries that are not on the map
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
            named = {"estimate", "std_error", "low", "high"} <= columns.keys() <= set(COLUMNS)
            if not named or table.num_rows != number:
                raise ValueError(
                    f"it has {table.num_rows:,} rows for {number:,} queries, or its columns are not the expected ones"
                )
        except (pa.ArrowException, LookupError, TypeError, ValueError) as problem:
            raise InputError(f"url is {self.url!r}: the answer cannot be read ({problem})") from None
        self._check_digest(digest)
        return columns

    def _check_digest(self, digest: str) -> None:
        if digest != self.digest:  # answers of two releases would look like those of one
            raise InputError(f"the release at {self.url} was replaced: connect again")


def _send(url: str, accept: str, body: bytes | None = None, media: str = "", most: int = _MOST_ANSWER) -> bytes:
    """Return the content at an address, at most `most` bytes. Raises InputError on any failure.

    Tries a busy service up to 60 times, one second apart.
    """
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
