"""Points outside the bounds: how many there are, and what has probably gone wrong if they are many.

All of it is private, and for whoever holds the data: docs/counting.md says why a refusal that rests on it does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError, OutsideBounds, one_of
from deltahist.space.crs import Operation
from deltahist.space.domain import Domain
from deltahist.space.geometries import LONGITUDE_LATITUDE, looks_like_degrees

#: Share of points outside from which on they are refused, and share that a likely cause must explain.
_MANY, _ENOUGH = 0.01, 0.99
#: Part of a side of the map that points in another unit must span.
_SOME = 0.1
#: Points outside that are kept to look for the cause.
SAMPLE = 10_000
#: What points are multiplied by to fit bounds in the other one of metres and kilometres.
_SCALES = ((1e3, "large bounds", "small"), (1e-3, "small bounds", "large"))

Columns = Sequence[NDArray[np.float64]]


def check_outside(outside: str | None) -> None:
    """Raise InputError unless it says what becomes of points outside; None clamps them, but refuses many."""
    one_of(("clamp", "drop", None), outside=outside)


def finite_rows(columns: Columns) -> NDArray[np.bool_]:
    """Return the rows whose coordinates are all finite."""
    good = np.isfinite(columns[0])
    for column in columns[1:]:
        good &= np.isfinite(column)
    return good


def inside_rows(columns: Columns, domain: Domain) -> NDArray[np.bool_]:
    """Return the rows inside the domain's bounds, the bounds included."""
    inside = np.ones(len(columns[0]), dtype=bool)
    for column, low, high in zip(columns, domain.low, domain.high, strict=True):
        inside &= (column >= low) & (column <= high)
    return inside


class Outside:
    """Numbers and a sample of points outside, collected while rows are read; `operation` brings them to the map."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.operation: Operation | None = None
        self.points = self.outside = 0
        self._sample: list[list[NDArray[np.float64]]] = []
        self._room = SAMPLE

    def look(self, given: Columns, columns: Columns, rows: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """Return which rows are inside; count them, and keep a few of the others.

        Parameters
        ----------
        given : coordinates as they were read; rows without finite ones are no points.
        columns : the same on the map; infinite where they have no place there.
        rows : which of them are to be counted; all when None.
        """
        inside = inside_rows(columns, self.domain)
        points = finite_rows(given)
        if rows is not None:
            points &= rows
        off = np.flatnonzero(points & ~inside)
        self.points += int(points.sum())
        self.outside += len(off)
        if self._room and len(off):
            some = off[: self._room]
            self._room -= len(some)
            self._sample.append([column[some] for column in given])
        return inside

    def refuse_many(self) -> None:
        """Raise OutsideBounds if more than one point in a hundred lies outside, with the likely cause."""
        if self.outside <= _MANY * self.points:
            return
        kind, cause = next(self._causes(), ("unknown", "are they the right ones (W,S,E,N), and is the CRS"))
        domain, end = self.domain, "?" if kind == "unknown" else "."
        bounds = ",".join(f"{b:.10g}" for b in domain.bounds) + (f" of {domain.crs}" if domain.crs else "")
        raise OutsideBounds(
            f"{self.outside:,} of {self.points:,} points ({self.outside / self.points:.0%}) lie outside the bounds "
            f"{bounds}: {cause}{end} If it is meant, say what becomes of them: outside='clamp' (they count at the "
            "edge) or outside='drop' (with the boundary as a source)",
            kind,
        )

    def _causes(self) -> Iterator[tuple[str, str]]:
        """Yield kinds of mistakes that would explain the points outside, with words for the message."""
        given = [np.concatenate(columns) for columns in zip(*self._sample, strict=True)]
        domain, operation = self.domain, self.operation
        onto = (lambda *columns: columns) if operation is None else operation
        degrees = looks_like_degrees(domain.bounds)
        if domain.ndim == 2:
            if self._fits(onto, given[::-1]):
                yield "swapped", "x and y are swapped, the other way round they would lie inside"
            if operation is not None and self._fits(lambda *columns: columns, given):
                if degrees:
                    yield "bounds", f"the bounds are degrees, but must be in the units of {domain.crs}"
                yield "projected", f"the coordinates are in {domain.crs} already, not in the CRS that is said"
            # A map is never geographic, so that there is an operation.
            if operation is None and domain.crs and self._fits(Operation.onto(domain, LONGITUDE_LATITUDE), given):
                yield "degrees", f"the coordinates are degrees, not in {domain.crs}"
        for scale, kind, as_ in _SCALES:
            scaled = lambda *columns, by=scale: [c * by for c in onto(*columns)]  # noqa: E731
            if self._fits(scaled, given) and self._spans(scaled(*given)):
                yield kind, f"the units differ, with bounds 1,000 times as {as_} they would lie inside (m and km?)"
        if domain.crs is None and domain.ndim == 2 and not degrees:
            x, y = (float(np.abs(c).max()) for c in given)
            if looks_like_degrees((-x, -y, x, y)):
                yield "degrees", "the coordinates look like degrees, the bounds do not"

    def _spans(self, columns: Columns) -> bool:
        """Return whether points take up some of the map: bounds around the origin hold all points divided by 1,000."""
        sides = zip(columns, self.domain.low, self.domain.high, strict=True)
        return any(float(np.ptp(c[np.isfinite(c)], axis=0)) > _SOME * (high - low) for c, low, high in sides)

    def _fits(self, onto: Callable[..., Any] | None, given: Columns) -> bool:
        """Return whether nearly all points that are kept would lie inside on another way to the map."""
        assert onto is not None
        try:
            inside = inside_rows(onto(*given), self.domain)
        except InputError:
            return False
        return bool(inside.mean() > _ENOUGH)
