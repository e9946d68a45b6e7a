"""Records of people, and the questions that can be asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from deltahist.personal.answers import Answer, Answers
from deltahist.personal.asking import ask
from deltahist.personal.quantiles import QuantileAnswer, QuantileQuestion
from deltahist.personal.query import Expression, Query
from deltahist.personal.terminals import Count, Given, Histogram, Terminal
from deltahist.personal.values import Mean, Sum

if TYPE_CHECKING:
    from deltahist.neighbourhood import Neighbourhood
    from deltahist.releases import Release
    from deltahist.strategies.base import Strategy
    from deltahist.workloads import Workload

_Given = TypeVar("_Given", bound=Given)


@dataclass(frozen=True, eq=False)
class Records(Query):
    """Records of people, or what is derived from them, to ask questions of.

    Each question costs a person its ε (or ρ) as many times as it uses records derived from theirs (for ρ: as many
    times as the square of that). Each takes a key: the same question under the same key has the same answer, and is
    paid for once.
    """

    people: Any = None

    def ask(self, terminal: Terminal[_Given], key: str | None = None) -> _Given:
        """Ask a question (`deltahist.personal.terminals`).

        Raises
        ------
        InputError
            If its budget is of another unit than the people's, the key was used for another request, or the database
            or the ledger cannot be used. Nothing is charged then, unless records were being read: the message says
            that everybody was charged the most that the question may cost them.
        """
        return ask(self.people, self, terminal, key)

    def count(
        self,
        *,
        epsilon: float | Fraction | None = None,
        rho: float | Fraction | None = None,
        key: str | None = None,
    ) -> Answer:
        """The number of records."""
        return self.ask(Count(epsilon=epsilon, rho=rho), key)

    def sum(
        self,
        column: Expression,
        *,
        clip: tuple[float, float] | None = None,
        resolution: float | Fraction | None = None,
        epsilon: float | Fraction | None = None,
        rho: float | Fraction | None = None,
        key: str | None = None,
    ) -> Answer:
        """The sum of a value, clipped to a public range (`Sum`). Records without the value are not used."""
        return self.ask(Sum(column, clip, resolution, epsilon=epsilon, rho=rho), key)

    def mean(
        self,
        column: Expression,
        *,
        clip: tuple[float, float] | None = None,
        resolution: float | Fraction | None = None,
        epsilon: float | Fraction | None = None,
        rho: float | Fraction | None = None,
        key: str | None = None,
    ) -> Answer:
        """The mean of a value, clipped to a public range (`Mean`). Records without the value are not used."""
        return self.ask(Mean(column, clip, resolution, epsilon=epsilon, rho=rho), key)

    def histogram(
        self,
        column: str,
        values: Sequence[Any],
        *,
        epsilon: float | Fraction | None = None,
        rho: float | Fraction | None = None,
        key: str | None = None,
    ) -> Answers:
        """The number of records with each of some public values (`Histogram`). Records with others are not used."""
        return self.ask(Histogram(column, values, epsilon=epsilon, rho=rho), key)

    def quantile(
        self,
        column: Expression,
        q: float | Fraction = 0.5,
        *,
        clip: tuple[float, float] | None = None,
        resolution: float | Fraction | None = None,
        epsilon: float | Fraction | None = None,
        rho: float | Fraction | None = None,
        key: str | None = None,
    ) -> QuantileAnswer:
        """A quantile of a value within a public range (`QuantileQuestion`). Records without the value are not used."""
        return self.ask(QuantileQuestion(column, clip, resolution, q, epsilon=epsilon, rho=rho), key)

    def publish(
        self,
        near: Neighbourhood,
        x: str,
        y: str | None = None,
        strategy: Strategy | str = "auto",
        *,
        crs: str | None = None,
        workload: Workload | None = None,
        membership_known: bool = False,
        weak_protection_accepted: bool = False,
        epsilon: float | Fraction | None = None,
        rho: float | Fraction | None = None,
        key: str | None = None,
    ) -> Release:
        """A map of the records, charged to the people on it (`Map`)."""
        from deltahist.personal.spatial import Map

        asked = Map(
            *(near, x, y, strategy, workload, crs, membership_known, weak_protection_accepted),
            epsilon=epsilon,
            rho=rho,
        )
        return self.ask(asked, key).release
