"""Quantiles of people's values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from deltahist.errors import InputError, as_printed, finite
from deltahist.noise.entropy import source
from deltahist.noise.places import moves_that_matter
from deltahist.personal.answers import LEVEL, PaidAnswer
from deltahist.personal.ranks import draw_quantile, ranks_amiss, rate_of
from deltahist.personal.terminals import Used
from deltahist.personal.values import OfValues

#: Denominators of quantiles: costs stay within 64 bits.
_FINEST = 10**6
#: Costs of places that are told apart: so many powers take some 20 seconds and a gigabyte, whatever the records are.
_MOST_COSTS = 1 << 22


@dataclass(frozen=True, repr=False)
class QuantileAnswer(PaidAnswer):
    """A quantile of values that people pay for; public.

    Parameters
    ----------
    what : was asked. value : that was drawn.
    amiss : so many of the records lie on its wrong side at most, in 95 of 100 cases.
    unit, amount : what one record costs.

    >>> QuantileAnswer("median of fare", 12.4, 100, "epsilon", Fraction(1, 10))
    QuantileAnswer(median of fare: 12.4, with at most 100 records on the wrong side with probability 95%)
    """

    what: str
    value: float
    amiss: int
    unit: str
    amount: Fraction

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.value:,.6g}, with at most {self.amiss:,} records on the wrong side with probability "
            f"{LEVEL:.0%}"
        )


@dataclass(frozen=True)
class QuantileQuestion(OfValues[QuantileAnswer]):
    """A quantile of a value: of the places between its bounds, those with fewer records amiss are likelier.

    Neither the values nor their number are known. In ρ it costs ε²/2 (docs/privacy/personal.md, section 4).

    Parameters
    ----------
    q : which one, from 0 to 1; 0.5 is the median. The others as for `OfValues`.

    Raises
    ------
    InputError
        As `OfValues`; unless q is a number from 0 to 1 of at most six decimals; on a budget too small to draw with.

    >>> QuantileQuestion("fare", clip=(0, 50), q=0.9, epsilon=0.5).places
    5000001
    """

    q: float | Fraction = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        asked = as_printed(finite(q=self.q))
        if not 0 <= asked <= 1 or asked.denominator > _FINEST:
            raise InputError(f"q is {self.q!r}: it must be a number from 0 to 1 of at most six decimals")
        object.__setattr__(self, "q", asked)
        if not self.pure or moves_that_matter(self.places, rate_of(asked, self.pure)) > _MOST_COSTS:
            raise InputError(
                f"{self.unit} is {float(self.amount):g} for q = {float(asked):g}: to draw that exactly would take too "
                f"long; take more {self.unit}, or a q of fewer decimals"
            )

    @property
    def share(self) -> Fraction:
        """q, exactly."""
        return Fraction(self.q)

    @property
    def places(self) -> int:
        """Places on the line between the bounds."""
        low, high = self.bounds()
        return round((high - low) / self.step) + 1

    @property
    def pure(self) -> Fraction:
        """ε by which places are drawn: at most what ρ = ε²/2 allows."""
        if self.unit == "epsilon":
            return self.amount
        digits = 10**12
        return Fraction(math.isqrt(int(2 * self.amount * digits * digits)), digits)

    def _size(self, low: Fraction, high: Fraction) -> Fraction:
        return high - low

    def answer(self, used: Used) -> QuantileAnswer:
        low, _ = self.bounds()
        place = draw_quantile(self.steps(used, low), self.places, self.share, self.pure, source(None))
        name = "median" if self.share == Fraction(1, 2) else f"{float(self.share):g}-quantile"
        amiss = ranks_amiss(self.places, self.share, self.pure, 1 - LEVEL)
        return QuantileAnswer(f"{name} of {self.what}", float(low + place * self.step), amiss, self.unit, self.amount)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "q": str(self.share)}

    def again(self, kept: dict[str, Any]) -> QuantileAnswer:
        return QuantileAnswer.from_json(kept)
