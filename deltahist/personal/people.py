"""People with budgets of their own, and questions about their records, from the key to the answer.

A person takes part if they can pay for all of their derived records, whatever others have. Everybody else's records are
left out, silently. Charging, noise and the kept answer are one transaction of the ledger, which ends before anything is
handed out. A question that is interrupted once records are read costs everybody the most that it may cost them
(docs/privacy/personal.md, section 6).
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.accounts.ledger import Ledger, check_text
from deltahist.budget import Budget, floor_nano
from deltahist.errors import NANO, DamagedFile, InputError
from deltahist.personal.aggregates import Aggregate, Answer, Answers, Count, Histogram, Mean, Sum
from deltahist.personal.engine import Database, carried_tables, raise_alone, sql_of
from deltahist.personal.purses import KeyReuseError, Purses, Turn
from deltahist.personal.query import NAME, OWNER, Query
from deltahist.preprocessing import normalize_name

#: The names of people who can pay for a record, with their places in the purses; and the records of these people.
PAYERS, RECORDS = "_deltahist_payers", "_deltahist_records"
#: A person with more records than this does not take part: the price of its square is more than any limit pays.
_MOST_RECORDS = 1 << 31
#: The one message of every question that was interrupted.
INTERRUPTED = "the question was interrupted while reading: everybody was charged the most that it may cost"


class InterruptedQuestionError(InputError):
    """A question that memory, time or the database kept from an answer: everybody has paid."""


class UnusableError(InputError):
    """A ledger, or a database of people, that cannot be used just now."""


class People:
    """People with budgets of their own: a question charges the owners of the records that it uses.

    Records of people who cannot pay are left out of a question, silently. All answers together are ε-private for each
    person, where ε is their own limit: with and without the records o, Pr(A(D) ∈ S) ≤ e^(E(o)) Pr(A(D') ∈ S).
    Proof: docs/privacy/personal.md. Source: ProPer, Definition 1, Proposition 1 (Ebadi, Sands, Schneider 2015).

    Parameters
    ----------
    database : a Database, or where one is (a DuckDB file or connection, or the URL of a PostgreSQL database).
    table : of it. owner : the column that names the person whose a record is.
    ledger : a Ledger, or where one is; it is made if it does not exist. name : of the account in it.
    epsilon, rho : the budget of people who join without one; at most one of both.

    Raises InputError if a table or column is not there, or the account was opened in another unit.

    Examples
    --------
    >>> import duckdb, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> city = duckdb.connect()
    >>> _ = city.execute("CREATE TABLE trip AS SELECT * FROM (VALUES ('Ada', 'bus'), ('Ada', 'bus'), ('Bob', 'tram'))"
    ...                  " AS trips (who, kind)")
    >>> people = People(city, "trip", owner="who", ledger=f"{folder.name}/city.ledger", epsilon=1)
    >>> people.enrol()
    2
    >>> answer = people.records.where("kind = 'bus'").count(epsilon=0.25)
    >>> people.spent(["Ada", "Bob"])
    [Fraction(1, 2), Fraction(0, 1)]
    >>> folder.cleanup()
    """

    def __init__(
        self,
        database: Any,
        table: str,
        *,
        owner: str,
        ledger: Ledger | str | Path,
        name: str = "people",
        epsilon: float | Fraction | None = None,
        rho: float | Fraction | None = None,
    ) -> None:
        if epsilon is not None or rho is not None:
            Budget(epsilon, rho)
        self.table, self.owner, self.epsilon, self.rho = table, owner, epsilon, rho
        self.database = database if isinstance(database, Database) else Database.open(database)
        self._query = self.database.query(table, owner)
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        unit = "epsilon" if rho is None else "rho"
        if epsilon is None and rho is None:
            unit = self.ledger.list_accounts().get(check_text(account=name), {}).get("unit", unit)
        self.purses = Purses(self.ledger, name, unit)

    @property
    def records(self) -> Records:
        """All records, to ask questions of."""
        import ibis

        schema = {**self._query.table.schema(), OWNER: "int64"}
        return Records(ibis.table(schema, name=RECORDS), self._query.source, people=self)

    @property
    def names(self) -> Any:
        """The names of all owners as the database writes them, an Ibis table."""
        return self._query.table.select(**{NAME: self._query.table[OWNER]}).distinct()

    @property
    def payers_records(self) -> Any:
        """The records of people who can pay, an Ibis table."""
        import ibis

        payers = ibis.table({NAME: "string", OWNER: "int64"}, name=PAYERS)
        named = self._query.table.rename({NAME: OWNER}).inner_join(payers, NAME)
        return named.select(OWNER, *self._query.columns)

    def join(
        self,
        names: Sequence[str],
        *,
        epsilon: ArrayLike | Fraction | None = None,
        rho: ArrayLike | Fraction | None = None,
    ) -> None:
        """Let people join with whole budgets, which never change (ProPer, live data). Known people stay.

        Parameters
        ----------
        names : (m,) texts or whole numbers, all different, as the owner's column has them. Spaces at the ends, and the
            two forms in which Unicode writes é, make no difference.
        epsilon, rho : budget of each, or (m,) budgets, in the unit of these people; their default when None.

        Raises InputError, and nobody joins, on bad names or budgets, or if somebody has joined with another budget.
        """
        listed = _check_names(names)
        if len(set(listed)) < len(listed):
            twice = Counter(listed).most_common(1)[0][0]
            raise InputError(f"{twice!r} is named twice: each person joins once")
        limits = self._limits(len(listed), epsilon, rho)
        with self.purses.turn() as turn:
            places = turn.find(listed)
            other = (places >= 0) & (turn.limits[places] != limits) if len(turn.limits) else np.zeros(0, bool)
            if other.any():
                name = listed[int(np.argmax(other))]
                raise InputError(f"{name!r} joined with another budget, which never changes")
            turn.join(listed, limits)

    def enrol(self) -> int:
        """Let all other owners join with the default budget (InputError if there is none); their number is private."""
        with self.database.snapshot() as look:
            owners = look.fetch(self.names)[NAME].to_pylist()
        limit = self._limits(1, None, None)
        with self.purses.turn() as turn:
            before = len(turn.limits)
            turn.join(owners, np.broadcast_to(limit, len(owners)))
            return len(turn.limits) - before

    def spent(self, names: Sequence[str]) -> list[Fraction]:
        """Return what people have spent, which is private; InputError if somebody has not joined."""
        return [spent for spent, _ in self._purses_of(names)]

    def left(self, names: Sequence[str]) -> list[Fraction]:
        """Return what people may still spend, which is private; InputError if somebody has not joined."""
        return [limit - spent for spent, limit in self._purses_of(names)]

    def _purses_of(self, names: Sequence[str]) -> list[tuple[Fraction, Fraction]]:
        """Return what each has spent, and the limit."""
        listed = _check_names(names)
        with self.purses.turn() as turn:
            places = turn.find(listed)
            if (places < 0).any():
                raise InputError(f"{listed[int(np.argmin(places))]!r} has not joined")
            purses = zip(turn.spent[places].tolist(), turn.limits[places].tolist(), strict=True)
        return [(Fraction(spent, NANO), Fraction(limit, NANO)) for spent, limit in purses]

    def _limits(self, number: int, epsilon: Any, rho: Any) -> NDArray[np.int64]:
        """Return the billionths (m,) that each may spend."""
        if epsilon is None and rho is None:
            epsilon, rho = self.epsilon, self.rho
        unit = self.purses.unit
        given, other = (epsilon, rho) if unit == "epsilon" else (rho, epsilon)
        if other is not None or given is None:
            raise InputError(f"epsilon is {epsilon!r} and rho {rho!r}: each person needs a budget in {unit}")
        amounts = np.asarray(given, dtype=object)
        if amounts.shape not in ((), (number,)):
            raise InputError(f"{amounts.size:,} budgets for {number:,} people: give one for all, or for each")
        nanos = [floor_nano(**{unit: amount}) for amount in amounts.ravel().tolist()]
        if min(nanos, default=1) < 1:
            raise InputError(f"{unit} is below a billionth: a budget must be at least that")
        return np.broadcast_to(np.array(nanos, dtype=np.int64), number)


@dataclass(frozen=True, eq=False, kw_only=True)
class Records(Query):
    """Records of people, or records derived from them, to ask questions of.

    A question costs a person its ε times the number of their records that it uses (its ρ times the square of that).
    The same question under the same key has the same answer, and is paid for once.

    Parameters
    ----------
    seconds : for reading records. A question may take a random half to all of them and idles for the rest, so that
        the ledger is held equally long whatever the records are. until : when all must have ended (`time.monotonic`).
    """

    people: People
    seconds: float = math.inf
    until: float = math.inf

    def ask(self, aggregate: Aggregate, key: str | None = None) -> Any:
        """Ask a question (`deltahist.personal.aggregates`). Source: ProPer, Corollary 1, provenance.

        Raises InterruptedQuestionError if it ends while records are read: everybody is charged the most. Raises
        InputError if the unit is another, the key was used for another request, or the database or the ledger fails:
        nothing is charged.
        """
        people, price = self.people, aggregate.price
        if aggregate.unit != people.purses.unit:
            raise InputError(f"the question costs {aggregate.unit}: budgets are in {people.purses.unit}")
        expression = aggregate.add_up(self)
        request = {} if key is None else _request(self, expression, aggregate)
        key = None if key is None else check_text(key=key)
        ended: BaseException | None = None
        with storage_failures(), people.purses.turn() as turn, people.database.snapshot() as look:
            kept = None if key is None else turn.find_answer(key, request)
            if kept is not None:
                return aggregate.decode(np.array(kept))
            # All that is public comes first, and takes no time from what follows.
            look.put(PAYERS, turn.find_payers([], price))
            fetch_names = look.plan(people.names)
            look.create(RECORDS, people.payers_records)
            fetch = look.plan(expression)
            begun, before = time.monotonic(), turn.spent
            if begun + self.seconds > self.until:
                raise UnusableError("the question took too long to plan, or others did: nothing was charged")
            end = begun + self.seconds * (1 - secrets.randbelow(1 << 20) / (1 << 21))
            try:
                with look.until(end):
                    look.put(PAYERS, turn.find_payers(fetch_names()[NAME].to_pylist(), price))
                    rows = fetch()
                sums = {name: rows[name].to_numpy() for name in rows.column_names}
                number = np.zeros(len(turn.limits), np.int64)
                np.add.at(number, sums[OWNER], sums["number"])
                pays = turn.charge(_times(number, aggregate), price)[sums[OWNER]]
                released = aggregate.release({name: column[pays] for name, column in sums.items()})
                answer = aggregate.decode(released)
                if time.monotonic() > end:
                    raise TimeoutError
            except Exception:  # its message, and its being one, may be about records
                ended = InterruptedQuestionError(INTERRUPTED)
            except BaseException as stopped:
                ended = stopped.with_traceback(None)
            if ended is not None:
                turn.spent = before
                turn.charge(_most_times(turn, self, aggregate), price)
            elif key is not None:
                turn.keep_answer(key, request, released.tolist())
            if self.seconds < math.inf:
                time.sleep(max(0.0, begun + self.seconds - time.monotonic()))
        if ended is not None:
            raise ended
        return answer

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
        return
    except (DamagedFile, KeyReuseError):
        raise
    except InputError as problem:
        failed = UnusableError(str(problem))
    raise_alone(failed)


def _most_times(turn: Turn, query: Query, aggregate: Aggregate) -> NDArray[np.int64]:
    """Return how often each person pays at most, (m,): for as many records as there may be, as long as money lasts."""
    affordable = (turn.limits - turn.spent) // aggregate.price
    if query.most is None:
        return affordable
    return np.minimum(affordable, _times(np.array([min(query.most, 1 << 62)]), aggregate))


def _times(number: NDArray[np.int64], aggregate: Aggregate) -> NDArray[np.int64]:
    """Return how often the owner of some numbers of derived records pays the price of one."""
    times = number if aggregate.unit == "epsilon" else number**2
    return np.asarray(np.where(number > _MOST_RECORDS, 1 << 62, times))


def _request(query: Query, expression: Any, aggregate: Aggregate) -> dict[str, Any]:
    """Describe a question as JSON, alike in every process."""
    text = sql_of(expression, "duckdb", pretty=True)
    # Names of public tables differ from run to run: their rows replace them.
    for name, rows in carried_tables(expression).items():
        text = text.replace(name, hashlib.sha256(repr(rows.to_pydict()).encode()).hexdigest())
    records = hashlib.sha256(text.encode()).hexdigest()
    asked = {field.name: str(getattr(aggregate, field.name)) for field in fields(aggregate)}
    return {"question": type(aggregate).__name__, **asked, "source": list(query.source), "records": records}


def _check_names(names: Sequence[Any]) -> list[str]:
    """Return names in the form that is compared; InputError on one that is none."""
    listed = [normalize_name(owner=name) for name in ([names] if isinstance(names, str) else names)]
    for name in listed:
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise InputError(f"owner is {name!r}: it must be text in Unicode")
    return listed
