"""The register of people: a ledger and a database must know the same people and places.

The ledger decides. It keeps a keyed digest of the name of everybody who has a purse, so that whoever joins again has
the number and the purse of before, whatever the database still knows. Both keep a state, drawn anew whenever somebody
joins: a database of another state is an older copy, or one beside which another copy was used, and is refused.

A name goes to the database as one that is coming, then the purse to the ledger, then the name into the register. A
process that ends in between leaves names that the next turn puts there.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from deltahist.accounts.purses import Purses, Turn
from deltahist.errors import InputError
from deltahist.personal.database import Database
from deltahist.space.operations import read_crs

#: Facts of the account: which database it is for, the key of the digests, and the state of both.
_DATABASE, _KEY, _STATE = "database", "key", "state"
#: Starts the names of facts about places, one for each table.
_PLACE = "place "


@dataclass(frozen=True)
class Place:
    """Columns that say where a record is, in an order and a reference system; radii are measured on these.

    Parameters
    ----------
    columns : x, or x and y, in this order; () if no column says where.
    crs : of the columns, anything that pyproj reads; None if they are in the units of maps without a CRS.

    Raises
    ------
    InputError
        On more than two columns, one that repeats, or a CRS that is not known or has no columns.

    >>> str(Place(("lon", "lat"), "EPSG:4326"))
    "['lon', 'lat'] in EPSG:4326"
    """

    columns: Sequence[str]
    crs: str | None = None

    def __post_init__(self) -> None:
        columns = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
        if len(columns) > 2 or len(set(columns)) < len(columns):
            raise InputError(
                f"place is {list(columns)}: it must be the column of x, or those of x and y, or none"
            )
        if self.crs is not None and len(columns) < 2:
            raise InputError(
                f"crs is {self.crs!r} of the places {list(columns)}: it needs a column of x and one of y"
            )
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "crs", None if self.crs is None else _canonical(self.crs))

    def __str__(self) -> str:
        return _describe(self.columns, self.crs)

    def check(self, axes: Sequence[str], crs: str | None) -> None:
        """Raise InputError unless columns of the place are read as they are here.

        Parameters
        ----------
        axes : of the columns that are read, all of them columns of the place; one of two has no CRS.
        crs : in which they are read.
        """
        if [name for name in self.columns if name in axes] != list(axes) or not _alike(self.crs, crs):
            raise InputError(
                f"the map reads the places as {_describe(axes, crs)}, and these people's radii are about {self}: a "
                "move would be charged by another length than it has; read them alike (x before y, crs= of the columns)"
            )

    def keep(self, turn: Turn, account: str, table: str) -> None:
        """Keep the place with the account, for all questions: one answer would tell who took part in another.

        Another place may be given until a question is asked. Who has paid, or has a radius, makes no difference: an
        error that depended on them would tell of their records.

        Raises
        ------
        InputError
            If another place was kept before, or the radii of these people are in other units in another table.
        """
        given = {"columns": list(self.columns), "crs": self.crs}
        all_kept = turn.accounts.facts(account, _PLACE)
        kept = all_kept.pop(_PLACE + table, None)
        if kept == given:
            return
        if kept is not None:
            was = Place(**kept)
            if was.columns == self.columns and _alike(was.crs, self.crs):
                return
            if turn.asked:
                raise InputError(
                    f"place is {self} in {table!r}, and was {was} before: a radius is about the columns that were said "
                    "when the first question was asked; say these"
                )
        for other, place in all_kept.items():
            if self.columns and place["columns"] and (self.crs is None) != (place["crs"] is None):
                raise InputError(
                    f"place is {self} in {table!r}, and {Place(**place)} in {other.removeprefix(_PLACE)!r}: a radius "
                    "would be metres in one and units of the map in the other; say the CRS of both (crs=), or of none"
                )
        turn.accounts.store(account, _PLACE + table, given)


@dataclass(frozen=True)
class Register:
    """The numbers of persons, in a database and in the account of a ledger.

    Parameters
    ----------
    database : of the records. purses : of its people.
    table : of the records. place : where they are; None if that is not known yet.
    """

    database: Database
    purses: Purses
    table: str
    place: Place | None

    def bind(self, restored: bool) -> None:
        """Tie the account to the database: a person's number means another one's purse in any other account.

        Parameters
        ----------
        restored : whether a database that knows fewer people than the account is to be taken from now on.

        Raises
        ------
        InputError
            If either belongs to something else already, or they do not know the same people.
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
                    f"one, or {_cure('that one is lost')}"
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

    @contextlib.contextmanager
    def turn(self) -> Iterator[Turn]:
        """Hold all purses, alone, once the database is known to have the same people and places.

        Raises InputError if it has not, or DamagedFile if the ledger contradicts itself.
        """
        with self.purses.turn() as turn:
            if not self._is_current(turn):
                self._check_people(turn)
                raise InputError(
                    f"the database and account {self.purses.name!r} of {self.purses.ledger!r} do not know the same "
                    "people: it is an older copy, or another copy of it was used since; go on with the newest one, or "
                    f"{_cure('there is none')}"
                )
            if self.place is not None:
                self.place.keep(turn, self.purses.name, self.table)
            yield turn

    def marks(self, turn: Turn, names: list[str]) -> NDArray[np.bytes_]:
        """Return the keyed digests of names (m,), by which the ledger knows people again."""
        key = bytes.fromhex(turn.accounts.fact(self.purses.name, _KEY))
        digests = (hashlib.blake2b(name.encode(), key=key, digest_size=16).digest() for name in names)
        return np.frombuffer(b"".join(digests), dtype="S16")

    def enter(self, turn: Turn, names: list[str], numbers: NDArray[np.int64]) -> None:
        """Announce people (m,) to the database under the numbers of their purses.

        The next turn registers them, once this one has ended. People whom the database knows already stay.
        """
        there = self.database.numbers(names)
        if ((there >= 0) & (there != numbers)).any():
            self._refuse_others()
        absent = there < 0
        if absent.any():
            self._announce(
                turn, [name for name, new in zip(names, absent, strict=True) if new], numbers[absent]
            )

    def _announce(self, turn: Turn, names: list[str], numbers: NDArray[np.int64]) -> None:
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
            raise InputError(
                f"the database knows people that account {self.purses.name!r} of the ledger does not: they belong to "
                "another account or ledger (is this one an old copy?), whose purses would be taken for theirs; go on "
                "with that one"
            )
        if (turn.marks[numbers] != self.marks(turn, names)).any():
            self._refuse_others()

    def _refuse_others(self) -> NoReturn:
        raise InputError(
            f"the database knows other people under the numbers of account {self.purses.name!r} than the ledger does "
            "(was either put together from copies?): they would pay from the purses of others; go on with the "
            "database and the ledger that belong together"
        )

    def _refuse_stranger(self) -> NoReturn:
        raise InputError(
            f"the people of this database have their budgets in another account than {self.purses.name!r} of "
            f"{self.purses.ledger!r} (a new ledger?): what they have spent is not known here; go on with that one"
        )


def _cure(when: str) -> str:
    return (
        f"where {when} open this one once with restored=True: who has joined since must join again, and "
        "has the purse of before"
    )


def _canonical(crs: Any) -> str:
    """Return a CRS in one way of writing: its code, or else its definition."""
    read = read_crs(crs)
    code = read.to_authority(min_confidence=100)
    return read.to_wkt() if code is None else ":".join(code)


def _alike(one: str | None, other: str | None) -> bool:
    """Return whether coordinates in both reference systems are the same numbers, but for their order."""
    if one is None or other is None:
        return one is other
    return bool(read_crs(one).equals(read_crs(other), ignore_axis_order=True))


def _describe(columns: Sequence[str], crs: str | None) -> str:
    unit = (
        "units of the map" if crs is None else crs if len(crs) < 80 else f"{read_crs(crs).name} ({crs[:60]}…)"
    )
    return f"{list(columns)} in {unit}"
