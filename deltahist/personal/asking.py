"""Questions about records of people, from the key to the answer, and who pays.

A person takes part if they can pay for all of their derived records, whatever others have. Everybody else's records are
left out, silently. Charging, noise and the kept answer are one transaction of the ledger, which ends before anything is
handed out. A question that is interrupted once records are read costs everybody the most that it may cost them
(docs/privacy/personal.md, section 6).
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.accounts.rules import check_text
from deltahist.errors import DamagedFile, InputError
from deltahist.personal.aggregates import Aggregate, Answer, Answers, Count, Histogram, Mean, Sum
from deltahist.personal.engine import carried_tables, raise_alone, sql_of
from deltahist.personal.purses import KeyReuseError, Turn
from deltahist.personal.query import OWNER, Query

if TYPE_CHECKING:
    from deltahist.personal.people import People

#: A person's records are counted up to this: the price of its square is more than any limit pays.
_MOST_RECORDS = 1 << 31
#: The one message of every question that was interrupted.
INTERRUPTED = "the question was interrupted after reading began: everybody was charged the most that it may cost them"


class InterruptedQuestionError(InputError):
    """A question that memory, time or the database kept from an answer: everybody has paid."""


class UnusableError(InputError):
    """A ledger, or a database of people, that cannot be used just now."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Records(Query):
    """Records of people, or records derived from them, to ask questions of.

    A question costs a person its ε times the number of their records that it uses (its ρ times the square of that).
    The same question under the same key has the same answer, and is paid for once.

    Parameters
    ----------
    seconds : that a question may hold the ledger. until : when it must have ended (`time.monotonic`).
    """

    people: People
    seconds: float = math.inf
    until: float = math.inf

    def ask(self, aggregate: Aggregate, key: str | None = None) -> Any:
        """Ask a question (`deltahist.personal.aggregates`).

        Each person o pays size(F(D_o)) · ε. Records of people who cannot are dropped silently, and each has one owner.
        Source: ProPer, Corollary 1, provenance.

        Raises InterruptedQuestionError if it ends while records are read: everybody is charged the most. Raises
        InputError if the unit is another, the key was used for another request, or the database or the ledger fails:
        nothing is charged.
        """
        people = self.people
        if aggregate.unit != people.purses.unit:
            raise InputError(f"the question costs {aggregate.unit}: people have budgets in {people.purses.unit}")
        query, values = aggregate.records(self)
        expression = query.rows(**values)
        request = {} if key is None else _request(expression, aggregate)
        if key is not None:
            check_text(key=key)
        try:
            with storage_failures(), people.purses.turn() as turn, contextlib.ExitStack() as look:
                end = min(self.until, time.monotonic() + self.seconds)
                kept = None if key is None else turn.find_answer(key, request)
                if kept is not None:
                    return aggregate.from_json(kept)
                session = look.enter_context(people.database.snapshot())
                fetch = session.plan(expression)
                with _reading(end):
                    with session.until(end):
                        rows = fetch()
                    owners = _find_owners(turn, rows[OWNER])
                    known = owners >= 0
                    owners, columns = owners[known], {name: rows[name].to_numpy()[known] for name in values}
                    del rows
                    number = np.bincount(owners, minlength=len(turn.limits))
                    payers = turn.charge(_times(number, aggregate), aggregate.price)
                    paid = {name: column[payers[owners]] for name, column in columns.items()}
                    answer = aggregate.answer(paid, int(number[payers].sum()))
                    written = None if key is None else answer.to_json()
                if key is not None:
                    turn.keep_answer(key, request, written)
            return answer
        except _Interrupted as interrupted:
            ended = interrupted.ended
        # Outside of the handler, so that what was read is gone, and its error with it.
        with storage_failures(), people.purses.turn() as turn:
            turn.charge(_most_times(turn, query, aggregate), aggregate.price)
        raise ended

    def count(self, *, key: str | None = None, **price: Any) -> Answer:
        """Count the records (`Count`)."""
        return self.ask(Count(**price), key)  # type: ignore[no-any-return]

    def sum(self, column: str, clip: tuple[float, float], *, key: str | None = None, **more: Any) -> Answer:
        """Sum a value, clipped to a public range (`Sum`). Records without the value are not used."""
        return self.ask(Sum(column, clip, **more), key)  # type: ignore[no-any-return]

    def mean(self, column: str, clip: tuple[float, float], *, key: str | None = None, **more: Any) -> Answer:
        """Average a value, clipped to a public range (`Mean`). Records without the value are not used."""
        return self.ask(Mean(column, clip, **more), key)  # type: ignore[no-any-return]

    def histogram(self, column: str, values: Sequence[Any], *, key: str | None = None, **price: Any) -> Answers:
        """Count the records with each of some public values (`Histogram`). Records with others are not used."""
        return self.ask(Histogram(column, values, **price), key)  # type: ignore[no-any-return]


@contextlib.contextmanager
def storage_failures() -> Iterator[None]:
    """Raise the library's own errors about a ledger or a database as UnusableError."""
    try:
        yield
    except (DamagedFile, InterruptedQuestionError, KeyReuseError):
        raise
    except InputError as problem:
        failed = UnusableError(str(problem))
    else:
        return
    raise_alone(failed)


class _Interrupted(Exception):  # noqa: N818
    """The end of a question while records were being read; `ended` is raised when all are charged."""

    def __init__(self, ended: BaseException) -> None:
        self.ended = ended


@contextlib.contextmanager
def _reading(end: float) -> Iterator[None]:
    """Raise one and the same error, whatever ends the block early, or if it is late: the cause may be about records."""
    try:
        yield
        if time.monotonic() > end:
            raise TimeoutError
    except Exception:
        ended: BaseException = InterruptedQuestionError(INTERRUPTED)
    except BaseException as stopped:
        ended = stopped.with_traceback(None)
    else:
        return
    raise _Interrupted(ended)


def _find_owners(turn: Turn, column: Any) -> NDArray[np.int64]:
    """Return the places (n,) of the owners of records in an Arrow column of names; -1 for nobody."""
    coded = column.combine_chunks().dictionary_encode()
    places = np.append(turn.find(coded.dictionary.to_pylist()), -1)
    return places[coded.indices.fill_null(-1).to_numpy()]


def _most_times(turn: Turn, query: Query, aggregate: Aggregate) -> NDArray[np.int64]:
    """Return how often each person pays at most, (m,): for as many records as there may be, as long as money lasts."""
    affordable = (turn.limits - turn.spent) // aggregate.price
    if query.most is None:
        return affordable
    return np.minimum(affordable, _times(np.array(min(query.most, 1 << 62)), aggregate))


def _times(number: NDArray[np.int64], aggregate: Aggregate) -> NDArray[np.int64]:
    """Return how often the owner of some numbers of derived records pays the price of one."""
    return number if aggregate.unit == "epsilon" else np.minimum(number, _MOST_RECORDS) ** 2


def _request(expression: Any, aggregate: Aggregate) -> dict[str, str | list[str]]:
    """Describe a question as JSON, alike in every process."""
    text = sql_of(expression, "duckdb", pretty=True)
    # Names of public tables differ from run to run: their rows replace them.
    for name, rows in carried_tables(expression).items():
        text = text.replace(name, hashlib.sha256(repr(rows.to_pydict()).encode()).hexdigest())
    return {**aggregate.describe(), "records": hashlib.sha256(text.encode()).hexdigest()}
