"""Databases with records of people: their numbers by name, queries of their tables, and new records."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from numbers import Integral
from operator import index
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError, one_of, whole
from deltahist.personal.engine import Engine, Session, open_engine, quote, unbound
from deltahist.personal.query import OWNER, Query, check_names, free_name
from deltahist.personal.values import DTYPES, as_arrow, check_column, kind_of, readable_columns

#: Tables of the numbers of persons, of the persons who are coming, and of the tables that hold numbers themselves.
_PERSON, _COMING, _RECORDS = "deltahist_person", "deltahist_coming", "deltahist_records"
#: The table of the account that these numbers are for, of the state of the register, and of the coming state.
_ACCOUNT = "deltahist_account"
_TABLES = (
    f"CREATE TABLE IF NOT EXISTS {_PERSON} (name TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE)",
    f"CREATE TABLE IF NOT EXISTS {_RECORDS} (name TEXT PRIMARY KEY, owner TEXT NOT NULL)",
    f"CREATE TABLE IF NOT EXISTS {_COMING} (name TEXT NOT NULL, number INTEGER NOT NULL)",
    f"CREATE TABLE IF NOT EXISTS {_ACCOUNT} (token TEXT PRIMARY KEY, state TEXT, coming TEXT)",
)
_SQL = {"truth": "BOOLEAN", "whole": "BIGINT", "number": "DOUBLE PRECISION", "text": "TEXT", "time": "TIMESTAMP",
        "date": "DATE"}  # fmt: skip
#: Persons are numbers of 31 bits where they are stored.
_MOST_PERSONS = (1 << 31) - 1


class DatabaseStanding(NamedTuple):
    """The account of a database: its token, the state of its register, and the coming state."""

    account: str | None = None
    state: str | None = None
    coming: str | None = None


class Database:
    """A database with records of people. Private: it fetches data.

    >>> import pandas as pd
    >>> database = Database.open(":memory:")
    >>> database.register(["ann", "bob"], 0)
    >>> database.create_records("visits", {"place": "text"}, owner="person")
    >>> database.insert("visits", pd.DataFrame({"person": ["ann", "bob", "ann"], "place": ["bar", "bar", "zoo"]}))
    3
    >>> bars = database.query("visits", "person").where("place = 'bar'")
    >>> with database.snapshot() as look:
    ...     look.fetch(bars.rows()).to_pydict()
    {'_person': [0, 1]}
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        with engine.change() as change:
            for statement in _TABLES:
                change.execute(statement)

    @classmethod
    def open(cls, where: Any) -> Database:
        """Open a database by path, address ("postgresql://user@host/city"), or DuckDB connection.

        Raises InputError if it is not there, does not answer, or its libraries are not installed.
        """
        engine = open_engine(where)
        if not engine.has_transactions:
            engine.close()
            raise InputError(
                f"the database {engine.name} has no transactions, which questions about people need: take DuckDB or "
                "PostgreSQL; maps are counted by count_file"
            )
        return cls(engine)

    def close(self) -> None:
        """Close what was opened."""
        self._engine.close()

    def snapshot(self) -> AbstractContextManager[Session]:
        """Open one consistent look at the database, whatever is written meanwhile."""
        return self._engine.snapshot()

    @property
    def standing(self) -> DatabaseStanding:
        """The account in which its persons have their budgets."""
        found = self._fetch(unbound(_ACCOUNT, {"token": "string", "state": "string", "coming": "string"}))
        return min((DatabaseStanding(*row.values()) for row in found.to_pylist()), default=DatabaseStanding())

    def belong_to(self, account: str) -> None:
        """Keep the token of the account in which its persons have their budgets."""
        import pyarrow as pa

        with self._engine.change() as change:
            change.append(_ACCOUNT, pa.table({"token": pa.array([account], pa.string())}))

    def announce(self, names: Sequence[str], numbers: NDArray[np.int64], state: str | None) -> None:
        """Keep the names and numbers (m,) of coming persons, in the place of others who were coming.

        With them comes a state of the register, in hexadecimal digits.
        """
        import pyarrow as pa

        rows = pa.table({"name": pa.array(names, pa.string()), "number": pa.array(numbers, pa.int32())})
        with self._engine.change() as change:
            change.execute(f"DELETE FROM {_COMING}")
            change.append(_COMING, rows)
            change.execute(f"UPDATE {_ACCOUNT} SET coming = " + ("NULL" if state is None else f"'{state}'"))

    def settle(self) -> None:
        """Register the coming persons."""
        with self._engine.change() as change:
            change.execute(f"INSERT INTO {_PERSON} SELECT name, number FROM {_COMING}")
            change.execute(f"DELETE FROM {_COMING}")
            change.execute(f"UPDATE {_ACCOUNT} SET state = COALESCE(coming, state), coming = NULL")

    def register(self, names: Sequence[str], first: int) -> None:
        """Register persons under the numbers from `first` on; a person who has the same number already keeps it.

        Raises InputError if a name is empty or repeats, or has another number.
        """
        listed = check_different(read_names(names))
        first = whole(least=0, first=first)
        if first + len(listed) > _MOST_PERSONS:
            raise InputError(f"first is {first}: there can be {_MOST_PERSONS:,} persons")
        given = np.arange(first, first + len(listed), dtype=np.int64)
        known = self.numbers(listed)
        wrong = np.flatnonzero((known >= 0) & (known != given))
        if len(wrong):
            raise InputError(f"person {listed[wrong[0]]!r} is registered already: a name is one person's")
        fresh = known < 0
        self.announce([name for name, is_new in zip(listed, fresh, strict=True) if is_new], given[fresh], None)
        self.settle()

    def numbers(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the numbers (m,) of persons by name; -1 for persons who are not registered."""
        import ibis
        import pyarrow as pa

        listed = read_names(names)
        out = np.full(len(listed), -1, dtype=np.int64)
        if listed:
            at = pa.array(np.arange(len(listed)), pa.int64())
            asked = ibis.memtable(pa.table({"at": at, "name": pa.array(listed, pa.string())}))
            found = self._fetch(asked.inner_join(_persons(), "name")[["at", "number"]])
            out[found["at"].to_numpy()] = found["number"].to_numpy()
        return out

    def persons(self) -> tuple[list[str], NDArray[np.int64]]:
        """Return the names and numbers (m,) of all who are registered."""
        found = self._fetch(_persons())
        return found["name"].to_pylist(), found["number"].to_numpy().astype(np.int64)

    def strangers(self, table: str, owner: str) -> list[str]:
        """List the owners of a table's records who are not registered and can be, in the order of their names.

        Raises InputError if there is no such table or column.
        """
        schema = self._engine.schema(table)
        if self._owner_of(table) is not None:  # it holds nobody else's records
            return []
        check_column(owner, schema.names)
        owners = unbound(table, schema)[[owner]].distinct()
        owners = owners.select(name=owners[owner].cast("string")).distinct()
        owners = owners.filter(owners["name"].notnull() & (owners["name"] != ""))
        found = self._fetch(owners.anti_join(_persons(), "name"))["name"].to_pylist()
        # DuckDB holds texts that are no names: to refuse one would stop every question, and quote a record.
        return sorted(name for name in found if "\0" not in name)

    def query(self, table: str, owner: str, place: Sequence[str] = ()) -> Query:
        """Return a query of all records of a table or view, "visits" or "part.visits".

        The column of the owner says whose a record is; records of persons who are not registered are left out. Moves
        within δ change the columns of the place. Raises InputError if there is no such table or column.
        """
        schema = self._engine.schema(table)
        records = unbound(table, schema)
        kept = self._owner_of(table)
        if kept is not None:
            one_of((kept,), owner=owner)
            names = [name for name in schema if name != OWNER]
            check_names(names)
        else:
            check_names(schema.names)
            check_column(owner, schema.names)
            kind = schema[owner]
            if not (kind.is_string() or kind.is_integer() or kind.is_uuid()):
                raise InputError(f"owner is {owner!r}, of type {kind}: it must hold text, whole numbers or UUIDs")
            key = free_name("name", schema)
            persons = _persons().rename({key: "name", OWNER: "number"})
            records = records.inner_join(persons, records[owner].cast("string") == persons[key])
            names = [name for name in schema if name != owner]
        readable = readable_columns(records, self._engine)
        columns = {name: readable[name] for name in names if name in readable}
        for name in place:
            check_column(name, columns)
        where = frozenset(place)
        made = records.select(**{OWNER: records[OWNER]}, **columns)
        return Query(made, placed=where, untouched=where, source=(table, owner, where))

    def create_records(self, table: str, columns: Mapping[str, str], owner: str) -> None:
        """Make a table of records that holds the numbers of persons itself: queries of it need no join.

        Kinds of columns are "truth", "whole", "number", "text", "time" (of UTC) or "date". The owner is the column of
        the persons' names in the frames to insert; the names are not kept in the table. Raises InputError if there is
        such a table, or a column's name or kind is none.
        """
        import pyarrow as pa

        check_names([table])
        check_names([owner, *columns])
        for kind in columns.values():
            one_of(tuple(_SQL), kind=kind)
        if not columns:
            raise InputError(f"table {table!r} has no columns: give at least one")
        if self.has_table(table):
            raise InputError(f"table {table!r} is there already: take another name")
        made = ", ".join(f"{quote(name)} {_SQL[kind]}" for name, kind in columns.items())
        with self._engine.change() as change:
            change.execute(f"CREATE TABLE {quote(table)} ({quote(OWNER)} INTEGER NOT NULL, {made})")
            change.append(_RECORDS, pa.table({"name": [table], "owner": [owner]}))

    def has_table(self, table: str) -> bool:
        """Return whether there is a table or view of this name."""
        with contextlib.suppress(InputError):
            self._engine.schema(table)
            return True
        return self._owner_of(table) is not None

    def insert(self, table: str, frame: Any) -> int:
        """Add records to a table that `create_records` made, all or none, and return their number.

        The pandas frame has the table's columns and that of the owners' names, in any order. Raises InputError if an
        owner is not registered, or columns are missing, unknown or of another kind.
        """
        import pandas as pd
        import pyarrow as pa

        owner = self._owner_of(table)
        if owner is None:
            raise InputError(
                f"table {table!r} was not made by create_records: its records come in by other ways"
            )
        schema = self._engine.schema(table)
        kinds = {name: str(kind_of(dtype)) for name, dtype in schema.items() if name != OWNER}
        if set(frame.columns) != {owner, *kinds}:
            raise InputError(
                f"records have the columns {sorted(map(str, frame.columns))}: table {table!r} takes "
                f"{sorted([owner, *kinds])}"
            )
        names = frame[owner]
        # Whole numbers with gaps are floats in pandas: the error about floats comes first.
        name_owners(names.dropna())
        if names.isna().any():
            missing = int(names.isna().sum())
            raise InputError(
                f"{missing:,} of {len(names):,} records have no {owner!r}: each must have an owner"
            )
        codes, different = pd.factorize(names)
        numbers = self.numbers(name_owners(different))[codes]
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            raise InputError(
                f"{len(unknown):,} of {len(names):,} records are of persons who are not registered, such as "
                f"{str(names.iloc[unknown[0]])!r}: they join first; no record was inserted"
            )
        columns = {OWNER: pa.array(numbers, pa.int32())}
        for name, kind in kinds.items():
            columns[name] = _cast(as_arrow(frame[name], name), name, kind)
        with self._engine.change() as change:
            change.append(table, pa.table(columns))
        return len(names)

    def _fetch(self, expression: Any) -> Any:
        with self.snapshot() as look:
            return look.fetch(expression)

    def _owner_of(self, table: str) -> str | None:
        """Return the name of the owners' column of a table of `create_records`; None for other tables."""
        found = self._fetch(unbound(_RECORDS, {"name": "string", "owner": "string"})).to_pydict()
        return dict(zip(found["name"], found["owner"], strict=True)).get(table)


def _persons() -> Any:
    """Return the table of names and numbers."""
    return unbound(_PERSON, {"name": "string", "number": "int32"})


def _cast(column: Any, name: str, kind: str) -> Any:
    """Cast an Arrow column of a frame to the kind that a table holds."""
    import ibis
    import pyarrow as pa

    own = "null" if pa.types.is_null(column.type) else kind_of(ibis.dtype(column.type))
    fits = {"number": ("number", "whole"), "time": ("time", "date")}.get(kind, (kind,))
    try:
        if own in (*fits, "null"):
            return column.cast(ibis.dtype(DTYPES[kind]).to_pyarrow())
        if (own, kind) == ("number", "whole"):  # whole numbers with gaps are floats in pandas
            return column.cast(pa.int64())
    except pa.ArrowInvalid:
        own = "values that do not fit"
    cure = f"; read it by pandas.to_datetime(frame[{name!r}])" if own == "text" and kind in ("time", "date") else ""
    raise InputError(f"records have {name!r} of the kind {own!r}: the table holds {kind!r}{cure}")


def name_owners(owners: Any) -> list[str]:
    """Return the names of owners, a series or array without gaps, as databases have them.

    A text is its own name, a whole number its decimal digits, and a UUID its lower-case form with hyphens. Anything
    else is refused: Decimal("1"), 1.0, True and b"1" would be other persons than 1.

    >>> name_owners(np.array([7, 8]))
    ['7', '8']
    """
    # Arrays of NumPy that are no objects would give times as whole numbers.
    listed = list(owners) if getattr(owners.dtype, "kind", "") in "mM" else owners.tolist()
    for kind in dict.fromkeys(map(type, listed)):
        if not issubclass(kind, str | Integral | UUID) or issubclass(kind, bool | np.timedelta64):
            wrong = next(owner for owner in listed if type(owner) is kind)
            raise InputError(
                f"an owner is {wrong!r}, of type {kind.__name__}: it must be text, a whole number or a UUID, since one "
                "person would be two by two ways of writing; turn the column into one of these first "
                '(astype("Int64"), or the text that names the person everywhere)'
            )
    # Members of an Enum print otherwise than the texts and numbers that they are.
    names = (
        str.__str__(owner) if isinstance(owner, str) else str(owner if isinstance(owner, UUID) else index(owner))
        for owner in listed
    )
    return read_names(names, "an owner")


def read_names(names: Iterable[Any], who: str = "a person") -> list[str]:
    """Return one name or several as a list; InputError on one that is no text, is empty, or fits no database."""
    listed = [names] if isinstance(names, str) else list(names)
    for name in listed:
        if not isinstance(name, str) or not name or "\0" in name or not _is_unicode(name):
            raise InputError(f"{who} is called {name!r}: names are texts of whole letters that are not empty")
    return listed


def _is_unicode(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in name)


def check_different(names: list[str]) -> list[str]:
    """Return names; InputError if one is there twice."""
    if len(set(names)) < len(names):
        ((twice, _),) = Counter(names).most_common(1)
        raise InputError(f"{twice!r} is named twice: each person joins once")
    return names
