"""What can be asked of derived records: each question says what it fetches, what it costs, measures and draws.

A question is private for adding or removing one derived record: who has k of them pays k times its ε, or k² times its
ρ (`deltahist.personal.asking`).
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from deltahist.budget import Budget
from deltahist.budgets.rules import ceil_nano, read_amount
from deltahist.decode import interval
from deltahist.decode.moments import Moments
from deltahist.errors import InputError, positive
from deltahist.mechanisms.calibration import scale_noise
from deltahist.personal.answers import LEVEL, Answer, Answers
from deltahist.personal.places import Place
from deltahist.personal.query import Expression, Query
from deltahist.privacy import Law
from deltahist.publishers.publication import draw

#: Noise of a larger scale may overflow.
_MOST_SCALE = 1 << 50
#: Which of the values of a histogram a record has.
_CELL = "_cell"


class Given(Protocol):
    """An answer."""

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready description, of which `Terminal.again` makes the answer."""


_Given = TypeVar("_Given", bound=Given)


class Used(Protocol):
    """The derived records of those who pay; private."""

    number: int

    def column(self, name: str) -> NDArray[Any]:
        """A fetched value of each of them."""


@dataclass(frozen=True, kw_only=True)
class Terminal(ABC, Generic[_Given]):
    """A question.

    Parameters
    ----------
    epsilon, rho : what one derived record costs, one of them; a float stands for the decimal that it prints as.

    Raises
    ------
    InputError
        Unless one of both is given, above zero and at most 10^9.
    """

    epsilon: float | Fraction | None = None
    rho: float | Fraction | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "rho"):
            said = getattr(self, name)
            if said is not None:
                object.__setattr__(self, name, read_amount(**{name: positive(**{name: said})}))
        Budget(self.epsilon, self.rho)

    @property
    def unit(self) -> str:
        """ "epsilon" or "rho"."""
        return "epsilon" if self.rho is None else "rho"

    @property
    def amount(self) -> Fraction:
        """ε or ρ of one derived record."""
        return Fraction(getattr(self, self.unit))

    def cost(self, radii: NDArray[np.float64]) -> NDArray[np.int64]:
        """Billionths that one derived record costs a person, for each radius (c,) that persons have; NaN is none."""
        return np.full(len(radii), ceil_nano(**{self.unit: self.amount}), dtype=np.int64)

    def keeps_radii(self, query: Query, values: Iterable[Expression]) -> bool:
        """Whether people with a radius of their own, of whom only places are hidden, may take part: if nothing that is
        asked of these records depends on place (docs/privacy/personal.md, section 5)."""
        return not query.by_place and not any(map(query.depends_on_place, values))

    def check_place(self, query: Query, place: Place) -> None:
        """Raise InputError if places are read otherwise than people's radii are measured."""
        return

    def read(
        self, columns: Mapping[str, NDArray[Any]]
    ) -> tuple[Mapping[str, NDArray[Any]], NDArray[np.bool_] | None]:
        """Values that were fetched as they are measured, and which records have them; None if all have."""
        return columns, None

    @abstractmethod
    def answer(self, used: Used) -> _Given:
        """What is handed out: measured exactly, with exact noise. The noise is drawn here."""

    @abstractmethod
    def records(self, query: Query) -> tuple[Query, Mapping[str, Expression]]:
        """The derived records that it is about, and the values of them that it needs, by name."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """A JSON-ready description; two questions with one description are the same, if they are asked of the same
        values."""

    @abstractmethod
    def again(self, kept: dict[str, Any]) -> _Given:
        """The answer of which `to_json` was kept."""

    def _described(self, **more: Any) -> dict[str, Any]:
        return {"question": type(self).__name__.lower(), self.unit: str(self.amount), **more}


@dataclass(frozen=True, kw_only=True)
class Measured(Terminal[_Given]):
    """A question whose answer follows from whole numbers with noise of one law."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Whatever is wrong with it is said before anything is fetched.
        self.law  # noqa: B018

    @property
    def law(self) -> Law:
        """Of the noise that each measured number gets."""
        law = scale_noise(Budget(self.epsilon, self.rho), Fraction(self.sensitivity))
        if law.parameter > (_MOST_SCALE if law.kind == "laplace" else _MOST_SCALE**2):
            raise InputError(
                f"{self.unit} is {float(self.amount):g} where one record changes {self.sensitivity:,} steps: noise "
                "would overflow; take a larger budget or a coarser resolution"
            )
        return law

    def answer(self, used: Used) -> _Given:
        """What is handed out: measured exactly, with exact noise. The noise is drawn here."""
        measured = self.measure(used)
        return self.told(measured + draw(self.law, len(measured), None))

    @property
    @abstractmethod
    def sensitivity(self) -> int:
        """How much one derived record changes the measured numbers: in all for ε, in Euclidean length for ρ."""

    @abstractmethod
    def measure(self, used: Used) -> NDArray[np.int64]:
        """What gets noise, as whole numbers."""

    @abstractmethod
    def told(self, noisy: NDArray[np.int64]) -> _Given:
        """The answer that follows from the numbers with noise."""

    def _one(self, what: str, noisy: int, step: Fraction = Fraction(1)) -> Answer:
        """The answer of one number of steps with one draw of noise."""
        error, down, up = _reach(self.law)
        estimate, low, high = (float(place * step) for place in (noisy, noisy - down, noisy + up))
        return Answer(what, estimate, error * float(step), low, high, self.unit, self.amount)


@dataclass(frozen=True, kw_only=True)
class OneNumber(Measured[Answer]):
    """A question whose answer is one number."""

    def again(self, kept: dict[str, Any]) -> Answer:
        return Answer.from_json(kept)


@dataclass(frozen=True, kw_only=True)
class Count(OneNumber):
    """The number of records.

    >>> Count(epsilon=0.1).law
    Law(kind='laplace', parameter=Fraction(10, 1))
    """

    @property
    def sensitivity(self) -> int:
        return 1

    def records(self, query: Query) -> tuple[Query, Mapping[str, Expression]]:
        return query, {}

    def measure(self, used: Used) -> NDArray[np.int64]:
        return np.array([used.number])

    def told(self, noisy: NDArray[np.int64]) -> Answer:
        return self._one("number of records", int(noisy[0]))

    def describe(self) -> dict[str, Any]:
        return self._described()


@dataclass(frozen=True)
class Histogram(Measured[Answers]):
    """The number of records with each of some values; records with other values are not asked, nor paid for.

    Parameters
    ----------
    column : of the query. values : public, all different.

    >>> Histogram("kind", ("bus", "tram"), epsilon=1).describe()["values"]
    ['bus', 'tram']
    """

    column: str
    values: Sequence[Any]

    def __post_init__(self) -> None:
        if isinstance(self.values, str) or not len(self.values):
            raise InputError(
                f"values are {self.values!r}: list those that are to be counted, from public knowledge"
            )
        listed = tuple(self.values)
        if any(value is None or value != value for value in listed) or len(set(listed)) < len(listed):
            raise InputError(f"values are {self.values!r}: none may be missing, and each must be there once")
        object.__setattr__(self, "values", listed)
        super().__post_init__()

    @property
    def sensitivity(self) -> int:
        return 1

    def records(self, query: Query) -> tuple[Query, Mapping[str, Expression]]:
        import pandas as pd

        public = pd.DataFrame({self.column: list(self.values), _CELL: np.arange(len(self.values))})
        return query.select(self.column).join(public, self.column), {_CELL: _CELL}

    def measure(self, used: Used) -> NDArray[np.int64]:
        return np.bincount(used.column(_CELL).astype(np.int64), minlength=len(self.values))

    def told(self, noisy: NDArray[np.int64]) -> Answers:
        whats = (f"number of records with {self.column} {value}" for value in self.values)
        answers = (self._one(what, int(number)) for what, number in zip(whats, noisy, strict=True))
        return Answers(tuple(self.values), tuple(answers))

    def describe(self) -> dict[str, Any]:
        return self._described(values=[str(value) for value in self.values])

    def again(self, kept: dict[str, Any]) -> Answers:
        return Answers(tuple(self.values), tuple(Answer.from_json(each) for each in kept["answers"]))


@functools.lru_cache(maxsize=64)
def _reach(law: Law) -> tuple[float, Fraction, Fraction]:
    """Standard deviation of one draw, and how far below it and above it the interval goes."""
    variance = law.variance()
    moments = Moments(np.array([variance]), np.array([law.kurtosis()]), draws=np.ones(1))
    down, up = (Fraction(reach[0]) for reach in interval(moments, law, LEVEL))
    return math.sqrt(variance), down, up
