"""The ledger: accounts that are charged durably before any noise is drawn; how they stand, and an audit."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, update

from deltahist.accounts.databases import ACCOUNTS, CHARGES, POPULATIONS, find_database
from deltahist.accounts.rules import ChainCharge, Rule, check_text
from deltahist.budget import Budget, Charge, Population, say_amount
from deltahist.errors import NANO, BudgetExceeded, DamagedFile, InputError
from deltahist.privacy import Guarantee

#: Keys of notes of an account begin so: the state of a chain of releases, and a release that was withdrawn.
CHAIN, WITHDRAWN = "chain ", "withdrawn "

#: The population of accounts that name none: a ledger is usually about the same people.
EVERYONE = "everyone"

_fellows = ACCOUNTS.alias()
#: An account, the rule of its population, and what all accounts of the population have spent in its unit.
_ACCOUNT = (
    select(
        ACCOUNTS,
        POPULATIONS.c.rule.label("bound"),
        select(func.sum(_fellows.c.spent))
        .where(_fellows.c.population == ACCOUNTS.c.population, _fellows.c.unit == ACCOUNTS.c.unit)
        .scalar_subquery()
        .label("together"),
    )
    .join(POPULATIONS, POPULATIONS.c.name == ACCOUNTS.c.population)
    .where(ACCOUNTS.c.name == bindparam("account"))
)
_BOUND = select(POPULATIONS.c.rule).where(POPULATIONS.c.name == bindparam("people"))
_OF_CHARGE = CHARGES.c.account == bindparam("of")
_KEYED = select(CHARGES.c.nano).where(_OF_CHARGE, CHARGES.c.key == bindparam("named"))
_LAST = select(func.max(CHARGES.c.step)).where(_OF_CHARGE)
_SUM = select(func.coalesce(func.sum(CHARGES.c.nano), 0)).where(
    _OF_CHARGE, CHARGES.c.step > bindparam("after"), CHARGES.c.step <= bindparam("upto")
)
_CHANGE = update(ACCOUNTS).where(ACCOUNTS.c.name == bindparam("account"))
_SPEND = _CHANGE.values(spent=ACCOUNTS.c.spent + bindparam("amount"))
_NOTE = _CHANGE.values(notes=bindparam("content"))
_OPEN, _CHARGE = insert(ACCOUNTS), insert(CHARGES)


class Ledger:
    """All accounts in one place. Every change is one durable transaction of a database.

    A charge is on the disk before the transaction ends (SQLite: BEGIN IMMEDIATE, synchronous EXTRA; PostgreSQL: a lock
    and a synchronous commit). A process that is killed at any point has shown no noise that is not charged.

    Parameters
    ----------
    where : a file (a path, or "sqlite:///city.db"), or a PostgreSQL database ("postgresql://user:password@host/city",
        extra "postgresql"), in which the ledger has a schema `deltahist` of its own. The ledger is made if it does not
        exist. None keeps it in memory.

    Raises DamagedFile, and changes nothing, if the file is cut short, damaged, changed by triggers, or no ledger;
    InputError if it is of another version, or cannot be used.

    >>> import tempfile, deltahist as dh
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = dh.Ledger(f"sqlite:///{folder.name}/city.db")
    >>> ledger.open("city", epsilon=1)
    >>> for _ in range(2):
    ...     print(ledger.charge("city", 0.25, key="visits of May"))
    1/4
    1/4
    >>> ledger.spent("city"), ledger.left("city")
    (Fraction(1, 4), Fraction(3, 4))
    >>> folder.cleanup()
    """

    def __init__(self, where: str | Path | None) -> None:
        self._where, self._database = where, find_database(where)
        if not self._database.exists():
            self._database.create()
        self._database.check()

    def __repr__(self) -> str:
        return f"Ledger({self.place!r})"

    def __reduce__(self) -> Any:
        if self._where is None:
            raise InputError("the ledger is in memory, and a copy of it would pay again: give a ledger a file")
        return Ledger, (self._where,)

    @classmethod
    def exists(cls, where: str | Path) -> bool:
        """Return whether there is a ledger at a path or URL; none is made."""
        return find_database(where).exists()

    @classmethod
    def name_of(cls, where: str | Path) -> str:
        """Return the path or URL without a password."""
        return find_database(where).place

    @property
    def path(self) -> Path | None:
        """The file; None for a server's database."""
        return self._database.path

    @property
    def place(self) -> str:
        """The path or URL, without a password."""
        return self._database.place

    def transaction(self) -> contextlib.AbstractContextManager[Connection]:
        """Change the ledger, alone: durable when the block ends, undone if it raises.

        Other tables can be made and changed in it, too.
        """
        return self._database.begin(write=True)

    def read(self) -> contextlib.AbstractContextManager[Connection]:
        """Look at the ledger as it is at one moment."""
        return self._database.begin(write=False)

    def open(
        self,
        account: str,
        epsilon: float | Fraction | None = None,
        *,
        rho: float | Fraction | None = None,
        population: str | None = None,
        population_limit: float | Fraction | None = None,
    ) -> None:
        """Open an account for all that is ever published, or make sure that it has just these limits.

        Raises InputError on anything else, or if the account or its population has another limit.

        Parameters
        ----------
        account : its name, a text of at most 200 printable characters.
        epsilon, rho : its limit, one of them; rounded down to billionths.
        population : the people whom the account is about; "everyone" when None. What accounts of the same people spend
            adds up.
        population_limit : what all accounts of the population may ever spend together, in the same unit.
        """
        rule = Rule.of(epsilon, rho)
        bound = None
        if population_limit is not None:
            bound = Rule.of(population_limit) if rule.unit == "epsilon" else Rule.of(rho=population_limit)
        with self.transaction() as connection:
            open_account(connection, check_text(account=account), rule.describe(), population, bound)

    def charge(self, account: str, amount: float | Fraction | Guarantee | Budget, *, key: str | None = None) -> Charge:
        """Charge an amount, durably, and return what was charged: the budget for the release.

        Do so before noise is drawn: `publish(counts, near, epsilon=ledger.charge("city", 0.1))`.

        Parameters
        ----------
        amount : in the account's unit, or a guarantee or budget; rounded up to billionths.
        key : a charge with a key is made once; the same key and amount return it again. It pays for one release: take
            another key to publish again, with other noise. A text of at most 200 printable characters. Without a key
            every call charges.

        Raises BudgetExceeded if the account or its population has less left; InputError on an account that is not
        there, an amount that is not above zero or in another unit, or a key that was used with another amount. Nothing
        is charged then. If a server goes away during the commit, ask again with the same key.
        """
        key = None if key is None else check_text(key=key)
        with self.transaction() as connection:
            found = find_account(connection, account := check_text(account=account))
            if found.rule.get("kind") != "total":
                raise InputError(f"account {account!r} is of kind {found.rule.get('kind')!r}: it must be a total")
            rule = Rule.read(found.rule)
            charge = rule.cost(account, amount)
            known = None if key is None else connection.scalar(_KEYED, {"of": account, "named": key})
            if known is None:
                charge_account(connection, found, rule, charge.nano, key=key)
            elif known != charge.nano:
                raise InputError(
                    f"key {key!r} of account {account!r} was used to charge {known / NANO:.10g}, not {charge}: nothing "
                    "was charged"
                )
        return charge

    def spent(self, account: str) -> Fraction:
        """Return what an account has spent so far; a window of steps, in its last window."""
        return self.standing(account).spent

    def left(self, account: str) -> Fraction:
        """Return what an account may still spend."""
        return self.standing(account).left

    def standing(self, account: str) -> Standing:
        """Return unit, limits and sums of an account and its population; InputError if it is not there."""
        with self.read() as connection:
            return Standing.of(connection, check_text(account=account))

    def standings(self) -> list[Standing]:
        """Return all accounts, as they stand at one moment."""
        with self.read() as connection:
            return [Standing.of(connection, name) for name in list_accounts(connection)]

    def accounts(self) -> dict[str, dict[str, Any]]:
        """Return all accounts with their rules."""
        with self.read() as connection:
            return list_accounts(connection)

    def charges(self, account: str) -> dict[int, int]:
        """Return the billionths charged at each step, in order."""
        with self.read() as connection:
            return list_charges(connection, check_text(account=account))

    def problems(self) -> list[str]:
        """Return what cannot be right in the ledger, in words: an audit, which changes nothing."""
        self._database.check(thorough=True)
        with self.read() as connection:
            return list(audit(connection))


def find_account(connection: Connection, account: str) -> Any:
    """Return the row of an account; InputError if it is not there."""
    found = connection.execute(_ACCOUNT, {"account": account}).first()
    if found is None:
        names = ", ".join(map(repr, list_accounts(connection)))
        raise InputError(f"account {account!r} is not there: open it first" + (names and f"; there are {names}"))
    if not isinstance(found.rule, dict) or not isinstance(found.notes, dict):
        raise DamagedFile(f"the ledger is damaged: account {account!r} has no rule or no notes")
    return found


def list_accounts(connection: Connection) -> dict[str, dict[str, Any]]:
    """Return all accounts with their rules, in the order of names."""
    rows = connection.execute(select(ACCOUNTS.c.name, ACCOUNTS.c.rule)).all()
    return {row.name: row.rule for row in sorted(rows, key=lambda row: row.name)}


def list_charges(connection: Connection, account: str) -> dict[int, int]:
    """Return the billionths charged at each step, in order."""
    steps = select(CHARGES.c.step, func.sum(CHARGES.c.nano)).where(CHARGES.c.account == account)
    rows = connection.execute(steps.group_by(CHARGES.c.step).order_by(CHARGES.c.step)).all()
    return {step: int(nano) for step, nano in rows}


def open_account(
    connection: Connection, account: str, rule: dict[str, Any], population: str | None = None, bound: Rule | None = None
) -> Any:
    """Open an account under a rule (JSON), or raise InputError if it has another one; return its row.

    A new account joins a population, "everyone" when None. `bound` is the limit of a population that is new.
    """
    found = connection.execute(_ACCOUNT, {"account": account}).first()
    people = None if population is None else check_text(population=population)
    if found is not None:
        check_same_rule(account, found.rule, rule)
        if people not in (None, found.population):
            raise InputError(f"account {account!r} is of population {found.population!r}, not {people!r}")
        if bound is None:
            return found
    people = people or (EVERYONE if found is None else found.population)
    known = connection.scalar(_BOUND, {"people": people})
    if known is None:
        known = {} if bound is None else bound.describe()
        connection.execute(insert(POPULATIONS), {"name": people, "rule": known})
    elif bound is not None:
        check_same_rule(f"of population {people!r}", known, bound.describe())
    if found is not None:
        return found
    own = None if rule["kind"] == "purses" else Rule.read(rule)
    if known and (own is None or own.unit != Rule.read(known).unit):
        kind = "people's own budgets" if own is None else own.unit
        unit = Rule.read(known).unit
        raise InputError(f"population {people!r} has a limit in {unit}: it cannot have an account of {kind}")
    row = {"name": account, "population": people, "unit": rule["unit"] if own is None else own.unit}
    row |= {"share": own and own.limit, "most": own and own.most, "spent": 0, "rule": rule, "notes": {}}
    connection.execute(_OPEN, row)
    return find_account(connection, account)


def check_same_rule(account: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise InputError, with what differs, if an account was opened under another rule."""
    if differing := differences(before, json.loads(json.dumps(now))):
        raise InputError(f"account {account!r} was opened with other parameters: {differing}; use those")


def charge_account(
    connection: Connection,
    found: Any,
    rule: Rule,
    nano: int,
    *,
    step: int = 0,
    key: str | None = None,
    once: bool = False,
) -> int:
    """Charge the account of a row within a transaction, and return the billionths that its own span has spent then.

    Raises BudgetExceeded if a span has less left; InputError for a step before the last one, or with `once` for a step
    that was charged already.
    """
    account = found.name
    last = None if rule.length is None else connection.scalar(_LAST, {"of": account})
    if last is not None and (step < last or (once and step == last)):
        raise InputError(f"step is {step}, but step {last} has been charged already: steps must not go back")
    limits = list_limits(connection, found, rule, step)
    for limit in limits:
        if limit.spent + nano > limit.most:
            at = "" if rule.length is None else f" at step {step}"
            raise BudgetExceeded(f"amount is {nano / NANO:.10g}{at}: {limit}")
    if nano:
        connection.execute(_SPEND, {"account": account, "amount": nano})  # refused if the sum is above the limit
        connection.execute(_CHARGE, {"account": account, "step": step, "nano": nano, "key": key})
    return limits[0].spent + nano


@dataclass(frozen=True)
class Limit:
    """A limit that a charge must keep, in billionths: who have spent what of how much; `steps` None for all."""

    who: str
    steps: int | None
    spent: int
    most: int

    @property
    def amounts(self) -> tuple[Fraction, Fraction, Fraction]:
        """What has been spent, what may be, and what is left."""
        spent, most = Fraction(self.spent, NANO), Fraction(self.most, NANO)
        return spent, most, most - spent

    def __str__(self) -> str:
        """Say what has been spent, and what is left."""
        spent, most, left = (say_amount(each, self.amounts[1]) for each in self.amounts)
        return f"{self.who} spent {spent} of {most}, {left} is left"


def list_limits(connection: Connection, found: Any, rule: Rule, step: int) -> list[Limit]:
    """Return the limits of a charge at a step: of the account's spans, its own first, and of its population."""
    limits = []
    for length, most in rule.spans:
        who, spent = f"account {found.name!r} has", found.spent
        if length is not None:
            who = f"steps {step - length + 1} to {step} have"
            spent = int(connection.scalar(_SUM, {"of": found.name, "after": step - length, "upto": step}) or 0)
        limits.append(Limit(who, length, spent, most))
    if found.bound:
        who = f"all accounts of population {found.population!r} have"
        limits.append(Limit(who, None, int(found.together), Rule.read(found.bound).limit))
    return limits


def sum_population(connection: Connection, people: str) -> Population:
    """Return what all accounts of a population have spent, and may spend: costs add up."""
    bound = connection.scalar(_BOUND, {"people": people})
    columns = (ACCOUNTS.c.unit, ACCOUNTS.c.spent, ACCOUNTS.c.share, ACCOUNTS.c.most)
    every = connection.execute(select(*columns).where(ACCOUNTS.c.population == people)).all()
    rows, sums = [row for row in every if row.share is not None], []  # the others are people's own budgets
    for unit in sorted({row.unit for row in rows}):
        own = [row for row in rows if row.unit == unit]
        most = None if any(row.most is None for row in own) else sum(row.most for row in own)
        share = sum(row.share for row in own)
        if bound:
            limit = Rule.read(bound).limit
            most, share = min(limit, limit if most is None else most), min(limit, share)
        figures = (sum(row.spent for row in own), most, share)
        sums.append((unit, *(None if each is None else Fraction(each, NANO) for each in figures)))
    return Population(people, len(rows), tuple(sums), len(rows) < len(every))  # type: ignore[arg-type]


def charge_chain(
    connection: Connection, found: Any, rule: Rule, nano: int, chain: str, token: str | None, source: str | None
) -> int:
    """Charge what a chain of releases costs more than so far, as `charge_account` does."""
    paid = read_chain(connection, found.name, chain)
    following = paid.after_charge(nano, token, source, chain)
    spent = charge_account(connection, found, rule, paid.due(nano))
    set_note(connection, found.name, CHAIN + chain, asdict(following))
    return spent


def read_chain(connection: Connection, account: str, chain: str) -> ChainCharge:
    """Return the charge of a chain; an empty one of a chain that the account does not know."""
    note = get_note(connection, account, CHAIN + chain)
    try:
        return ChainCharge(**(note or {}))
    except TypeError:
        raise DamagedFile(f"the ledger is damaged: chain {chain} has the note {str(note)[:80]}") from None


def get_note(connection: Connection, account: str, key: str) -> Any:
    """Return a small fact of an account (JSON); None if there is none."""
    found = connection.execute(_ACCOUNT, {"account": account}).first()
    return None if found is None else found.notes.get(key)


def set_note(connection: Connection, account: str, key: str, value: Any) -> None:
    """Keep a small fact of an account (JSON), in the place of an earlier one."""
    notes = {**find_account(connection, account).notes, key: value}
    connection.execute(_NOTE, {"account": account, "content": notes})


def differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> str:
    """Return in words where two rules differ; an empty text if they are the same."""
    out = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        # Texts are compared: in Python 1, 1.0 and True are equal.
        if json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True):
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            out.append(differences(old, new, f"{prefix}{key}."))
        else:
            was, now_is = (f"{v / NANO:.9g}" if key.endswith("_nano") and v else json.dumps(v)[:80] for v in (old, new))
            out.append(f"{prefix}{key.removesuffix('_nano')} was {was}, is {now_is}")
    return ", ".join(out)


@dataclass(frozen=True)
class Standing:
    """Limits and sums of an account: public, as budgets are.

    Parameters
    ----------
    account : its name. kind : "total", "window", or "purses" (people's own budgets, which are private).
    unit : "epsilon" or "rho".
    population : what all accounts of the same people have spent together.
    spans : the limits of the account, that of its own span first. binding : the limit that leaves the least.
    withdrawn : notices of releases that it paid for and that were withdrawn; what they cost stays spent.
    """

    account: str
    kind: str
    unit: str
    population: Population
    spans: tuple[Limit, ...] = ()
    binding: Limit | None = None
    withdrawn: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, connection: Connection, name: str) -> Standing:
        """Return how an account stands; InputError if it is not there, or of an unknown kind."""
        found = find_account(connection, name)
        kind, people = found.rule.get("kind"), sum_population(connection, found.population)
        if kind == "purses":
            return cls(name, kind, found.unit, people)
        if kind not in ("total", "window"):
            raise InputError(f"account {name!r} is of kind {kind!r}, which this program does not know")
        rule, last = Rule.read(found.rule), connection.scalar(_LAST, {"of": name}) or 0
        limits = list_limits(connection, found, rule, last)
        binding = min(limits, key=lambda each: each.most - each.spent)
        withdrawn = tuple(notice for key, notice in found.notes.items() if key.startswith(WITHDRAWN))
        return cls(name, kind, rule.unit, people, tuple(limits[: len(rule.spans)]), binding, withdrawn)

    @property
    def limit(self) -> Fraction:
        """Limit of the account's own span."""
        return self._check(self.spans[:1]).amounts[1]

    @property
    def spent(self) -> Fraction:
        """Amount spent altogether, or in the last window."""
        return self._check(self.spans[:1]).amounts[0]

    @property
    def left(self) -> Fraction:
        """The amount that may still be spent, by the limit that leaves the least."""
        return self._check(() if self.binding is None else (self.binding,)).amounts[2]

    def _check(self, limits: tuple[Limit, ...]) -> Limit:
        if not limits:
            raise InputError(f"account {self.account!r} holds people's own budgets: what they have spent is private")
        return limits[0]

    def describe(self) -> dict[str, Any]:
        """Return the standing as JSON, for a report; people's own budgets without figures."""
        about: dict[str, Any] = {"account": self.account, "unit": self.unit, "steps": None}
        about["population"] = self.population.describe()
        if self.kind == "purses":
            return {**about, "kind": self.kind}
        about["steps"] = self.spans[0].steps
        about |= {"limit": float(self.limit), "spent": float(self.spent), "left": float(self.left)}
        if len(self.spans) > 1:
            sums = [(each.steps, *map(float, each.amounts)) for each in self.spans[1:]]
            about["lasting"] = [{"steps": steps, "limit": limit, "spent": spent} for steps, spent, limit, _ in sums]
        return about | ({"withdrawn": list(self.withdrawn)} if self.withdrawn else {})


def audit(connection: Connection) -> Iterator[str]:
    """Yield what cannot be right in a ledger, a line for each fault.

    No span has spent more than its limit, no charge is negative, an account's sum is that of its charges and pays for
    its chains, and every charge belongs to an account of a known kind.
    """
    owners = connection.scalars(select(CHARGES.c.account).distinct()).all()
    accounts = list_accounts(connection)
    for name in sorted(set(owners) - accounts.keys()):
        yield f"there are charges of account {name!r}, which is not there"
    for name in accounts:
        try:
            standing = Standing.of(connection, name)
            if standing.kind != "purses":
                yield from _audit_charges(connection, standing)
        except InputError as problem:
            yield str(problem)


def _audit_charges(connection: Connection, standing: Standing) -> Iterator[str]:
    name, row = standing.account, find_account(connection, standing.account)
    who, charges = f"account {name!r}", list_charges(connection, name)
    if sum(charges.values()) != row.spent:
        yield f"{who} has spent {row.spent / NANO:.10g}, but its charges are {sum(charges.values()) / NANO:.10g}"
    if (row.share, row.most, row.unit) != ((rule := Rule.read(row.rule)).limit, rule.most, rule.unit):
        yield f"{who} states other limits than its rule"
    if row.bound and row.together > Rule.read(row.bound).limit:
        yield f"population {row.population!r} has spent {row.together / NANO:.10g}, more than its limit"
    for limit in standing.spans:
        most = _largest_sum(charges, limit.steps)
        if most > limit.most:
            steps = "" if limit.steps is None else f" in {limit.steps:,} steps in a row"
            yield f"{who} has spent {most / NANO:.10g}{steps}, more than its limit, {limit.most / NANO:.10g}"
    found = [read_chain(connection, name, key.removeprefix(CHAIN)) for key in row.notes if key.startswith(CHAIN)]
    chains = sum(each.nano for each in found)
    if chains > row.spent:
        yield f"{who} has spent {row.spent / NANO:.10g}, but its chains paid {chains / NANO:.10g}"


def _largest_sum(charges: dict[int, int], length: int | None) -> int:
    """Return the largest sum of `length` steps in a row; of all steps when None."""
    steps, sums = list(charges), [0, *itertools.accumulate(charges.values())]
    if length is None:
        return sums[-1]
    starts = (bisect.bisect_right(steps, step - length) for step in steps)
    return max((end - sums[start] for end, start in zip(sums[1:], starts, strict=True)), default=0)
