"""Conditions on rows, `kind = 'bus' and speed > 3`: comparisons in SQL, checked before any row is read.

Only comparisons of a column with constants, and their combinations, are taken: a row must be chosen by its own values,
whatever other rows there are, and never by its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deltahist.errors import InputError
from deltahist.preprocessing import check_condition_text

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
        only asked for null.

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

        line = check_condition_text(text)
        try:
            tree = sqlglot.parse_one(line, into=sqlglot.exp.Condition)
            found = cls(line, tree, {})
            found._check(tree)
        except (sqlglot.errors.SqlglotError, RecursionError):
            raise InputError(f"where is {line!r}, which is no condition in SQL: {_RULE}") from None
        return found

    def check_columns(self, places: set[str], time: str | None) -> None:
        """Raise InputError if it asks for a column of coordinates or of times, or one that is called like one."""
        for column in self.kinds:
            if column in places or column.lower() in _PLACES:
                raise InputError(
                    f"where is {self.text!r}: column {column!r} says where a point is, so that a point could vanish by "
                    "moving, which nothing protects; choose places by the bounds of the domain"
                )
            if column == time:
                raise InputError(
                    f"where is {self.text!r}: column {column!r} holds the times, and which of them count is said by "
                    "the first and the last step; leave it out"
                )

    def sql(self, dialect: str, column: Callable[[str, str], str]) -> str:
        """Return it as SQL of an engine; `column` says what a column, compared with a kind, is there (DuckDB's SQL)."""
        import sqlglot
        from sqlglot import exp

        def written(node: Any) -> Any:
            if not isinstance(node, exp.Column):
                return node
            return sqlglot.parse_one(column(node.name, self.kinds[node.name]), read="duckdb")

        return str(self.tree.transform(written).sql(dialect=dialect))

    def _check(self, node: Any) -> None:
        """Note the columns of a part of the tree that is true or false."""
        from sqlglot import exp

        # Chains of "or" are as deep as they are long.
        rest = [node]
        while rest:
            node = rest.pop()
            if isinstance(node, exp.And | exp.Or):
                rest += [node.this, node.expression]
            elif isinstance(node, exp.Not | exp.Paren):
                rest.append(node.this)
            elif isinstance(node, exp.EQ | exp.NEQ | exp.GT | exp.GTE | exp.LT | exp.LTE):
                column, constant = node.this, node.expression
                if isinstance(constant, exp.Column):
                    column, constant = constant, column
                self._note(column, [constant])
            elif isinstance(node, exp.In) and node.expressions:
                self._note(node.this, node.expressions)
            elif isinstance(node, exp.Between) and not node.args.get("symmetric"):
                self._note(node.this, [node.args["low"], node.args["high"]])
            elif isinstance(node, exp.Like) and getattr(node.expression, "is_string", False):
                self._note(node.this, [node.expression])
            elif isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
                self._note(node.this, [])
            else:
                raise self._refusal(node)

    def _note(self, column: Any, constants: list[Any]) -> None:
        from sqlglot import exp

        if not isinstance(column, exp.Column) or column.table or not column.name:
            raise self._refusal(column)
        kind = self.kinds.setdefault(column.name, "")
        for constant in constants:
            plain = constant.this if isinstance(constant, exp.Neg) else constant
            if isinstance(plain, exp.Literal):
                new = "text" if plain.is_string else "number"
            elif isinstance(plain, exp.Boolean) and plain is constant:
                new = "truth"
            else:
                raise self._refusal(constant)
            if (new == "text" and plain is not constant) or kind not in ("", new):
                raise InputError(f"where is {self.text!r}: {column.name!r} is compared with {kind} and {new}; {_RULE}")
            kind = self.kinds[column.name] = new

    def _refusal(self, node: Any) -> InputError:
        return InputError(f"where is {self.text!r}, which asks for {node.sql()[:60]!r}: {_RULE}")
