"""Expressions on records: none fails whatever the records hold, and both databases agree."""

import random

import duckdb
import ibis
import numpy as np
import psycopg
import pyarrow as pa
import pytest

from deltahist.errors import InputError
from deltahist.personal import Engine
from deltahist.personal.query import OWNER, Query

#: Values that databases stumble over.
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
    """SQL that makes the table `nasty`: every value at least once, in random rows."""
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


AT_ONCE, TIMES = 36, 3


def _evaluated(databases, values):
    tables = []
    for database in databases:
        query = database.make_query("nasty", "who")
        with database.open_session() as look:
            table = look.fetch_table(query.select(number="number", **values).table)
        tables.append(table.sort_by("number").drop_columns(["number"]))
    return tables


def test_random_expressions_on_nasty_values_never_fail_and_agree(postgres_url):
    databases = open_both(postgres_url)
    assert len({str(database.make_query("nasty", "who").columns) for database in databases}) == 1
    given = 0
    for seed in range(TIMES):
        values = {}
        for number in range(AT_ONCE):
            kind = list(COLUMNS)[number % len(COLUMNS)]
            values[f"v{number}"] = Expressions(1000 * seed + number).of(kind, number % 4)
        one, same = _evaluated(databases, values)
        assert one.num_rows == ROWS
        for name in values:
            assert one[name].equals(same[name]), (name, seed, values[name])
            given += one.num_rows - one[name].null_count
    assert given > AT_ONCE * TIMES * ROWS / 4


#: Each would fail, or differ, without one of the guards.
_HARD = [
    "a + a", "a - small - a", "a * a * a * a", "-a", "abs(a)", "f * f * f * f", "g * g * g * g * g",
    "f / g / g / g / g",
    "(f + g) * (f + g) * (f - g) / (g * g * g)", "1 / (f - real)", "1 / g / g / g", "sqrt(f) * sqrt(-f)",
    "floor(g * g)",
    "floor(f / g * 1e80)", "ceil(-f * 3e15)", "a / 3 + 0.1", "0.1 + 0.2 - 0.3 + 0 * f", "g - 0.3", "real * 1e60",
    "real * real * real", "price * price / 0.07", "case when g = 0 then 1 else f / g end", "floor(a / 10) % 7",
    "coalesce(a / (case when b then 0 else 0 end), a)", "a % 7", "small % 5", "coalesce(f, a)",
    "nullif(a, 7) + small", "case small when 5 then a else f end",
]  # fmt: skip
_HARD_TRUTHS = [
    "f > 1e99", "f = real", "a > 9.2e18", "a = 9007199254740992", "f < -0.0 or f = 0", "s like '%\n%'", "s = 'e\u0301'",
    "t < '0002-01-01'", "zoned > t", "t > d", "d = '2024-02-29' or t = '2020-02-29 12:00:01'", "not (f > 1)",
    "s in ('', 'é')", "length(s) = 5 and substr(s, 2, 1) = ' '", "lower(s) = 'ß' or upper(s) = 'İ'",
    "extract(second from t) = 59 or extract(isodow from d) = 7", "date_trunc('week', t) < '0001-01-02'",
    "cast(zoned as date) = '2020-03-28'", "b = (f > g)",
]  # fmt: skip


def test_expressions_that_fail_without_guards_are_null_in_both_databases(postgres_url):
    databases, texts = open_both(postgres_url), _HARD + _HARD_TRUTHS
    one, same = _evaluated(databases, {f"v{number}": text for number, text in enumerate(texts)})
    for number, text in enumerate(texts):
        column = one[f"v{number}"]
        assert column.equals(same[f"v{number}"]), text
        assert column.null_count < ROWS, text
        if pa.types.is_floating(column.type):
            sizes = np.abs(column.drop_null().to_numpy())
            assert ((sizes == 0) | ((sizes >= 1e-100) & (sizes <= 1e100))).all(), text


TABLE = ibis.table(
    {OWNER: "string", "a": "int64", "f": "float64", "s": "string", "t": "timestamp(6)", "b": "boolean"}, name="records"
)
QUERY = Query(TABLE, ("records", "who"))


@pytest.mark.parametrize(
    "asked",
    [
        # Another value each time, or other records.
        "random() < 0.5", "t < now()", "t < current_timestamp", "f > avg(f)", "f > avg(f) over (partition by s)",
        "count(*) > 3", "a in (select a from other)", "exists (select 1)", "f > (select max(f) from other)",
        "other.f > 3", f"{OWNER} = 'ann'", "row_number() over () > 1",
        # May fail, has effects, or differs between databases.
        "pg_sleep(f) > 3", "cast(s as bigint) > 3", "cast(f as bigint) > 3", "cast(f as text) = '3'", "s::int > 3",
        "try_cast(s as date) is null", "round(f) > 3", "exp(f) > 3", "ln(f) > 3", "power(f, 2) > 3", "sin(f) > 0",
        "s || s = 'aa'", "s < 'b'", "b > false", "s between 'a' and 'b'", "s ilike 'a%'", "s ~ '(a+)+$'",
        "s similar to 'a'", "s not ilike 'a%'", "s regexp 'a'", "regexp_like(s, 'a')", "regexp_matches(s, '(a|a)*b')",
        "regexp_replace(s, 'a', 'b') = s", "s glob '*a*'", "s like any ('a%', 'b%')", "contains(s, s)",
        "concat(s, s) = s", "concat_ws(s, s, s) = s", "repeat(s, 9) = s", "lpad(s, 9, s) = s", "replace(s, 'a', s) = s",
        "length(s || s) > 3", "lower(s || s) = s", "reverse(s) = s", "strpos(s, s) > 1", "split_part(s, 'a', 1) = s",
        "s like lower('%A%')", "s like '%' || 'a'", "levenshtein(s, s) > 1", "hash(s) > 1", "s collate nocase = 'a'",
        "s like s", "s like 'a' escape 'b'", "s like 'a_'", "s like '_%x%y'", "s like '%x%y%'",
        "s like 'a%b'", "s like 'a' || s", r"s like 'a\%'", "s like '" + "a" * 2000 + "'",
        "substr(s, a, 2) = 'x'", "substr(s, 0) = 'x'", "substr(s, -1) = 'x'", "substr(s, 1, -1) = 'x'",
        "a % 0 = 1", "a % -7 = 1", "a % a = 1", "f % 2 = 1", "a & 1 = 1", "a = 1 or 2", "t + interval '1 day' > t",
        "date_trunc('millisecond', t) > t", "extract(epoch from t) > 3", "extract(hour from s) > 3",
        # Bad values, or values of another kind.
        "t > 'yesterday'", "t > cast('yesterday' as timestamp)", "t > '01/05/2026'", "t > 'now'", 's = "bus"',
        "f > 1e200", "f > 1e-200", "a = s", "f", "nothing > 3", "", "a >", "a > 1; drop table t",
        "a > 9223372036854775808", "s = 3", "case when a then 1 end = 1", "floor(f, 2) = 1", "s = 'a\0'",
        3, None, lambda table: table.a > 3,
    ],
)  # fmt: skip
def test_expressions_that_may_fail_or_look_elsewhere_are_refused(asked):
    with pytest.raises(InputError):
        QUERY.where(asked)


@pytest.mark.parametrize(
    "asked",
    [
        "a > " + "9" * 5000, "f > 1" + "0" * 400 + ".5", f"a in ({','.join(map(str, range(20_000)))})",
        " + ".join(["f"] * 5000) + " > 3", "(" * 3000 + "b" + ")" * 3000,
        "f * f > 1".replace("f", "(f * f * f * f * f * f * f * f * f * f * f)").replace("f", "(f + f + f + f + f)"),
    ],
)  # fmt: skip
def test_long_expressions_are_refused_in_a_short_message(asked):
    with pytest.raises(InputError) as caught:
        QUERY.where(asked)
    assert len(str(caught.value)) < 700
