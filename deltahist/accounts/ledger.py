"""The ledger, with accounts, their rules, charges that are durable before noise is drawn, and an audit."""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, text, update

from deltahist.accounts.databases import ACCOUNTS, CHARGES, POPULATIONS, find_database
from deltahist.budget import Budget, Charge, Population, ceil_nano, floor_nano, format_amount, read_amount
from deltahist.errors import NANO, BudgetExceeded, DamagedFile, InputError, check_whole
from deltahist.laws import Guarantee
from deltahist.preprocessing import normalize_name
from deltahist.space.neighbourhood import Limit as DistanceLimit, describe_limits, limits_of, read_lasting

#: Prefixes of note keys: one for the state of a chain of releases, one for the withdrawal of a release.
CHAIN, WITHDRAWN = "chain ", "withdrawn "

_fellows = ACCOUNTS.alias()
#: Selects an account's row, its population's rule and spending (in the account's unit), and the last step charged. The
#: query is built only once, since building it takes as long as running it.
_ACCOUNT = (
    select(
        ACCOUNTS,
        POPULATIONS.c.rule.label("bound"),
        select(func.sum(_fellows.c.spent))
        .where(_fellows.c.population == ACCOUNTS.c.population, _fellows.c.unit == ACCOUNTS.c.unit)
        .scalar_subquery()
        .label("together"),
        select(func.max(CHARGES.c.step)).where(CHARGES.c.account == ACCOUNTS.c.name).scalar_subquery().label("last"),
    )
    .join(POPULATIONS, POPULATIONS.c.name == ACCOUNTS.c.population)
    .where(ACCOUNTS.c.name == bindparam("account"))
)

#: Builds each SQL statement only once, since building it takes as long as running it.
_prepare_sql = functools.cache(text)


def check_text(**given: Any) -> str:
    """Return the only argument, normalised. Raises InputError unless it has 1 to 200 printable characters."""
    (name,), normal = given, normalize_name(**given)
    if len(normal) > 200 or not normal.isprintable():
        raise InputError(f"{name} is {normal[:80]!r}: it must have at most 200 printable characters")
    return normal


@contextlib.contextmanager
def _refuse_damage(what: str, kept: Any) -> Iterator[None]:
    try:
        yield
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as problem:
        raise DamagedFile(f"the ledger is damaged: {what} {str(kept)[:80]}: {problem!r}") from None


@dataclass(frozen=True)
class Rule:
    """The limits of an account: how many billionths each span of consecutive steps may spend.

    A total limits the sum of all steps. A window limits every span of `length` steps, and may also limit longer spans.

    unit : "epsilon" or "rho". limit : billionths that a window, or all steps together, may spend.
    length : number of steps in a window; None for a total. longer : longer spans, with limits as multiples of `limit`.
    """

    unit: str
    limit: int
    length: int | None = None
    longer: tuple[DistanceLimit, ...] = ()

    @classmethod
    def from_budget(
        cls, epsilon: Any = None, rho: Any = None, length: Any = None, limits: Iterable[tuple[Any, Any]] = ()
    ) -> Rule:
        """Return the rule with a limit of `epsilon` or `rho`."""
        length = None if length is None else check_whole(length=length)
        unit = Budget(epsilon, rho).unit
        limit = floor_nano(**{unit: epsilon if rho is None else rho})
        if limit < (length or 1):
            raise InputError(f"{unit} is {limit / NANO:g}: it must be at least a billionth for each step")
        return cls(unit, limit, length, read_lasting(limits, length))

    @classmethod
    def from_description(cls, kept: Mapping[str, Any]) -> Rule:
        """Return the rule that a ledger stores. Raises DamagedFile unless it describes a total or a window."""
        with _refuse_damage("an account has the rule", kept):
            unit = "epsilon" if "epsilon_nano" in kept else "rho"
            longer = read_lasting(limits_of(kept.get("limits", [])), kept.get("length"))
            return cls(unit, kept[f"{unit}_nano"], kept.get("length"), longer)

    def describe(self) -> dict[str, Any]:
        """Return the rule as the JSON that a ledger stores."""
        return {
            **({"kind": "total"} if self.length is None else {"kind": "window", "length": self.length}),
            f"{self.unit}_nano": self.limit,
            **({"limits": describe_limits(self.longer)} if self.longer else {}),
        }

    @property
    def spans(self) -> tuple[tuple[int | None, int], ...]:
        """Lengths of the limited spans of steps (None for all steps), and the billionths that each may spend."""
        further = (
            (None if each.any else int(each.distance), math.floor(self.limit * each.factor)) for each in self.longer
        )
        return (self.length, self.limit), *further

    @property
    def total_limit(self) -> int | None:
        """The billionths that all steps together may ever spend; None if only windows have limits."""
        return dict(self.spans).get(None)

    @property
    def equal_share(self) -> Fraction:
        """The most that every step can spend forever, to the billionth. Raises InputError if the total is limited."""
        if self.total_limit is not None:
            most = f"{self.total_limit / NANO:g} {self.unit}"
            raise InputError(f"the limits allow {most} in total, so no equal share exists: set each step's amount")
        return Fraction(min(limit // (length or 1) for length, limit in self.spans), NANO)

    def make_charge(self, account: str, amount: Any) -> Charge:
        """Return the charge for an amount (a number, guarantee or budget), rounded up to billionths."""
        if isinstance(amount, Budget):
            amount = amount.guarantee
        elif not isinstance(amount, Guarantee):
            amount = Guarantee(**{self.unit: read_amount(amount=amount)})
        if not (own := getattr(amount, self.unit)):
            rule = "use an account in rho for Gaussian noise, and one in epsilon for Laplace noise"
            raise InputError(f"account {account!r} is in {self.unit}, but the amount is not: {rule}")
        return Charge(Fraction(ceil_nano(amount=own), NANO), self.unit)


class Ledger:
    """A set of accounts in one database. Every change is a durable transaction.

    A charge is on disk before its transaction ends: SQLite uses BEGIN IMMEDIATE and synchronous EXTRA, and PostgreSQL
    uses a lock and a synchronous commit. If a process is killed, it has already charged for all noise that it released.

    Parameters
    ----------
    where : path, "sqlite:///city.db" or "postgresql://user:password@host/city". A missing ledger is created. PostgreSQL
        requires the extra "postgresql", and stores the ledger in the schema `deltahist`. If None, it is in memory.

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
        if not self._database.has_ledger():
            self._database.create_ledger()
        self._database.check_ledger()

    def __repr__(self) -> str:
        return f"Ledger({self.place!r})"

    def __reduce__(self) -> Any:
        if self._where is None:
            raise InputError("the ledger is in memory, so a copy could spend its budget twice: use a file")
        return Ledger, (self._where,)

    @classmethod
    def exists(cls, where: str | Path) -> bool:
        """Return whether there is a ledger at a path or URL, without creating one."""
        return find_database(where).has_ledger()

    @classmethod
    def name_of(cls, where: str | Path) -> str:
        """Return the path or URL without a password."""
        return find_database(where).place

    @property
    def path(self) -> Path | None:
        """The file; None if the ledger is not in a file."""
        return self._database.path

    @property
    def place(self) -> str:
        """The path or URL, without a password."""
        return self._database.place

    def transaction(self) -> contextlib.AbstractContextManager[Connection]:
        """Begin an exclusive write to any table. It commits when the block ends, and rolls back if the block raises."""
        return self._database.begin_transaction(write=True)

    def read(self) -> contextlib.AbstractContextManager[Connection]:
        """Begin a consistent read of the ledger."""
        return self._database.begin_transaction(write=False)

    def open(
        self,
        account: str,
        epsilon: float | Fraction | None = None,
        *,
        rho: float | Fraction | None = None,
        population: str | None = None,
        population_limit: float | Fraction | None = None,
    ) -> None:
        """Open an account with a lifetime limit, or check that it already has exactly this limit.

        Parameters
        ----------
        account : name of the account, at most 200 printable characters.
        epsilon, rho : limit of the account, rounded down to billionths. Give only one.
        population : name of the group of people whom the account is about; "everyone" when None.
        population_limit : what all accounts of the population may ever spend together, in the same unit.
        """
        rule = Rule.from_budget(epsilon, rho)
        both: dict[str, Any] = {rule.unit: population_limit}
        bound = None if population_limit is None else Rule.from_budget(**both)
        with self.transaction() as connection:
            open_account(connection, check_text(account=account), rule.describe(), population, bound)

    def charge(self, account: str, amount: float | Fraction | Guarantee | Budget, *, key: str | None = None) -> Charge:
        """Charge an amount durably, and return the charge, which is the budget for one release.

        Charge before drawing noise: `publish(counts, near, epsilon=ledger.charge("city", 0.1))`.

        Parameters
        ----------
        amount : a number in the account's unit, a guarantee or a budget. It is rounded up to billionths.
        key : name of the release to pay for. Calls with the same key and amount charge only once. Without a key,
            every call charges.

        Raises BudgetExceeded, and charges nothing, if the account or its population has too little left. If the server
        fails during the commit, charge again with the same key.
        """
        key = None if key is None else check_text(key=key)
        with self.transaction() as connection:
            row = find_account(connection, account := check_text(account=account))
            rule = read_rule(row, "total")
            charge = rule.make_charge(account, amount)
            known = None
            if key is not None:
                keyed = _prepare_sql("SELECT nano FROM charges WHERE account = :account AND key = :key")
                known = connection.scalar(keyed, {"account": account, "key": key})
            if known is None:
                charge_account(connection, row, rule, charge.nano, key=key)
            elif known != charge.nano:
                was, now = (f"{nano / NANO:.10g}" for nano in (known, charge.nano))
                raise InputError(f"key {key!r} charged {was} to {account!r} before, not {now}: use a different key")
        return charge

    def spent(self, account: str) -> Fraction:
        """Return what an account has spent so far, or in its last window."""
        return self.read_standing(account).spent

    def left(self, account: str) -> Fraction:
        """Return what an account may still spend."""
        return self.read_standing(account).left

    def read_standing(self, account: str) -> Standing:
        """Return the unit, limits and spending of an account and its population."""
        with self.read() as connection:
            return Standing.read(connection, check_text(account=account))

    def list_standings(self) -> list[Standing]:
        """Return the standings of all accounts, read at one moment."""
        with self.read() as connection:
            return [Standing.read(connection, name) for name in list_accounts(connection)]

    def list_accounts(self) -> dict[str, dict[str, Any]]:
        """Return the rules of all accounts, by name."""
        with self.read() as connection:
            return list_accounts(connection)

    def list_charges(self, account: str) -> dict[int, int]:
        """Return the billionths charged at each step, sorted by step."""
        with self.read() as connection:
            return list_charges(connection, check_text(account=account))

    def find_problems(self) -> list[str]:
        """Audit the ledger without changing it, and return any problems."""
        self._database.check_ledger(thorough=True)
        with self.read() as connection:
            return list(_audit_accounts(connection))


def find_account(connection: Connection, account: str) -> Any:
    """Return the row of an account. Raises InputError if there is none."""
    row = connection.execute(_ACCOUNT, {"account": account}).first()
    if row is None:
        names = ", ".join(map(repr, list_accounts(connection)))
        raise InputError(f"account {account!r} does not exist: open it first" + (names and f"; there are {names}"))
    return row


def read_rule(row: Any, *kinds: str) -> Rule:
    """Return the rule of an account's row. Raises InputError if the account's kind is not in `kinds`."""
    kind = row.rule.get("kind") if isinstance(row.rule, dict) and isinstance(row.notes, dict) else None
    if kind not in kinds:
        raise InputError(f"account {row.name!r} has kind {kind!r}: its kind must be {' or '.join(kinds)}")
    return Rule.from_description(row.rule)


def list_accounts(connection: Connection) -> dict[str, dict[str, Any]]:
    """Return the rules of all accounts, sorted by name."""
    rows = connection.execute(select(ACCOUNTS.c.name, ACCOUNTS.c.rule)).all()
    return {row.name: row.rule for row in sorted(rows, key=lambda row: row.name)}


def list_charges(connection: Connection, account: str) -> dict[int, int]:
    """Return the billionths charged at each step, sorted by step."""
    steps = select(CHARGES.c.step, func.sum(CHARGES.c.nano)).where(CHARGES.c.account == account)
    rows = connection.execute(steps.group_by(CHARGES.c.step).order_by(CHARGES.c.step)).all()
    return {step: int(nano) for step, nano in rows}


def open_account(
    connection: Connection, account: str, rule: dict[str, Any], population: str | None = None, bound: Rule | None = None
) -> Any:
    """Open an account with a JSON rule, and return the row. Raises InputError if the account has another rule.

    A new account belongs to `population`, or to "everyone" if that is None. `bound` is the limit of a new population.
    """
    row = connection.execute(_ACCOUNT, {"account": account}).first()
    people = "everyone" if row is None else row.population
    if population is not None:
        people = check_text(population=population)
    if row is not None:
        check_same_rule(account, {**row.rule, "population": row.population}, {**rule, "population": people})
    known = None if row is None else row.bound
    if row is None:
        known = connection.scalar(select(POPULATIONS.c.rule).where(POPULATIONS.c.name == people))
    if known is None:
        known = {} if bound is None else bound.describe()
        connection.execute(insert(POPULATIONS), {"name": people, "rule": known})
    elif bound is not None:
        check_same_rule(f"of population {people!r}", known, bound.describe())
    if row is not None:
        return row
    own = None if rule["kind"] == "purses" else Rule.from_description(rule)
    limited = Rule.from_description(known).unit if known else None
    if limited is not None and (own is None or own.unit != limited):
        raise InputError(f"population {people!r} has a limit in {limited}: each of its accounts must use {limited}")
    values = {"name": account, "population": people, "unit": rule["unit"] if own is None else own.unit}
    values |= {"share": own and own.limit, "most": own and own.total_limit, "spent": 0, "rule": rule, "notes": {}}
    connection.execute(insert(ACCOUNTS), values)
    return find_account(connection, account)


def check_same_rule(account: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise InputError, which lists the differences, if an account was opened with another rule."""
    if differing := describe_differences(before, json.loads(json.dumps(now))):
        raise InputError(f"account {account!r} was opened with other parameters ({differing}): use the original ones")


def charge_account(
    connection: Connection, row: Any, rule: Rule, nano: int, step: int = 0, key: str | None = None, once: bool = False
) -> Fraction:
    """Charge an account in a transaction. Return its spending in the window or in total. Raises BudgetExceeded."""
    account, last = row.name, row.last
    if None not in (rule.length, last) and (step < last or (once and step == last)):
        raise InputError(f"step is {step}, but step {last} has already been charged: steps must not decrease")
    limits = list_limits(connection, row, rule, step)
    for limit in limits:
        if limit.spent + Fraction(nano, NANO) > limit.most:
            at = "" if rule.length is None else f" at step {step}"
            raise BudgetExceeded(f"amount is {nano / NANO:.10g}{at}: {limit}")
    if nano:
        spend = _prepare_sql("UPDATE accounts SET spent = spent + :nano WHERE name = :account")
        connection.execute(spend, {"account": account, "nano": nano})  # the table refuses sums above the limit
        connection.execute(insert(CHARGES), {"account": account, "step": step, "nano": nano, "key": key})
    return limits[0].spent + Fraction(nano, NANO)


@dataclass(frozen=True)
class Limit:
    """A limit on the spending of `steps` consecutive steps, or of all steps if None, and what they have spent."""

    subject: str
    steps: int | None
    spent: Fraction
    most: Fraction

    @property
    def left(self) -> Fraction:
        """The amount that may still be spent."""
        return self.most - self.spent

    def __str__(self) -> str:
        spent, most, left = (format_amount(each, self.most) for each in (self.spent, self.most, self.left))
        return f"{self.subject} spent {spent} of {most}, {left} is left"


def list_limits(connection: Connection, row: Any, rule: Rule, step: int) -> list[Limit]:
    """Return the limits on a charge at a step: first the account's `Rule.spans`, in order, then its population's."""
    limits = []
    for length, most in rule.spans:
        subject, spent = f"account {row.name!r} has", row.spent
        if length is not None:
            subject = f"steps {step - length + 1} to {step} have"
            sums = _prepare_sql(
                "SELECT sum(nano) FROM charges WHERE account = :account AND step > :after AND step <= :upto"
            )
            spent = int(connection.scalar(sums, {"account": row.name, "after": step - length, "upto": step}) or 0)
        limits.append(Limit(subject, length, Fraction(spent, NANO), Fraction(most, NANO)))
    if row.bound:
        subject, most = f"all accounts of population {row.population!r} have", Rule.from_description(row.bound).limit
        limits.append(Limit(subject, None, Fraction(int(row.together), NANO), Fraction(most, NANO)))
    return limits


def sum_population(connection: Connection, people: str) -> Population:
    """Return what all accounts of a population have spent, and may spend, together."""
    both = select(ACCOUNTS, POPULATIONS.c.rule.label("bound")).join(POPULATIONS)
    every = connection.execute(both.where(ACCOUNTS.c.population == people)).all()
    rows, sums = [row for row in every if row.share is not None], []  # people's own budgets have no share
    for unit in sorted({row.unit for row in rows}):
        own = [row for row in rows if row.unit == unit]
        most = None if any(row.most is None for row in own) else sum(row.most for row in own)
        share = sum(row.share for row in own)
        if own[0].bound:
            limit = Rule.from_description(own[0].bound).limit
            most, share = min(limit, limit if most is None else most), min(limit, share)
        figures = (sum(row.spent for row in own), most, share)
        sums.append((unit, *(None if each is None else Fraction(each, NANO) for each in figures)))
    return Population(people, len(rows), tuple(sums), len(rows) < len(every))


@dataclass(frozen=True)
class ChainCharge:
    """The charge for a chain of releases, and the state that it paid to refine. Each state can be refined only once.

    The charge is used up when the next state is written. Until then, another attempt may refine the same state without
    paying again, because no noise was released.

    nano : billionths charged so far; 0 if the chain is unknown.
    source : token of the state that was refined last; None if the chain begins here.
    token : token of the state made from `source`; None until that state is written.
    """

    nano: int = 0
    source: str | None = None
    token: str | None = None

    def after_charge(self, nano: int, token: str | None, source: str | None, chain: str) -> ChainCharge:
        """Return the charge after paying to refine the state `token`, which was made from `source`."""
        self._check_last(token, source, chain)
        return ChainCharge(max(nano, self.nano), token, None)

    def after_writing(self, token: str, source: str | None, chain: str) -> ChainCharge:
        """Return the charge after the state `token`, made from `source`, has been written."""
        self._check_last(token, source, chain)
        # If the last charge was for refining this very state, the next state has not been written yet.
        return self if self.token is None and token == self.source else ChainCharge(self.nano, source, token)

    def _check_last(self, token: str | None, source: str | None, chain: str) -> None:
        """Raise InputError unless a state is the last of the chain, or the first one made since the last charge."""
        last = token == self.token if self.token is not None else token == self.source or source == self.source
        if self.nano and not last:
            said = "no noise was drawn and nothing was charged, so use the last state of the chain"
            raise InputError(f"this state of chain {chain} has been used already: {said}")


def read_chain(connection: Connection, account: str, chain: str) -> ChainCharge:
    """Return the charge of a chain, or an empty charge if the account has no such chain."""
    note = get_note(connection, account, CHAIN + chain)
    with _refuse_damage(f"chain {chain} has the note", note):
        return ChainCharge(**(note or {}))


def get_note(connection: Connection, account: str, key: str) -> Any:
    """Return an account's note, as JSON, or None if it has none."""
    row = connection.execute(_ACCOUNT, {"account": account}).first()
    return None if row is None else row.notes.get(key)


def set_note(connection: Connection, account: str, key: str, value: Any) -> None:
    """Store a JSON note on an account, replacing any earlier note with the same key."""
    notes = {**find_account(connection, account).notes, key: value}
    connection.execute(update(ACCOUNTS).where(ACCOUNTS.c.name == account).values(notes=notes))


def describe_differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> str:
    """Describe the differences between two rules. The text is empty if they are equal."""
    out = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        # Compare JSON strings, because 1, 1.0 and True are equal in Python.
        if json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True):
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            out.append(describe_differences(old, new, f"{prefix}{key}."))
        else:
            was, now_is = (f"{v / NANO:.9g}" if key.endswith("_nano") and v else json.dumps(v)[:80] for v in (old, new))
            out.append(f"{prefix}{key.removesuffix('_nano')} was {was}, is {now_is}")
    return ", ".join(out)


@dataclass(frozen=True)
class Standing:
    """An account's limits and what it has spent. Both are public, like budgets.

    account : name. kind : "total", "window", or "purses" (people's own budgets, which are private).
    unit : "epsilon" or "rho".
    population : what all accounts of the same people have spent together.
    spans : limits of the account, in the order of `Rule.spans`. binding : the limit with the least left.
    withdrawn : notices of withdrawn releases that the account paid for. Their cost is not refunded.
    """

    account: str
    kind: str
    unit: str
    population: Population
    spans: tuple[Limit, ...] = ()
    binding: Limit | None = None
    withdrawn: tuple[dict[str, Any], ...] = ()

    @classmethod
    def read(cls, connection: Connection, name: str) -> Standing:
        """Read the standing of an account."""
        row = find_account(connection, name)
        people = sum_population(connection, row.population)
        if isinstance(row.rule, dict) and row.rule.get("kind") == "purses":
            return cls(name, "purses", row.unit, people)
        rule = read_rule(row, "total", "window")
        limits = list_limits(connection, row, rule, row.last or 0)
        binding = min(limits, key=lambda each: each.left)
        withdrawn = tuple(notice for key, notice in row.notes.items() if key.startswith(WITHDRAWN))
        return cls(name, row.rule["kind"], rule.unit, people, tuple(limits[: len(rule.spans)]), binding, withdrawn)

    @property
    def limit(self) -> Fraction:
        """What the account may spend in total, or in a window."""
        return self._own.most

    @property
    def spent(self) -> Fraction:
        """What the account has spent in total, or in its last window."""
        return self._own.spent

    @property
    def left(self) -> Fraction:
        """The amount that may still be spent under all limits."""
        return (self.binding or self._own).left

    @property
    def _own(self) -> Limit:
        if not self.spans:
            raise InputError(f"account {self.account!r} contains people's own budgets: their spending is private")
        return self.spans[0]

    def describe(self) -> dict[str, Any]:
        """Return the standing as JSON, omitting the figures of people's own budgets."""
        about: dict[str, Any] = {"account": self.account, "kind": self.kind, "unit": self.unit}
        about["population"] = self.population.describe()
        if self.spans:
            own, *longer = (
                {"steps": each.steps, "limit": float(each.most), "spent": float(each.spent)} for each in self.spans
            )
            about |= own | {"left": float(self.left), "lasting": longer, "withdrawn": list(self.withdrawn)}
        return about


def _audit_accounts(connection: Connection) -> Iterator[str]:
    """Yield a line for each fault in a ledger."""
    owners = connection.scalars(select(CHARGES.c.account).distinct()).all()
    accounts = list_accounts(connection)
    for name in sorted(set(owners) - accounts.keys()):
        yield f"there are charges to account {name!r}, which does not exist"
    for name in accounts:
        try:
            standing = Standing.read(connection, name)
            if standing.kind != "purses":
                yield from _audit_charges(connection, standing)
        except InputError as problem:
            yield str(problem)


def _audit_charges(connection: Connection, standing: Standing) -> Iterator[str]:
    name, row = standing.account, find_account(connection, standing.account)
    subject, charges, rule = f"account {name!r}", list_charges(connection, name), Rule.from_description(row.rule)
    if sum(charges.values()) != row.spent:
        yield f"{subject} has spent {row.spent / NANO:.10g}, but its charges sum to {sum(charges.values()) / NANO:.10g}"
    if (row.share, row.most, row.unit) != (rule.limit, rule.total_limit, rule.unit):
        yield f"{subject} has limits that differ from its rule"
    if row.bound and row.together > Rule.from_description(row.bound).limit:
        yield f"population {row.population!r} has spent {row.together / NANO:.10g}, more than its limit"
    for limit in standing.spans:
        most = Fraction(_find_largest_sum(charges, limit.steps), NANO)
        if most > limit.most:
            steps = "" if limit.steps is None else f" in {limit.steps:,} steps in a row"
            yield f"{subject} has spent {float(most):.10g}{steps}, more than its limit, {float(limit.most):.10g}"
    chains = (key.removeprefix(CHAIN) for key in row.notes if key.startswith(CHAIN))
    paid = sum(read_chain(connection, name, chain).nano for chain in chains)
    if paid > row.spent:
        yield f"{subject} has spent {row.spent / NANO:.10g}, but its chains have paid {paid / NANO:.10g}"


def _find_largest_sum(charges: dict[int, int], length: int | None) -> int:
    """Return the largest sum of `length` consecutive steps, or the sum of all steps if that is None."""
    steps, sums = list(charges), [0, *itertools.accumulate(charges.values())]
    if length is None:
        return sums[-1]
    starts = (bisect.bisect_right(steps, step - length) for step in steps)
    return max((end - sums[start] for end, start in zip(sums[1:], starts, strict=True)), default=0)
