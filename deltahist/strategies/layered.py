"""Layered: tents over a flow, noise on noise; what is near is hidden by the one, what is far by the other."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deltahist.domain import Domain
from deltahist.errors import InputError
from deltahist.strategies.base import Group, Members, Strategy, numbers_of
from deltahist.strategies.flow import BITS, Flow
from deltahist.strategies.tents import Tents

if TYPE_CHECKING:
    import scipy.sparse

    from deltahist.neighbourhood import Neighbourhood
    from deltahist.workloads import Workload

#: Flows count in parts of a point.
_ONE = 1 << BITS


@dataclass(frozen=True, eq=False)
class Layered(Strategy):
    """Tents that measure the cells of a flow, y = A (c + R(φ)) + ζ: noise on noise.

    A move may be hidden by the flow, which is then all that changes, or by the tents' own noise, whatever the flow is:
    it costs the less of both. A short move costs little in the flow, a long one in the tents, and the variances of
    the two add up. For moves of one cell: as good as a flow with hubs up to a limit of 3 for any move, 3 to 14% worse
    beyond.
    Source: docs/theory.md, section 7; proof: docs/privacy/tents.md.

    Parameters
    ----------
    inner : a flow between single cells. outer : tents over the same domain.

    Raises
    ------
    InputError
        If the flow is one between larger blocks, or the domains differ.

    >>> import math, deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (64, 64)), delta=1 / 64, limits=[(math.inf, 4)])
    >>> A = Layered.tuned(near)
    >>> [round(float(dh.sensitivity(A, relation)), 2) for _, relation in near.relations]
    [1.0, 4.0]
    """

    inner: Flow
    outer: Tents

    determines_cells: ClassVar[bool] = True
    texts: ClassVar[tuple[str, ...]] = ("layered",)

    def __post_init__(self) -> None:
        if not self.inner.plain:
            raise InputError(
                f"inner has blocks of {self.inner.block} cells: it must be a flow between single cells"
            )
        if self.inner.hubs is not None:
            raise InputError(
                f"inner has hubs {self.inner.hubs} apart: it must have none, since far moves are the tents'"
            )
        if self.inner.domain != self.outer.domain:
            raise InputError("inner and outer are on different domains: they must share one")

    @classmethod
    def tuned(cls, near: Neighbourhood, workload: Workload | None = None, *, norm: int = 1) -> Layered:
        """The best flow for what is within δ, and the best tents for what is promised further out.

        Parameters
        ----------
        near : with limits; the usual one for any move where nothing was said.
        workload : the queries; all ranges when None. norm : 1 for Laplace, 2 for Gaussian noise.

        Raises
        ------
        InputError
            If nothing is promised beyond δ, or the domain is a single cell.
        """
        _, *beyond = near.capped().relations
        if not beyond:
            raise InputError(
                "limits is (): tents over a flow need a limit beyond delta; else take the flow alone"
            )
        least, relation = beyond[0]
        further = [(limit.distance, limit.factor / least) for limit in near.capped().profile[1:]]
        outer = Tents.tuned(relation.with_limits(further), workload, norm=norm)
        shares = tuple(least * share for share in outer.shares or (Fraction(1), Fraction(1)))
        inner = Flow.tuned(near.without_limits(), workload, norm=norm, block=1)
        dearest = _cost(inner, near.without_limits(), 1)  # a flow's moves may cross several cells
        if dearest > 1:
            inner = replace(inner, shares=tuple(share / dearest for share in inner.share_of.values()))
        return cls(inner, replace(outer, shares=shares))

    @classmethod
    def named(cls, near: Neighbourhood, text: str, norm: int) -> Layered:
        numbers_of(text, 0)
        return cls.tuned(near, norm=norm)

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        if norm == 1 and near.profile and near.domain.size > 1 and near.frontier.max(initial=0) == 1:
            layered = cls.tuned(near, workload)
            apart = " × ".join(dict.fromkeys(map(str, layered.outer.apart)))
            yield f"Tents ({apart} cells apart, degree {layered.outer.degree}) over a flow", layered

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        return self.outer.domain

    @functools.cached_property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return self.outer.shape

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        # The tents' noise is on answers that count in the flow's parts of a point.
        own = (
            Group(group.name, _after(group.members, self.inner.draws), group.share / _ONE, group.unit / _ONE)
            for group in self.outer.groups
        )
        return (*self.inner.groups, *own)

    @property
    def parts(self) -> tuple[Group, ...]:
        return self.outer.groups

    @property
    def draws(self) -> int:
        return self.inner.draws + self.outer.draws

    @property
    def scatters_linearly(self) -> bool:
        return self.inner.scatters_linearly

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return self.outer._matmat(X) * _ONE

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return self.outer._rmatmat(X) * _ONE

    def measure(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.outer.measure(counts, _ONE)

    def scatter(self, noise: NDArray[Any]) -> NDArray[Any]:
        cells = self.inner.scatter(noise[..., : self.inner.draws])
        seen = self.outer._matmat(cells.reshape(-1, self.domain.size).T).T
        return np.asarray(seen.reshape(*noise.shape[:-1], -1) + noise[..., self.inner.draws :])

    def gather(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([self.inner.gather(np.asarray(self.outer.rmatvec(weights))), weights])

    def _by_flow(self, near: Neighbourhood) -> bool:
        """Whether the flow hides the moves of a relation for less than the tents (1-norm)."""
        return _cost(self.inner, near, 1) <= self.outer.edge_cost(near, 1)

    def edge_cost(self, near: Neighbourhood, norm: int) -> Fraction:
        return _cost(self.inner, near, norm) if self._by_flow(near) else self.outer.edge_cost(near, norm)

    def changes(self, near: Neighbourhood) -> scipy.sparse.csr_array:
        import scipy.sparse

        by_flow = self._by_flow(near)
        own = self.inner.changes(near) if by_flow else _ONE * self.outer.changes(near)
        other = scipy.sparse.csr_array(
            (self.outer.draws if by_flow else self.inner.draws, own.shape[1]), dtype=np.int64
        )
        return scipy.sparse.csr_array(scipy.sparse.vstack([own, other] if by_flow else [other, own]))

    def describe(self) -> dict[str, Any]:
        return {"strategy": "Layered", "inner": self.inner.describe(), "outer": self.outer.describe()}

    @classmethod
    def restore(cls, domain: Domain, *, inner: Any, outer: Any) -> Layered:  # type: ignore[override]
        from deltahist.strategies.registry import from_description

        for name, given, kind in (("inner", inner, "Flow"), ("outer", outer, "Tents")):
            if not isinstance(given, dict) or given.get("strategy") != kind:
                raise InputError(
                    f"{name} of the layered strategy is damaged: it must describe a strategy {kind}"
                )
        return cls(from_description(domain, inner), from_description(domain, outer))  # type: ignore[arg-type]


def _after(members: Members, start: int) -> Members:
    return (
        slice(members.start + start, members.stop + start) if isinstance(members, slice) else members + start
    )


def _cost(flow: Flow, near: Neighbourhood, norm: int) -> Fraction:
    """What a flow without hubs costs: it has a closed form."""
    cost = flow.edge_cost(near, norm)
    assert cost is not None
    return cost
