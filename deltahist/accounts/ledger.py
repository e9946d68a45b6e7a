"""The ledger: accounts that are charged durably before any noise is drawn, by name and under keys."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist.accounts.databases import database
from deltahist.accounts.rules import ATTO, Cost, Rule
from deltahist.accounts.standing import Standing, audit
from deltahist.errors import NANO, InputError

if TYPE_CHECKING:
    from deltahist.accounts.tables import Accounts
    from deltahist.budget import Budget, Charge
    from deltahist.privacy import Guarantee


class Ledger:
    """All accounts in one place; every change is one durable transaction.

    A charge is on the disk before the transaction ends (SQLite: rollback journal, synchronous EXTRA; PostgreSQL:
    synchronous_commit), so that a process that is killed at any point has shown no noise that is not charged. Processes
    and threads take turns. It holds rules and the last charges of each account, and answers that were asked for with a
    key.

    Parameters
    ----------
    where : a file (a path, or "sqlite:///city.ledger"), or a database, "postgresql://user:password@host/database",
        in which the ledger has a schema `deltahist` of its own (extra "postgresql"). It is made, whole, if it does not
        exist.

    Raises
    ------
    DamagedFile
        If the file is cut short, damaged, or no ledger. It is left unchanged.
    InputError
        If it is of a newer version, or cannot be used: its folder or server does not exist, another process holds it.

    >>> import tempfile, deltahist as dh
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = dh.Ledger(f"{folder.name}/city.ledger")
    >>> ledger.open("city", epsilon=1)
    >>> ledger.charge("city", 0.25, key="visits of May"), ledger.charge("city", 0.25, key="visits of May")
    (Charge(1, 4), Charge(1, 4))
    >>> ledger.spent("city"), ledger.left("city")
    (Fraction(1, 4), Fraction(3, 4))
    >>> folder.cleanup()
    """

    def __init__(self, where: str | Path) -> None:
        self._database = database(where)
        if not self._database.exists():
            self._database.create()
        self._database.check()

    def __repr__(self) -> str:
        return f"Ledger({self.place!r})"

    @classmethod
    def exists(cls, where: str | Path) -> bool:
        """Return whether there is a ledger at a path or URL; none is made."""
        return database(where).exists()

    @property
    def path(self) -> Path | None:
        """The file; None for a database of a server."""
        return self._database.path

    @property
    def place(self) -> str:
        """The path or URL, without a password."""
        return self._database.place

    def open(
        self,
        account: str,
        epsilon: float | Fraction | None = None,
        *,
        rho: float | Fraction | None = None,
        probability: float | Fraction | None = None,
    ) -> None:
        """Open an account for all that is ever published, or make sure that it has just this limit.

        It is the one that `Account.total(epsilon, ledger=ledger, name=account)` opens.

        Parameters
        ----------
        account : its name, a text of at most 200 printable characters.
        epsilon, rho : the limit, one of them; rounded down to billionths.
        probability : with epsilon, what failure probabilities may add up to; without it the account pays for pure ε
            only. The two sums are kept apart.

        Raises
        ------
        InputError
            Unless exactly one limit is given, of at least a billionth; if the account has another one.
        """
        self.account(check_text(account=account), Rule.of(epsilon, rho, probability).describe())

    def charge(
        self,
        account: str,
        amount: float | Fraction | Guarantee | Budget,
        *,
        key: str | None = None,
        request: Any = None,
    ) -> Charge:
        """Charge an amount, durably, and return what was charged: the budget for the release.

        Do so before noise is drawn: `publish(counts, near, epsilon=ledger.charge("city", 0.1))`.

        Parameters
        ----------
        amount : of the account's unit, or a guarantee or budget, which is charged in its own unit; rounded up to
            billionths.
        key : whoever comes again with the same key, amount and request gets the same charge, which is made once; a
            text of at most 200 printable characters. Without a key every call charges.
        request : the question, as JSON, for a key; it is kept, and a key with another request is refused.

        Raises
        ------
        BudgetExceeded
            If the account has less left. Nothing is charged then.
        InputError
            On an account that is not there, an amount that is not above zero or of another unit (ρ, or a failure
            probability that the account does not keep), a key that was used for something else. Nothing is charged
            then. If a server goes away in the middle of the commit, the message says that the charge may have been
            made: ask again with the same key.
        """
        return self._pay(account, amount, None, key, request)[0]

    def answer(
        self,
        account: str,
        amount: float | Fraction | Guarantee | Budget,
        draw: Callable[[Charge], Any],
        *,
        key: str | None = None,
        request: Any = None,
    ) -> Any:
        """Charge an amount, draw an answer for it, keep it, and return it once all of that is committed.

        Whoever comes again with the same key, amount and request gets the answer that is kept: nothing is drawn or
        charged. If `draw` raises, nothing is charged, since nothing has left: it must show nothing to anybody, and
        whether it raises must depend on neither its noise nor private rows.

        Parameters
        ----------
        draw : takes the charge, draws the noise, and returns what JSON can say. It must not use this ledger.
        amount, key, request : as for `charge`. Without a key the answer is not kept.

        Raises
        ------
        BudgetExceeded, InputError
            As `charge`; on an answer that is not JSON. Nothing is charged then.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ledger = Ledger(f"{folder}/city.ledger")
        ...     ledger.open("city", epsilon=1)
        ...     draw = lambda charge: {"visits": 1021, "epsilon": str(charge)}
        ...     for _ in range(2):
        ...         print(ledger.answer("city", 0.25, draw, key="May", request="visits"), ledger.spent("city"))
        {'visits': 1021, 'epsilon': '1/4'} 1/4
        {'visits': 1021, 'epsilon': '1/4'} 1/4
        """
        return self._pay(account, amount, draw, key, request)[1]

    def _pay(
        self, account: str, amount: Any, draw: Callable[[Charge], Any] | None, key: str | None, request: Any
    ) -> tuple[Charge, Any]:
        """Charge, draw and keep; return the charge and the answer once both are committed."""
        if key is not None:
            check_text(key=key)
        elif request is not None:
            raise InputError("request is given without a key, under which it would be kept: give both, or none")
        words = as_json(request, "request")
        with self.transaction() as change:
            rule = Rule.of_total(change, account)
            cost = rule.cost(account, amount)
            charge = rule.charge_for(cost)
            asked = None if key is None else KeyedRequest(account, key, cost, draw is not None, words)
            known = None if asked is None else asked.find_answer(change)
            if known is not None:
                return charge, known[0]
            rule.charge(change, account, cost)
            answer = None if draw is None else as_json(draw(charge), "what was drawn")
            if asked is not None:
                asked.keep(change, answer)
        return charge, answer

    def spent(self, account: str) -> Fraction:
        """Return what an account has spent so far; a window of steps, in its last window."""
        return self._public_standing(account).spent

    def left(self, account: str) -> Fraction:
        """Return what an account may still spend."""
        return self._public_standing(account).left

    def _public_standing(self, account: str) -> Standing:
        standing = self.standing(account)
        if standing.kind == "purses":
            raise InputError(f"account {account!r} holds people's own budgets: nothing is told of what they have spent")
        return standing

    def standing(self, account: str) -> Standing:
        """Return unit, limit and sums of an account; InputError if it is not there."""
        with self._database.read() as found:
            return Standing.of(found, account)

    def standings(self) -> list[Standing]:
        """Return all accounts, as they stand at one moment."""
        with self._database.read() as found:
            return [Standing.of(found, name) for name in found.rules()]

    def problems(self) -> list[str]:
        """Return the problems of the ledger, in words: an audit, which changes nothing."""
        with self._database.read() as found:
            return [*self._database.problems(), *audit(found)]

    def account(self, name: str, rule: dict[str, Any]) -> None:
        """Open an account under a rule (JSON), or make sure that it has just this one.

        Raises InputError that names what differs.
        """
        with self.transaction() as change:
            before = change.rule(name)
            if before is None:
                change.open(name, rule)
                return
        now = json.loads(json.dumps(rule))
        if before != now:
            raise InputError(
                f"account {name!r} of {self.place!r} was opened with other parameters: "
                f"{differences(before, now)}; go on with those, or take another ledger (what was published stays "
                "spent)"
            )

    def close_if_unused(self, name: str) -> None:
        """Close an account if nothing was charged to it, and discard a ledger that then holds nothing.

        Other accounts may have come meanwhile: they stay. One that is being opened at this very moment has charged
        nothing, and finds no ledger when it wants to.
        """
        with self.transaction() as change:
            if change.charges(name) or change.entries(name):
                return
            change.close(name)
            if not change.rules():
                self._database.discard()

    def accounts(self) -> dict[str, dict[str, Any]]:
        """Return all accounts with their rules."""
        with self._database.read() as found:
            return found.rules()

    def charges(self, name: str) -> dict[int, int]:
        """Return the billionths charged at each step that is still kept."""
        with self._database.read() as found:
            return found.charges(name)

    def fact(self, name: str, key: str) -> Any:
        """Return a value that was stored with an account; None if there is none."""
        with self._database.read() as found:
            return found.fact(name, key)

    def store(self, name: str, key: str, value: Any) -> None:
        """Store a value (JSON) with an account."""
        with self.transaction() as change:
            change.store(name, key, value)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Accounts]:
        """Change accounts, all or nothing and alone: durable when the block ends, undone if it raises."""
        mine = (os.getpid(), self.place)
        if mine in _open_here():
            raise InputError(
                f"a transaction of {self.place!r} is open in this thread already, for which this one would wait for "
                "ever: nothing was charged by it; ask the ledger before or after, not from within (or from a `draw`)"
            )
        with self._database.change() as accounts:
            _open_here().add(mine)
            try:
                yield accounts
            finally:
                _open_here().discard(mine)

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        """Hold the ledger for a whole run; a second run is refused at once.

        Raises InputError if another process holds it.
        """
        return self._database.exclusive()


_THREAD = threading.local()


def _open_here() -> set[tuple[int, str]]:
    """Return the ledgers that this thread is changing; a process that forks off has no part in the change."""
    if not hasattr(_THREAD, "within"):
        _THREAD.within = set()
    found: set[tuple[int, str]] = _THREAD.within
    return found


# ---------------------------------------------------------------------------------- requests under keys

#: Characters of a key or a name.
_LONGEST = 200


def check_text(**given: Any) -> str:
    """Return the one keyword's value, a text of 1 to 200 printable characters; InputError for anything else.

    >>> check_text(key="map of May")
    'map of May'
    """
    ((name, value),) = given.items()
    if not isinstance(value, str) or not 1 <= len(value) <= _LONGEST or not value.isprintable():
        shown = repr(value) if len(repr(value)) < 80 else repr(value)[:77] + "..."
        raise InputError(f"{name} is {shown}: it must be a text of 1 to {_LONGEST} printable characters")
    return value


@dataclass(frozen=True)
class KeyedRequest:
    """A request to an account under a key: the same request under the same key is answered once, and charged once.

    Parameters
    ----------
    drawn : whether an answer is drawn for it. words : of who asks (JSON).
    """

    account: str
    key: str
    cost: Cost
    drawn: bool
    words: Any = None

    @property
    def description(self) -> dict[str, Any]:
        """The request as a ledger keeps it (JSON)."""
        failing = {"probability_atto": self.cost.atto} if self.cost.atto else {}
        return {"amount_nano": self.cost.nano, **failing, "drawn": self.drawn, "request": self.words}

    def find_answer(self, accounts: Accounts) -> tuple[Any] | None:
        """Return the answer that is kept under the key; None if the key is new.

        Raises InputError if the key was used for another request.
        """
        found = accounts.find_answer(self.account, self.key)
        if found is None:
            return None
        before, answer = found
        if _text(before) != _text(self.description):
            raise InputError(
                f"key {self.key!r} of account {self.account!r} was used for another request: "
                f"{differences(before, json.loads(_text(self.description)))}; nothing was charged; take a new key for "
                "a new question"
            )
        return (answer,)

    def keep(self, accounts: Accounts, answer: Any) -> None:
        """Keep the answer under the key."""
        accounts.keep_answer(self.account, self.key, self.description, answer)


def as_json(value: Any, what: str) -> Any:
    """Return a value as it comes back from JSON; InputError unless it can be written as such.

    >>> as_json({"cells": (1, 2)}, "request")
    {'cells': [1, 2]}
    """
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(
            f"{what} cannot be kept: {problem}; it must be JSON (numbers of Python, texts, lists, dictionaries)"
        ) from None


def _text(value: Any) -> str:
    # Texts are compared: in Python 1, 1.0 and True are equal.
    return json.dumps(value, sort_keys=True)


def differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> str:
    """Return in words where two rules or requests differ."""
    out = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            if _text(old) != _text(new):
                out.append(differences(old, new, f"{prefix}{key}."))
        elif _text(old) != _text(new):
            name = prefix + key.removesuffix("_nano").removesuffix("_atto")
            out.append(f"{name} was {_format(key, old)}, is {_format(key, new)}")
    return ", ".join(out)


def _format(key: str, value: Any) -> str:
    scale = {"_nano": NANO, "_atto": ATTO}.get(key[-5:])
    text = f"{value / scale:.9g}" if scale and isinstance(value, int) else json.dumps(value)
    return text if len(text) < 80 else text[:77] + "..."
