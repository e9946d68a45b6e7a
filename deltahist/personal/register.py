"""The register of people: a ledger and a database must know the same people under the same numbers.

The ledger decides: it keeps a keyed digest of the name of everybody who has a purse, so that whoever joins again has
the number and the purse of before, whatever the database still knows. Both keep a state, drawn anew whenever somebody
joins: a database of another state is an older copy, or one beside which another copy was used, and is refused.

A name goes to the database as one that is coming, then the purse to the ledger, then the name into the register. A
process that ends in between leaves names that the next turn puts there.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from deltahist.budgets.purses import Purses, Turn
from deltahist.errors import InputError
from deltahist.personal.database import Database

#: Facts of the account: which database it is for, the key of the digests, and the state of both.
_BASE, _KEY, _STATE = "database", "key", "state"


@dataclass(frozen=True)
class Register:
    """Who has which number, in a database and in the account of a ledger.

    Parameters
    ----------
    base : the database. purses : of its people.
    """

    base: Database
    purses: Purses

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
            kept, there = turn.accounts.fact(name, _BASE), self.base.standing.account
            if kept is None and there is None:
                turn.accounts.store(name, _BASE, secrets.token_hex(16))
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
            if self.base.standing.account is None:
                self.base.belong_to(turn.accounts.fact(name, _BASE))
            self._check_people(turn)
            if restored and not self._is_current(turn):
                self._announce(turn, [], np.zeros(0, dtype=np.int64))
        with self.turn():
            pass

    @contextlib.contextmanager
    def turn(self) -> Iterator[Turn]:
        """All purses, alone, once the database is known to have the same people.

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
            yield turn

    def marks(self, turn: Turn, names: list[str]) -> NDArray[np.bytes_]:
        """By which the ledger knows people (m,) again: keyed digests of their names."""
        key = bytes.fromhex(turn.accounts.fact(self.purses.name, _KEY))
        digests = (hashlib.blake2b(name.encode(), key=key, digest_size=16).digest() for name in names)
        return np.frombuffer(b"".join(digests), dtype="S16")

    def enter(self, turn: Turn, names: list[str], numbers: NDArray[np.int64]) -> None:
        """Let the database know people (m,) under the numbers of their purses, once the turn has ended and another
        one begins; who is there already stays."""
        there = self.base.numbers(names)
        if ((there >= 0) & (there != numbers)).any():
            self._refuse_others()
        absent = there < 0
        if absent.any():
            self._announce(
                turn, [name for name, new in zip(names, absent, strict=True) if new], numbers[absent]
            )

    def _announce(self, turn: Turn, names: list[str], numbers: NDArray[np.int64]) -> None:
        state = secrets.token_hex(16)
        self.base.announce(names, numbers, state)
        turn.accounts.store(self.purses.name, _STATE, state)

    def _is_current(self, turn: Turn) -> bool:
        """Whether the database is in the state of the ledger; names that were coming when a process ended are put in
        place before."""
        there, state = self.base.standing, turn.accounts.fact(self.purses.name, _STATE)
        if there.account != turn.accounts.fact(self.purses.name, _BASE):
            self._refuse_stranger()
        if there.state == state:
            return True
        # A ledger without a state is of before anybody joined.
        if state is None or there.coming != state:
            return False
        self.base.settle()
        return True

    def _check_people(self, turn: Turn) -> None:
        """Raise InputError if the database knows somebody whom the ledger does not, or others under its numbers."""
        names, numbers = self.base.persons()
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
        f"where {when} open this one once with restored=True (--restored): who has joined since must join again, and "
        "has the purse of before"
    )
