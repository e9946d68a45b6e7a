"""Databases with records of people, who are numbers: queries of their tables, and new records."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deltahist.counts.engines import Engine, Session, open_engine, quote, unbound
from deltahist.counts.kinds import DTYPES, as_arrow, kind_of, readable_columns
from deltahist.counts.texts import check_column
from deltahist.errors import InputError, one_of, whole
from deltahist.personal.names import all_different, names_of, owners_named
from deltahist.personal.query import OWNER, Query, check_names, free_name

#: Who has which number, who is about to have one, and which tables hold the numbers of persons themselves.
_PERSON, _COMING, _RECORDS = "deltahist_person", "deltahist_coming", "deltahist_records"
#: Which account of a ledger these numbers are for; the state of the register, and the one that is coming.
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
    """What a database knows of its account: the token of it, the state of its register, and the one that is coming."""

    account: str | None = None
    state: str | None = None
    coming: str | None = None


class Database:
    """A database with records of people. Private: what it fetches is data.

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
        """A database by a path ("city.duckdb"), an address ("postgresql://user@host/city"), or a DuckDB connection.

        Raises InputError if it is not there, does not answer, or its libraries are not installed.
        """
        return cls(open_engine(where))

    def close(self) -> None:
        """Close what was opened."""
        self._engine.close()

    @property
    def standing(self) -> DatabaseStanding:
        """Which account its persons have their budgets in."""
        with self.snapshot() as look:
            found = look.fetch(_standing()).to_pylist()
        return min((DatabaseStanding(*row.values()) for row in found), default=DatabaseStanding())

    def belong_to(self, account: str) -> None:
        """Keep the token of the account in which its persons have their budgets."""
        import pyarrow as pa

        with self._engine.change() as change:
            change.append(_ACCOUNT, pa.table({"token": pa.array([account], pa.string())}))

    def announce(self, names: Sequence[str], numbers: NDArray[np.int64], state: str | None) -> None:
        """Keep who is coming (m,), with which number, and the state of the register that they come with.

        Whoever else was coming comes no more.

        Parameters
        ----------
        state : of hexadecimal digits.
        """
        import pyarrow as pa

        rows = pa.table({"name": pa.array(names, pa.string()), "number": pa.array(numbers, pa.int32())})
        with self._engine.change() as change:
            change.execute(f"DELETE FROM {_COMING}")
            change.append(_COMING, rows)
            change.execute(f"UPDATE {_ACCOUNT} SET coming = " + ("NULL" if state is None else f"'{state}'"))

    def settle(self) -> None:
        """Register who is coming."""
        with self._engine.change() as change:
            change.execute(f"INSERT INTO {_PERSON} SELECT name, number FROM {_COMING}")
            change.execute(f"DELETE FROM {_COMING}")
            change.execute(f"UPDATE {_ACCOUNT} SET state = COALESCE(coming, state), coming = NULL")

    def snapshot(self) -> AbstractContextManager[Session]:
        """One consistent look at the database, whatever is written meanwhile."""
        return self._engine.snapshot()

    def query(self, table: str, owner: str, place: Sequence[str] = ()) -> Query:
        """The records of a table, each its owner's.

        Parameters
        ----------
        table : a table or view, "visits" or "part.visits".
        owner : the column that says whose a record is; records of persons who are not registered are left out.
        place : columns that say where: moves within δ change these.

        Raises
        ------
        InputError
            If there is no such table or column.
        """
        schema = self._engine.schema(table)
        records = unbound(table, schema)
        kept = self._owner_of(table)
        if kept is not None:
            one_of((kept,), owner=owner)
            names = [name for name in schema if name != OWNER]
            check_names(names)
            number = records[OWNER]
        else:
            check_names(schema.names)
            check_column(owner, schema.names)
            kind = schema[owner]
            if not (kind.is_string() or kind.is_integer() or kind.is_uuid()):
                raise InputError(f"owner is {owner!r}, of type {kind}: it must hold text, whole numbers or UUIDs")
            persons = _persons()
            persons = persons.select(**{free_name("name", schema): persons["name"], OWNER: persons["number"]})
            key = persons.columns[0]
            records = records.inner_join(persons, records[owner].cast("string") == persons[key])
            names = [name for name in schema if name != owner]
            number = records[OWNER]
        readable = readable_columns(records, self._engine)
        columns = {name: readable[name] for name in names if name in readable}
        for name in place:
            check_column(name, columns)
        return Query(
            records.select(**{OWNER: number}, **columns),
            placed=frozenset(place),
            untouched=frozenset(place),
            source=table,
            origin=(owner, frozenset(place)),
        )

    def register(self, names: Sequence[str], first: int) -> None:
        """Number persons: the first of them is `first`, the next one `first` + 1, and so on.

        Who has the same number already keeps it.

        Raises
        ------
        InputError
            If a name is empty or repeats, or has another number.
        """
        listed = all_different(names_of(names))
        first = whole("persons are numbered from 0", least=0, first=first)
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
        """Numbers (m,) of persons by name; -1 for those who are not registered."""
        import ibis
        import pyarrow as pa

        listed = names_of(names)
        if not listed:
            return np.zeros(0, dtype=np.int64)
        at = pa.array(np.arange(len(listed)), pa.int64())
        asked = ibis.memtable(pa.table({"at": at, "name": pa.array(listed, pa.string())}))
        persons = _persons()
        with self.snapshot() as look:
            found = look.fetch(asked.inner_join(persons, "name")[["at", "number"]])
        out = np.full(len(listed), -1, dtype=np.int64)
        out[found["at"].to_numpy()] = found["number"].to_numpy()
        return out

    def persons(self) -> tuple[list[str], NDArray[np.int64]]:
        """Names and numbers (m,) of all who are registered."""
        with self.snapshot() as look:
            found = look.fetch(_persons())
        return found["name"].to_pylist(), found["number"].to_numpy().astype(np.int64)

    def strangers(self, table: str, owner: str) -> list[str]:
        """Owners of a table's records who are not registered and can be, in the order of their names.

        Raises InputError if there is no such table or column.
        """
        schema = self._engine.schema(table)
        if self._owner_of(table) is not None:  # it holds nobody else's records
            return []
        check_column(owner, schema.names)
        owners = unbound(table, schema)[[owner]].distinct()
        owners = owners.select(name=owners[owner].cast("string")).distinct()
        owners = owners.filter(owners["name"].notnull() & (owners["name"] != ""))
        persons = _persons()
        with self.snapshot() as look:
            found = look.fetch(owners.anti_join(persons, "name"))["name"].to_pylist()
        # DuckDB holds texts that are no names: to refuse one would stop every question, and quote a record.
        return sorted(name for name in found if "\0" not in name)

    def create_records(self, table: str, columns: Mapping[str, str], owner: str) -> None:
        """Make a table of records that holds the numbers of persons itself, so that queries of it need no join.

        Parameters
        ----------
        table : its name.
        columns : kinds by name: "truth", "whole", "number", "text", "time" (of UTC) or "date".
        owner : what the column of the persons' names is called in the frames to insert; it is not kept.

        Raises
        ------
        InputError
            If there is such a table, or a column's name or kind is none.
        """
        check_names([table])
        check_names([owner, *columns])
        for kind in columns.values():
            one_of(tuple(_SQL), kind=kind)
        if not columns:
            raise InputError(f"table {table!r} has no columns: give at least one")
        if self._owner_of(table) is not None or self._exists(table):
            raise InputError(f"table {table!r} is there already: take another name")
        import pyarrow as pa

        made = ", ".join(f"{quote(name)} {_SQL[kind]}" for name, kind in columns.items())
        with self._engine.change() as change:
            change.execute(f"CREATE TABLE {quote(table)} ({quote(OWNER)} INTEGER NOT NULL, {made})")
            change.append(_RECORDS, pa.table({"name": [table], "owner": [owner]}))

    def insert(self, table: str, frame: Any) -> int:
        """Add records to a table that `create_records` made: all of a frame, or none.

        Parameters
        ----------
        frame : pandas frame with the table's columns and that of the owners' names, in any order.

        Returns
        -------
        Number of records.

        Raises
        ------
        InputError
            If an owner is not registered, or columns are missing, unknown or of another kind.
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
        # Whole numbers with gaps are floats in pandas: that is said first.
        owners_named(names.dropna())
        if names.isna().any():
            missing = int(names.isna().sum())
            raise InputError(
                f"{missing:,} of {len(names):,} records have no {owner!r}: each must have an owner"
            )
        codes, different = pd.factorize(names)
        numbers = self.numbers(owners_named(different))[codes]
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            raise InputError(
                f"{len(unknown):,} of {len(names):,} records are of persons who are not registered, such as "
                f"{str(names.iloc[unknown[0]])!r}: they join first; no record was inserted"
            )
        columns = {OWNER: pa.array(numbers, pa.int32())}
        for name, kind in kinds.items():
            columns[name] = _as_kind(as_arrow(frame[name], name), name, kind)
        with self._engine.change() as change:
            change.append(table, pa.table(columns))
        return len(names)

    def _owner_of(self, table: str) -> str | None:
        """What the owners' column of a table of `create_records` is called; None if it is not one of these."""
        listed = unbound(_RECORDS, {"name": "string", "owner": "string"})
        with self.snapshot() as look:
            found = look.fetch(listed).to_pydict()
        return dict(zip(found["name"], found["owner"], strict=True)).get(table)

    def _exists(self, table: str) -> bool:
        try:
            self._engine.schema(table)
        except InputError:
            return False
        return True


@functools.cache
def _standing() -> Any:
    """The table of what belongs to which account; asked for with every question."""
    return unbound(_ACCOUNT, {"token": "string", "state": "string", "coming": "string"})


def _persons() -> Any:
    """The table of who has which number."""
    return unbound(_PERSON, {"name": "string", "number": "int32"})


def _as_kind(column: Any, name: str, kind: str) -> Any:
    """An Arrow column of a frame as one of the kind that a table holds."""
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
