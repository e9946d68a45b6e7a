"""Queries on records of people: each derived record has one owner, and is made of the owner's records alone.

Whatever a query does, F(D) is the union of F(D_o) over the owners o, where D_o are the records of o: nobody's derived
records depend on the records of anybody else, and so each pays for their own only. For an ε-private question that is
size(F(D_o)) · ε, and for one that is E-private the sum of E(s) over the s in F(D_o).
Source: ProPer, Lemma 1, Corollary 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, TypeAlias

from deltahist.errors import InputError, whole
from deltahist.personal.expressions import make_safe, read_text
from deltahist.personal.values import (
    DTYPES,
    LARGEST,
    SMALLEST,
    SafeExpression,
    as_arrow,
    check_column,
    convert,
    kind_of,
    unify,
)

#: The hidden column: the number of the person whose record it is.
OWNER = "_person"
#: Records that one record may become, by all steps of a query together.
_MOST_COPIES = 1000
#: Bytes of a name; PostgreSQL cuts off what is longer.
_LONGEST_NAME = 63
#: Rows of a public table: it goes to the database with the query.
_MOST_ROWS = 1_000_000

#: A text, or a function of an Ibis table to one of its expressions.
Expression: TypeAlias = str | Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Query:
    """Records derived from a table's records, person by person. Public: it knows no data.

    `Database.query` makes the first one of a table.

    Parameters
    ----------
    table : the derived records, an Ibis expression of tables that are bound to no database, with OWNER.
    placed : columns that depend on the columns of place.
    by_place : whether which records there are, or how many, depends on them.
    untouched : columns of place that are still what they were in the table.
    copies : records that one record of the table may become.
    most : records that one person may have; None if nothing bounds their number.
    source : the table that the records come from, with its columns of owners and places.

    >>> import ibis
    >>> table = ibis.table({OWNER: "int64", "kind": "string", "stay": "float64"}, name="visits")
    >>> Query(table).where("kind = 'bus'").select(minutes="stay / 60").columns
    {'minutes': 'number'}
    """

    table: Any
    placed: frozenset[str] = frozenset()
    by_place: bool = False
    untouched: frozenset[str] = frozenset()
    copies: int = 1
    most: int | None = None
    source: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        placed = ", ".join(sorted(self.placed)) or "none"
        return f"<Query of {self.source[:1]}: {self.columns}, placed: {placed}, by place: {self.by_place}>"

    @cached_property
    def columns(self) -> dict[str, str]:
        """Names and kinds of the columns: "truth", "whole", "number", "text", "time" or "date"."""
        return {name: str(kind_of(dtype)) for name, dtype in self.table.schema().items() if name != OWNER}

    def where(self, condition: Expression) -> Self:
        """Choose the records that meet a condition; where it is neither true nor false, they do not.

        Who has no chosen records pays nothing: E(r) = 0 for r outside (ProPer, selection principle).

        It is text, "kind = 'bus' and stay > 60", or a function of an Ibis table (without OWNER) to a boolean. Raises
        InputError if it cannot be read, names other columns, or could fail for some records.
        """
        made = self._read_condition(condition)
        return self._derive(self.table.filter(made.value), chosen_by=made.columns)

    def select(self, *names: str, **columns: Expression) -> Self:
        """Return records with the columns named, and with columns made by texts or functions.

        Raises InputError if a column is not there, is made twice, or cannot be made.
        """
        for name in names:
            check_column(name, self.columns)
        made = {name: self._read_value(each) for name, each in columns.items()}
        check_names([*names, *made])
        placed = self.placed & set(names)
        placed |= {name for name, each in made.items() if self._depends(each.columns)}
        values = {name: self.table[name] for name in (OWNER, *names)}
        values |= {name: each.value for name, each in made.items()}
        return self._derive(self.table.select(**values), placed, untouched=self.untouched & set(names))

    def flat_map(self, *rows: Mapping[str, Expression]) -> Self:
        """Make several records of each one; each costs its owner ε (ProPer, Lemma 1, Corollary 1).

        Each row says what one of the new records holds, by column, all with the same columns; under "where" a condition
        on the record that it is made of. Raises InputError if there are none, their columns differ, or the query would
        make more than 1,000 records of one.
        """
        columns = [set(row) - {"where"} for row in rows]
        if not rows or not columns[0] or any(each != columns[0] for each in columns):
            raise InputError(
                f"flat_map makes records of the columns {[sorted(each) for each in columns]}: it makes at least one "
                "record of each one, and all must have the same columns"
            )
        copies = _check_copies(self.copies * len(rows))
        names = [name for name in rows[0] if name != "where"]
        check_names(names)
        conditions = [self._read_condition(row.get("where", "true")) for row in rows]
        made = {name: unify([self._read(row[name]) for row in rows]) for name in names}
        parts = []
        for number, condition in enumerate(conditions):
            table = self.table.filter(condition.value) if "where" in rows[number] else self.table
            values = {name: _check_kind(made[name][number]).value for name in names}
            parts.append(table.select(**{OWNER: self.table[OWNER]}, **values))
        return self._derive(
            _unite(parts),
            {name for name in names if any(self._depends(part.columns) for part in made[name])},
            chosen_by={name for each in conditions for name in each.columns},
            untouched=frozenset(),
            copies=copies,
            most=None if self.most is None else self.most * len(rows),
        )

    def union(self, other: Query) -> Self:
        """Return the records of both; a record that is in both comes twice, and is paid for twice.

        Raises InputError if the other's records come from another table, have other owners or another place, or have
        other columns, or if both together make more than 1,000 records of one.
        """
        copies = _check_copies(self.copies + other.copies)
        if other.source != self.source:
            raise InputError(
                f"union of records of {self.source} and of {other.source}: both must come from one table, with the "
                "same columns of owners and places, since others would pay for them; ask two queries"
            )
        if other.columns != self.columns:
            raise InputError(
                f"union of columns {self.columns} and {other.columns}: both must have the same, by select"
            )
        both = replace(self, by_place=self.by_place or other.by_place)
        return both._derive(
            self.table.union(other.table.select(*self.table.columns)),
            self.placed | other.placed,
            untouched=self.untouched & other.untouched,
            copies=copies,
            most=None if self.most is None or other.most is None else self.most + other.most,
        )

    def partition(self, column: str, values: Sequence[Any]) -> dict[Any, Self]:
        """Return a query for each value of a column; records with other values are in none of them.

        A record is in one query at most, and pays in that one only (ProPer, parallel queries).

        Raises InputError if values repeat or are NULL, or do not go with the column.
        """
        import ibis

        check_column(column, self.columns)
        return {
            value: self.where(lambda table, value=value: table[column] == ibis.literal(value))  # type: ignore[misc]
            for value in list_values(values)
        }

    def distinct(self, *columns: str) -> Self:
        """Return each person's different records, with the columns named alone (all, if none is).

        Raises InputError if a column is not there.
        """
        kept = self if not columns else self.select(*columns)
        return kept._derive(kept.table.distinct(), chosen_by=kept.columns)

    def at_most(self, number: int, by: str | Sequence[str] = ()) -> Self:
        """Choose a number of records of each person at most: the first ones by some columns.

        Columns (all if none is named) order a person's records, smallest first. Records that are alike in them stay or
        go together: those that do not all fit are all left out. Raises InputError if the number is no whole number
        above zero, or a column is not there.
        """
        import ibis

        most = whole(number=number)
        names = [by] if isinstance(by, str) else list(by)
        for name in names:
            check_column(name, self.columns)
        # Which of two records that are alike in all columns stays makes no difference.
        alike = not names or set(names) == set(self.columns)
        names = names or list(self.columns)
        table = self.table
        order = [table[name].asc(nulls_first=False) for name in names]
        own = ibis.window(group_by=OWNER, order_by=order)
        before = (ibis.row_number() if alike else ibis.rank()).over(own)
        peers = ibis.literal(1) if alike else table.count().over(ibis.window(group_by=[OWNER, *names]))
        stay = free_name("stay", self.columns)
        kept = table.mutate(**{stay: before + peers <= most})
        chosen = kept.filter(kept[stay]).drop(stay)
        return self._derive(chosen, chosen_by=names, most=most if self.most is None else min(most, self.most))

    def join(self, public: Any, on: str | Sequence[str]) -> Self:
        """Put the columns of a public table beside the records; records without a partner in it are left out.

        The public pandas frame is taken into the query, and whoever reads the query reads it. The values of the columns
        of both (`on`) are different in all its rows, so that no record comes twice. Raises InputError if it is no
        frame, its keys repeat or are missing, or its columns are of other kinds or there already.
        """
        keys = [on] if isinstance(on, str) else list(on)
        for name in keys:
            check_column(name, self.columns)
        beside = _read_public(public, {name: self.columns[name] for name in keys})
        fresh = [name for name in beside.columns if name not in keys]
        check_names([*self.columns, *fresh])
        joined = self.table.inner_join(beside, keys)[[*self.table.columns, *fresh]]
        placed = self.placed | set(fresh if self._depends(keys) else ())
        return self._derive(joined, placed, chosen_by=keys)

    def rows(self, **columns: Expression) -> Any:
        """Return an Ibis table of OWNER and the values given, with one row for each derived record."""
        made = {name: self._read_value(each) for name, each in columns.items()}
        check_names(list(made))
        return self.table.select(**{OWNER: self.table[OWNER]}, **{name: each.value for name, each in made.items()})

    def depends_on_place(self, expression: Expression) -> bool:
        """Return whether a value depends on the columns of place."""
        return self._depends(self._read_value(expression).columns)

    def _read(self, expression: Any) -> SafeExpression:
        import ibis
        from ibis.common.deferred import Deferred

        given = ibis.table({name: DTYPES[kind] for name, kind in self.columns.items()}, name="records")
        value = expression
        if isinstance(expression, str):
            value = read_text(expression, given)
        elif isinstance(expression, Deferred):
            value = expression.resolve(given)
        elif callable(expression) and not isinstance(expression, ibis.Expr):
            try:
                value = expression(given)
            except InputError:
                raise
            except Exception as problem:  # the function sees names and kinds of columns, and no record
                names = ", ".join(map(repr, self.columns))
                raise InputError(
                    f"the query has a function that fails on a table of {names}: {problem!s:.120}"
                ) from None
        if isinstance(value, bool | int | float | str):
            value = ibis.literal(value)
        if not isinstance(value, ibis.Value):
            raise InputError(
                f"the query has {type(value).__name__} where an expression belongs: it must be a text, or a function "
                "of an Ibis table to one of its expressions"
            )
        return make_safe(value, given, self.table)

    def _read_value(self, expression: Expression) -> SafeExpression:
        return _check_kind(self._read(expression))

    def _read_condition(self, condition: Expression) -> SafeExpression:
        made = self._read(condition)
        if made.kind not in ("truth", "null"):
            raise InputError(
                f"the query chooses records by {condition if isinstance(condition, str) else 'an expression'!r}, which "
                f"is of the kind {made.kind!r}: a condition is true or false, such as \"kind = 'bus'\""
            )
        return convert(made, "truth")

    def _depends(self, columns: Iterable[str]) -> bool:
        """Return whether any of these columns depends on place."""
        return bool(self.placed & set(columns))

    def _derive(
        self, table: Any, placed: Iterable[str] | None = None, *, chosen_by: Iterable[str] = (), **more: Any
    ) -> Self:
        """Return the query of derived records, which were chosen by some of this query's columns."""
        placed = self.placed if placed is None else frozenset(placed)
        return replace(self, table=table, placed=placed, by_place=self.by_place or self._depends(chosen_by), **more)


def check_names(names: Sequence[str]) -> None:
    """Raise InputError unless these can be the names of columns beside OWNER, in any database."""
    seen: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str) or not name or len(name.encode()) > _LONGEST_NAME or "\0" in name:
            raise InputError(f"a column is called {name!r}: names are texts of 1 to {_LONGEST_NAME} bytes")
        folded = name.casefold()
        if folded == OWNER:
            raise InputError(
                f"a column is called {name!r}, which is kept for the numbers of persons: rename it"
            )
        if folded in seen:
            raise InputError(
                f"columns are called {seen[folded]!r} and {name!r}: names must differ by more than capitals"
            )
        seen[folded] = name


def list_values(values: Sequence[Any]) -> list[Any]:
    """Return values of a column as a list; InputError unless there are some, all different and none missing."""
    listed = [] if isinstance(values, str) else list(values)
    missing = any(value is None or value != value for value in listed)
    if not listed or missing or len(set(listed)) < len(listed):
        raise InputError(
            f"values are {values!r}: list those that are to be told apart, from public knowledge; none may be missing "
            "(ask for these by where, is null), and each must be there once"
        )
    return listed


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return a name that is not taken."""
    folded = {each.casefold() for each in taken}
    while name.casefold() in folded:
        name += "_"
    return name


def _check_copies(copies: int) -> int:
    """Return the number of records that a query makes of one; InputError if they may not fit into memory."""
    if copies > _MOST_COPIES:
        raise InputError(
            f"the query makes up to {copies:,} records of one: flat_map and union together make {_MOST_COPIES:,} at "
            "most, since memory that ends would tell of records; ask several questions"
        )
    return copies


def _check_kind(made: SafeExpression) -> SafeExpression:
    if made.kind == "null":
        raise InputError("the query makes a column of NULL alone: nobody could say of which kind it is")
    return made


def _unite(tables: list[Any]) -> Any:
    """Return the union of tables, as a tree of least depth."""
    if len(tables) == 1:
        return tables[0]
    middle = (len(tables) + 1) // 2
    return _unite(tables[:middle]).union(_unite(tables[middle:]))


def _read_public(frame: Any, keys: Mapping[str, str]) -> Any:
    """Return a public pandas frame as an Ibis table whose keys, of the kinds given, tell its rows apart."""
    import ibis
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    if not isinstance(frame, pd.DataFrame):
        raise InputError(
            f"join with {type(frame).__name__}: it must be a pandas frame, which is public; a table of the database "
            "may hold other people's records"
        )
    if not 0 < len(frame) <= _MOST_ROWS:
        raise InputError(f"the public table has {len(frame):,} rows: it must have 1 to {_MOST_ROWS:,}")
    if not keys or not set(keys) <= set(frame.columns):
        raise InputError(f"join on {list(keys)}: the public table has the columns {list(frame.columns)}")
    columns = {}
    for name in frame.columns:
        column = as_arrow(frame[name], str(name))
        kind = None if pa.types.is_null(column.type) else kind_of(ibis.dtype(column.type))
        if kind is None:
            raise InputError(
                f"the public table has {name!r} of type {column.type}, which queries do not take"
            )
        if name in keys and (kind == "number" or kind != keys[name] or column.null_count):
            raise InputError(
                f"join on {name!r}, of the kind {kind!r} in the public table and {keys[name]!r} in the records: keys "
                "are of one kind, no numbers with a point, and none is missing"
            )
        column = column.cast(ibis.dtype(DTYPES[kind]).to_pyarrow())
        if kind == "number":
            size = np.abs(column.drop_null().to_numpy(zero_copy_only=False))
            if ((size != 0) & ~((size >= SMALLEST) & (size <= LARGEST))).any():
                raise InputError(
                    f"the public table has numbers {name!r} that are not of a size of 1e-100 to 1e100"
                )
        columns[str(name)] = column
    table = pa.table(columns)
    twice = np.flatnonzero(table.select(list(keys)).to_pandas().duplicated())
    if len(twice):
        raise InputError(
            f"the public table has keys {list(keys)} that repeat, in row {twice[0]}: each record would come once for "
            "each of them; keep one row of each key"
        )
    return ibis.memtable(table)
