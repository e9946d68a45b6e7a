"""The ledger: accounts that are charged durably before any noise is drawn, by name and under keys; its audit."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist.accounts.commits import shared_commits
from deltahist.accounts.databases import database
from deltahist.accounts.rules import CHAIN, ChainCharge, Rule, check_text, failed_so_far, spent_within
from deltahist.accounts.tables import Accounts
from deltahist.accounts.withdrawals import WITHDRAWN
from deltahist.budget import ATTO, Charge
from deltahist.errors import NANO, InputError

if TYPE_CHECKING:
    from deltahist.budget import Budget
    from deltahist.privacy import Guarantee


class Ledger:
    """All accounts in one place; every change is one durable transaction.

    A charge is on the disk before the transaction ends (SQLite: rollback journal, synchronous EXTRA; PostgreSQL:
    synchronous_commit), so that a process that is killed at any point has shown no noise that is not charged. Processes
    and threads take turns; threads that stand in line share a commit. It holds rules and the last charges of each
    account, and answers that were asked for with a key.

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
    >>> for _ in range(2):
    ...     print(ledger.charge("city", 0.25, key="visits of May"))
    1/4
    1/4
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
        words, answer = _as_json(request, "request"), None
        with self.transaction() as change:
            kept = find_rule(change, account)
            if kept.get("kind") != "total":
                raise InputError(
                    f"account {account!r} is of kind {kept.get('kind')!r}: only a total is charged by its name; a "
                    "window of steps is charged by `Window`, people's own budgets by the queries that use their records"
                )
            rule = Rule.read(kept)
            charge = rule.cost(account, amount)
            failing = {"probability_atto": charge.atto} if charge.atto else {}
            about = {"amount_nano": charge.nano, **failing, "drawn": draw is not None, "request": words}
            asked = None if key is None else KeyedRequest(account, key, about)
            known = None if asked is None else asked.find_answer(change)
            if known is not None:
                return charge, known[0]
            rule.charge(change, account, charge.nano, charge.atto)
            if draw is not None:
                answer = _as_json(draw(charge), "what was drawn")
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
        with self.read() as found:
            return Standing.of(found, account)

    def standings(self) -> list[Standing]:
        """Return all accounts, as they stand at one moment."""
        with self.read() as found:
            return [Standing.of(found, name) for name in found.rules()]

    def problems(self) -> list[str]:
        """Return the problems of the ledger, in words: an audit, which changes nothing."""
        with self.read() as found:
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
                change.is_last = True
                self._database.discard()

    def accounts(self) -> dict[str, dict[str, Any]]:
        """Return all accounts with their rules."""
        with self.read() as found:
            return found.rules()

    def charges(self, name: str) -> dict[int, int]:
        """Return the billionths charged at each step that is still kept."""
        with self.read() as found:
            return found.charges(name)

    def fact(self, name: str, key: str) -> Any:
        """Return a value that was stored with an account; None if there is none."""
        with self.read() as found:
            return found.fact(name, key)

    def store(self, name: str, key: str, value: Any) -> None:
        """Store a value (JSON) with an account."""
        with self.transaction() as change:
            change.store(name, key, value)

    @contextlib.contextmanager
    def read(self) -> Iterator[Accounts]:
        """Read accounts as they are at one moment."""
        with self._database.begin(change=False) as connection:
            yield Accounts(connection)

    def transaction(self) -> contextlib.AbstractContextManager[Accounts]:
        """Change accounts, all or nothing and alone: durable when the block ends, undone if it raises.

        Threads that stand in line share a commit (`SharedCommits`).
        """
        return shared_commits(self._database).change()

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        """Hold the ledger for a whole run; a second run is refused at once.

        Raises InputError if another process holds it.
        """
        return self._database.exclusive()


# ---------------------------------------------------------------------------------- requests under keys


class KeyReuseError(InputError):
    """A key that was used for another request."""


@dataclass(frozen=True)
class KeyedRequest:
    """A request to an account under a key: the same request under the same key is answered once, and charged once.

    The description (JSON) is kept with the answer: the cost, whether an answer is drawn, the words of who asks.
    """

    account: str
    key: str
    description: dict[str, Any]

    def find_answer(self, accounts: Accounts) -> tuple[Any] | None:
        """Return the answer that is kept under the key; None if the key is new.

        Raises KeyReuseError if the key was used for another request.
        """
        found = accounts.find_answer(self.account, self.key)
        if found is None:
            return None
        before, answer = found
        if _text(before) != _text(self.description):
            raise KeyReuseError(
                f"key {self.key!r} of account {self.account!r} was used for another request: "
                f"{differences(before, self.description)}; nothing was charged; take a new key for a new question"
            )
        return (answer,)

    def keep(self, accounts: Accounts, answer: Any) -> None:
        """Keep the answer under the key."""
        accounts.keep_answer(self.account, self.key, self.description, answer)


def _as_json(value: Any, what: str) -> Any:
    """Return a value as it comes back from JSON; InputError unless it can be written as such."""
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
        if _text(old) == _text(new):
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            out.append(differences(old, new, f"{prefix}{key}."))
        else:
            name = prefix + key.removesuffix("_nano").removesuffix("_atto")
            out.append(f"{name} was {_format(key, old)}, is {_format(key, new)}")
    return ", ".join(out)


def _format(key: str, value: Any) -> str:
    scale = {"_nano": NANO, "_atto": ATTO}.get(key[-5:])
    shown = f"{value / scale:.9g}" if scale and isinstance(value, int) else json.dumps(value)
    return shown if len(shown) < 80 else shown[:77] + "..."


# ---------------------------------------------------------------------------------- standing and audit


def find_rule(accounts: Accounts, name: str) -> dict[str, Any]:
    """Return the rule of an account as a ledger keeps it; InputError if the account is not there."""
    rule: dict[str, Any] | None = accounts.rule(name)
    if rule is None:
        others = ", ".join(map(repr, accounts.rules()))
        raise InputError(f"account {name!r} is not there: open it first" + (others and f"; there are {others}"))
    return rule


@dataclass(frozen=True)
class Standing:
    """Limits and sums of an account: public, as budgets are.

    Parameters
    ----------
    account : its name. kind : "total", "window", or "purses" (of many people, of which nothing is told).
    unit : "epsilon" or "rho".
    spans : for each limit its steps, None for all there are, and its own limit and sum; the account's own span first.
    probability, failed : what failure probabilities may add up to, and do; None if only pure ε is paid for.
    withdrawn : notices of releases that it paid for and that were withdrawn: what they cost stays spent.
    """

    account: str
    kind: str
    unit: str
    spans: tuple[tuple[int | None, Fraction, Fraction], ...] = ((None, Fraction(0), Fraction(0)),)
    probability: Fraction | None = None
    failed: Fraction | None = None
    withdrawn: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, accounts: Accounts, name: str) -> Standing:
        """Return how an account stands; InputError if it is not there, or of a kind that is not known."""
        kept = find_rule(accounts, name)
        kind = kept.get("kind")
        if kind == "purses":
            return cls(name, kind, kept["unit"])
        if kind not in ("total", "window"):
            raise InputError(
                f"account {name!r} is of kind {kind!r}, which this program does not know (a newer version's?): update "
                "it"
            )
        rule, charges = Rule.read(kept), accounts.charges(name)
        last = max(charges, default=0)
        spans = tuple(
            (length, Fraction(limit, NANO), Fraction(spent_within(charges, last, length), NANO))
            for length, limit in rule.spans
        )
        withdrawn = tuple(accounts.facts(name, WITHDRAWN).values())
        if rule.failing is None:
            return cls(name, kind, rule.unit, spans, withdrawn=withdrawn)
        failing = Fraction(rule.failing, ATTO), Fraction(failed_so_far(accounts, name), ATTO)
        return cls(name, kind, rule.unit, spans, *failing, withdrawn)

    @property
    def limit(self) -> Fraction:
        """Limit of the account's own span."""
        return self.spans[0][1]

    @property
    def spent(self) -> Fraction:
        """Amount spent altogether, or in the last window."""
        return self.spans[0][2]

    @property
    def left(self) -> Fraction:
        """The amount that may still be spent, of whichever limit leaves the least."""
        return min(limit - spent for _, limit, spent in self.spans)

    def describe(self) -> dict[str, Any]:
        """Return the standing as JSON, for a report; of purses no figures."""
        about: dict[str, Any] = {"account": self.account, "unit": self.unit, "steps": self.spans[0][0]}
        if self.kind == "purses":
            return {**about, "kind": self.kind}
        about |= {"limit": float(self.limit), "spent": float(self.spent), "left": float(self.left)}
        if len(self.spans) > 1:
            about["lasting"] = [
                {"steps": steps, "limit": float(limit), "spent": float(spent)}
                for steps, limit, spent in self.spans[1:]
            ]
        if self.probability is not None and self.failed is not None:
            about |= {"probability": float(self.probability), "probability_spent": float(self.failed)}
        if self.withdrawn:
            about["withdrawn"] = list(self.withdrawn)
        return about


def audit(accounts: Accounts) -> Iterator[str]:
    """Yield what cannot be right in a ledger: one line for each fault.

    No account has spent more than its limit, in any span; no charge is negative; all that chains and keys paid for
    was charged; every row belongs to an account, and every account is of a kind that is known.
    """
    rules = accounts.rules()
    for table, names in accounts.owners().items():
        for name in sorted(names - rules.keys()):
            yield f"table {table!r} has rows of account {name!r}, which is not there"
    for name in rules:
        try:
            standing = Standing.of(accounts, name)
        except InputError as problem:
            yield str(problem)
        except (KeyError, TypeError, ValueError) as problem:
            yield f"account {name!r} has a rule that cannot be read: {problem!r}"
        else:
            if standing.kind != "purses":
                yield from _audit_charges(accounts, standing)


def _audit_charges(accounts: Accounts, standing: Standing) -> Iterator[str]:
    who, charges = f"account {standing.account!r}", accounts.charges(standing.account)
    if any(nano < 0 for nano in charges.values()):
        yield f"{who} has a charge below zero"
    for length, limit, _ in standing.spans:
        most = Fraction(max((spent_within(charges, step, length) for step in charges), default=0), NANO)
        if most > limit:
            steps = "" if length is None else f" in {length:,} steps in a row"
            yield f"{who} has spent {float(most):.10g}{steps}, more than its limit, {float(limit):.10g}"
    longest = max(math.inf if length is None else length for length, _, _ in standing.spans)
    if charges and max(charges) - min(charges) >= longest:
        yield f"{who} keeps charges of more steps than its window has"
    if standing.failed is not None and not 0 <= standing.failed <= (standing.probability or 0):
        yield f"{who} has spent a probability of {float(standing.failed):.3g}, which is not within its limit"
    if standing.kind == "window":
        return
    requests = list(accounts.requests(standing.account))
    nano = sum(ChainCharge(**value).nano for value in accounts.facts(standing.account, CHAIN).values())
    nano += sum(request.get("amount_nano", 0) for request in requests)
    if nano > sum(charges.values()):
        yield f"{who} was charged {sum(charges.values()) / NANO:.10g}, but chains and keys paid {nano / NANO:.10g}"
    atto = sum(request.get("probability_atto", 0) for request in requests)
    if Fraction(atto, ATTO) > (standing.failed or 0):
        yield f"{who} was charged less failure probability than what its keys paid, {atto / ATTO:.3g}"
