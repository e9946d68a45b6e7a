"""Records of people, and one question about them: from the look at its key to its answer, and who pays.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from deltahist.accounts.ledger import KeyedRequest
from deltahist.accounts.purses import Turn
from deltahist.accounts.rules import check_text
from deltahist.budget import ceil_nano
from deltahist.counting.engines import carried_tables, raise_alone, sql_of
from deltahist.errors import InputError
from deltahist.personal.aggregates import (
    Aggregate,
    Answer,
    Answers,
    Count,
    Histogram,
    Mean,
    QuantileAnswer,
    Sum,
)
from deltahist.personal.maps import Map
from deltahist.personal.quantiles import QuantileAggregate
from deltahist.personal.query import OWNER, Expression, Query

if TYPE_CHECKING:
    from deltahist.releases import Release
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.workloads import Workload
    from deltahist.strategies.base import Strategy

#: Records of one person whose square is more than any limit pays for.
_MANY = 1 << 31


class Price(TypedDict, total=False):
    """The cost of one derived record, ε or ρ."""

    epsilon: float | Fraction | None
    rho: float | Fraction | None


class Clip(Price, total=False):
    """The public range of a value, its resolution, and the cost of one derived record (`ValueAggregate`)."""

    clip: tuple[float, float] | None
    resolution: float | Fraction | None


@dataclass(frozen=True, eq=False)
class Records(Query):
    """Records of people, or records derived from them, to ask questions of.

    Each question costs a person its ε (or ρ) as many times as it uses records derived from theirs (for ρ: as many
    times as the square of that). Each takes a key: the same question under the same key has the same answer, and is
    paid for once.
    """

    people: Any = None

    def ask(self, aggregate: Aggregate, key: str | None = None) -> Any:
        """Ask a question (`deltahist.personal.aggregates`).

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
                kept = None if request is None else request.find_answer(turn.accounts)
                if kept is not None:
                    return aggregate.from_json(kept[0])
                with _preparing():
                    prices = aggregate.cost(turn.classes)
                    fetch = look.enter_context(people.database.snapshot()).plan(expression)
                with _reading():
                    owner, fetched = _arrays(fetch(), list(values), len(turn.limits))
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
        with people.purses.turn() as turn:
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
        key: str | None = None,
        **price: Unpack[Price],
    ) -> Release:
        """Publish a map of the records, charged to the people on it (`Map`)."""
        drawn = Map(near, x, y, strategy, workload, crs, membership_known, weak_protection_accepted, **price)
        return self.ask(drawn, key)


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
        failed = InputError("the question could not be prepared (memory, or the database?); nothing was charged")
    else:
        return
    raise_alone(failed)


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Raise one and the same error, whatever ends the block early: the cause may be about records."""
    try:
        yield
    except Exception:
        ended: BaseException = InputError(
            "the question broke off while records were read or measured (memory, time, or the database?): everybody "
            "was charged the most that it may cost them, and no more is said, since it might be about records"
        )
    except BaseException as stopped:
        ended = stopped.with_traceback(None)
    else:
        return
    raise _BrokenOff(ended)


def _most_times(turn: Turn, query: Query, aggregate: Aggregate) -> NDArray[np.int64]:
    """Return how often each person pays at most, (m,): for as many records as there may be, as long as money lasts."""
    prices = aggregate.cost(turn.classes)[turn.which]
    affordable = (turn.limits - turn.spent) // np.maximum(prices, 1)
    if query.most is None:
        return affordable
    return np.minimum(affordable, _times(np.array(min(query.most, 1 << 62)), aggregate))


def _times(number: NDArray[np.int64], aggregate: Aggregate) -> NDArray[np.int64]:
    """Return how often the owner of some numbers of derived records pays the price of one."""
    return number if aggregate.unit == "epsilon" else np.minimum(number, _MANY) ** 2


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
