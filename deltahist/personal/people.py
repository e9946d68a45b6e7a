"""People with budgets of their own: who joins with what, and their records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.accounts.ledger import Ledger
from deltahist.accounts.purses import Purses, Turn
from deltahist.accounts.rules import floor_nano
from deltahist.budget import Budget
from deltahist.errors import NANO, InputError
from deltahist.personal.asking import Records
from deltahist.personal.database import Database, check_different, name_owners, read_names
from deltahist.personal.register import Place, Register


class People:
    """People with budgets of their own: a question charges the owners of the records that it uses.

    The records of who cannot pay are left out of a question, without a word: answers are about people who still pay.
    All answers together are ε-private for each person, where ε is their own limit. Proof: docs/privacy/personal.md.

    Source: Ebadi, Sands, Schneider 2015 ("Differential Privacy: Now It's Getting Personal").

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
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        self.place = None if place is None else Place(place, crs)
        self._query = self.database.query(table, owner, self.place.columns if self.place else ())
        if epsilon is None and rho is None:
            unit = self.ledger.accounts().get(name, {}).get("unit", "epsilon")
        else:
            unit = "epsilon" if rho is None else "rho"
        self.purses = Purses(self.ledger, name, unit)
        self.register = Register(self.database, self.purses, table, self.place)
        self.register.bind(restored)

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

        Raises
        ------
        InputError
            On names that repeat or are no texts, a budget in another unit, none at all, or below a billionth; if
            somebody has joined with another budget or radius. Nobody joins then.
        """
        listed = check_different(read_names(names, "somebody"))
        self._join(listed, self._limits(len(listed), epsilon, rho), _radii(len(listed), radius))

    def _join(self, names: list[str], limits: Any = None, radii: Any = None) -> None:
        """Let people join with limits and radii (m,); without them, let the new ones join with the default."""
        with self.register.turn() as turn:
            marks = self.register.marks(turn, names)
            numbers = turn.find(marks)
            fresh = numbers < 0
            if limits is None:
                limits, radii = self._default_limits(names, fresh), np.full(len(names), np.nan)
            else:
                self._check_same(turn, names, numbers, limits, radii)
            numbers[fresh] = turn.join(limits[fresh], radii[fresh], marks[fresh])
            self.register.enter(turn, names, numbers)
        # The next turn registers them.
        with self.register.turn():
            pass

    def enrol(self) -> int:
        """Let all other owners of records join with the default budget, and return their number, which is private.

        It serves tables that other programs write. Raises InputError if there is no default budget.
        """
        strangers = self.database.strangers(self.table, self.owner)
        if strangers:
            self._join(read_names(strangers))
        return len(strangers)

    def insert(self, frame: Any) -> None:
        """Add records. Owners who have not joined do so, with the default budget.

        Parameters
        ----------
        frame : pandas frame with the columns of the table, which `Database.create_records` made.

        Raises
        ------
        InputError
            If owners have not joined and there is no default budget, or the frame does not go with the table.
            Nothing is inserted then.
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

    def _purses_of(self, names: Sequence[str]) -> list[tuple[Fraction, Fraction]]:
        """Return what each has spent, and the limit."""
        listed = read_names(names)
        with self.register.turn() as turn:
            numbers = turn.find(self.register.marks(turn, listed))
            if (numbers < 0).any():
                raise InputError(f"{listed[int(np.argmin(numbers))]!r} has not joined")
            purses = zip(turn.spent[numbers].tolist(), turn.limits[numbers].tolist(), strict=True)
        return [(Fraction(spent, NANO), Fraction(limit, NANO)) for spent, limit in purses]

    def _default_limits(self, names: list[str], fresh: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the default billionths (m,) that each may spend; InputError if new people need one, and none is."""
        if not fresh.any():
            return np.zeros(len(names), dtype=np.int64)
        if self.epsilon is None and self.rho is None:
            raise InputError(
                f"{fresh.sum():,} owners have not joined ({names[int(np.argmax(fresh))]!r} is one): let them join with "
                "a budget first, or give these people a default one, epsilon=1"
            )
        return self._limits(len(names), None, None)

    def _limits(self, number: int, epsilon: Any, rho: Any) -> NDArray[np.int64]:
        """Return the billionths (m,) that each may spend."""
        if epsilon is None and rho is None:
            epsilon, rho = self.epsilon, self.rho
        unit = self.purses.unit
        given, other = (epsilon, rho) if unit == "epsilon" else (rho, epsilon)
        if other is not None or given is None:
            wrong = "no budget" if other is None else f"a budget in {'rho' if unit == 'epsilon' else 'epsilon'}"
            raise InputError(
                f"people join with {wrong}: budgets of {self.purses.name!r} are in {unit}, and each person needs one"
            )
        if not _fits(given, number):
            raise InputError(
                f"{np.size(given):,} budgets for {number:,} people: give one for all, or one for each"
            )
        # One for all is read once, not for each person.
        amounts = np.asarray(given, dtype=object).ravel().tolist()
        different = {amount: floor_nano(**{unit: amount}) for amount in set(amounts)}
        for amount, nano in different.items():
            if nano < 1:
                raise InputError(f"{unit} is {amount!r}: a budget must be at least a billionth")
        limits = np.array([different[amount] for amount in amounts], dtype=np.int64)
        return np.broadcast_to(limits, number)

    def _check_same(
        self,
        turn: Turn,
        names: list[str],
        numbers: NDArray[np.int64],
        limits: NDArray[np.int64],
        radii: NDArray[Any],
    ) -> None:
        """Raise InputError if somebody has joined with another limit or radius."""
        known = numbers >= 0
        if not known.any():
            return
        before = numbers[known]
        radius, own = turn.classes[turn.which[before]], radii[known]
        alike = (turn.limits[before] == limits[known]) & ((radius == own) | (np.isnan(radius) & np.isnan(own)))
        if not alike.all():
            first, unit = int(np.argmin(alike)), self.purses.unit
            who = int(np.flatnonzero(known)[first])
            policy = _policy(unit, turn.limits[before[first]], radius[first])
            raise InputError(
                f"{names[who]!r} joined with {policy}, and is to join with {_policy(unit, limits[who], radii[who])}: "
                "what somebody joined with never changes; leave them out"
            )


def _fits(given: Any, number: int) -> bool:
    return np.ndim(given) == 0 or np.shape(given) == (number,)


def _radii(number: int, radius: Any) -> NDArray[np.float64]:
    if not _fits(radius, number):
        raise InputError(
            f"{np.size(radius):,} radii for {number:,} people: give one for all, or one for each"
        )
    try:
        return np.full(number, np.nan if radius is None else radius, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"radius is {radius!r}: it must be a number, in the unit of the places") from None


def _policy(unit: str, nano: int, radius: float) -> str:
    own = "no radius" if radius != radius else f"a radius of {radius:g}"
    return f"{unit} = {int(nano) / NANO:.10g} and {own}"
