"""People with budgets of their own: who joins with what, and their records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.budget import Budget
from deltahist.budgets.ledger import Ledger
from deltahist.budgets.purses import Purses, Turn
from deltahist.budgets.rules import floor_nano
from deltahist.errors import NANO, InputError
from deltahist.personal.database import Database
from deltahist.personal.names import all_different, names_of, owners_named
from deltahist.personal.places import Place
from deltahist.personal.query import Query
from deltahist.personal.records import Records
from deltahist.personal.register import Register


@dataclass(frozen=True, eq=False)
class People:
    """People with budgets of their own: a question charges those whose records it uses, for each of them.

    The records of who cannot pay are left out of a question, without a word: answers are about those who still pay.
    All answers together are ε-private for each person, where ε is their own limit. Proof: docs/privacy/personal.md.

    Source: Ebadi, Sands, Schneider 2015 ("Differential Privacy: Now It's Getting Personal").

    Parameters
    ----------
    database : a Database, or where one is (a DuckDB file, or the URL of a PostgreSQL database). table : of it.
    owner : the column that says whose a record is.
    ledger : a Ledger, or where one is; it is made if it does not exist. name : of the account in it.
    epsilon, rho : the budget of people who come without one; at most one of both. Without it, who joins needs one.
    place : columns that say where a record is, x before y, the same in all questions; () if none does. As long as it is
        not said (None), people with a radius of their own are in no answer: any column may be a place.
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

    database: Database | str | Path
    table: str
    owner: str = field(kw_only=True)
    ledger: Ledger | str | Path = field(kw_only=True)
    name: str = field(default="people", kw_only=True)
    epsilon: float | Fraction | None = field(default=None, kw_only=True)
    rho: float | Fraction | None = field(default=None, kw_only=True)
    place: Sequence[str] | None = field(default=None, kw_only=True)
    crs: str | None = field(default=None, kw_only=True)
    restored: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.epsilon is not None or self.rho is not None:
            Budget(self.epsilon, self.rho)
        if not isinstance(self.database, Database):
            object.__setattr__(self, "database", Database.open(self.database))
        if not isinstance(self.ledger, Ledger):
            object.__setattr__(self, "ledger", Ledger(self.ledger))
        self._first_query  # noqa: B018
        location = self.location
        self._register.bind(self.restored)
        if location is not None:
            with self.turn():  # which keeps it
                pass

    @property
    def base(self) -> Database:
        """The database; private."""
        assert isinstance(self.database, Database)
        return self.database

    @cached_property
    def purses(self) -> Purses:
        """What each person may spend, and has spent; private."""
        assert isinstance(self.ledger, Ledger)
        if self.epsilon is None and self.rho is None:
            unit = self.ledger.accounts().get(self.name, {}).get("unit", "epsilon")
        else:
            unit = "epsilon" if self.rho is None else "rho"
        return Purses(self.ledger, self.name, unit)

    @cached_property
    def location(self) -> Place | None:
        """Where records are; None as long as it is not said."""
        if self.place is None and self.crs is not None:
            raise InputError(f"crs is {self.crs!r} without place: say which columns are in it, place=(x, y)")
        return None if self.place is None else Place(self.place, self.crs)

    @cached_property
    def _register(self) -> Register:
        return Register(self.base, self.purses)

    @contextmanager
    def turn(self) -> Iterator[Turn]:
        """All purses, alone, once database and ledger are known to have the same people and places; private."""
        with self._register.turn() as turn:
            if self.location is not None:
                self.location.keep(turn, self.name, self.table)
            yield turn

    @property
    def records(self) -> Records:
        """All records, to ask questions of."""
        query = self._first_query
        return Records(**{each.name: getattr(query, each.name) for each in fields(query)}, people=self)

    def join(
        self,
        names: Sequence[str],
        *,
        epsilon: ArrayLike | Fraction | None = None,
        rho: ArrayLike | Fraction | None = None,
        radius: ArrayLike | None = None,
    ) -> None:
        """Let people join, with budgets that never change. Who has joined already, with the same, stays as they are.

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
        listed = all_different(names_of(names, "somebody"))
        self._join(listed, self._limits(len(listed), epsilon, rho), _radii(len(listed), radius))

    def _join(self, names: list[str], limits: Any = None, radii: Any = None) -> None:
        """Let people join with limits and radii, or those who are new with the default, and nobody else with less."""
        with self.turn() as turn:
            marks = self._register.marks(turn, names)
            numbers = turn.find(marks)
            fresh = numbers < 0
            if limits is None:
                limits, radii = self._default(names, fresh), np.full(len(names), np.nan)
            else:
                self._same(turn, names, numbers, limits, radii)
            numbers[fresh] = turn.join(limits[fresh], radii[fresh], marks[fresh])
            self._register.enter(turn, names, numbers)
        # The next turn registers them.
        with self.turn():
            pass

    def enrol(self) -> int:
        """Let all owners of records join who have not done so, with the default budget; the number of them, private.

        For tables that other programs write. Raises InputError if there is no default budget.
        """
        strangers = self.base.strangers(self.table, self.owner)
        if strangers:
            self._join(names_of(strangers))
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
        owners = list(dict.fromkeys(owners_named(frame[self.owner].dropna())))
        numbers = self.base.numbers(owners)
        strangers = [name for name, number in zip(owners, numbers, strict=True) if number < 0]
        if strangers:
            self._join(strangers)
        self.base.insert(self.table, frame)

    def spent(self, names: Sequence[str]) -> list[Fraction]:
        """What people have spent; private: it says whose records were used.

        Raises InputError if somebody has not joined.
        """
        return self._purse(names)[0]

    def left(self, names: Sequence[str]) -> list[Fraction]:
        """What people may still spend; private: it says whose records were used.

        Raises InputError if somebody has not joined.
        """
        return self._purse(names)[1]

    def _purse(self, names: Sequence[str]) -> tuple[list[Fraction], list[Fraction]]:
        listed = names_of(names)
        with self.turn() as turn:
            numbers = turn.find(self._register.marks(turn, listed))
            if (numbers < 0).any():
                raise InputError(f"{listed[int(np.argmin(numbers))]!r} has not joined")
            spent, limits = turn.spent[numbers].tolist(), turn.limits[numbers].tolist()
        left = (limit - gone for limit, gone in zip(limits, spent, strict=True))
        return [Fraction(nano, NANO) for nano in spent], [Fraction(nano, NANO) for nano in left]

    def _default(self, names: list[str], fresh: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Billionths that each may spend where nothing was said, as needed for those who are new."""
        if not fresh.any():
            return np.zeros(len(names), dtype=np.int64)
        if self.epsilon is None and self.rho is None:
            raise InputError(
                f"{fresh.sum():,} owners have not joined ({names[int(np.argmax(fresh))]!r} is one): let them join with "
                "a budget first, or give these people a default one, epsilon=1"
            )
        return self._limits(len(names), None, None)

    def _limits(self, number: int, epsilon: Any, rho: Any) -> NDArray[np.int64]:
        """Billionths that each may spend."""
        if epsilon is None and rho is None:
            epsilon, rho = self.epsilon, self.rho
        said = {"epsilon": epsilon, "rho": rho}
        given = said.pop(self.purses.unit)
        (other,) = said
        if said[other] is not None or given is None:
            wrong = f"a budget in {other}" if said[other] is not None else "no budget"
            raise InputError(
                f"people join with {wrong}: budgets of {self.name!r} are in {self.purses.unit}, and each person needs "
                "one"
            )
        if not _fits(given, number):
            raise InputError(
                f"{np.size(given):,} budgets for {number:,} people: give one for all, or one for each"
            )
        # One for all is read once, not for each person.
        amounts = np.asarray(given, dtype=object).ravel().tolist()
        different = {amount: floor_nano(**{self.purses.unit: amount}) for amount in set(amounts)}
        for amount, nano in different.items():
            if nano < 1:
                raise InputError(f"{self.purses.unit} is {amount!r}: a budget must be at least a billionth")
        limits = np.array([different[amount] for amount in amounts], dtype=np.int64)
        return np.broadcast_to(limits, number)

    def _same(
        self,
        turn: Any,
        names: list[str],
        numbers: NDArray[np.int64],
        limits: NDArray[np.int64],
        radii: NDArray[Any],
    ) -> None:
        """Raise InputError if somebody has joined with something else."""
        known = numbers >= 0
        if not known.any():
            return
        held = numbers[known]
        radius, own = turn.classes[turn.which[held]], radii[known]
        alike = (turn.limits[held] == limits[known]) & ((radius == own) | (np.isnan(radius) & np.isnan(own)))
        if not alike.all():
            first, unit = int(np.argmin(alike)), self.purses.unit
            who = int(np.flatnonzero(known)[first])
            raise InputError(
                f"{names[who]!r} joined with {_policy(unit, turn.limits[held[first]], radius[first])}, and is to join "
                f"with {_policy(unit, limits[who], radii[who])}: what somebody joined with never changes; leave them "
                "out"
            )

    @cached_property
    def _first_query(self) -> Query:
        return self.base.query(self.table, self.owner, self.location.columns if self.location else ())


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
