"""Records of people, and questions about them, in Python or in a file: from the key to the answer, and who pays.

A person takes part if they have derived records and can pay for all of them. Everybody else's records are left out,
without a word. Whether somebody takes part depends on their own records and their own purse only, so that with and
without somebody's data all answers together differ by at most the factor that their limit allows.

Charging, noise and the answer that is kept are one transaction of the ledger, and nothing is handed out before its end.
A question that breaks off once records are read takes from everybody the most that it may cost: that it broke off may
tell of a record, and who would have paid is not known then (docs/privacy/personal.md, section 7).
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from deltahist.accounts.rules import check_text
from deltahist.budget import ceil_nano
from deltahist.errors import DamagedFile, InputError
from deltahist.personal.aggregates import (
    Aggregate,
    Answer,
    Answers,
    Count,
    Histogram,
    Mean,
    QuantileAggregate,
    QuantileAnswer,
    Sum,
)
from deltahist.personal.engine import carried_tables, raise_alone, sql_of
from deltahist.personal.purses import Turn
from deltahist.personal.query import OWNER, Expression, Query
from deltahist.personal.tables import KeyedRequest

#: A person's records are counted up to this: the price of its square is more than any limit pays.
_MOST_RECORDS = 1 << 31
#: Longest file that is read.
_LONGEST = 1 << 20
_BUDGETS = ("epsilon", "rho")
#: All that is said of a question that broke off.
BROKEN_OFF = (
    "the question broke off while records were read or measured (memory, time, or the database?): everybody was "
    "charged the most that it may cost them, and no more is said, since it might be about records"
)
#: The names that each kind of answer needs, and those that it may have; all have a budget.
_ANSWERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "count": ((), ()),
    "sum": (("column", "clip"), ("resolution",)),
    "mean": (("column", "clip"), ("resolution",)),
    "quantile": (("column", "q", "clip"), ("resolution",)),
    "histogram": (("column", "values"), ()),
}
#: Arguments of answers that are columns, expressions or names.
_TEXTS = ("column",)


class Price(TypedDict, total=False):
    """The cost of one derived record, ε or ρ."""

    epsilon: float | Fraction | None
    rho: float | Fraction | None


class Clip(Price, total=False):
    """The public range of a value, its resolution, and the cost of one derived record (`ValueAggregate`)."""

    clip: tuple[float, float] | None
    resolution: float | Fraction | None


@dataclass(frozen=True)
class Allowance:
    """The time of a question.

    Parameters
    ----------
    seconds : while it has the ledger alone. until : when it must have ended, whenever it began (`time.monotonic`).
    """

    seconds: float = math.inf
    until: float = math.inf


@dataclass(frozen=True, eq=False)
class Records(Query):
    """Records of people, or records derived from them, to ask questions of.

    Each question costs a person its ε (or ρ) as many times as it uses records derived from theirs (for ρ: as many
    times as the square of that). Each takes a key: the same question under the same key has the same answer, and is
    paid for once. A question that takes longer than the allowance breaks off.
    """

    people: Any = None
    allowance: Allowance = Allowance()

    def ask(self, aggregate: Aggregate, key: str | None = None) -> Any:
        """Ask a question (`deltahist.personal.aggregates`).

        Each person o pays size(F(D_o)) · ε. Records of who cannot are dropped silently, and each has one owner.
        Source: ProPer, Corollary 1, provenance.

        Raises
        ------
        InputError
            If the budget is of another unit than the people's, the key was used for another request, or the database
            or the ledger cannot be used. Nothing is charged then, unless records were being read: everybody is charged
            the most that the question may cost them, and the message says so. No message depends on records.
        """
        people = self.people
        if aggregate.unit != people.purses.unit:
            raise InputError(
                f"the question costs {aggregate.unit}, and the people of {people.purses.name!r} have budgets in "
                f"{people.purses.unit}: ask for {people.purses.unit}"
            )
        query, values = aggregate.records(self)
        if people.place is not None:
            aggregate.check_place(query, people.place)
        expression = query.rows(**values)
        request = None if key is None else _request(people.purses.name, check_text(key=key), expression, aggregate)
        try:
            with people.turn() as turn, contextlib.ExitStack() as look:
                end = min(self.allowance.until, time.monotonic() + self.allowance.seconds)
                kept = None if request is None else request.find_answer(turn.accounts)
                if kept is not None:
                    return aggregate.from_json(kept[0])
                with _preparing():
                    prices = aggregate.cost(turn.classes)
                    with storage_failures():
                        session = look.enter_context(people.database.snapshot())
                        fetch = session.plan(expression)
                with _reading(end):
                    with session.until(end):
                        rows = fetch()
                    owner, fetched = _arrays(rows, list(values), len(turn.limits))
                    del rows
                    look.close()
                    columns, usable = aggregate.read(fetched)
                    if usable is not None:
                        owner, columns = owner[usable], {name: column[usable] for name, column in columns.items()}
                    number = np.bincount(owner, minlength=len(turn.limits))
                    if people.place is None or not aggregate.keeps_radii(query, values.values()):
                        number[~np.isnan(turn.classes)[turn.which]] = 0
                    payers = turn.charge(_times(number, aggregate), prices)
                    paid = {name: column[payers[owner]] for name, column in columns.items()}
                    answer = aggregate.answer(paid, int(number[payers].sum()))
                    written = None if request is None else aggregate.to_json(answer)
                if request is not None:
                    request.keep(turn.accounts, written)
            return answer
        except _BrokenOff as broken:
            ended = broken.ended
        # Outside of the handler, so that what was read is gone, and its error is not dragged along.
        with storage_failures(), people.purses.turn() as turn:
            turn.charge(_most_times(turn, query, aggregate), aggregate.cost(turn.classes))
        raise ended

    def count(self, *, key: str | None = None, **price: Unpack[Price]) -> Answer:
        """Count the records."""
        return self.ask(Count(**price), key)

    def sum(self, column: Expression, *, key: str | None = None, **clip: Unpack[Clip]) -> Answer:
        """Sum a value, clipped to a public range (`Sum`). Records without the value are not used."""
        return self.ask(Sum(column, **clip), key)

    def mean(self, column: Expression, *, key: str | None = None, **clip: Unpack[Clip]) -> Answer:
        """Average a value, clipped to a public range (`Mean`). Records without the value are not used."""
        return self.ask(Mean(column, **clip), key)

    def histogram(
        self, column: str, values: Sequence[Any], *, key: str | None = None, **price: Unpack[Price]
    ) -> Answers:
        """Count the records with each of some public values (`Histogram`). Records with others are not used."""
        return self.ask(Histogram(column, values, **price), key)

    def quantile(
        self, column: Expression, q: float | Fraction = 0.5, *, key: str | None = None, **clip: Unpack[Clip]
    ) -> QuantileAnswer:
        """Draw a quantile of a value within a public range (`QuantileAggregate`).

        Records without the value are not used.
        """
        return self.ask(QuantileAggregate(column, q=q, **clip), key)


class FailedQuestionError(InputError):
    """A question that memory, time or the database kept from an answer; `charged`: whether everybody has paid."""

    def __init__(self, text: str, charged: bool) -> None:
        super().__init__(text)
        self.charged = charged


class UnusableError(InputError):
    """A ledger, or a database of people, that cannot be used just now."""


@contextlib.contextmanager
def storage_failures() -> Iterator[None]:
    """Raise the library's own errors about a ledger or a database as UnusableError."""
    try:
        yield
    except DamagedFile:
        raise
    except InputError as problem:
        failed = UnusableError(str(problem))
    else:
        return
    raise_alone(failed)


class _BrokenOff(Exception):  # noqa: N818
    """The end of a question while records were being read; `ended` is raised when all are charged."""

    def __init__(self, ended: BaseException) -> None:
        self.ended = ended


@contextlib.contextmanager
def _preparing() -> Iterator[None]:
    """Raise the library's own errors, before records are read, and one InputError for all others."""
    try:
        yield
    except InputError:
        raise
    except Exception:
        failed = FailedQuestionError(
            "the question could not be prepared (memory, or the database?); nothing was charged", charged=False
        )
    else:
        return
    raise_alone(failed)


@contextlib.contextmanager
def _reading(end: float) -> Iterator[None]:
    """Raise one and the same error, whatever ends the block early, or if it is late: the cause may be about records."""
    try:
        _check_time(end)
        yield
        _check_time(end)
    except Exception:
        ended: BaseException = FailedQuestionError(BROKEN_OFF, charged=True)
    except BaseException as stopped:
        ended = stopped.with_traceback(None)
    else:
        return
    raise _BrokenOff(ended)


def _check_time(end: float) -> None:
    if time.monotonic() > end:
        raise TimeoutError


def _most_times(turn: Turn, query: Query, aggregate: Aggregate) -> NDArray[np.int64]:
    """Return how often each person pays at most, (m,): for as many records as there may be, as long as money lasts."""
    prices = aggregate.cost(turn.classes)[turn.which]
    affordable = (turn.limits - turn.spent) // np.maximum(prices, 1)
    if query.most is None:
        return affordable
    return np.minimum(affordable, _times(np.array(min(query.most, 1 << 62)), aggregate))


def _times(number: NDArray[np.int64], aggregate: Aggregate) -> NDArray[np.int64]:
    """Return how often the owner of some numbers of derived records pays the price of one."""
    return number if aggregate.unit == "epsilon" else np.minimum(number, _MOST_RECORDS) ** 2


def _arrays(
    fetched: Any, values: list[str], persons: int
) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
    """Return whose each record is, and its values, without records of nobody who joined."""
    owner = fetched[OWNER].to_numpy()
    columns = {name: fetched[name].to_numpy() for name in values}
    if len(owner) and (owner.min() < 0 or owner.max() >= persons):
        known = (owner >= 0) & (owner < persons)
        owner, columns = owner[known], {name: column[known] for name, column in columns.items()}
    return owner, columns


def _request(account: str, key: str, expression: Any, aggregate: Aggregate) -> KeyedRequest:
    """Return a request in one way of writing."""
    text = sql_of(expression, "duckdb", pretty=True)
    # Public tables that are joined have names that differ from run to run: their rows stand for them.
    for name, rows in carried_tables(expression).items():
        text = text.replace(name, _digest(repr(rows.to_pydict())))
    words = {**aggregate.describe(), "records": _digest(text)}
    nano = ceil_nano(**{aggregate.unit: aggregate.amount})
    return KeyedRequest(account, key, {"amount_nano": nano, "drawn": True, "request": words})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Question:
    """A question in writing: steps from a table's records to derived ones, and the answer about these.

    A step is a mapping of its name to its argument, the answer one of its kind and the arguments of that kind. Table,
    owner, place, and CRS of the place's columns stand if the file says them.

    >>> Question.of({"steps": [{"where": "kind = 'bus'"}], "answer": {"kind": "count", "epsilon": 0.1}}).kind
    'count'
    """

    answer: Mapping[str, Any]
    steps: tuple[Mapping[str, Any], ...] = ()
    table: str | None = None
    owner: str | None = None
    place: tuple[str, ...] | None = None
    crs: str | None = None

    @classmethod
    def read(cls, path: str | Path) -> Question:
        """Read the question in a TOML file.

        Raises InputError if it is missing, too long, no TOML, or asks for something unknown.
        """
        path = Path(path)
        if not path.is_file() or path.stat().st_size > _LONGEST:
            raise InputError(f"question {str(path)!r} does not exist, or is of more than {_LONGEST:,} bytes")
        try:
            return cls.of(tomllib.loads(path.read_text(encoding="utf-8-sig")))
        except InputError:
            raise
        except (ValueError, RecursionError) as problem:  # damaged, too deep, a number of too many digits
            raise InputError(f"question {str(path)!r} cannot be read as TOML: {problem}") from None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Question:
        """Return the question that a mapping describes, in the form of a file."""
        _check_known(given, ("table", "owner", "place", "crs", "steps", "answer"), "a question")
        _check_steps(given.get("steps", []))
        _check_answer(given.get("answer"))
        for name in ("table", "owner", "crs"):
            _check(name, given.get(name, ""), isinstance(given.get(name, ""), str), "text")
        place = given.get("place")
        _check("place", place, place in (None, []) or _are_texts(place), "a list of columns")
        fixed = {"steps": tuple(given.get("steps", [])), "place": None if place is None else tuple(place)}
        return cls(**{**given, **fixed})

    @property
    def kind(self) -> str:
        """The kind of the answer."""
        return str(self.answer["kind"])

    def records(self, records: Records) -> Records:
        """Derive records from a table's records by the steps."""
        return _derive(records, self.steps)

    def ask(self, records: Records, key: str | None = None) -> Any:
        """Answer the question about the records of a table.

        Returns an `Answer`, `Answers` or a `QuantileAnswer`. Raises InputError as the methods
        of `Records` do.
        """
        taken = {name: value for name, value in self.answer.items() if name != "kind"}
        derived = self.records(records)
        return getattr(derived, self.kind)(**taken, key=key)


def _derive(records: Records, steps: Any) -> Records:
    """Derive records by steps that were checked."""
    for step in steps:
        (name,) = step.keys() - {"by"}
        given = step[name]
        if name == "union":
            first, *others = (_derive(records, part) for part in given)
            for other in others:
                first = first.union(other)
            records = first
        elif name == "at_most":
            records = records.at_most(given, by=step.get("by", []))
        elif isinstance(given, dict):
            records = records.select(**given)
        else:
            records = getattr(records, name)(*([given] if name == "where" else given))
    return records


def _are_texts(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and all(isinstance(each, str) for each in given)


#: Which arguments each step takes, and the same in words.
_STEPS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "where": (lambda given: isinstance(given, str), "text, such as \"hour >= 22 and kind = 'bus'\""),
    "select": (
        lambda given: _are_texts(given) or (isinstance(given, dict) and _are_texts([*given.values()])),
        "a list of columns, or a table of names and texts",
    ),
    "flat_map": (
        lambda given: isinstance(given, list) and all(isinstance(each, dict) for each in given),
        "a list of tables of names and texts",
    ),
    "distinct": (_are_texts, "a list of columns"),
    "at_most": (lambda given: type(given) is int and given < _MOST_RECORDS, f"a whole number below {_MOST_RECORDS:,}"),
    "union": (
        lambda given: isinstance(given, list) and len(given) > 1 and all(isinstance(each, list) for each in given),
        "two or more lists of steps",
    ),
}


def _check_steps(steps: Any) -> None:
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise InputError("steps must be a list of tables: [[steps]] before each of them")
    for step in steps:
        names = [name for name in step if not (name == "by" and "at_most" in step)]
        if len(names) != 1 or names[0] not in _STEPS:
            raise InputError(
                f"a step is {', '.join(step) or 'empty'}: it must be one of {', '.join(_STEPS)} (at_most may have by)"
            )
        fits, rule = _STEPS[names[0]]
        _check(names[0], step[names[0]], fits(step[names[0]]), rule)
        by = step.get("by", [])
        _check("by", by, by == [] or isinstance(by, str) or _are_texts(by), "a column, or a list of columns")
        for part in step.get("union", []):
            _check_steps(part)


def _check_answer(answer: Any) -> None:
    if not isinstance(answer, dict):
        raise InputError(
            'answer is missing: a question ends with what is asked, answer = {kind = "count", epsilon = 0.1}'
        )
    kind: Any = answer.get("kind")
    _check("kind of the answer", kind, kind in list(_ANSWERS), f"one of {', '.join(_ANSWERS)}")
    needed, optional = _ANSWERS[kind]
    missing = [name for name in needed if name not in answer]
    if missing:
        raise InputError(f"{' and '.join(missing)} missing: an answer of kind {kind!r} takes {', '.join(needed)}")
    _check_known(answer, ("kind", *_BUDGETS, *needed, *optional), f"an answer of kind {kind!r}")
    for name, given in answer.items():
        _check(name, given, not isinstance(given, bool), "a number, text or a list of them")
        _check(name, given, name not in _TEXTS or isinstance(given, str), "text")
    values = answer.get("values", [])
    plain = isinstance(values, list) and not any(isinstance(each, list | dict) for each in values)
    _check("values", values, plain, "a list of texts, numbers, dates or times")
    if sum(name in answer for name in _BUDGETS) != 1:
        raise InputError("an answer spends epsilon or rho, one of them: it must say how much")


def _check(name: str, given: Any, fits: bool, rule: str) -> None:
    if not fits:
        raise InputError(f"{name} is {given!r}: it must be {rule}")


def _check_known(given: Mapping[str, Any], names: tuple[str, ...], what: str) -> None:
    other = [name for name in given if name not in names]
    if other:
        raise InputError(f"{', '.join(other)} is not known in {what}: there are {', '.join(names)}")
