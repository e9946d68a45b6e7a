"""Maps of people's records, by any mechanism of the toolkit for counts."""

from __future__ import annotations

import base64
import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.accounts.rules import ceil_nano
from deltahist.counting.private import Private
from deltahist.counting.texts import check_column
from deltahist.errors import NANO, InputError
from deltahist.mechanisms import Mechanism
from deltahist.personal.aggregates import Aggregate, Columns
from deltahist.personal.query import Expression, Query
from deltahist.planning import mechanism_for
from deltahist.preprocessing import UNPAID, Preprocessing
from deltahist.publishers.histogram import check_public, publish
from deltahist.releases import Release
from deltahist.releases.base import from_bytes
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.operations import Operation
from deltahist.space.workloads import Workload
from deltahist.strategies.base import Strategy

if TYPE_CHECKING:
    from deltahist.personal.register import Place

#: The most that a record costs: more than any person may spend.
_TOO_MUCH = 10**9 * NANO


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

    Raises
    ------
    InputError
        On columns that do not go with the map, a strategy that keeps the number of points, or a budget that hardly
        protects.
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
        if (self.y is None) != (self.near.domain.ndim == 1):
            raise InputError(
                f"y is {self.y!r} on a map of {self.near.domain.ndim} dimensions: one takes x, two take x and y"
            )
        if self.x == self.y:
            raise InputError(
                f"x and y are both {self.x!r}: a place has two coordinates, and moves along a diagonal are longer than "
                "a radius allows for"
            )
        if self.crs is not None and self.near.domain.crs is None:
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
        prices = [ceil_nano(amount=min(cost, _TOO_MUCH // NANO)) for cost in costs]
        return np.array(prices, dtype=np.int64)

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
        return query, {name: _column(name) for name in self.axes}

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
        return publish(private, self.mechanism, weak_protection_accepted=self.weak_protection_accepted)

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


def _column(name: str) -> Expression:
    """Return a column by its name, whatever that is called."""
    return lambda table: table[name]
