"""People with budgets of their own: who joins with what, their records, and the register that keeps them apart.

A ledger and a database must know the same people and places, and the ledger decides. It keeps a keyed digest of the
name of everybody who has a purse, so that whoever joins again has the number and the purse of before, whatever the
database still knows. Both keep a state, drawn anew whenever somebody joins: a database of another state is an older
copy, or one beside which another copy was used, and is refused.

A name goes to the database as one that is coming, then the purse to the ledger, then the name into the register. A
process that ends in between leaves names that the next turn puts there.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.accounts.ledger import Ledger
from deltahist.budget import Budget, floor_nano
from deltahist.errors import NANO, DamagedFile, InputError
from deltahist.personal.asking import Records, UnusableError
from deltahist.personal.database import Database, check_different, name_owners, read_names
from deltahist.personal.engine import raise_alone
from deltahist.personal.place import Place
from deltahist.personal.purses import Purses, Turn

#: Facts of the account: which database it is for, the key of the digests, and the state of both.
_DATABASE, _KEY, _STATE = "database", "key", "state"
_CURE = (
    "open this one once with restored=True: who has joined since must join again, and has the purse of before"
)


class OtherPeopleError(InputError):
    """A database and a ledger that do not know the same people."""


class People:
    """People with budgets of their own: a question charges the owners of the records that it uses.

    The records of who cannot pay are left out of a question, without a word: answers are about people who still pay.
    All answers together are ε-private for each person, where ε is their own limit. Proof: docs/privacy/personal.md.
    With and without a person's records o, Pr(A(D) ∈ S) ≤ e^(E(o)) Pr(A(D') ∈ S). So all is sup E-private, and a budget
    for everybody is E = ε.

    Source: ProPer, Definition 1, Proposition 1; Ebadi, Sands, Schneider 2015 ("Differential Privacy: Now It's Getting
    Personal").

    Parameters
    ----------
    database : a Database, or where one is (a DuckDB file, or the URL of a PostgreSQL database). table : of it.
    owner : the column that says whose a record is.
    ledger : a Ledger, or where one is; it is made if it does not exist. name : of the account in it.
    epsilon, rho : the budget of people who come without one; at most one of both. Without it, who joins needs one.
    place : columns that say where a record is, x before y, the same in all questions; () if none does. As long as
        it is None, people with a radius of their own are in no answer: any column may be a place.
    crs : of the columns of the place; None if they are in the units of maps without a CRS, and the radii with them.
    restored : whether an older copy of the database was put back: it is taken in the place of the one that is lost.
        Who has joined since is not in it, must join again, and has the purse of before.

    Raises
    ------
    InputError
        If the table or a column is not there, the account was opened in another unit, the database and the ledger do
        not know the same people (an older copy?), the place was another one before, or what it needs (the extra
        "duckdb" or "postgresql") is not installed.

    Examples
    --------
    >>> import pandas as pd, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> database = Database.open(":memory:")
    >>> database.create_records("trip", {"kind": "text"}, owner="who")
    >>> people = People(database, "trip", owner="who", ledger=f"{folder.name}/city.ledger", epsilon=1)
    >>> people.insert(pd.DataFrame({"who": ["Ada", "Ada", "Bob"], "kind": ["bus", "bus", "tram"]}))
    >>> answer = people.records.where("kind = 'bus'").count(epsilon=0.25)
    >>> people.spent(["Ada", "Bob"])
    [Fraction(1, 2), Fraction(0, 1)]
    >>> folder.cleanup()
    """

    def __init__(
        self,
        database: Database | str | Path,
        table: str,
        *,
        owner: str,
        ledger: Ledger | str | Path,
        name: str = "people",
        epsilon: float | Fraction | None = None,
        rho: float | Fraction | None = None,
        place: Sequence[str] | None = None,
        crs: str | None = None,
        restored: bool = False,
    ) -> None:
        if epsilon is not None or rho is not None:
            Budget(epsilon, rho)
        if place is None and crs is not None:
            raise InputError(f"crs is {crs!r} without place: say which columns are in it, place=(x, y)")
        self.table, self.owner, self.epsilon, self.rho = table, owner, epsilon, rho
        self.database = database if isinstance(database, Database) else Database.open(database)
        self.place = None if place is None else Place(place, crs)
        try:
            self._query = self.database.query(table, owner, self.place.columns if self.place else ())
        except InputError:
            if self.database is not database:
                self.database.close()
            raise
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        unit = "epsilon" if rho is None else "rho"
        if epsilon is None and rho is None:
            unit = self.ledger.accounts().get(name, {}).get("unit", unit)
        self.purses = Purses(self.ledger, name, unit)
        self._bind(restored)

    @property
    def records(self) -> Records:
        """All records, to ask questions of."""
        # Made anew each time: people who kept them would be in a circle, which keeps a database open.
        query = self._query
        return Records(**{each.name: getattr(query, each.name) for each in fields(query)}, people=self)

    def join(
        self,
        names: Sequence[str],
        *,
        epsilon: ArrayLike | Fraction | None = None,
        rho: ArrayLike | Fraction | None = None,
        radius: ArrayLike | None = None,
    ) -> None:
        """Let people join, with budgets that never change. People who joined before with the same budget stay.

        Parameters
        ----------
        names : (m,) texts, all different.
        epsilon, rho : budget of each, or (m,) budgets, in the unit of these people; their default when None.
        radius : of each person's neighbourhood, or (m,) radii, on the ground in metres (in the units of the columns
            where the place has no CRS); none when None.

        Raises InputError on names that repeat or are no texts, a budget in another unit, none at all, or below a
        billionth; if somebody has joined with another budget or radius. Nobody joins then.
        """
        listed = check_different(read_names(names, "somebody"))
        radii = np.nan if radius is None else radius
        try:
            radii = np.broadcast_to(np.array(radii, dtype=np.float64), len(listed))
        except (TypeError, ValueError):
            raise InputError(f"radius is {radius!r}: it must be a number for all, or one for each person") from None
        self._join(listed, self._limits(len(listed), epsilon, rho), radii)

    def enrol(self) -> int:
        """Let all other owners of records join with the default budget, and return their number, which is private.

        It serves tables that other programs write. Raises InputError if there is no default budget.
        """
        strangers = self.database.strangers(self.table, self.owner)
        if strangers:
            self._join(read_names(strangers))
        return len(strangers)

    def insert(self, frame: Any) -> None:
        """Add records to a table of `create_records`. Owners who have not joined do so, with the default budget.

        Live input (ProPer, live data): who joins has a whole budget, whatever was asked before.

        Raises InputError if there is no default budget, or the frame does not go with the table. Nothing is inserted
        then.
        """
        if self.owner not in frame:
            raise InputError(f"the frame has no column {self.owner!r}, which says whose each record is")
        owners = list(dict.fromkeys(name_owners(frame[self.owner].dropna())))
        numbers = self.database.numbers(owners)
        strangers = [name for name, number in zip(owners, numbers, strict=True) if number < 0]
        if strangers:
            self._join(strangers)
        self.database.insert(self.table, frame)

    def spent(self, names: Sequence[str]) -> list[Fraction]:
        """Return the amounts that people have spent; private: they tell whose records were used.

        Raises InputError if somebody has not joined.
        """
        return [spent for spent, _ in self._purses_of(names)]

    def left(self, names: Sequence[str]) -> list[Fraction]:
        """Return the amounts that people may still spend; private: they tell whose records were used.

        Raises InputError if somebody has not joined.
        """
        return [limit - spent for spent, limit in self._purses_of(names)]

    @contextlib.contextmanager
    def turn(self) -> Iterator[Turn]:
        """Hold all purses, alone, once the database is known to have the same people and places.

        Raises InputError if it has not, UnusableError if ledger or database cannot be used, or DamagedFile if the
        ledger contradicts itself.
        """
        own = None
        try:
            with self.purses.turn() as turn:
                if not self._is_current(turn):
                    self._check_people(turn)
                    raise OtherPeopleError(
                        f"the database and account {self.purses.name!r} of {self.purses.ledger!r} do not know the same "
                        "people: it is an older copy, or another copy of it was used since; go on with the newest one, "
                        f"or where there is none {_CURE}"
                    )
                if self.place is not None:
                    self.place.keep(turn, self.purses.name, self.table)
                try:
                    yield turn
                except BaseException as problem:
                    own = id(problem)  # the error itself would keep what the block has read
                    raise
        except InputError as problem:
            if id(problem) == own or isinstance(problem, OtherPeopleError | DamagedFile):
                raise
            failed = UnusableError(str(problem))
        else:
            return
        raise_alone(failed)

    def _join(self, names: list[str], limits: Any = None, radii: Any = None) -> None:
        """Let people join with limits and radii (m,); without them, let the new ones join with the default."""
        with self.turn() as turn:
            marks = self._marks(turn, names)
            numbers = turn.find(marks)
            fresh = numbers < 0
            if limits is not None:
                self._check_same(turn, names, numbers, limits, radii)
            elif fresh.any():
                if self.epsilon is None and self.rho is None:
                    raise InputError(
                        f"{fresh.sum():,} owners have not joined ({names[int(np.argmax(fresh))]!r} is one): let them "
                        "join with a budget first, or give these people a default one, epsilon=1"
                    )
                limits, radii = self._limits(len(names), None, None), np.full(len(names), np.nan)
            if fresh.any():
                numbers[fresh] = turn.join(limits[fresh], radii[fresh], marks[fresh])
            # People whom the database knows already stay.
            there = self.database.numbers(names)
            if ((there >= 0) & (there != numbers)).any():
                self._refuse_others()
            absent = there < 0
            if absent.any():
                self._announce(turn, [name for name, new in zip(names, absent, strict=True) if new], numbers[absent])
        # The next turn registers them.
        with self.turn():
            pass

    def _purses_of(self, names: Sequence[str]) -> list[tuple[Fraction, Fraction]]:
        """Return what each has spent, and the limit."""
        listed = read_names(names)
        with self.turn() as turn:
            numbers = turn.find(self._marks(turn, listed))
            if (numbers < 0).any():
                raise InputError(f"{listed[int(np.argmin(numbers))]!r} has not joined")
            purses = zip(turn.spent[numbers].tolist(), turn.limits[numbers].tolist(), strict=True)
        return [(Fraction(spent, NANO), Fraction(limit, NANO)) for spent, limit in purses]

    def _limits(self, number: int, epsilon: Any, rho: Any) -> NDArray[np.int64]:
        """Return the billionths (m,) that each may spend."""
        if epsilon is None and rho is None:
            epsilon, rho = self.epsilon, self.rho
        unit = self.purses.unit
        given, other = (epsilon, rho) if unit == "epsilon" else (rho, epsilon)
        if other is not None or given is None:
            raise InputError(
                f"people join with epsilon = {epsilon!r} and rho = {rho!r}: budgets of {self.purses.name!r} are in "
                f"{unit}, and each person needs one"
            )
        amounts = np.asarray(given, dtype=object)
        if amounts.shape not in ((), (number,)):
            raise InputError(f"{amounts.size:,} budgets for {number:,} people: give one for all, or one for each")
        listed = amounts.ravel().tolist()
        # One for all is read once, not for each person.
        different = {amount: floor_nano(**{unit: amount}) for amount in set(listed)}
        for amount, nano in different.items():
            if nano < 1:
                raise InputError(f"{unit} is {amount!r}: a budget must be at least a billionth")
        return np.broadcast_to(np.array([different[amount] for amount in listed], dtype=np.int64), number)

    def _check_same(
        self,
        turn: Turn,
        names: list[str],
        numbers: NDArray[np.int64],
        limits: NDArray[np.int64],
        radii: NDArray[np.float64],
    ) -> None:
        """Raise InputError if somebody has joined with another limit or radius."""
        known = np.flatnonzero(numbers >= 0)
        before = numbers[known]
        radius, own = turn.classes[turn.which[before]], radii[known]
        alike = (turn.limits[before] == limits[known]) & ((radius == own) | (np.isnan(radius) & np.isnan(own)))
        if not alike.all():
            first = int(np.argmin(alike))
            policies = [
                f"{self.purses.unit} = {int(nano) / NANO:.10g} and " + (f"a radius of {r:g}" if r == r else "no radius")
                for nano, r in ((turn.limits[before[first]], radius[first]), (limits[known[first]], own[first]))
            ]
            raise InputError(
                f"{names[known[first]]!r} joined with {policies[0]}, and is to join with {policies[1]}: what somebody "
                "joined with never changes; leave them out"
            )

    def _bind(self, restored: bool) -> None:
        """Tie the account to the database: a person's number means another one's purse in any other account.

        If `restored`, a database that knows fewer people than the account is taken from now on.
        """
        name = self.purses.name
        with self.purses.turn() as turn:
            kept, there = turn.accounts.fact(name, _DATABASE), self.database.standing.account
            if kept is None and there is None:
                turn.accounts.store(name, _DATABASE, secrets.token_hex(16))
                turn.accounts.store(name, _KEY, secrets.token_hex(32))
            elif kept is not None and there is None and len(turn.limits) and not restored:
                raise InputError(
                    f"the people of account {name!r} are in another database (is this a new one?): go on with that "
                    f"one, or where that one is lost {_CURE}"
                )
            elif there not in (None, kept):
                self._refuse_stranger()
        # The ledger comes first: a database that names an account which there is not could be used no more.
        with self.purses.turn() as turn:
            if self.database.standing.account is None:
                self.database.belong_to(turn.accounts.fact(name, _DATABASE))
            self._check_people(turn)
            if restored and not self._is_current(turn):
                self._announce(turn, [], np.zeros(0, dtype=np.int64))
        with self.turn():
            pass

    def _marks(self, turn: Turn, names: list[str]) -> NDArray[np.bytes_]:
        """Return the keyed digests of names (m,), by which the ledger knows people again."""
        key = bytes.fromhex(turn.accounts.fact(self.purses.name, _KEY))
        digests = (hashlib.blake2b(name.encode(), key=key, digest_size=16).digest() for name in names)
        return np.frombuffer(b"".join(digests), dtype="S16")

    def _announce(self, turn: Turn, names: list[str], numbers: NDArray[np.int64]) -> None:
        """Announce people (m,) to the database under the numbers of their purses, with a new state."""
        state = secrets.token_hex(16)
        self.database.announce(names, numbers, state)
        turn.accounts.store(self.purses.name, _STATE, state)

    def _is_current(self, turn: Turn) -> bool:
        """Return whether the database is in the state of the ledger.

        Names that were coming when a process ended are registered before.
        """
        there, state = self.database.standing, turn.accounts.fact(self.purses.name, _STATE)
        if there.account != turn.accounts.fact(self.purses.name, _DATABASE):
            self._refuse_stranger()
        if there.state == state:
            return True
        # A ledger without a state is of before anybody joined.
        if state is None or there.coming != state:
            return False
        self.database.settle()
        return True

    def _check_people(self, turn: Turn) -> None:
        """Raise InputError if the database knows somebody whom the ledger does not, or others under its numbers."""
        names, numbers = self.database.persons()
        if len(numbers) and numbers.max() >= len(turn.marks):
            raise OtherPeopleError(
                f"the database knows people that account {self.purses.name!r} of the ledger does not: they belong to "
                "another account or ledger (is this one an old copy?), whose purses would be taken for theirs; go on "
                "with that one"
            )
        if (turn.marks[numbers] != self._marks(turn, names)).any():
            self._refuse_others()

    def _refuse_others(self) -> None:
        raise OtherPeopleError(
            f"the database knows other people under the numbers of account {self.purses.name!r} than the ledger does "
            "(was either put together from copies?): they would pay from the purses of others; go on with the "
            "database and the ledger that belong together"
        )

    def _refuse_stranger(self) -> None:
        raise OtherPeopleError(
            f"the people of this database have their budgets in another account than {self.purses.name!r} of "
            f"{self.purses.ledger!r} (a new ledger?): what they have spent is not known here; go on with that one"
        )
