"""One question, from the look at its key to its answer: who pays, and whose records are used.

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
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from deltahist.budgets.ledger import KeyedRequest, check_text
from deltahist.budgets.purses import Turn
from deltahist.budgets.rules import Cost, ceil_nano
from deltahist.counts.engines import carried_tables, raise_alone, sql_of
from deltahist.errors import InputError
from deltahist.personal.query import OWNER, Expression, Query
from deltahist.personal.terminals import Given, Terminal

if TYPE_CHECKING:
    from deltahist.personal.people import People

#: Records of one person whose square is more than any limit pays for.
_MANY = 1 << 31

_Given = TypeVar("_Given", bound=Given)


def ask(people: People, query: Query, terminal: Terminal[_Given], key: str | None = None) -> _Given:
    """Ask a question of people's records.

    Parameters
    ----------
    query : which records. terminal : what is asked of them.
    key : of the request, chosen by who asks: the same request under the same key has the same answer, and is paid
        for once.

    Raises
    ------
    InputError
        If the budget is of another unit than the people's, the key was used for another request, or the database
        or the ledger cannot be used. Nothing is charged then, unless records were being read: everybody is charged the
        most that the question may cost them, and the message says so. Nothing is said that depends on records.
    """
    purses = people.purses
    if terminal.unit != purses.unit:
        raise InputError(
            f"the question costs {terminal.unit}, and the people of {people.name!r} have budgets in {purses.unit}: ask "
            f"for {purses.unit}"
        )
    asked, values = terminal.records(query)
    if people.location is not None:
        terminal.check_place(asked, people.location)
    expression = asked.rows(**values)
    request = None if key is None else _request(purses.name, check_text(key=key), expression, terminal)
    try:
        with people.turn() as turn:
            kept = None if request is None else request.find_answer(turn.accounts)
            if kept is not None:
                return terminal.again(kept[0])
            answer = _answered(people, turn, asked, expression, values, terminal)
            if request is not None:
                with _reading():
                    written = answer.to_json()
                request.keep(turn.accounts, written)
        return answer
    except _BrokenOff as broken:
        ended = broken.ended
    # Outside of the handler, so that what was read is gone, and its error is not dragged along.
    with purses.turn() as turn:
        turn.charge(_most_times(turn, asked, terminal), terminal.cost(turn.classes))
    raise ended


class _BrokenOff(Exception):  # noqa: N818
    """A question that ended once records were being read: by what is raised when all are charged."""

    def __init__(self, ended: BaseException) -> None:
        self.ended = ended


@contextlib.contextmanager
def _preparing() -> Iterator[None]:
    """What goes wrong before records are read is told if it was meant to be, and nothing is charged."""
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
    """Whatever ends the block early is one and the same to who asks: it may be about records."""
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


def _most_times(turn: Turn, query: Query, terminal: Terminal[Any]) -> NDArray[np.int64]:
    """Return how often each person pays at most, (m,): for as many records as there may be, as long as money lasts."""
    prices = terminal.cost(turn.classes)[turn.which]
    affordable = (turn.limits - turn.spent) // np.maximum(prices, 1)
    if query.most is None:
        return affordable
    return np.minimum(affordable, _times(np.array(min(query.most, 1 << 62)), terminal))


def _times(number: NDArray[np.int64], terminal: Terminal[Any]) -> NDArray[np.int64]:
    """Return how often who has some numbers of derived records pays the price of one."""
    return number if terminal.unit == "epsilon" else np.minimum(number, _MANY) ** 2


class _Used:
    """The derived records of those who pay."""

    def __init__(
        self, columns: Mapping[str, NDArray[Any]], used: NDArray[np.bool_] | None, number: int
    ) -> None:
        self._columns, self._used, self.number = columns, used, number

    def column(self, name: str) -> NDArray[Any]:
        """A fetched value of each of them."""
        return self._columns[name] if self._used is None else self._columns[name][self._used]


def _answered(
    people: People,
    turn: Turn,
    query: Query,
    expression: Any,
    values: Mapping[str, Expression],
    terminal: Terminal[_Given],
) -> _Given:
    with contextlib.ExitStack() as held:
        with _preparing():
            prices = terminal.cost(turn.classes)
            fetch = held.enter_context(people.base.snapshot()).plan(expression)
        with _reading():
            owner, columns = _arrays(fetch(), list(values), len(turn.limits))
            held.close()
            read, usable = terminal.read(columns)
            if usable is not None:
                owner, read = owner[usable], {name: column[usable] for name, column in read.items()}
            number = np.bincount(owner, minlength=len(turn.limits))
            if people.place is None or not terminal.keeps_radii(query, values.values()):
                number[~np.isnan(turn.classes)[turn.which]] = 0
            payers = turn.charge(_times(number, terminal), prices)
            used = payers[owner] if read else None
            return terminal.answer(_Used(read, used, int(number[payers].sum())))


def _arrays(
    fetched: Any, values: list[str], persons: int
) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
    """Whose each record is, and its values; records of nobody who joined are left out."""
    owner = fetched[OWNER].to_numpy()
    columns = {name: fetched[name].to_numpy() for name in values}
    if len(owner) and (owner.min() < 0 or owner.max() >= persons):
        known = (owner >= 0) & (owner < persons)
        owner, columns = owner[known], {name: column[known] for name, column in columns.items()}
    return owner, columns


def _request(account: str, key: str, expression: Any, terminal: Terminal[Any]) -> KeyedRequest:
    """A request in one way of writing."""
    text = sql_of(expression, "duckdb", pretty=True)
    # Public tables that are joined have names that differ from run to run: what they hold stands for them.
    for name, rows in carried_tables(expression).items():
        text = text.replace(name, _digest(repr(rows.to_pydict())))
    cost = Cost(ceil_nano(**{terminal.unit: terminal.amount}))
    return KeyedRequest(account, key, cost, drawn=True, words={**terminal.describe(), "records": _digest(text)})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
