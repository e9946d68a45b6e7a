"""Maps of people's records, by any mechanism of the toolkit for counts, and the columns that say where records are."""

from __future__ import annotations

import base64
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from deltahist.accounts.purses import Turn
from deltahist.budget import ceil_nano
from deltahist.counting.private import Private
from deltahist.counting.values import check_column
from deltahist.errors import InputError
from deltahist.mechanisms import Mechanism
from deltahist.personal.aggregates import Aggregate, Columns
from deltahist.personal.query import Expression, Query
from deltahist.planning import mechanism_for
from deltahist.preprocessing import UNPAID, Preprocessing
from deltahist.publishers.histogram import check_public, check_whole, publish
from deltahist.releases import Release
from deltahist.releases.base import from_bytes
from deltahist.space.crs import Operation, read_crs
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import Workload
from deltahist.strategies.base import Strategy

#: The most that a record costs, in ε or ρ: more than any person may spend.
_TOO_MUCH = 10**9
#: Starts the names of facts about places, one for each table.
_PLACE = "place "


@dataclass(frozen=True)
class Place:
    """Columns that say where a record is, in an order and a reference system; radii are measured on these.

    They are x, or x and y; () if no column says where. The CRS is None if they are in the units of maps without one.

    >>> str(Place(("lon", "lat"), "EPSG:4326"))
    "['lon', 'lat'] in EPSG:4326"
    """

    columns: Sequence[str]
    crs: str | None = None

    def __post_init__(self) -> None:
        columns = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
        if len(columns) > 2 or len(set(columns)) < len(columns):
            raise InputError(
                f"place is {list(columns)}: it must be the column of x, or those of x and y, or none"
            )
        if self.crs is not None and len(columns) < 2:
            raise InputError(
                f"crs is {self.crs!r} of the places {list(columns)}: it needs a column of x and one of y"
            )
        object.__setattr__(self, "columns", columns)
        if self.crs is not None:
            read = read_crs(self.crs)
            code = read.to_authority(min_confidence=100)
            object.__setattr__(self, "crs", read.to_wkt() if code is None else ":".join(code))

    def __str__(self) -> str:
        return f"{list(self.columns)} in {'units of the map' if self.crs is None else self.crs[:80]}"

    def agrees(self, crs: str | None) -> bool:
        """Return whether coordinates in a reference system are these numbers, but for their order."""
        if self.crs is None or crs is None:
            return self.crs is crs
        return bool(read_crs(self.crs).equals(read_crs(crs), ignore_axis_order=True))

    def check(self, axes: Sequence[str], crs: str | None) -> None:
        """Raise InputError unless a map reads columns of the place in this order and CRS."""
        if [name for name in self.columns if name in axes] != list(axes) or not self.agrees(crs):
            given = f"{list(axes)} in {'units of the map' if crs is None else crs[:80]}"
            raise InputError(
                f"the map reads the places as {given}, and these people's radii are about {self}: a move would be "
                "charged by another length than it has; read them alike (x before y, crs= of the columns)"
            )

    def keep(self, turn: Turn, account: str, table: str) -> None:
        """Keep the place with the account, for all questions: one answer would tell who took part in another.

        Another place may be given until a question is asked. Who has paid, or has a radius, makes no difference: an
        error that depended on them would tell of their records. Raises InputError if another place was kept before, or
        the radii of these people are in other units in another table.
        """
        given = {"columns": list(self.columns), "crs": self.crs}
        all_kept = turn.accounts.facts(account, _PLACE)
        kept = all_kept.pop(_PLACE + table, None)
        if kept == given or (kept and kept["columns"] == given["columns"] and self.agrees(kept["crs"])):
            return
        if kept is not None and turn.asked:
            raise InputError(
                f"place is {self} in {table!r}, and was {Place(**kept)} before: a radius is about the columns that "
                "were said when the first question was asked; say these"
            )
        for other, place in all_kept.items():
            if self.columns and place["columns"] and (self.crs is None) != (place["crs"] is None):
                raise InputError(
                    f"place is {self} in {table!r}, and {Place(**place)} in {other.removeprefix(_PLACE)!r}: a radius "
                    "would be metres in one and units of the map in the other; say the CRS of both (crs=), or of none"
                )
        turn.accounts.store(account, _PLACE + table, given)


@dataclass(frozen=True)
class Map(Aggregate):
    """A map of the places of records, by any strategy; the answer is a `Release`.

    Records without a place on the map (NULL, or where its CRS knows none) are not used, nor paid for. Points
    outside the bounds count in the nearest cell. A record of a person without a radius of their own costs what it costs
    if records appear and vanish anywhere, and move within δ. One of a person with a radius costs what a move over that
    radius does.

    Parameters
    ----------
    near : the neighbourhood. Without sources, records appear and vanish anywhere, unless membership is known.
    x, y : columns of the places, in the map's CRS or in `crs`.
    strategy, workload : as for `publish`.
    crs : of the columns, if it is not the map's.
    membership_known : the budget is for moves alone, of people with radii. Others pay more, and n stays unknown.
    weak_protection_accepted : as for `publish`.
    """

    near: Neighbourhood
    x: str
    y: str | None = None
    strategy: Strategy | str = "auto"
    workload: Workload | None = None
    crs: str | None = None
    membership_known: bool = False
    weak_protection_accepted: bool = False
    mechanism: Mechanism = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        domain = self.near.domain
        if not len(self.axes) == len({*self.axes}) == domain.ndim:
            raise InputError(
                f"x is {self.x!r} and y is {self.y!r} on a map of {domain.ndim} dimensions: it takes as many columns, "
                "and different ones, since moves along a diagonal are longer than a radius allows for"
            )
        if self.crs is not None and domain.crs is None:
            raise InputError(f"crs is {self.crs!r}, and the map has none: give it one, or leave this out")
        super().__post_init__()
        operation = self.operation
        counting = Preprocessing(dropped=(UNPAID,), projection=None if operation is None else operation.projection)
        near = self.near
        if near.fixed_membership and not self.membership_known:
            near = near.appearing_anywhere()
        made = mechanism_for(
            near, self.strategy, epsilon=self.epsilon, rho=self.rho, workload=self.workload, counting=counting
        )
        # Once records are read, a refusal would cost everybody all that the map may cost them.
        check_whole(made)
        check_public(made, self.weak_protection_accepted)
        object.__setattr__(self, "mechanism", made)

    @functools.cached_property
    def operation(self) -> Operation | None:
        """The projection of the columns onto the map; None if they are in its CRS."""
        return None if self.crs is None else Operation.onto(self.near.domain, self.crs)

    @property
    def axes(self) -> tuple[str, ...]:
        """Columns of the places."""
        return (self.x,) if self.y is None else (self.x, self.y)

    def cost(self, radii: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the billionths of one record: of a move over each radius, and of appearing for NaN."""
        mechanism = self.mechanism
        appearing = mechanism.neighbourhood.appearing_anywhere().without_limits()
        least, most = self.near.domain.ground(2 * max(self.near.domain.step)), self.near.diameter
        # No move on the map is longer than the map: a radius beyond any float's reach must not end the question.
        costs = [
            mechanism.cost_under(appearing) if math.isnan(r) else mechanism.cost_within(min(max(r, least), most))[0]
            for r in radii.tolist()
        ]
        return np.array([ceil_nano(amount=min(cost, _TOO_MUCH)) for cost in costs], dtype=np.int64)

    def keeps_radii(self, query: Query, values: Iterable[Expression]) -> bool:
        return not query.by_place and set(self.axes) <= query.untouched

    def check_place(self, query: Query, place: Place) -> None:
        if set(self.axes) <= query.untouched:
            place.check(self.axes, self.crs or self.near.domain.crs)

    def records(self, query: Query) -> tuple[Query, Mapping[str, Expression]]:
        for name in self.axes:
            check_column(name, query.columns)
            if query.columns[name] not in ("number", "whole"):
                raise InputError(
                    f"column {name!r} is of the kind {query.columns[name]!r}: coordinates are numbers"
                )
        # Functions: a text may be a word of SQL.
        return query, {name: lambda table, name=name: table[name] for name in self.axes}  # type: ignore[misc]

    def read(self, columns: Columns) -> tuple[Columns, NDArray[np.bool_]]:
        places = [np.asarray(columns[name], dtype=np.float64) for name in self.axes]
        usable = np.asarray(np.isfinite(np.stack(places)).all(axis=0))
        if self.operation is not None:
            places = list(self.operation(*(np.where(usable, place, 0.0) for place in places)))
            usable &= np.isfinite(np.stack(places)).all(axis=0)
        cells = np.full(len(usable), -1, dtype=np.int64)
        cells[usable] = self.near.domain.flat_cells([place[usable] for place in places])
        return {"cell": cells}, usable

    def answer(self, columns: Columns, number: int) -> Release:
        domain = self.near.domain
        counts = np.bincount(columns["cell"], minlength=domain.size).reshape(domain.shape)
        private = Private.of(counts.astype(np.int64), self.mechanism.counting, domain)
        made = publish(private, self.mechanism, weak_protection_accepted=self.weak_protection_accepted)
        return cast(Release, made)  # of a map that is held whole (`check_whole`)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {
            "mechanism": self.mechanism.describe(),
            "columns": list(self.axes),
            "crs": self.crs,
        }

    def to_json(self, answer: Release) -> dict[str, Any]:
        """Return the release's file as text."""
        return {"release": base64.b64encode(answer.to_bytes()).decode()}

    def from_json(self, kept: dict[str, Any]) -> Release:
        release = from_bytes(base64.b64decode(kept["release"]), "of the ledger")
        assert isinstance(release, Release)
        return release
