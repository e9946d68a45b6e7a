"""People with their own budgets, and questions about their records, from the key to the answer.

A person takes part if they can pay for all of their derived records, whatever others have. Everybody else's records are
left out, silently. Charging, noise and the kept answer are one transaction of the ledger, which ends before the answer
is released. A question that is interrupted once records are read costs everybody the most that it may cost them
(docs/privacy/personal.md, section 6).
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import secrets
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sqlalchemy import JSON, Column, Connection, LargeBinary, MetaData, String, Table, insert, select, update

from deltahist.accounts.ledger import Ledger, check_text, get_note, open_account, set_note
from deltahist.budget import Budget, floor_nano
from deltahist.errors import NANO, DamagedFile, InputError, check_choice
from deltahist.personal.engines import Engine, find_public_tables, raise_without_context, write_sql
from deltahist.personal.query import NAME, OWNER, Query
from deltahist.personal.questions import Aggregate, Answer, Answers, Count, Histogram, Mean, Sum
from deltahist.preprocessing import normalize_name

#: The names of people who can pay for a record, with their places in the purses; and the records of these people.
PAYERS, RECORDS = "_deltahist_payers", "_deltahist_records"
_TABLES = MetaData()
#: Who has a purse: a secret of the account, and for each person a digest of the name and the limit.
_PEOPLE = Table(
    "purse_people", _TABLES, Column("account", String, primary_key=True),
    *(Column(name, LargeBinary, nullable=False) for name in ("secret", "marks", "limits")),
)  # fmt: skip
#: What each has spent, in the same order: the only column that a charge writes.
_SPENT = Table(
    "purse_spent", _TABLES,
    Column("account", String, primary_key=True), Column("spent", LargeBinary, nullable=False),
)  # fmt: skip
#: Requests that were answered under a key.
_ANSWERS = Table(
    "purse_answers", _TABLES,
    *(Column(name, String, primary_key=True) for name in ("account", "key")),
    *(Column(name, JSON, nullable=False) for name in ("request", "answer")),
)  # fmt: skip


class InterruptedQuestionError(InputError):
    """A question that memory, time or the database kept from an answer: everybody has paid. It has one message."""

    def __init__(self) -> None:
        super().__init__("the question was interrupted while reading: everybody was charged the most that it may cost")


class UnusableError(InputError):
    """A ledger, or a database of people, that cannot be used now."""


class KeyReuseError(InputError):
    """A key that was used for another request."""


class Purses:
    """The purses of an account of a ledger: the limit of each person, and what each has spent.

    People are known by the normal form of their names. The ledger keeps a keyed digest of it (BLAKE2b, 128 bits):
    people who join again have the same purse as before, whatever database their records are in. A limit never changes,
    and a spent amount stays spent. Purses are kept as columns, so that a question about a million people is charged in
    one write. Raises InputError if the account was opened as something else.
    """

    def __init__(self, ledger: Ledger, name: str, unit: str = "epsilon") -> None:
        self.ledger, self.name = ledger, check_text(account=name)
        self.unit = check_choice(("epsilon", "rho"), unit=unit)
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
        """Hold all purses, alone, and undo changes if the block raises; DamagedFile if columns contradict."""
        with self.ledger.transaction() as connection:
            yield Turn(connection, self.name)


class Turn:
    """Purses within one transaction of their ledger.

    Attributes
    ----------
    limits, spent : (m,) billionths, of people in the order in which they joined.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self._name = connection, name
        both = select(_PEOPLE, _SPENT.c.spent).join(_SPENT, _SPENT.c.account == _PEOPLE.c.account)
        found = connection.execute(both.where(_PEOPLE.c.account == name)).first()
        if found is None:
            raise DamagedFile(f"account {name!r} is damaged: its purses are gone")
        self._secret, self._marks = bytes(found.secret), bytes(found.marks)
        self.limits = np.frombuffer(found.limits, "<i8").astype(np.int64)
        self.spent = np.frombuffer(found.spent, "<i8").astype(np.int64)
        damaged = not len(self.limits) == len(self.spent) == len(self._marks) / 16
        # Limits are at most 10^9, so that sums of a limit and a charge that it pays stay within 64 bits.
        damaged = damaged or bool(((self.spent < 0) | (self.spent > self.limits) | (self.limits > 10**9 * NANO)).any())
        if damaged or get_note(connection, name, "purses") != _digest(found.spent):
            raise DamagedFile(f"account {name!r} is damaged: purses were changed after a charge (by a trigger?)")

    def find_places(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the places (k,) of people by name, in any form of it; -1 for people who have not joined."""
        import pyarrow as pa
        import pyarrow.compute as pc

        digests, marks = (
            pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(each) // 16, [None, pa.py_buffer(each)])
            for each in (self._digest_names(names), self._marks)
        )
        return np.asarray(pc.index_in(digests, marks).fill_null(-1), dtype=np.int64)

    def find_payers(self, names: Sequence[str], price: int) -> Any:
        """Return an Arrow table of the names of people who can pay a price, and their places."""
        import pyarrow as pa

        places = self.find_places(names)
        able = np.append(self.limits - self.spent, 0)[places] >= price
        return pa.table({NAME: pa.array(names, pa.string()).filter(pa.array(able)), OWNER: places[able]})

    def charge_people(self, times: NDArray[np.int64], price: int) -> NDArray[np.bool_]:
        """Charge the people who can pay, and return who could, (m,): the others are not charged.

        Each pays `times` (m,), not negative, times a price in billionths, above zero. Charges add up (ProPer,
        sequential composition).
        """
        # By division, since a product might overflow.
        pays = np.asarray((times > 0) & (times <= (self.limits - self.spent) // price))
        self.spent = self.spent + np.where(pays, times, 0) * price
        self._write_spent()
        return pays

    def join_people(self, names: Sequence[str], limits: ArrayLike) -> None:
        """Open purses with limits (k,) of 0 to 10^18 billionths. People who have a purse keep it."""
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
        """Return the answer under a key, None if the key is new; KeyReuseError if it was used for another request."""
        at = _ANSWERS.c.account == self._name, _ANSWERS.c.key == key
        found = self._connection.execute(select(_ANSWERS).where(*at)).first()
        if found is None:
            return None
        if found.request != request:
            raise KeyReuseError(f"key {key!r} was used for another question: take a new key")
        return found.answer

    def keep_answer(self, key: str, request: dict[str, Any], answer: Any) -> None:
        """Keep the answer to a request under a new key."""
        row = {"account": self._name, "key": key, "request": request, "answer": answer}
        self._connection.execute(insert(_ANSWERS), row)

    def _digest_names(self, names: Sequence[str]) -> bytes:
        """Return the keyed digests of names, one after another."""
        texts, key = (_normalize_text(name).encode() for name in names), self._secret
        return b"".join(hashlib.blake2b(text, key=key, digest_size=16).digest() for text in texts)

    def _write_spent(self) -> None:
        spent = self.spent.astype("<i8").tobytes()
        self._write_columns(_SPENT, spent=spent)
        set_note(self._connection, self._name, "purses", _digest(spent))

    def _write_columns(self, table: Table, **columns: bytes) -> None:
        self._connection.execute(update(table).where(table.c.account == self._name).values(columns))


def _normalize_text(name: str) -> str:
    """Return a text in the form that is compared (`normalize_name`), or "" if it is blank."""
    return unicodedata.normalize("NFC", name).strip()


def _digest(spent: bytes) -> str:
    return hashlib.blake2b(spent, digest_size=16).hexdigest()


class People:
    """People with their own budgets: a question charges the owners of the records that it uses.

    Records of people who cannot pay are left out of a question, silently. All answers together are ε-private for each
    person, where ε is their own limit: with and without the records o, Pr(A(D) ∈ S) ≤ e^(E(o)) Pr(A(D') ∈ S).
    Proof: docs/privacy/personal.md. Source: ProPer, Definition 1, Proposition 1 (Ebadi, Sands, Schneider 2015).

    Parameters
    ----------
    database : a DuckDB file or connection, the URL of a PostgreSQL database, or an `Engine`.
    table : of it. owner : the column that names the person whose record it is.
    ledger : a Ledger, or the path or URL of one, which is made if it does not exist. name : of the account in it.
    epsilon, rho : the budget of people who join without one; at most one of both.

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
        """
        listed = _list_names(names)
        if len(set(listed)) < len(listed):
            raise InputError(f"{Counter(listed).most_common(1)[0][0]!r} is named twice: each person joins once")
        limits = self._read_limits(len(listed), epsilon, rho)
        with self.purses.open_turn() as turn:
            places = turn.find_places(listed)
            other = (places >= 0) & (turn.limits[places] != limits) if len(turn.limits) else np.zeros(0, bool)
            if other.any():
                raise InputError(f"{listed[int(np.argmax(other))]!r} joined with another budget, which never changes")
            turn.join_people(listed, limits)

    def enrol(self) -> int:
        """Let all other owners join with the default budget; their number is private."""
        with self.database.open_session() as session:
            owners = session.fetch_table(self.names)[NAME].to_pylist()
        limit = self._read_limits(1, None, None)
        with self.purses.open_turn() as turn:
            before = len(turn.limits)
            turn.join_people(owners, np.broadcast_to(limit, len(owners)))
            return len(turn.limits) - before

    def spent(self, names: Sequence[str]) -> list[Fraction]:
        """Return what people have spent, which is private."""
        return [spent for spent, _ in self._read_purses(names)]

    def left(self, names: Sequence[str]) -> list[Fraction]:
        """Return what people may still spend, which is private."""
        return [limit - spent for spent, limit in self._read_purses(names)]

    def _read_purses(self, names: Sequence[str]) -> list[tuple[Fraction, Fraction]]:
        """Return what each has spent, and the limit."""
        listed = _list_names(names)
        with self.purses.open_turn() as turn:
            places = turn.find_places(listed)
            if (places < 0).any():
                raise InputError(f"{listed[int(np.argmin(places))]!r} has not joined")
            purses = zip(turn.spent[places].tolist(), turn.limits[places].tolist(), strict=True)
        return [(Fraction(spent, NANO), Fraction(limit, NANO)) for spent, limit in purses]

    def _read_limits(self, number: int, epsilon: Any, rho: Any) -> NDArray[np.int64]:
        """Return the billionths (m,) that each may spend."""
        if epsilon is None and rho is None:
            epsilon, rho = self.epsilon, self.rho
        unit = self.purses.unit
        given, other = (epsilon, rho) if unit == "epsilon" else (rho, epsilon)
        if other is not None or given is None:
            raise InputError(f"epsilon is {epsilon!r} and rho {rho!r}: each person needs a budget in {unit}")
        nanos = [floor_nano(**{unit: amount}) for amount in np.asarray(given, dtype=object).ravel().tolist()]
        if min(nanos, default=1) < 1:
            raise InputError(f"{unit} is below a billionth: a budget must be at least that")
        return np.broadcast_to(np.array(nanos, dtype=np.int64).reshape(np.shape(given)), number)


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
        """Ask a question (`deltahist.personal.questions`). Source: ProPer, Corollary 1, provenance.

        Raises InterruptedQuestionError if it ends while records are read: everybody is charged the most. Raises
        InputError if the unit is another, the key was used for another request, or the database or the ledger fails:
        nothing is charged.
        """
        people, price = self.people, aggregate.price
        if aggregate.unit != people.purses.unit:
            raise InputError(f"the question costs {aggregate.unit}: budgets are in {people.purses.unit}")
        expression = aggregate.add_up(self)
        request = {} if key is None else _describe_request(self, expression, aggregate)
        key = None if key is None else check_text(key=key)
        ended: BaseException | None = None
        with as_unusable(), people.purses.open_turn() as turn, people.database.open_session() as session:
            kept = None if key is None else turn.find_answer(key, request)
            if kept is not None:
                return aggregate.decode(np.array(kept))
            # All that is public comes first, and takes no time from what follows.
            session.put_table(PAYERS, turn.find_payers([], price))
            fetch_names = session.plan_fetch(people.names)
            session.create_view(RECORDS, people.payers_records)
            fetch_sums = session.plan_fetch(expression)
            begun, before = time.monotonic(), turn.spent
            if begun + self.seconds > self.until:
                raise UnusableError("the question took too long to plan, or others did: nothing was charged")
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
            except Exception:  # its message, and its being one, may be about records
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
def as_unusable() -> Iterator[None]:
    """Raise the library's own errors about a ledger or a database as UnusableError."""
    try:
        yield
        return
    except (DamagedFile, KeyReuseError):
        raise
    except InputError as problem:
        failed = UnusableError(str(problem))
    raise_without_context(failed)


def _count_most_prices(turn: Turn, query: Query, aggregate: Aggregate) -> NDArray[np.int64]:
    """Return how often each person pays at most, (m,): for as many records as there may be, as long as money lasts."""
    affordable = (turn.limits - turn.spent) // aggregate.price
    if query.most is None:
        return affordable
    return np.minimum(affordable, _count_prices(np.array([min(query.most, 1 << 62)]), aggregate))


def _count_prices(number: NDArray[np.int64], aggregate: Aggregate) -> NDArray[np.int64]:
    """Return how often the owner of some numbers of derived records pays the price of one."""
    times = number if aggregate.unit == "epsilon" else number**2
    # No limit pays for more records than that, and their square may overflow.
    return np.asarray(np.where(number > 1 << 31, 1 << 62, times))


def _describe_request(query: Query, expression: Any, aggregate: Aggregate) -> dict[str, Any]:
    """Describe a question as JSON, alike in every process."""
    text = write_sql(expression, "duckdb", pretty=True)
    # Names of public tables differ from run to run: their rows replace them.
    for name, rows in find_public_tables(expression).items():
        text = text.replace(name, hashlib.sha256(repr(rows.to_pydict()).encode()).hexdigest())
    records = hashlib.sha256(text.encode()).hexdigest()
    return {**aggregate.describe(), "source": list(query.source), "records": records}


def _list_names(names: Sequence[Any]) -> list[str]:
    """Return names in the form that is compared."""
    return [normalize_name(owner=name) for name in ([names] if isinstance(names, str) else names)]
