"""Conditions on rows, `kind = 'bus' and speed > 3`: comparisons in SQL, checked before any row is read.

Only comparisons of a column with constants, and their combinations, are taken: a row must be chosen by its own values,
whatever other rows there are, and never by its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deltahist.errors import InputError
from deltahist.preprocessing import check_line

#: Names by which a column that is not read is a coordinate all the same.
_PLACES = frozenset({
    "x", "y", "lon", "lng", "long", "longitude", "lat", "latitude", "easting", "northing",
    "geom", "geometry", "wkt", "wkb", "wkb_geometry", "geohash",
})  # fmt: skip
_RULE = (
    "it must compare columns with constants, such as \"kind = 'bus' and speed > 3\", by =, <>, <, <=, >, >=, in, "
    "between, like, is null, not, and, or"
)


@dataclass(frozen=True)
class Condition:
    """A condition on rows, given as `where=`.

    Parameters
    ----------
    text : as it was written. tree : sqlglot's. kinds : of each column, "number", "text", "truth", or "" if it is
        only compared with null.

    >>> sorted(Condition.of("kind = 'bus' and speed > 3").kinds.items())
    [('kind', 'text'), ('speed', 'number')]
    """

    text: str
    tree: Any
    kinds: dict[str, str]

    @classmethod
    def of(cls, text: str) -> Condition:
        """Read a condition; raise InputError if it asks for more than comparisons of columns with constants."""
        import sqlglot

        line = check_line(where=text)
        try:
            tree = sqlglot.parse_one(line, into=sqlglot.exp.Condition)
            return cls(line, tree, _kinds_of(line, tree))
        except (sqlglot.errors.SqlglotError, RecursionError):
            raise InputError(f"where is {line!r}, which is not a condition in SQL: {_RULE}") from None

    def check_columns(self, places: set[str], time: str | None) -> None:
        """Raise InputError if it asks for a column of coordinates or of times, or one that is called like one."""
        for column in self.kinds:
            if column in places or column.lower() in _PLACES or column == time:
                raise InputError(
                    f"where is {self.text!r}: column {column!r} says where or when a point is, so that it could vanish "
                    "by moving, unprotected; choose places by the bounds, and times by the first and last step"
                )

    def sql(self, column: Callable[[str, str], str]) -> str:
        """Return it in DuckDB's SQL; `column` says what a column, compared with a kind, is there."""
        import sqlglot

        def written(node: Any) -> Any:
            if not isinstance(node, sqlglot.exp.Column):
                return node
            return sqlglot.parse_one(column(node.name, self.kinds[node.name]), read="duckdb")

        return str(self.tree.transform(written).sql(dialect="duckdb"))


def _kinds_of(text: str, tree: Any) -> dict[str, str]:
    """Return the columns of a condition, and the kind of the constants that each is compared with."""
    from sqlglot import exp

    comparisons = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between, exp.Like, exp.Is)
    kinds: dict[str, str] = {}
    rest = [tree]  # chains of "or" are as deep as they are long
    while rest:
        node = rest.pop()
        parts = list(node.iter_expressions())
        if isinstance(node, exp.And | exp.Or | exp.Not | exp.Paren):
            rest += parts
            continue
        columns = [part for part in parts if isinstance(part, exp.Column) and part.name and not part.table]
        found = {_kind_of(part) for part in parts if not isinstance(part, exp.Column)}
        # "is" takes null alone, and nothing else takes it.
        simple = len(columns) == len(found) == 1 and found != {None} and (found == {""}) == isinstance(node, exp.Is)
        if not simple or not isinstance(node, comparisons) or node.args.get("symmetric"):
            raise InputError(f"where is {text!r}, which asks for {node.sql()[:60]!r}: {_RULE}")
        name, (kind,) = columns[0].name, found
        if kind and kinds.setdefault(name, "") not in ("", kind):
            raise InputError(f"where is {text!r}: {name!r} is compared with {kinds[name]} and {kind}; {_RULE}")
        kinds[name] = kind or kinds.get(name, "")
    return kinds


def _kind_of(constant: Any) -> str | None:
    """Return the kind of a constant, "" for null; None if it is not one."""
    from sqlglot import exp

    if isinstance(constant, exp.Neg) and not constant.this.is_string:
        constant = constant.this
    if isinstance(constant, exp.Literal):
        return "text" if constant.is_string else "number"
    return {exp.Boolean: "truth", exp.Null: ""}.get(type(constant))
