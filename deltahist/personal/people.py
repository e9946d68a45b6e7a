"""People with budgets of their own: who joins with what, and their records."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.budget import Budget
from deltahist.budgets.ledger import Ledger
from deltahist.budgets.nano import allowed
from deltahist.budgets.purses import Purses, Turn
from deltahist.errors import NANO, InputError
from deltahist.personal.database import Database, owners_named
from deltahist.personal.query import Query
from deltahist.personal.records import Records

#: Where a ledger keeps which database an account is for.
_BASE = "database"


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
    place : columns that say where a record is, the same in all questions; () if none does. As long as it is not said
        (None), people with a radius of their own are in no answer: any column may be a place.

    Raises
    ------
    InputError
        If the table or a column is not there, the account was opened in another unit, or what it needs (the extra
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

    def __post_init__(self) -> None:
        if self.epsilon is not None or self.rho is not None:
            Budget(self.epsilon, self.rho)
        if not isinstance(self.database, Database):
            object.__setattr__(self, "database", Database.open(self.database))
        if not isinstance(self.ledger, Ledger):
            object.__setattr__(self, "ledger", Ledger(self.ledger))
        self._first_query  # noqa: B018
        self._bind()

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
        radius : of each person's neighbourhood, or (m,) radii, on the ground in metres (in the map's units where it has
            no CRS, whatever the units of the columns are); none when None.

        Raises
        ------
        InputError
            On names that repeat or are no texts, a budget in another unit, none at all, or below a billionth; if
            somebody has joined with another budget or radius. Nobody joins then.
        """
        listed = _names(names)
        limits, radii = self._limits(len(listed), epsilon, rho), _radii(len(listed), radius)
        with self.purses.turn() as turn:
            self._check_known(turn)
            numbers = self.base.numbers(listed)
            known = numbers >= 0
            self._same(turn, listed, numbers, limits, radii)
            fresh = [name for name, is_known in zip(listed, known, strict=True) if not is_known]
            first = turn.join(limits[~known], radii[~known]).start
        # The purses come first: a number without a name is nobody's, a name without a purse could never pay.
        try:
            self.base.register(fresh, first)
        except InputError:
            if (self.base.numbers(fresh) < 0).all():
                raise
            # Somebody else let one of them join at the same time: that one is known now.
            self.join(names, epsilon=epsilon, rho=rho, radius=radius)

    def enrol(self) -> int:
        """Let all owners of records join who have not done so, with the default budget; the number of them, private.

        For tables that other programs write. Raises InputError if there is no default budget.
        """
        strangers = self.base.strangers(self.table, self.owner)
        if strangers:
            self.join(strangers)
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
        owners = owners_named(frame[self.owner].dropna().drop_duplicates())
        numbers = self.base.numbers(owners)
        strangers = [name for name, number in zip(owners, numbers, strict=True) if number < 0]
        if strangers:
            if self.epsilon is None and self.rho is None:
                raise InputError(
                    f"{len(strangers):,} owners have not joined ({strangers[0]!r} is one): let them join with a budget "
                    "first, or give these people a default one, epsilon=1"
                )
            self.join(strangers)
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
        numbers = self.base.numbers(_names(names))
        if (numbers < 0).any():
            raise InputError(f"{names[int(np.argmin(numbers))]!r} has not joined")
        with self.purses.turn() as turn:
            spent, limits = turn.spent[numbers].tolist(), turn.limits[numbers].tolist()
        left = (limit - gone for limit, gone in zip(limits, spent, strict=True))
        return [Fraction(nano, NANO) for nano in spent], [Fraction(nano, NANO) for nano in left]

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
        different = {amount: allowed(**{self.purses.unit: amount}) for amount in set(amounts)}
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

    def _bind(self) -> None:
        """Tie the account to the database: a person's number means another one's purse in any other account.

        Raises InputError if either belongs to something else already.
        """
        purses = self.purses
        with purses.turn() as turn:
            kept, there = turn.accounts.fact(self.name, _BASE), self.base.account
            if kept is None and there is None:
                kept = secrets.token_hex(16)
                turn.accounts.store(self.name, _BASE, kept)
            elif kept is not None and there is None and len(turn.limits):
                raise InputError(
                    f"the people of account {self.name!r} are in another database (is this a new one?): they would "
                    "have two budgets each; go on with that one, or take another account, name="
                )
            elif there not in (None, kept):
                raise InputError(
                    f"the people of this database have their budgets in another account than {self.name!r} of "
                    f"{self.ledger!r} (a new ledger?): what they have spent is not known here; go on with that one"
                )
            self._check_known(turn)
            self._keep_place(turn)
        if there is None:
            try:
                self.base.belong_to(kept)
            except InputError:  # another process has just done so
                if self.base.account != kept:
                    raise

    def _keep_place(self, turn: Turn) -> None:
        """Keep which columns say where: who took part by one answer would be told by another.

        Raises InputError if others were said before.
        """
        if self.place is None:
            return
        what, said = f"place {self.table}", sorted(self.place)
        kept = turn.accounts.fact(self.name, what)
        if kept is None:
            turn.accounts.store(self.name, what, said)
        elif kept != said:
            raise InputError(
                f"place is {said} in {self.table!r}, and was {kept} before: a radius is about the columns that were "
                "said first; say these"
            )

    def _check_known(self, turn: Turn) -> None:
        """Raise InputError if the database knows more people than the account: purses come before names."""
        if self.base.persons() > len(turn.limits):
            raise InputError(
                f"the database knows people that account {self.name!r} of the ledger does not: they belong to another "
                "account or ledger (is this one an old copy?), whose purses would be taken for theirs; go on with that "
                "one"
            )

    @cached_property
    def _first_query(self) -> Query:
        return self.base.query(self.table, self.owner, tuple(self.place or ()))


def _names(names: Any) -> list[str]:
    listed = list(names) if not isinstance(names, str) else [names]
    for name in listed:
        if not isinstance(name, str) or not name:
            raise InputError(f"somebody is called {name!r}: names of people are texts, and not empty")
    if len(set(listed)) < len(listed):
        seen: set[str] = set()
        twice = next(name for name in listed if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InputError(f"{twice!r} is named twice: each person joins once")
    return listed


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
