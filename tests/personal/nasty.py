"""A table of values that databases stumble over, in DuckDB and in PostgreSQL, and random expressions on it."""

import random

import duckdb
import psycopg

from deltahist.personal import Engine

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
    return [Engine.open(connection), Engine.open(postgres_url)]


class Expressions:
    """Random expressions in SQL on the table, by kind."""

    def __init__(self, seed):
        self.chance = random.Random(seed)

    def of(self, kind, depth):
        """An expression of a kind, nested so deeply at most."""
        if depth == 0 or self.chance.random() < 0.1:
            return self._leaf(kind)
        if self.chance.random() < 0.2:
            return self._either(kind, depth - 1)
        return getattr(self, f"_{kind}")(lambda other: self.of(other, depth - 1))

    def _leaf(self, kind):
        constants = {
            "whole": ["0", "1", "-3", "9223372036854775807", "7"],
            "number": ["0.0", "0.1", "-1e100", "1e-100", "2.5", "0.1234567890123456789"],
            "text": ["''", "'é'", "'a%'", "'bus'"], "truth": ["true", "false"], "date": ["cast('2024-02-29' as date)"],
            "time": ["cast('2020-02-29 12:00:01' as timestamp)", "cast('0001-01-01' as timestamp)"],
        }  # fmt: skip
        return self.chance.choice([*COLUMNS[kind] * 2, *constants[kind]])

    def _either(self, kind, depth):
        one, other, truth = (self.of(each, depth) for each in (kind, kind, "truth"))
        return self.chance.choice([
            f"case when {truth} then {one} else {other} end", f"case when {truth} then {one} end",
            f"coalesce({one}, {other})", f"nullif({one}, {other})",
        ])  # fmt: skip

    def _truth(self, of):
        kind = self.chance.choice(["whole", "number", "number", "text", "time", "date", "truth"])
        signs = ["=", "<>"] if kind in ("text", "truth") else ["=", "<>", "<", "<=", ">"]
        patterns = ["%", "a%", "é%", "%'%".replace("'", "''"), "", "%us%", "%é"]
        made = [
            f"({of(kind)}) {self.chance.choice(signs)} ({of(kind)})", f"({of(kind)}) in ({of(kind)}, {of(kind)})",
            f"({of('truth')}) and ({of('truth')})", f"({of('truth')}) or ({of('truth')})", f"not ({of('truth')})",
            f"({of('text')}) like '{self.chance.choice(patterns)}'", f"({of(kind)}) is not null",
        ]  # fmt: skip
        if kind not in ("text", "truth"):
            made.append(f"({of(kind)}) between ({of(kind)}) and ({of(kind)})")
        return self.chance.choice(made)

    def _number(self, of):
        one, other = (of(self.chance.choice(["number", "number", "whole"])) for _ in range(2))
        sign = self.chance.choice("+-*/")
        return self.chance.choice([f"({one}) {sign} ({other})"] * 3 + [
            f"-({one})", f"abs({one})", f"sqrt({one})", f"({one}) * ({one}) * ({one})",
        ])  # fmt: skip

    def _whole(self, of):
        part = self.chance.choice(["year", "month", "day", "quarter", "doy", "isodow", "hour", "minute", "second"])
        kind = "time" if part in ("hour", "minute", "second") else self.chance.choice(["time", "date"])
        return self.chance.choice([
            f"floor({of('number')})", f"ceil({of('number')})",
            f"({of('whole')}) % {self.chance.choice([1, 2, 7, 1000])}",
            f"extract({part} from {of(kind)})", f"length({of('text')})",
        ])  # fmt: skip

    def _text(self, of):
        call = self.chance.choice(["lower({})", "upper({})", "substr({}, 2, 2)", "substr({}, 3)", "substr({}, 1, 1)"])
        return call.format(of("text"))

    def _time(self, of):
        unit = self.chance.choice(["year", "quarter", "month", "week", "day", "hour", "minute", "second"])
        return f"date_trunc('{unit}', {of('time')})"

    def _date(self, of):
        return f"cast({of('time')} as date)"
