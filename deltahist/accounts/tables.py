"""The accounts of a ledger: tables of any database, and the statements of one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    bindparam,
    delete,
    insert,
    select,
    update,
)

#: Seconds to wait for other transactions: many may stand in line, and one of them may look at much data.
PATIENCE = 120.0

#: 64 bits in every database; SQLite calls all its whole numbers INTEGER.
_WHOLE = BigInteger().with_variant(Integer(), "sqlite")

TABLES = MetaData()
_ACCOUNT = Table(
    "account",
    TABLES,
    Column("name", Text, primary_key=True),
    Column("rule", Text, nullable=False),
    sqlite_with_rowid=False,
)
_CHARGE = Table(
    "charge",
    TABLES,
    Column("account", Text, ForeignKey("account.name"), primary_key=True),
    Column("step", _WHOLE, primary_key=True),
    Column("nano", _WHOLE, nullable=False),
    sqlite_with_rowid=False,
)
_FACT = Table(
    "fact",
    TABLES,
    Column("account", Text, ForeignKey("account.name"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
    sqlite_with_rowid=False,
)

_ANSWER = Table(
    "answer",
    TABLES,
    Column("account", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request", Text, nullable=False),
    Column("answer", Text, nullable=False),
    sqlite_with_rowid=False,
)
_ENTRY = Table(
    "entry",
    TABLES,
    Column("account", Text, primary_key=True),
    Column("number", _WHOLE, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("nano", _WHOLE, nullable=False),
    Column("data", LargeBinary, nullable=False),
)

# Statements are made once; only parameters change.
_OF, _KEY, _AT = bindparam("of", type_=Text()), bindparam("key", type_=Text()), bindparam("at", type_=_WHOLE)
_RULES = select(_ACCOUNT.c.name, _ACCOUNT.c.rule)
_RULE = select(_ACCOUNT.c.rule).where(_ACCOUNT.c.name == _OF)
_CHARGES = select(_CHARGE.c.step, _CHARGE.c.nano).where(_CHARGE.c.account == _OF).order_by(_CHARGE.c.step)
_ADD = (
    update(_CHARGE)
    .where(_CHARGE.c.account == _OF, _CHARGE.c.step == _AT)
    .values(nano=_CHARGE.c.nano + bindparam("more"))
)
_FORGET = delete(_CHARGE).where(_CHARGE.c.account == _OF, _CHARGE.c.step <= _AT)
_VALUE = select(_FACT.c.value).where(_FACT.c.account == _OF, _FACT.c.name == _KEY)
#: Tables of what belongs to accounts.
_OWNED = (_CHARGE, _FACT, _ANSWER, _ENTRY)
_CLOSE = (
    *(delete(table).where(table.c.account == _OF) for table in _OWNED),
    delete(_ACCOUNT).where(_ACCOUNT.c.name == _OF),
)
_FACTS = select(_FACT.c.name, _FACT.c.value).where(
    _FACT.c.account == _OF, _FACT.c.name.startswith(_KEY, autoescape=False)
)
_REMOVE = delete(_FACT).where(_FACT.c.account == _OF, _FACT.c.name == _KEY)
_ANSWERED = select(_ANSWER.c.request, _ANSWER.c.answer).where(_ANSWER.c.account == _OF, _ANSWER.c.key == _KEY)
_REQUESTS = select(_ANSWER.c.request).where(_ANSWER.c.account == _OF)
_ENTRIES = (
    select(_ENTRY.c.number, _ENTRY.c.kind, _ENTRY.c.nano, _ENTRY.c.data)
    .where(_ENTRY.c.account == _OF, _ENTRY.c.number > _AT)
    .order_by(_ENTRY.c.number)
)
_DROP = delete(_ENTRY).where(_ENTRY.c.account == _OF, _ENTRY.c.number <= _AT)


class Entry(NamedTuple):
    """An entry of an account's log: kind, billionths, and bytes that its writer alone reads."""

    number: int
    kind: str
    nano: int
    data: bytes


class Accounts:
    """The accounts of a ledger, as one transaction sees and changes them.

    Rules and facts are JSON; charges are whole billionths.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rules(self) -> dict[str, Any]:
        """Return the rule of every account, in the order of names."""
        return {name: json.loads(rule) for name, rule in sorted(map(tuple, self._connection.execute(_RULES)))}

    def rule(self, name: str) -> Any:
        """Return the rule of an account; None if there is no such account."""
        found = self._connection.scalar(_RULE, {"of": name})
        return None if found is None else json.loads(found)

    def open(self, name: str, rule: dict[str, Any]) -> None:
        """Open an account that is not there yet."""
        self._connection.execute(insert(_ACCOUNT), {"name": name, "rule": _text(rule)})

    def close(self, name: str) -> None:
        """Forget an account altogether: for one that nothing was charged to."""
        for statement in _CLOSE:
            self._connection.execute(statement, {"of": name})

    def charges(self, name: str) -> dict[int, int]:
        """Return the billionths charged at each step that is still kept, in the order of steps."""
        return {row.step: row.nano for row in self._connection.execute(_CHARGES, {"of": name})}

    def charge(self, name: str, step: int, nano: int) -> None:
        """Add billionths to the amount charged at a step."""
        added = self._connection.execute(_ADD, {"of": name, "at": step, "more": nano})
        if not added.rowcount:
            self._connection.execute(insert(_CHARGE), {"account": name, "step": step, "nano": nano})

    def forget(self, name: str, step: int) -> None:
        """Keep the charges after a step only."""
        self._connection.execute(_FORGET, {"of": name, "at": step})

    def fact(self, name: str, key: str) -> Any:
        """Return a value that was stored with an account; None if there is none."""
        found = self._connection.scalar(_VALUE, {"of": name, "key": key})
        return None if found is None else json.loads(found)

    def facts(self, name: str, start: str) -> dict[str, Any]:
        """Return the values stored with an account under keys that start with a text (of letters and spaces)."""
        found = self._connection.execute(_FACTS, {"of": name, "key": start})
        return {key: json.loads(value) for key, value in found}

    def store(self, name: str, key: str, value: Any) -> None:
        """Store a value with an account, in the place of an earlier one."""
        self._connection.execute(_REMOVE, {"of": name, "key": key})
        self._connection.execute(insert(_FACT), {"account": name, "name": key, "value": json.dumps(value)})

    def find_answer(self, name: str, key: str) -> tuple[Any, Any] | None:
        """Return the request that was made under a key, and its answer; None if there was none."""
        found = self._connection.execute(_ANSWERED, {"of": name, "key": key}).first()
        return None if found is None else (json.loads(found.request), json.loads(found.answer))

    def keep_answer(self, name: str, key: str, request: Any, answer: Any) -> None:
        """Keep the answer (JSON) to a request under a key that was not used yet."""
        kept = {"account": name, "key": key, "request": json.dumps(request, sort_keys=True)}
        self._connection.execute(insert(_ANSWER), {**kept, "answer": json.dumps(answer)})

    def requests(self, name: str) -> Iterator[Any]:
        """Return all requests of an account that were answered under a key."""
        return map(json.loads, self._connection.scalars(_REQUESTS, {"of": name}))

    def accounts_by_table(self) -> dict[str, set[str]]:
        """Return the accounts that each table has rows of, whether they are there or not."""
        return {
            table.name: set(self._connection.scalars(select(table.c.account).distinct()))
            for table in _OWNED
        }

    def entries(self, name: str, after: int = -1) -> list[Entry]:
        """Return the entries after a number, in order."""
        return [Entry(*row) for row in self._connection.execute(_ENTRIES, {"of": name, "at": after})]

    def enter(self, name: str, entry: Entry) -> None:
        """Keep an entry under a number that was not used yet."""
        self._connection.execute(insert(_ENTRY), {"account": name, **entry._asdict()})

    def drop_entries(self, name: str, upto: int) -> None:
        """Forget entries up to a number."""
        self._connection.execute(_DROP, {"of": name, "at": upto})


def _text(rule: dict[str, Any]) -> str:
    return json.dumps(rule, sort_keys=True)
