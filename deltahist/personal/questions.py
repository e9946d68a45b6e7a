"""Queries of derived records, written in Python, TOML or JSON, and their answers.

An aggregate hides the addition or removal of one derived record. `deltahist.personal.people.Records` states the price.
Constructors check all public parameters, since a failure while reading charges everybody.
"""

from __future__ import annotations

import functools
import math
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import ibis
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from deltahist.budget import Budget, ceil_nano, read_amount
from deltahist.decode import Moments, interval
from deltahist.errors import InputError, as_printed_fraction, check_choice, check_finite
from deltahist.laws import Law
from deltahist.mechanisms.base import scale_noise
from deltahist.noise.samplers import sample_law
from deltahist.personal.query import DTYPES, OWNER, Query, find_kind, make_constant, unify_kinds, write_float

#: Coverage of intervals.
LEVEL = 0.95
#: In a histogram, the column with the index of a record's value.
_CELL = f"{OWNER}_cell"
_ABOUT = "records whose owners could pay; the true number of records may be larger"
_Model = TypeVar("_Model", bound=BaseModel)

#: Arrays (n,) with an entry for each owner (and value): the "number" of records, the "total" in steps, and _CELL.
Sums: TypeAlias = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Answer:
    """One number about the records of people who could pay, and its error due to noise.

    what : meaning of the number. estimate, std_error : the noisy number, and the standard deviation of its noise.
    low, high : an interval that contains the true number in 95 of 100 cases.
    unit : "epsilon" or "rho". amount : price of one record in that unit.

    >>> print(Answer("number of records", 120.0, 14.1, 90.0, 150.0, "epsilon", Fraction(1, 10)))
    number of records: 120 ± 14, from 90 to 150 with probability 95%
    """

    what: str
    estimate: float
    std_error: float
    low: float
    high: float
    unit: str
    amount: Fraction

    def __str__(self) -> str:
        estimate, low, high = (_format_number(value) for value in (self.estimate, self.low, self.high))
        error = _format_number(self.std_error, digits=2)
        return f"{self.what}: {estimate} ± {error}, from {low} to {high} with probability {LEVEL:.0%}"

    @property
    def explanation(self) -> str:
        """A text that says what the answer is about and who paid, but names nobody."""
        letter, times = ("ε", "number") if self.unit == "epsilon" else ("ρ", "square of the number")
        price = f"{letter} = {float(self.amount):.10g} times the {times} of their records that were used"
        return f"the answer is about {_ABOUT}; each owner paid {price}"

    def to_json(self) -> dict[str, Any]:
        """Describe the answer as JSON."""
        return {**vars(self), "amount": str(self.amount), "about": _ABOUT}


class Answers(dict[Any, Answer]):
    """An answer for each of several values, in the order of the query."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.values()))

    @property
    def explanation(self) -> str:
        """A text that says what the answers are about and who paid, but names nobody."""
        return next(iter(self.values())).explanation

    def to_json(self) -> dict[str, Any]:
        """Describe the answers as JSON, with values as strings."""
        return {"values": list(map(str, self)), "answers": [answer.to_json() for answer in self.values()]}


@dataclass(frozen=True, kw_only=True)
class Aggregate(ABC):
    """A query of derived records that is answered by adding noise from one law to whole numbers.

    The price of a record, ε or ρ, is above zero and at most 10^9. A float counts as its printed decimal.
    """

    epsilon: float | Fraction | None = None
    rho: float | Fraction | None = None

    def __post_init__(self) -> None:
        # Refuse invalid budgets and overly wide ranges before reading anything.
        nothing = np.zeros(0, np.int64)
        self.decode(self.measure({"number": nothing, "total": nothing, _CELL: nothing}))

    @functools.cached_property
    def budget(self) -> Budget:
        """The budget of one derived record."""
        given = Budget(self.epsilon, self.rho)
        return given.of(read_amount(**{given.unit: getattr(self, given.unit)}))

    @property
    def price(self) -> int:
        """The price of one derived record in billionths."""
        return ceil_nano(**{self.budget.unit: self.budget.amount})

    @property
    def law(self) -> Law:
        """The law of the noise that is added to each measured number."""
        return scale_noise(self.budget, Fraction(self.sensitivity))

    @property
    def sensitivity(self) -> int:
        """The largest change that a derived record can make to the measured numbers (1-norm for ε, 2-norm for ρ)."""
        return 1

    def release(self, sums: Sums) -> NDArray[np.int64]:
        """Measure the sums over people who paid, and add noise."""
        measured = self.measure(sums)
        return measured + sample_law(self.law, len(measured), None)

    @abstractmethod
    def add_up(self, query: Query) -> Any:
        """Return an Ibis table of sums over each owner's derived records (see `Query.add_up`)."""

    @abstractmethod
    def measure(self, sums: Sums) -> NDArray[np.int64]:
        """Return the whole numbers to which noise is added."""

    @abstractmethod
    def decode(self, noisy: NDArray[np.int64]) -> Any:
        """Return the answer computed from the noisy numbers."""

    def _decode_one(self, what: str, noisy: int, step: Fraction = Fraction(1)) -> Answer:
        error, down, up = _measure_law(self.law)
        estimate, low, high = (float(place * step) for place in (noisy, noisy - down, noisy + up))
        what = f"{what} whose owners could pay"
        return Answer(what, estimate, error * float(step), low, high, self.budget.unit, self.budget.amount)


@dataclass(frozen=True, kw_only=True)
class Count(Aggregate):
    """The number of records, one of PINQ's primitives (ProPer, PINQ)."""

    def add_up(self, query: Query) -> Any:
        return query.add_up()

    def measure(self, sums: Sums) -> NDArray[np.int64]:
        return np.array([sums["number"].sum()])

    def decode(self, noisy: NDArray[np.int64]) -> Answer:
        return self._decode_one("number of records", int(noisy[0]))


@dataclass(frozen=True)
class Histogram(Aggregate):
    """The number of records with each public value. Records with other values are free (ProPer, parallel queries)."""

    column: str
    values: Sequence[Any]

    @functools.cached_property
    def public(self) -> Any:
        """An Arrow table of the distinct values and their indices."""
        given = [] if isinstance(self.values, str) else self.values
        parts = unify_kinds([make_constant(value) for value in given])
        kind = parts[0].kind if parts else "number"
        values = pa.array([part.constant for part in parts], ibis.dtype(DTYPES[kind]).to_pyarrow())
        if kind == "number" or len(values.unique()) < len(values):
            raise InputError(f"values are {self.values!r}: they must be public and distinct, and not floats")
        return pa.table({self.column: values, _CELL: np.arange(len(values))})

    def add_up(self, query: Query) -> Any:
        chosen, public = query.select(self.column), ibis.memtable(self.public)
        check_choice((find_kind(public[self.column].type()),), column_kind=chosen.columns[self.column])
        return replace(chosen, table=chosen.table.inner_join(public, self.column)).add_up(_CELL)

    def measure(self, sums: Sums) -> NDArray[np.int64]:
        out = np.zeros(len(self.public), np.int64)
        np.add.at(out, sums[_CELL], sums["number"])
        return out

    def decode(self, noisy: NDArray[np.int64]) -> Answers:
        what = f"number of records with {self.column}"
        pairs = zip(self.public[self.column].to_pylist(), noisy, strict=True)
        return Answers({value: self._decode_one(f"{what} {value}", int(number)) for value, number in pairs})


@dataclass(frozen=True)
class ValueAggregate(Aggregate):
    """An aggregate of one clipped value per record. Records in which the value is NULL cost nothing.

    column : expression for the value.
    clip : the least and greatest values, both public. Values are rounded to about a millionth of the `change`.
    """

    column: str
    clip: tuple[float | Fraction, float | Fraction]

    @functools.cached_property
    def bounds(self) -> tuple[Fraction, Fraction]:
        """The least and greatest values, as exact fractions."""
        low, high = (as_printed_fraction(check_finite(clip=bound)) for bound in self.clip)
        ends = [make_constant(float(each)).constant for each in (low, high)]
        if ends[0] >= ends[1]:
            raise InputError(f"clip is {self.clip!r}: the first bound must be smaller than the second")
        return low, high

    @functools.cached_property
    def step(self) -> Fraction:
        """The largest power of ten up to `change` / 10^6. Values are rounded to multiples of this step."""
        return Fraction(10) ** math.floor(math.log10(self.change / 10**6))

    @property
    def origin(self) -> Fraction:
        """The value from which steps are counted."""
        return self.bounds[0]

    @property
    def change(self) -> Fraction:
        """The largest change that one record can make to the result, in units of the value."""
        return self.bounds[1] - self.bounds[0]

    @property
    def sensitivity(self) -> int:
        """The largest change that one record can make to the result, in steps."""
        return round(self.change / self.step)

    def add_up(self, query: Query) -> Any:
        made = query.select(value=self.column)
        check_choice(("number", "whole"), column_kind=made.columns["value"])
        made = made.where("value is not null")
        return made.add_up(total=self.round_values(made.table["value"]))

    def round_values(self, values: Any) -> Any:
        """Return clipped values as an Ibis column of whole steps from the origin, the same in every database."""
        given = (*self.bounds, self.origin, self.step, 0.5)
        low, high, origin, step, half = (write_float(float(each)) for each in given)
        clipped = ibis.greatest(ibis.least(values.cast("float64"), high), low)
        steps = ((clipped - origin) / step + half).floor().cast("int64")
        # Rounding may move a value one step beyond a bound.
        least, most = (ibis.literal(round((each - self.origin) / self.step), "int64") for each in self.bounds)
        return ibis.greatest(ibis.least(steps, most), least)


@dataclass(frozen=True)
class Sum(ValueAggregate):
    """The sum of a value over the records that have it.

    >>> Sum("fare", clip=(0, 50), epsilon=0.5).law
    Laplace(parameter=Fraction(10000000, 1))
    """

    @property
    def origin(self) -> Fraction:
        return Fraction(0)

    @property
    def change(self) -> Fraction:
        return max(abs(each) for each in self.bounds)

    def measure(self, sums: Sums) -> NDArray[np.int64]:
        return np.array([sums["total"].sum()])

    def decode(self, noisy: NDArray[np.int64]) -> Answer:
        return self._decode_one(f"sum of {self.column} of records", int(noisy[0]), self.step)


@dataclass(frozen=True)
class Mean(ValueAggregate):
    """The mean of a value, computed from the sums of its distances to the lower and upper bounds.

    One record's two distances add up to the range, so noise scaled to the range covers both sums, in the 2-norm too.

    >>> Mean("fare", clip=(0, 50), epsilon=0.5).sensitivity
    5000000
    """

    def measure(self, sums: Sums) -> NDArray[np.int64]:
        above = sums["total"].sum(keepdims=True)
        return np.append(above, sums["number"].sum(keepdims=True) * self.sensitivity - above)

    def decode(self, noisy: NDArray[np.int64]) -> Answer:
        low, high = map(float, self.bounds)
        share, error, least, most = _estimate_ratio(float(noisy[0]), float(noisy[1]), self.law)
        width = high - low
        numbers = (low + width * share, width * error, low + width * least, low + width * most)
        what = f"mean of {self.column} of records whose owners could pay"
        return Answer(what, *numbers, self.budget.unit, self.budget.amount)


def _format_number(value: float, digits: int = 6) -> str:
    """Format a number with a few significant digits, but write out large numbers below 10^15."""
    return f"{value:,.0f}" if 10.0**digits <= abs(value) < 1e15 else f"{value:,.{digits}g}"


@functools.lru_cache(maxsize=64)
def _measure_law(law: Law) -> tuple[float, Fraction, Fraction]:
    """Return the standard deviation of one draw, and how far an interval extends below and above its estimate."""
    variance = law.variance()
    moments = Moments(np.array([variance]), np.array([law.kurtosis()]), draws=np.ones(1))
    down, up = (Fraction(reach[0]) for reach in interval(moments, law, LEVEL))
    return math.sqrt(variance), down, up


def _estimate_ratio(above: float, below: float, law: Law) -> tuple[float, float, float, float]:
    """Estimate the share a / (a + b) from noisy a and b, with its standard error and interval.

    Fieller's interval spans all shares s for which noise can explain (1 − s) a − s b. Sums of Laplace noise have no
    heavier tails than a single draw.
    """
    total, variance = above + below, law.variance()
    share = min(max(above / total, 0.0), 1.0) if total > 0 else 0.5
    off = math.sqrt(variance * (share**2 + (1 - share) ** 2))
    error = min(off / total, 1.0) if total > 0 else 1.0
    # (total² − 2 v) s² − 2 (above total − v) s + above² − v ≤ 0
    v = law.reach(LEVEL) ** 2 * variance
    square, linear, constant = total * total - 2 * v, above * total - v, above * above - v
    possible = [s for s in (0.0, 1.0) if (square * s - 2 * linear) * s + constant <= 0]
    inner = linear * linear - square * constant
    if inner >= 0 and square:
        roots = ((linear + sign * math.sqrt(inner)) / square for sign in (-1, 1))
        possible += [root for root in roots if 0 <= root <= 1]
    possible.append(share)
    return share, error, min(possible), max(possible)


class Strict(BaseModel):
    """A model that refuses unknown fields, and strings where it expects numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Step(Strict):
    """One step of a query: a method of `Query` with its argument. Only at_most accepts `by`."""

    where: str | None = None
    select: list[str] | dict[str, str] | None = None
    flat_map: list[dict[str, str]] | None = None
    distinct: Annotated[list[str], Field(min_length=1)] | None = None
    at_most: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    by: str | list[str] = []

    @model_validator(mode="after")
    def _check_one(self) -> Step:
        given = self.model_fields_set - {"by"}
        if len(given) != 1 or ("by" in self.model_fields_set and given != {"at_most"}):
            raise ValueError("a step must be where, select, flat_map, distinct or at_most, and 'by' needs at_most")
        return self

    def derive_records(self, records: Any) -> Any:
        """Apply the step to records."""
        (name,) = self.model_fields_set - {"by"}
        given: Any = getattr(self, name)
        if name == "at_most":
            return records.at_most(given, by=self.by)
        if isinstance(given, dict):
            return records.select(**given)
        return getattr(records, name)(*([given] if name == "where" else given))


class Question(Strict):
    """A written query: steps that derive records, and an aggregate of the result."""

    answer: Any
    steps: list[Step] = []
    table: str | None = None
    owner: str | None = None

    @classmethod
    def read(cls, path: str | Path) -> Question:
        """Read a query from a TOML file."""
        return check_model(cls, Path(path), "question")

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Question:
        """Return the query that a mapping describes."""
        return check_model(cls, given, "question")

    @field_validator("answer")
    @classmethod
    def _make_aggregate(cls, given: Any) -> Aggregate:
        kinds: dict[str, Callable[..., Aggregate]] = {"count": Count, "sum": Sum, "mean": Mean, "histogram": Histogram}
        named = dict(given)
        return kinds[check_choice(tuple(kinds), kind=named.pop("kind", None))](**named)

    def ask(self, records: Any, key: str | None = None) -> Any:
        """Return the `Answer` or `Answers` to the query (see `Records.ask`)."""
        for step in self.steps:
            records = step.derive_records(records)
        return records.ask(self.answer, key)


def check_model(model: type[_Model], given: Any, what: str) -> _Model:
    """Return a model of the given data, or of a TOML file. Raises InputError about the first invalid field."""
    try:
        data = tomllib.loads(given.read_text("utf-8-sig")) if isinstance(given, Path) else given
        return model.model_validate(data)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False, include_context=False)[0]
        name, message = ".".join(map(str, first["loc"])) or what, first["msg"].removeprefix("Value error, ")
    except (OSError, RecursionError, TypeError, ValueError) as problem:  # not TOML, too deep, or wrong parameters
        name, message = f"{what} {str(given)!r}" if isinstance(given, Path) else what, str(problem)
    raise InputError(f"{name} is invalid: {message}")
