"""Answers over HTTP: boxes that arrive together are answered together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.releases import Series
from deltahist.releases.base import BaseRelease
from deltahist.releases.sums import Difference
from deltahist.releases.tables import UNCUT
from deltahist.space.crs import LONGITUDE_LATITUDE
from deltahist.space.geometries import bend_boxes, clip_boxes, fit
from deltahist.space.workloads import Workload, boxes, regions

#: What boxes are asked of: a release, a series of steps, or the difference of two.
Source: TypeAlias = BaseRelease | Series | Difference
#: Columns of answers (m,), by name.
Columns: TypeAlias = dict[str, NDArray[Any]]
#: The CRS of longitude and latitude, as OGC's services name it.
CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"


@dataclass(frozen=True)
class BoxQuery:
    """What is asked besides the boxes; parameters as for `dh.answer`."""

    release: Source
    degrees: bool  # boxes are in longitude and latitude, not in the release's own coordinates
    level: float
    nonnegative: bool

    def answer(self, corners: NDArray[np.float64]) -> Columns:
        """Return the columns of `dh.answer` for boxes (m, 4), or (m, 2) on a line, clipped to the map."""
        domain = self.release.domain
        if not self.degrees:
            clipped = clip_boxes(corners, domain)
            work: Workload = boxes(corners if clipped is None else np.array(clipped.shapes[clipped.held].tolist()))
        else:
            _check_boxes(corners)
            clipped = fit(bend_boxes(corners, domain), domain, LONGITUDE_LATITUDE)
            work = regions(clipped.shapes[clipped.held])
        found = self.release.answers(work, level=self.level, nonnegative=self.nonnegative)
        return found if clipped is None else clipped.spread_over_regions(found)

    def answer_alone(self, corners: NDArray[np.float64]) -> Columns:
        """Return the columns (1,) of the answer to one box (4,), or (2,) on a line."""
        return _row(self.answer(corners[None]), 0)


def _check_boxes(corners: NDArray[np.float64]) -> None:
    """Raise InputError if a box (m, 4) is empty, or nowhere in longitude and latitude, or south above north."""
    west, south, east, north = corners.T
    sound = (west != east) & (south < north) & (np.abs(corners) <= (360, 90, 360, 90)).all(axis=1)
    if not sound.all():
        wrong = corners[np.argmin(sound)].tolist()
        raise InputError(f"bbox is {wrong}: it must be west, south, east, north, in degrees")


def asks_degrees(release: Source, crs: str | None) -> bool:
    """Return whether coordinates in a CRS are longitude and latitude; InputError unless they are or the release's own.

    None is longitude and latitude, or the plane without a CRS. No text is looked up: it could name a file.
    """
    own = release.domain.crs
    if crs is None or (own is not None and crs in (CRS84, "OGC:CRS84", "CRS84", "urn:ogc:def:crs:OGC:1.3:CRS84")):
        return own is not None
    forms = ("EPSG:", "http://www.opengis.net/def/crs/EPSG/0/", "urn:ogc:def:crs:EPSG::")
    if own is not None and crs in [own.replace("EPSG:", form) for form in forms]:
        return False
    rule = "leave it out" if own is None else f"it must be {own} or {CRS84} (longitude, latitude)"
    raise InputError(f"crs is {crs[:80]!r}: {rule}")


@dataclass
class Batcher:
    """Answers to single boxes: those that arrive while others are answered share one call."""

    _waiting: dict[BoxQuery, list[tuple[NDArray[np.float64], asyncio.Future[Columns]]]] = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None

    async def answer(self, query: BoxQuery, corners: NDArray[np.float64]) -> Columns:
        """Return the columns (1,) of the answer to a box (4,), or (2,) on a line; InputError as of `dh.answer`."""
        future: asyncio.Future[Columns] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(query, []).append((corners, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        await asyncio.sleep(0)  # let further requests join this round of the loop
        while self._waiting:
            query, asked = next(iter(self._waiting.items()))
            del self._waiting[query]
            try:
                found = await asyncio.to_thread(_answer_each, query, [corners for corners, _ in asked])
            except Exception as problem:
                found = [problem] * len(asked)
            for (_, future), each in zip(asked, found, strict=True):
                if future.done():
                    continue
                if isinstance(each, Exception):
                    future.set_exception(each)
                else:
                    future.set_result(each)


def _answer_each(query: BoxQuery, asked: list[NDArray[np.float64]]) -> list[Columns | Exception]:
    """Return the columns (1,) of each box, or its problem, exactly as it has them alone."""
    try:
        columns = query.answer(np.array(asked))
    except Exception as problem:
        if len(asked) == 1:
            return [problem]
        half = len(asked) // 2  # one box must not make all others be answered alone
        return [*_answer_each(query, asked[:half]), *_answer_each(query, asked[half:])]
    unanswered = np.isnan(columns["estimate"]) & (len(asked) > 1)
    return [
        # Why a box has no answer is said of it alone.
        _answer_each(query, [each])[0] if unanswered[at] else _row(columns, at)
        for at, each in enumerate(asked)
    ]


def _row(columns: Columns, at: int) -> Columns:
    """Return the columns (1,) of one box, without those that only other boxes of the call have."""
    row = {name: values[[at]] for name, values in columns.items()}
    if "cut" in row and not row["cut"][0]:
        row = {name: value for name, value in row.items() if name not in UNCUT}
    if not row.get("outside", [1.0])[0]:
        del row["outside"]
    if "note" in row and not isinstance(row["note"][0], str):
        del row["note"]
    return row
