"""People with their own budgets, and queries that charge the owners of the records they use. Private.

People take part in a query if they can pay for all of their own derived records. One ledger transaction covers the
charge, the noise and the stored answer, and ends before the answer is returned. A query that is interrupted while
reading charges everybody its maximum cost (docs/privacy/personal.md, section 6).
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import secrets
import time
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray
from sqlalchemy import JSON, Column, Connection, LargeBinary, MetaData, String, Table, insert, select, update

from deltahist.accounts.ledger import Ledger, check_text, get_note, open_account, set_note
from deltahist.budget import Budget, floor_nano
from deltahist.errors import NANO, DamagedFile, InputError, check_choice
from deltahist.personal.engines import Engine, find_public_tables, raise_without_context, write_sql
from deltahist.personal.query import NAME, OWNER, Query
from deltahist.personal.questions import Aggregate, Answer, Answers, Count, Histogram, Mean, Sum
from deltahist.preprocessing import normalize_name

#: Temporary tables: people who can pay for a record (their names and purse indices), and their records.
PAYERS, RECORDS = "_deltahist_payers", "_deltahist_records"
_TABLES = MetaData()
#: An account's secret, and the digest and limit of each person.
_PEOPLE = Table(
    "purse_people", _TABLES, Column("account", String, primary_key=True),
    *(Column(name, LargeBinary, nullable=False) for name in ("secret", "marks", "limits")),
)  # fmt: skip
#: Amounts spent, in the order of the digests. A charge writes no other column.
_SPENT = Table(
    "purse_spent", _TABLES,
    Column("account", String, primary_key=True), Column("spent", LargeBinary, nullable=False),
)  # fmt: skip
#: Stored answers by key.
_ANSWERS = Table(
    "purse_answers", _TABLES,
    *(Column(name, String, primary_key=True) for name in ("account", "key")),
    *(Column(name, JSON, nullable=False) for name in ("request", "answer")),
)  # fmt: skip


class InterruptedQuestionError(InputError):
    """A query ran out of memory or time, or the database failed. Everybody has paid. The message never varies."""

    def __init__(self) -> None:
        super().__init__("the query was interrupted while reading: everybody was charged its maximum cost")


class UnusableError(InputError):
    """A ledger or database that cannot be used now."""


class KeyReuseError(InputError):
    """A key that was used for another query."""


class Purses:
    """The purses in an account of a ledger. Each purse holds a user's limit and the amount spent.

    The ledger keeps a keyed digest (BLAKE2b, 128 bits) of each normalized name, so users who join again keep the same
    purse, even if their records are in another database. Limits never change. Purses are stored as columns, so that one
    write can charge a million users. Raises InputError if the account is of another kind.
    """

    def __init__(self, ledger: Ledger, name: str, unit: str = "epsilon") -> None:
        self.ledger, self.name, self.unit = ledger, check_text(account=name), unit
        with ledger.transaction() as connection:
            open_account(connection, self.name, {"kind": "purses", "unit": unit})
            _TABLES.create_all(connection)
            if get_note(connection, self.name, "purses") is None:
                empty = {"account": self.name, "marks": b"", "limits": b"", "secret": secrets.token_bytes(32)}
                connection.execute(insert(_PEOPLE), empty)
                connection.execute(insert(_SPENT), {"account": self.name, "spent": b""})
                set_note(connection, self.name, "purses", _digest(b""))

    @contextlib.contextmanager
    def open_turn(self) -> Iterator[Turn]:
        """Lock all purses, and undo changes if the block raises. Raises DamagedFile if columns are inconsistent."""
        with self.ledger.transaction() as connection:
            yield Turn(connection, self.name)


class Turn:
    """Purses within a transaction of their ledger. `limits` and `spent` (m,) are billionths in the order of joining."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self._name = connection, name
        both = select(_PEOPLE, _SPENT.c.spent).join(_SPENT, _SPENT.c.account == _PEOPLE.c.account)
        found = connection.execute(both.where(_PEOPLE.c.account == name)).first()
        _, secret, marks, limits, spent = found or ("", b"", b"", b"", b"")
        self._secret, self._marks = bytes(secret), bytes(marks)
        self.limits, self.spent = (np.frombuffer(each, "<i8").astype(np.int64) for each in (limits, spent))
        damaged = found is None or not len(self.limits) == len(self.spent) == len(self._marks) / 16
        # With limits of at most 10^9, a limit plus an affordable charge fits in 64 bits.
        damaged = damaged or bool(((self.spent < 0) | (self.spent > self.limits) | (self.limits > 10**9 * NANO)).any())
        if damaged or get_note(connection, name, "purses") != _digest(spent):
            raise DamagedFile(f"account {name!r} is damaged: some budgets are missing or changed, perhaps by a trigger")

    def find_places(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Normalise names. Return the indices (k,) of these people's purses, with -1 for people who have not joined."""
        digests, marks = (
            pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(each) // 16, [None, pa.py_buffer(each)])
            for each in (self._digest_names(names), self._marks)
        )
        return np.asarray(pc.index_in(digests, marks).fill_null(-1), dtype=np.int64)

    def find_payers(self, names: Sequence[str], price: int) -> Any:
        """Return an Arrow table of the names and indices of people who can pay a price."""
        places = self.find_places(names)
        able = np.append(self.limits - self.spent, 0)[places] >= price
        return pa.table({NAME: pa.array(names, pa.string()).filter(pa.array(able)), OWNER: places[able]})

    def charge_people(self, times: NDArray[np.int64], price: int) -> NDArray[np.bool_]:
        """Charge users who can pay `times` (m,) times the price. Return who paid (ProPer, sequential composition)."""
        # Divide, because the product might overflow.
        pays = np.asarray((times > 0) & (times <= (self.limits - self.spent) // price))
        self.spent = self.spent + np.where(pays, times, 0) * price
        self._write_spent()
        return pays

    def join_people(self, names: Sequence[str], limits: ArrayLike) -> None:
        """Open purses with limits (k,) of at most 10^18 billionths. People who have a purse keep it."""
        different: dict[str, int] = {}
        for name, limit in zip(map(_normalize_text, names), np.asarray(limits).tolist(), strict=True):
            different.setdefault(name, limit)
        different.pop("", None)
        fresh = [name for name, place in zip(different, self.find_places(list(different)), strict=True) if place < 0]
        self._marks += self._digest_names(fresh)
        self.limits = np.append(self.limits, np.array([different[name] for name in fresh], np.int64))
        self.spent = np.append(self.spent, np.zeros(len(fresh), np.int64))
        self._write_columns(_PEOPLE, marks=self._marks, limits=self.limits.astype("<i8").tobytes())
        self._write_spent()

    def find_answer(self, key: str, request: dict[str, Any]) -> Any:
        """Return the answer stored under a key, or None for a new key. Raises KeyReuseError if the request differs."""
        at = _ANSWERS.c.account == self._name, _ANSWERS.c.key == key
        found = self._connection.execute(select(_ANSWERS).where(*at)).first()
        if found is not None and found.request != request:
            raise KeyReuseError(f"key {key!r} was used for another query: use a new key")
        return None if found is None else found.answer

    def keep_answer(self, key: str, request: dict[str, Any], answer: Any) -> None:
        self._connection.execute(insert(_ANSWERS).values(account=self._name, key=key, request=request, answer=answer))

    def _digest_names(self, names: Sequence[str]) -> bytes:
        texts = (_normalize_text(name).encode() for name in names)
        return b"".join(hashlib.blake2b(text, key=self._secret, digest_size=16).digest() for text in texts)

    def _write_spent(self) -> None:
        spent = self.spent.astype("<i8").tobytes()
        self._write_columns(_SPENT, spent=spent)
        set_note(self._connection, self._name, "purses", _digest(spent))

    def _write_columns(self, table: Table, **columns: bytes) -> None:
        self._connection.execute(update(table).where(table.c.account == self._name).values(columns))


def _normalize_text(name: str) -> str:
    """Normalise a string like `normalize_name`, but return "" if the string is blank."""
    return unicodedata.normalize("NFC", name).strip()


def _digest(spent: bytes) -> str:
    return hashlib.blake2b(spent, digest_size=16).hexdigest()


class People:
    """People with budgets of their own. A query charges the owners of the records that it uses.

    Records of people who cannot pay are left out silently. All answers together are ε-private for all records of one
    user, where ε is the user's limit. If D' is D without these, Pr(A(D) ∈ S) ≤ e^ε Pr(A(D') ∈ S), and vice versa.
    Proof: docs/privacy/personal.md. Source: ProPer, Definition 1 and Proposition 1 (Ebadi, Sands and Schneider 2015).

    Parameters
    ----------
    database : a DuckDB file or connection, the URL of a PostgreSQL database, or an `Engine`.
    table : name of the table of records. owner : name of the column that contains their owners.
    ledger : a Ledger, or its path or URL. A missing ledger is created. name : name of the account.
    epsilon, rho : the default budget of people who join. Give at most one.

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
        self.database = database if isinstance(database, Engine) else Engine.open(database)
        self._query = self.database.make_query(table, owner)
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        unit = "epsilon" if rho is None else "rho"
        if epsilon is None and rho is None:
            unit = self.ledger.list_accounts().get(check_text(account=name), {}).get("unit", unit)
        self.purses = Purses(self.ledger, name, unit)

    @property
    def records(self) -> Records:
        """All records of the table."""
        schema = {**self._query.table.schema(), OWNER: "int64"}
        return Records(ibis.table(schema, name=RECORDS), self._query.source, people=self)

    @property
    def names(self) -> Any:
        """An Ibis table of all owners' names, as the database writes them."""
        return self._query.table.select(**{NAME: self._query.table[OWNER]}).distinct()

    @property
    def payers_records(self) -> Any:
        """An Ibis table of the records of people who can pay."""
        payers = ibis.table({NAME: "string", OWNER: "int64"}, name=PAYERS)
        named = self._query.table.rename({NAME: OWNER}).inner_join(payers, NAME)
        return named.select(OWNER, *self._query.columns)

    def join(self, names: Sequence[str], *, epsilon: Any = None, rho: Any = None) -> None:
        """Let people join with budgets that never change (ProPer, live data). Rejoining requires the same budget.

        Parameters
        ----------
        names : (m,) strings or whole numbers, as in the owners' column. Surrounding spaces and the Unicode form of
            accents make no difference.
        epsilon, rho : one budget, or (m,) budgets, in the account's unit. None means the default.
        """
        listed = _list_names(names)
        limits = self._read_limits(len(listed), epsilon, rho)
        with self.purses.open_turn() as turn:
            turn.join_people(listed, limits)
            differs = turn.limits[turn.find_places(listed)] != limits
            if differs.any():
                raise InputError(f"{listed[int(np.argmax(differs))]!r} joined with another budget, which is fixed")

    def enrol(self) -> int:
        """Let all owners who have not yet joined do so with the default budget. Return how many joined. Private."""
        with self.database.open_session() as session:
            owners = session.plan_fetch(self.names)()[NAME].to_pylist()
        limit = self._read_limits(1, None, None)
        with self.purses.open_turn() as turn:
            before = len(turn.limits)
            turn.join_people(owners, np.broadcast_to(limit, len(owners)))
            return len(turn.limits) - before

    def spent(self, names: Sequence[str]) -> list[Fraction]:
        """Return what people have spent. Private."""
        return [spent for spent, _ in self._read_purses(names)]

    def left(self, names: Sequence[str]) -> list[Fraction]:
        """Return what people may still spend. Private."""
        return [limit - spent for spent, limit in self._read_purses(names)]

    def _read_purses(self, names: Sequence[str]) -> list[tuple[Fraction, Fraction]]:
        listed = _list_names(names)
        with self.purses.open_turn() as turn:
            places = turn.find_places(listed)
            if (places < 0).any():
                raise InputError(f"{listed[int(np.argmin(places))]!r} has not joined")
            purses = zip(turn.spent[places].tolist(), turn.limits[places].tolist(), strict=True)
        return [(Fraction(spent, NANO), Fraction(limit, NANO)) for spent, limit in purses]

    def _read_limits(self, number: int, epsilon: Any, rho: Any) -> NDArray[np.int64]:
        if epsilon is None and rho is None:
            epsilon, rho = self.epsilon, self.rho
        unit = self.purses.unit
        given, other = (epsilon, rho) if unit == "epsilon" else (rho, epsilon)
        amounts = np.asarray(() if given is None else given, dtype=object).ravel().tolist()
        nanos = [floor_nano(**{unit: amount}) for amount in amounts]
        if other is not None or given is None or min(nanos, default=1) < 1:
            rule = f"each person needs a budget of at least a billionth, in the account's unit, {unit}"
            raise InputError(f"epsilon is {epsilon!r} and rho is {rho!r}: {rule}")
        return np.broadcast_to(np.array(nanos, dtype=np.int64).reshape(np.shape(given)), number)


@dataclass(frozen=True, eq=False, kw_only=True)
class Records(Query):
    """People's records, or records derived from them.

    A query costs people its ε times the number of their derived records, or its ρ times the square of that number.
    Repeating a query under the same key repeats the answer, without a second charge.

    seconds : time for reading records. Reading must end by a random moment in the second half of this time. The query
        sleeps for the rest of it, so that every query locks the ledger for the same time.
    until : latest value of `time.monotonic()` at which a query may end.
    """

    people: People
    seconds: float = math.inf
    until: float = math.inf

    def ask(self, aggregate: Aggregate, key: str | None = None) -> Any:
        """Answer a query from `deltahist.personal.questions`. Source: ProPer, Corollary 1 and provenance.

        A query that is interrupted while reading charges everybody its maximum cost, and raises
        InterruptedQuestionError. Raises InputError, and charges nothing, if the query's unit is not the account's, if
        the key was used for another query, or if the database or the ledger fails before reading.
        """
        people, price = self.people, aggregate.price
        check_choice((people.purses.unit,), unit=aggregate.budget.unit)
        expression = aggregate.add_up(self)
        request = {} if key is None else _describe_request(self, expression, aggregate)
        key = None if key is None else check_text(key=key)
        ended: BaseException | None = None
        with as_unusable(), people.purses.open_turn() as turn, people.database.open_session() as session:
            kept = None if key is None else turn.find_answer(key, request)
            if kept is not None:
                return aggregate.decode(np.array(kept))
            # Do the public work first, so that it does not use up the time for reading.
            session.put_table(PAYERS, turn.find_payers([], price))
            fetch_names = session.plan_fetch(people.names)
            session.create_view(RECORDS, people.payers_records)
            fetch_sums = session.plan_fetch(expression)
            begun, before = time.monotonic(), turn.spent
            if begun + self.seconds > self.until:
                raise UnusableError("planning took too long: nothing was charged")
            end = begun + self.seconds * (1 - secrets.randbelow(1 << 20) / (1 << 21))
            try:
                with session.stop_at(end):
                    session.put_table(PAYERS, turn.find_payers(fetch_names()[NAME].to_pylist(), price))
                    rows = fetch_sums()
                sums = {name: rows[name].to_numpy() for name in rows.column_names}
                number = np.zeros(len(turn.limits), np.int64)
                np.add.at(number, sums[OWNER], sums["number"])
                pays = turn.charge_people(_count_prices(number, aggregate), price)[sums[OWNER]]
                released = aggregate.release({name: column[pays] for name, column in sums.items()})
                answer = aggregate.decode(released)
                if time.monotonic() > end:
                    ended = InterruptedQuestionError()
            except Exception:  # the exception's message and type may reveal records
                ended = InterruptedQuestionError()
            except BaseException as stopped:
                ended = stopped.with_traceback(None)
            if ended is not None:
                turn.spent = before
                turn.charge_people(_count_most_prices(turn, self, aggregate), price)
            elif key is not None:
                turn.keep_answer(key, request, released.tolist())
            if self.seconds < math.inf:
                time.sleep(max(0.0, begun + self.seconds - time.monotonic()))
        if ended is not None:
            raise ended
        return answer

    def count(self, *, key: str | None = None, **price: Any) -> Answer:
        """Count the records (see `Count`)."""
        return self.ask(Count(**price), key)  # type: ignore[no-any-return]

    def sum(self, column: str, clip: tuple[float, float], *, key: str | None = None, **more: Any) -> Answer:
        """Sum a value, clipped to a public range, over the records that have it (see `Sum`)."""
        return self.ask(Sum(column, clip, **more), key)  # type: ignore[no-any-return]

    def mean(self, column: str, clip: tuple[float, float], *, key: str | None = None, **more: Any) -> Answer:
        """Average a value, clipped to a public range, over the records that have it (see `Mean`)."""
        return self.ask(Mean(column, clip, **more), key)  # type: ignore[no-any-return]

    def histogram(self, column: str, values: Sequence[Any], *, key: str | None = None, **price: Any) -> Answers:
        """Count the records with each public value of a column (see `Histogram`)."""
        return self.ask(Histogram(column, values, **price), key)  # type: ignore[no-any-return]


@contextlib.contextmanager
def as_unusable() -> Iterator[None]:
    """Replace the InputErrors of a ledger or a database by UnusableErrors."""
    try:
        yield
        return
    except (DamagedFile, KeyReuseError):
        raise
    except InputError as problem:
        failed = UnusableError(str(problem))
    raise_without_context(failed)


def _count_most_prices(turn: Turn, query: Query, aggregate: Aggregate) -> NDArray[np.int64]:
    """Return the maximum number of times that each user may have to pay the price, in shape (m,)."""
    affordable = np.asarray((turn.limits - turn.spent) // aggregate.price)
    if query.most is None:
        return affordable
    return affordable.clip(max=_count_prices(np.array([min(query.most, 1 << 62)]), aggregate))


def _count_prices(number: NDArray[np.int64], aggregate: Aggregate) -> NDArray[np.int64]:
    """Return how many times the owner of each `number` of derived records pays the price."""
    times = number if aggregate.budget.unit == "epsilon" else number**2
    # No limit covers this many records, and squaring their number may overflow.
    return np.asarray(np.where(number > 1 << 31, 1 << 62, times))


def _describe_request(query: Query, expression: Any, aggregate: Aggregate) -> dict[str, Any]:
    """Describe a query as JSON that is the same in every process."""
    text = write_sql(expression, "duckdb", pretty=True)
    # The names of public tables differ between runs, so hashes of their rows replace them.
    for name, rows in find_public_tables(expression).items():
        text = text.replace(name, hashlib.sha256(repr(rows.to_pydict()).encode()).hexdigest())
    records = hashlib.sha256(text.encode()).hexdigest()
    return {"question": repr(aggregate), "source": list(query.source), "records": records}


def _list_names(names: Sequence[Any]) -> list[str]:
    return [normalize_name(owner=name) for name in ([names] if isinstance(names, str) else names)]
