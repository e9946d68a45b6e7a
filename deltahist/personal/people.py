"""People with budgets of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.accounts.ledger import Ledger
from deltahist.budget import Budget, floor_nano
from deltahist.errors import NANO, InputError
from deltahist.personal.asking import Records
from deltahist.personal.engine import Database
from deltahist.personal.purses import Purses


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
        try:
            self._query = self.database.query(table, owner)
        except InputError:
            if self.database is not database:
                self.database.close()
            raise
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        unit = "epsilon" if rho is None else "rho"
        if epsilon is None and rho is None:
            unit = self.ledger.accounts().get(name, {}).get("unit", unit)
        self.purses = Purses(self.ledger, name, unit)

    @property
    def records(self) -> Records:
        """All records, to ask questions of."""
        return Records(self._query.table, self._query.source, people=self)

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
        names : (m,) texts, all different, as the owner's column has them.
        epsilon, rho : budget of each, or (m,) budgets, in the unit of these people; their default when None.

        Raises InputError, and nobody joins, on bad names or budgets, or if somebody has joined with another budget.
        """
        listed = _check_names(names)
        if len(set(listed)) < len(listed):
            raise InputError(f"{Counter(listed).most_common(1)[0][0]!r} is named twice: each person joins once")
        limits = self._limits(len(listed), epsilon, rho)
        with self.purses.turn() as turn:
            places = turn.find(listed)
            other = (places >= 0) & (turn.limits[places] != limits) if len(turn.limits) else np.zeros(0, bool)
            if other.any():
                raise InputError(f"{listed[int(np.argmax(other))]!r} joined with another budget, which never changes")
            turn.join(listed, limits)

    def enrol(self) -> int:
        """Let all other owners join with the default budget (InputError if there is none); their number is private."""
        owners = self.database.owners(self.table, self.owner)
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
            raise InputError(f"{amounts.size:,} budgets for {number:,} people: give one for all, or one for each")
        nanos = [floor_nano(**{unit: amount}) for amount in amounts.ravel().tolist()]
        if min(nanos, default=1) < 1:
            raise InputError(f"{unit} is below a billionth: a budget must be at least that")
        return np.broadcast_to(np.array(nanos, dtype=np.int64), number)


def _check_names(names: Sequence[str]) -> list[str]:
    """Return names as a list; InputError on one that is no text."""
    listed = [names] if isinstance(names, str) else list(names)
    for name in listed:
        if not isinstance(name, str) or not name or any("\ud800" <= letter <= "\udfff" for letter in name):
            raise InputError(f"somebody is called {name!r}: names must be texts that are not empty")
    return listed
