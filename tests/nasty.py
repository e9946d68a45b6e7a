"""A table of values that databases stumble over, in DuckDB and in PostgreSQL, and random expressions on it."""

import random

import duckdb
import ibis
import psycopg

from deltahist.personal.database import Database

_VALUES = {
    "a": ["NULL", "0", "1", "-1", "7", "9223372036854775807", "-9223372036854775808", "9007199254740993"],
    "small": ["NULL", "-32768", "32767", "0", "5"],
    "f": ["NULL", "NaN", "Infinity", "-Infinity", "1e308", "-1.7e308", "-0.0", "5e-324", "1e-101", "1e100", "0.1",
          "3", "-2.5", "4503599627370497.5"],
    "g": ["NULL", "1e-99", "-1e99", "1e200", "0.30000000000000004", "1e-100", "2", "0.0", "-7.25"],
    "real": ["NULL", "NaN", "3.4e38", "0.1", "-0.0", "1e-45"],
    "price": ["NULL", "0.00", "-12.34", "99999999999.99"],
    "s": ["NULL", "", "é", "e\u0301", "A", "aB%", "_", "ß", "İ", "z\\", "it's", "\n", "🚲 bus", '"'],
    "t": ["NULL", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.5", "2020-02-29 12:00:01",
          "infinity", "-infinity", "1900-01-01 00:00:00", "2000-12-31 23:59:59.999999", "0044-03-15 (BC) 12:00:00"],
    "zoned": ["NULL", "2020-03-29 01:30:00+00", "2020-03-29 01:30:00+05:45", "infinity", "1969-07-20 20:17:40-04"],
    "d": ["NULL", "0001-01-01", "9999-12-31", "2024-02-29", "infinity", "-infinity", "1969-12-31", "0044-03-15 (BC)"],
    "b": ["NULL", "true", "false"],
}  # fmt: skip
_TYPES = {
    "a": "BIGINT", "small": "SMALLINT", "f": "DOUBLE PRECISION", "g": "DOUBLE PRECISION", "real": "REAL",
    "price": "NUMERIC(15, 2)", "s": "TEXT", "t": "TIMESTAMP", "zoned": "TIMESTAMPTZ", "d": "DATE", "b": "BOOLEAN",
}  # fmt: skip
ROWS = 120
#: Columns of each kind.
COLUMNS = {"whole": ["a", "small"], "number": ["f", "g", "real", "price"], "text": ["s"], "time": ["t", "zoned"],
           "date": ["d"], "truth": ["b"]}  # fmt: skip


def statements():
    """SQL that makes the table `nasty`: every value at least once, in random company."""
    chance = random.Random(13)
    columns = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
    yield f"CREATE TABLE nasty (who TEXT, number INTEGER, {columns})"
    for row in range(ROWS):
        cells = []
        for name, values in _VALUES.items():
            value = values[row % len(values)] if chance.random() < 0.5 else chance.choice(values)
            kind = _TYPES[name]
            text = value.replace("'", "''")
            cells.append("NULL" if value == "NULL" else f"CAST('{text}' AS {kind})")
        yield f"INSERT INTO nasty VALUES ('ann', {row}, {', '.join(cells)})"


def open_both(postgres_url):
    """The table in both databases."""
    connection = duckdb.connect()
    for statement in statements():
        connection.execute(statement)
    with psycopg.connect(postgres_url) as other:
        for statement in statements():
            other.execute(statement.replace(" (BC) 12:00:00", " 12:00:00 BC").replace(" (BC)", " BC"))
    both = [Database.open(connection), Database.open(postgres_url)]
    for database in both:
        database.register(["ann"], 0)
    return both


class Expressions:
    """Random expressions of a table, by kind."""

    def __init__(self, table, seed):
        self.table, self.chance = table, random.Random(seed)

    def of(self, kind, depth):
        makers = [self._column, self._constant] if depth == 0 else getattr(self, f"_{kind}s")()
        return self.chance.choice(makers)(kind, depth - 1)

    def _column(self, kind, depth):
        return self.table[self.chance.choice(COLUMNS[kind])]

    def _constant(self, kind, depth):
        constants = {
            "whole": [0, 1, -3, 2**63 - 1, 7], "number": [0.0, 0.1, -1e100, 1e-100, 2.5, 0.1234567890123456789],
            "text": ["", "é", "a%", "bus"], "truth": [True, False],
            "time": [ibis.timestamp("2020-02-29 12:00:01"), ibis.timestamp("0001-01-01 00:00:00")],
            "date": [ibis.date("2024-02-29")],
        }  # fmt: skip
        value = self.chance.choice(constants[kind])
        return value if isinstance(value, ibis.Expr) else ibis.literal(value)

    def _any(self, depth):
        return self.chance.choice(list(COLUMNS)), depth

    def _either(self, kind, depth):
        one, other = self.of(kind, depth), self.of(kind, depth)
        return self.chance.choice([
            lambda: ibis.cases((self.of("truth", depth), one), else_=other),
            lambda: ibis.cases((self.of("truth", depth), one)),
            lambda: ibis.coalesce(one, other),
            lambda: one.nullif(other),
        ])()  # fmt: skip

    def _truths(self):
        return [
            self._comparison,
            self._comparison,
            self._logic,
            self._logic,
            self._either,
            self._texts_hold,
            self._asked,
        ]

    def _comparison(self, kind, depth):
        kind = self.chance.choice(["whole", "number", "number", "text", "time", "date", "truth"])
        other = "number" if kind == "whole" and self.chance.random() < 0.3 else kind
        left, right = self.of(kind, depth), self.of(other, depth)
        names = (
            ["__eq__", "__ne__"] if kind in ("text", "truth") else ["__eq__", "__ne__", "__lt__", "__le__", "__gt__"]
        )
        if kind not in ("text", "truth") and self.chance.random() < 0.2:
            return left.between(right, self.of(other, depth))
        if self.chance.random() < 0.2:
            return left.isin([right, self.of(other, depth)])
        return getattr(left, self.chance.choice(names))(right)

    def _logic(self, kind, depth):
        one, other = self.of("truth", depth), self.of("truth", depth)
        return self.chance.choice([lambda: one & other, lambda: one | other, lambda: ~one])()

    def _texts_hold(self, kind, depth):
        text = self.of("text", depth)
        patterns = ["%", "a_%", "é%", "_", "%'%", ""]
        return self.chance.choice([lambda: text.like(self.chance.choice(patterns)), lambda: text.startswith("a"),
                                   lambda: text.contains("us"), lambda: text.endswith("é")])()  # fmt: skip

    def _asked(self, kind, depth):
        value = self.of(*self._any(depth))
        return value.isnull() if self.chance.random() < 0.5 else value.notnull()

    def _numbers(self):
        return [self._reckoned, self._reckoned, self._reckoned, self._either, self._column]

    def _reckoned(self, kind, depth):
        kinds = [self.chance.choice(["number", "number", "whole"]) for _ in range(2)]
        one, other = self.of(kinds[0], depth), self.of(kinds[1], depth)
        return self.chance.choice([lambda: one + other, lambda: one - other, lambda: one * other, lambda: one / other,
                                   lambda: -one, lambda: one.abs(), lambda: one.sqrt(), lambda: one * one * one,
                                   lambda: one.cast("float64")])()  # fmt: skip

    def _wholes(self):
        return [self._floored, self._part, self._remainder, self._either, self._column]

    def _floored(self, kind, depth):
        number = self.of("number", depth)
        return self.chance.choice([number.floor, number.ceil, lambda: number // self.of("number", depth)])()

    def _part(self, kind, depth):
        time, day = self.of("time", depth), self.of("date", depth)
        return self.chance.choice([time.hour, time.minute, time.second, time.year, day.year, day.month, day.day,
                                   time.day, time.quarter, day.day_of_year, day.day_of_week.index,
                                   time.day_of_week.index,
                                   lambda: self.of("text", depth).length(),
                                   lambda: self.of("truth", depth).cast("int64")])()  # fmt: skip

    def _remainder(self, kind, depth):
        return self.of("whole", depth) % self.chance.choice([1, 2, 7, 1000])

    def _texts(self):
        return [self._changed, self._either, self._column]

    def _changed(self, kind, depth):
        text = self.of("text", depth)
        return self.chance.choice([text.lower, text.upper, lambda: text.substr(1, 2), lambda: text.substr(2),
                                   lambda: text.left(1)])()  # fmt: skip

    def _times(self):
        return [self._truncated, self._either, self._column]

    def _truncated(self, kind, depth):
        return self.of("time", depth).truncate(self.chance.choice(["Y", "Q", "M", "W", "D", "h", "m", "s"]))

    def _dates(self):
        return [lambda kind, depth: self.of("time", depth).date(), self._either, self._column]
