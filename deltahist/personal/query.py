"""Queries on records of people: each derived record has one owner, and is made of the owner's records alone.

F(D) is the union of F(D_o) over the owners o, where D_o are the records of o. So each person pays for their own records
only: size(F(D_o)) · ε for an ε-private question. Source: ProPer, Lemma 1, Corollary 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from deltahist.errors import InputError, check_whole
from deltahist.personal.expressions import (
    DTYPES,
    LARGEST,
    LONGEST_TEXT,
    SMALLEST,
    SafeExpression,
    check_column,
    convert,
    kind_of,
    make_constant,
    read_expression,
    unify,
)

#: Hidden columns: the person whose record it is (by name, or by the place of their purse), names, and what stays.
OWNER, NAME, _STAYS = "_person", "_person_name", "_person_stays"
#: Records that one record may become, and parts of expressions that are evaluated for it, by all steps of a query
#: together: memory or time that ends would reveal records.
_MOST_COPIES, _MOST_PARTS = 1000, 10_000
#: Bytes of a column's name; PostgreSQL cuts off what is longer.
_LONGEST_NAME = 63
#: Rows of a public table: it goes to the database with the query.
_MOST_ROWS = 1_000_000
#: Sums of a person's values stay within 64 bits.
_MOST_SUM = 1 << 62


@dataclass(frozen=True, eq=False)
class Query:
    """Records derived from a table's records, person by person. Public: it knows no data.

    Expressions are SQL on one record: "hour >= 22 and kind in ('bus', 'tram')".

    Parameters
    ----------
    table : the derived records, an unbound Ibis table with OWNER.
    source : the table and the owner's column that the records come from.
    copies : records that one record of the table may become.
    most : records that one person may have; None if nothing bounds their number.
    parts : of expressions that are evaluated for one record of the table. sizes : parts behind each column.

    >>> import ibis
    >>> table = ibis.table({OWNER: "string", "kind": "string", "stay": "float64"}, name="visits")
    >>> Query(table, ("visits", "who")).where("kind = 'bus'").select(minutes="stay / 60").columns
    {'minutes': 'number'}
    """

    table: Any
    source: tuple[str, str]
    copies: int = 1
    most: int | None = None
    parts: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def columns(self) -> dict[str, str]:
        """Names and kinds of the columns: "truth", "whole", "number", "text", "time" or "date"."""
        return {name: str(kind_of(dtype)) for name, dtype in self.table.schema().items() if name != OWNER}

    def where(self, condition: str) -> Self:
        """Choose the records that meet a condition; a record for which it is NULL does not.

        Other records cost nothing (ProPer, selection principle). Raises InputError as `read_expression` does.
        """
        made = self._read_condition(condition)
        return self._derive(self.table.filter(made.value), made.nodes)

    def select(self, *names: str, **columns: str) -> Self:
        """Return records with the columns named, and columns made by expressions; InputError if one cannot be made."""
        for name in names:
            check_column(name, self.columns)
        made = {name: _check_kind(self._read(each)) for name, each in columns.items()}
        check_names([*names, *made])
        values = {name: self.table[name] for name in (OWNER, *names)}
        table = self.table.select(**values, **{name: each.value for name, each in made.items()})
        sizes = {**self.sizes, **{name: each.nodes for name, each in made.items()}}
        return self._derive(table, sum(each.nodes for each in made.values()), sizes=sizes)

    def flat_map(self, *rows: Mapping[str, str]) -> Self:
        """Make several records of each one; each costs its owner ε (ProPer, Lemma 1, Corollary 1).

        Each row gives the columns of one new record, and under "where" a condition on the old one. Raises InputError
        if there are no rows, their columns differ, or the query makes more than 1,000 records of one.
        """
        import ibis

        columns = [set(row) - {"where"} for row in rows]
        if not rows or not columns[0] or any(each != columns[0] for each in columns):
            raise InputError(f"flat_map has rows of the columns {columns}: all rows must have the same")
        copies = _check_copies(self.copies * len(rows))
        names = [name for name in rows[0] if name != "where"]
        check_names(names)
        made = {name: unify([self._read(row[name]) for row in rows]) for name in names}
        tables, parts = [], sum(each.nodes for column in made.values() for each in column)
        for number, row in enumerate(rows):
            condition = self._read_condition(row.get("where", "true"))
            parts += condition.nodes
            table = self.table.filter(condition.value) if "where" in row else self.table
            values = {name: _check_kind(made[name][number]).value for name in names}
            tables.append(table.select(**{OWNER: table[OWNER]}, **values))
        most = None if self.most is None else self.most * len(rows)
        sizes = {name: max(each.nodes for each in column) for name, column in made.items()}
        return self._derive(ibis.union(*tables), parts, copies=copies, most=most, sizes=sizes)

    def union(self, other: Query) -> Self:
        """Return the records of both; a record that is in both comes twice, and is paid for twice.

        Raises InputError on other tables, owners or columns, and on more than 1,000 records of one.
        """
        copies = _check_copies(self.copies + other.copies)
        if other.source != self.source:
            raise InputError(f"union of {self.source} and {other.source}: both must be of one table and owner")
        if other.columns != self.columns:
            raise InputError(f"union of columns {self.columns} and {other.columns}: both must have the same")
        most = None if self.most is None or other.most is None else self.most + other.most
        table = self.table.union(other.table.select(*self.table.columns))
        sizes = {name: max(each.sizes.get(name, 1) for each in (self, other)) for name in self.columns}
        made = replace(self, parts=self.parts + other.parts, copies=1)
        return made._derive(table, copies, copies=copies, most=most, sizes=sizes)

    def partition(self, column: str, values: Sequence[Any]) -> dict[Any, Self]:
        """Return a query for each value of a column; records with other values are in none of them.

        A record pays in one query at most (ProPer, parallel queries). Raises InputError if values repeat, are missing,
        or are of another kind than the column.
        """
        check_column(column, self.columns)
        own = SafeExpression(self.table[column], self.columns[column])
        out = {}
        for value in list_values(values):
            one, other = unify([own, make_constant(value)])
            out[value] = self._derive(self.table.filter(one.value == other.value), 1)
        return out

    def distinct(self, *columns: str) -> Self:
        """Return each person's different records, with the columns named (all by default); InputError on others."""
        kept = self.select(*(columns or self.columns))
        return kept._derive(kept.table.distinct(), len(kept.columns))

    def at_most(self, number: int, by: str | Sequence[str] = ()) -> Self:
        """Choose at most a number of records of each person: the first ones by some columns.

        Columns (all by default) order a person's records, smallest first. Records that are alike in them stay or go
        together. Raises InputError if the number is no whole number above zero, or a column is not there.
        """
        import ibis

        most = check_whole(number=number)
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
        kept = table.mutate(**{_STAYS: before + peers <= most})
        chosen = kept.filter(kept[_STAYS]).drop(_STAYS)
        most = most if self.most is None else min(most, self.most)
        return self._derive(chosen, len(names), most=most)

    def join(self, public: Any, on: str | Sequence[str]) -> Self:
        """Add the columns of a public table to the records; records without a partner in it are left out.

        The public pandas frame becomes part of the query; its rows differ in the columns `on`, so that no record comes
        twice. Raises InputError if keys repeat or are missing, or columns are of other kinds or there already.
        """
        keys = [on] if isinstance(on, str) else list(on)
        for name in keys:
            check_column(name, self.columns)
        beside = _read_public(public, {name: self.columns[name] for name in keys})
        fresh = [name for name in beside.columns if name not in keys]
        check_names([*self.columns, *fresh])
        table = self.table.inner_join(beside, keys)[[*self.table.columns, *fresh]]
        return self._derive(table, len(keys))

    def add_up(self, *by: str, **values: Any) -> Any:
        """Return an Ibis table with a row for each person (and values of columns): the number of records, and sums."""
        sums = {name: value.sum().clip(-_MOST_SUM, _MOST_SUM) for name, value in values.items()}
        return self.table.group_by([OWNER, *by]).aggregate(number=self.table.count(), **sums)

    def _derive(self, table: Any, parts: int, **changes: Any) -> Self:
        """Return the records of another table, made by parts of expressions; InputError if they are too many."""
        total = self.parts + self.copies * parts
        if total > _MOST_PARTS:
            raise InputError(f"query has {total:,} parts of expressions for a record, at most {_MOST_PARTS:,} can be")
        return replace(self, table=table, parts=total, **changes)

    def _read(self, expression: str) -> SafeExpression:
        return read_expression(expression, self.table, self.columns, self.sizes)

    def _read_condition(self, condition: str) -> SafeExpression:
        made = self._read(condition)
        if made.kind not in ("truth", "null"):
            raise InputError(f"condition is {condition!r}, a {made.kind}: it must be true or false")
        return convert(made, "truth")


def check_names(names: Sequence[str]) -> None:
    """Raise InputError unless these can be the names of columns beside OWNER, in any database."""
    seen: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str) or not name or len(name.encode()) > _LONGEST_NAME or "\0" in name:
            raise InputError(f"a column is called {name!r}: names are texts of 1 to {_LONGEST_NAME} bytes")
        folded = name.casefold()
        if folded.startswith(OWNER):
            raise InputError(f"a column is called {name!r}: the name is taken, rename the column")
        if folded in seen:
            raise InputError(f"columns are {seen[folded]!r} and {name!r}: names must differ by more than case")
        seen[folded] = name


def list_values(values: Sequence[Any]) -> list[Any]:
    """Return values of a column as a list; InputError unless there are some, all different and none missing."""
    plain = [] if isinstance(values, str) else values
    listed = [value.item() if hasattr(value, "item") else value for value in plain]
    for value in listed:
        make_constant(value)
    if not listed or any(value != value for value in listed) or len(set(listed)) < len(listed):
        raise InputError(f"values are {values!r}: list public values, each once and none missing")
    return listed


def _check_copies(copies: int) -> int:
    """Return the number of records that a query makes of one; InputError if they may not fit into memory."""
    if copies > _MOST_COPIES:
        raise InputError(f"query makes up to {copies:,} records of one: at most {_MOST_COPIES:,} can be")
    return copies


def _check_kind(made: SafeExpression) -> SafeExpression:
    if made.kind == "null":
        raise InputError("the query makes a column of NULL alone, which has no kind")
    return made


def _read_public(frame: Any, keys: Mapping[str, str]) -> Any:
    """Return a public pandas frame as an Ibis table whose keys, of the kinds given, tell its rows apart."""
    import ibis
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc

    if not isinstance(frame, pd.DataFrame):
        raise InputError(f"join with {type(frame).__name__}: it must be a pandas frame, which is public")
    if not 0 < len(frame) <= _MOST_ROWS:
        raise InputError(f"the public table has {len(frame):,} rows: it must have 1 to {_MOST_ROWS:,}")
    if not keys or not set(keys) <= set(frame.columns):
        raise InputError(f"join on {list(keys)}: the public table has the columns {list(frame.columns)}")
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError):
        raise InputError("the public table has a column of several types: each must be of one") from None
    columns = {}
    for name in table.column_names:
        column = table[name]
        kind = None if pa.types.is_null(column.type) else kind_of(ibis.dtype(column.type))
        if kind is None:
            raise InputError(f"the public table has {name!r} of type {column.type}, which is not taken")
        if name in keys and (kind == "number" or kind != keys[name] or column.null_count):
            raise InputError(f"join on {name!r}: keys must be {keys[name]} on both sides, not floats or missing")
        column = column.cast(ibis.dtype(DTYPES[kind]).to_pyarrow())
        if kind == "text" and (pc.max(pc.utf8_length(column)).as_py() or 0) > LONGEST_TEXT:
            raise InputError(f"the public table has texts {name!r} of more than {LONGEST_TEXT:,} characters")
        if kind == "number":
            size = np.abs(column.drop_null().to_numpy())
            if ((size != 0) & ~((size >= SMALLEST) & (size <= LARGEST))).any():
                raise InputError(f"the public table has numbers {name!r} beyond a size of 1e-100 to 1e100")
        columns[name] = column.combine_chunks()
    keyed = pa.table({name: columns[name] for name in keys})
    if keyed.group_by(list(keys)).aggregate([]).num_rows < keyed.num_rows:
        raise InputError(f"the public table has keys {list(keys)} that repeat: each must come once")
    return ibis.memtable(pa.table(columns))
