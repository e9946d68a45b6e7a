"""Queries: derived records depend on their owner's records alone, and no expression fails or differs by database."""

import random
import re
from collections import Counter

import duckdb
import ibis
import numpy as np
import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from deltahist.errors import InputError
from deltahist.personal import Engine
from deltahist.personal.query import OWNER, Query

TABLE = ibis.table({OWNER: "string", "a": "int64", "kind": "string", "x": "float64", "y": "float64"}, name="records")
QUERY = Query(TABLE, ("records", "who"))


@pytest.fixture(scope="module")
def derived():
    """What queries derive from rows, as (owner, values ...) with how often each comes."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.execute(f"CREATE TABLE records ({OWNER} BIGINT, a BIGINT, kind TEXT, x DOUBLE, y DOUBLE)")

        def of(query, *tables):
            statement, out = ibis.to_sql(query.table, "duckdb", pretty=False), []
            for rows in tables:
                connection.execute("DELETE FROM records")
                if rows:
                    connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?)", rows)
                out.append(Counter(connection.execute(statement).fetchall()))
            return out

        yield of


_ROWS = st.lists(
    st.tuples(
        st.integers(0, 2), st.none() | st.integers(0, 3), st.sampled_from([None, "u", "v", "w"]),
        st.none() | st.sampled_from([0.0, 1.0, 2.5]), st.sampled_from([-1.0, 0.5]),
    ),
    max_size=12,
)  # fmt: skip


@st.composite
def _queries(draw, depth=3):
    """Random queries that keep the columns a, kind and x."""
    query = QUERY.select("a", "kind", "x")
    for _ in range(draw(st.integers(0, depth))):
        step = draw(st.integers(0, 5))
        if step == 0:
            query = query.where(draw(st.sampled_from(["a > 1", "kind = 'u' or x > 1", "x < 2", "not (kind in ('v'))"])))
        elif step == 1:
            query = query.select("kind", **draw(st.sampled_from([
                {"a": "floor(x)", "x": "x + 1"}, {"a": "a % 2", "x": "0.5"},
                {"a": "coalesce(a, floor(x))", "x": "a / 2"},
            ])))  # fmt: skip
        elif step == 2:
            copy = {"a": "a", "kind": "kind", "x": "x"}
            query = query.flat_map(copy, draw(st.sampled_from([
                {**copy, "x": "x - 1"}, {**copy, "where": "x > 0.5"}, {"a": "floor(x)", "kind": "'w'", "x": "a / 4"},
            ])))  # fmt: skip
        elif step == 3:
            query = query.distinct()
        else:
            by = draw(st.sampled_from(["a", "x", ("kind", "a")])) if step == 4 else ()
            query = query.at_most(draw(st.integers(1, 3)), by=by)
    return query


@settings(max_examples=25)
@given(_queries(), _ROWS)
def test_records_derived_from_all_are_those_derived_from_each_owner_alone(derived, query, rows):
    together, *alone = derived(query, rows, *([row for row in rows if row[0] == owner] for owner in range(3)))
    assert together == sum(alone, Counter())
    assert all({record[0] for record in own} <= {owner} for owner, own in enumerate(alone))


_OWN = [
    (0, 1, "u", 0.0, 0.5), (0, 1, "v", 1.0, 0.5), (0, 2, "u", 2.0, 0.5), (1, 1, "u", 0.0, 0.5), (0, 1, "v", 1.0, 0.5),
]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (QUERY.distinct("a"), {(0, 1): 1, (0, 2): 1, (1, 1): 1}),
        (QUERY.select("a").at_most(2), {(0, 1): 2, (1, 1): 1}),
        # Three records of person 0 are alike in a: as not all of them fit, none stays.
        (QUERY.at_most(2, by="a").select("a"), {(1, 1): 1}),
        (QUERY.at_most(3, by="a").select("a"), {(0, 1): 3, (1, 1): 1}),
        (QUERY.flat_map(*[{"a": "a"}] * 2), {(0, 1): 6, (0, 2): 2, (1, 1): 2}),
        (QUERY.where("x > 0").flat_map({"p": "x"}, {"p": "0.5", "where": "a = 2"}).select("p"),
         {(0, 1.0): 2, (0, 2.0): 1, (0, 0.5): 1}),
    ],
)  # fmt: skip
def test_queries_do_what_they_say(derived, query, expected):
    assert derived(query, _OWN) == [expected]


def _times(query, number):
    return query.flat_map(*[{"kind": "kind"}] * number)


def test_a_query_bounds_the_records_and_expressions_of_one_record():
    query = QUERY.select("kind")
    for step in range(1, 4):
        query = _times(query, 10).where("kind = 'u'").at_most(3)
        assert (query.copies, query.most) == (10**step, 3)
    with pytest.raises(InputError, match="2,000"):
        _times(query, 2)
    # Columns count as their expressions, since a database may write these out again at each use.
    query = QUERY.select("kind", "x")
    sizes = [query.parts]
    for _ in range(2):
        query = query.select("kind", x="x * x + x")
        sizes.append(query.parts)
    assert sizes[2] - sizes[1] > 2 * (sizes[1] - sizes[0])
    few = _times(QUERY, 100)
    assert few.where("kind like 'a%'").parts == few.parts + 100 * 3
    long = " or ".join(f"kind like '{number}%'" for number in range(50))
    for more in (
        lambda: query.select(x="x * x + x").select(x="x * x + x").select(x="x * x + x"),
        lambda: few.where(long),
    ):
        with pytest.raises(InputError):
            more()


def test_a_query_bounds_the_records_of_a_person():
    few, all_of = QUERY.select("kind").at_most(4), QUERY.select("kind")
    assert (all_of.most, few.most, few.at_most(9).most, few.at_most(2).most) == (None, 4, 4, 2)
    assert (_times(few, 3).most, _times(all_of, 3).most) == (12, None)
    assert few.where("kind = 'u'").select("kind").distinct().most == 4


@pytest.mark.parametrize(
    "ask",
    [
        lambda q: q.where("b > 3"),
        lambda q: q.where(f"{OWNER} = 3"), lambda q: q.select(OWNER), lambda q: q.select(_person="a"),
        lambda q: q.select("a", A="x"), lambda q: q.select(**{"é" * 32: "x"}), lambda q: q.flat_map(),
        lambda q: q.flat_map({"p": "a"}, {"q": "a"}), lambda q: q.flat_map({"where": "a > 1"}),
        lambda q: q.flat_map({"p": "a"}, {"p": "kind"}), lambda q: q.at_most(0),
        lambda q: q.select(long=f"case when a = 1 then '{'x' * 1001}' else kind end"),
    ],
)  # fmt: skip
def test_bad_steps_are_refused(ask):
    with pytest.raises(InputError):
        ask(QUERY)


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


#: Leaves and rules of random expressions, by kind. A kind in <> is replaced by an expression of that kind.
LEAVES = {
    "whole": ["0", "1", "-3", "9223372036854775807", "7"],
    "number": ["0.0", "0.1", "-1e100", "1e-100", "2.5", "0.1234567890123456789"],
    "text": ["''", "'é'", "'a%'", "'bus'"], "truth": ["true", "false"], "date": ["cast('2024-02-29' as date)"],
    "time": ["cast('2020-02-29 12:00:01' as timestamp)", "cast('0001-01-01' as timestamp)"],
}  # fmt: skip
ANY = ["case when <truth> then <{0}> else <{0}> end", "case when <truth> then <{0}> end", "coalesce(<{0}>, <{0}>)"]
ORDERED, DATE_PARTS = ("whole", "number", "time", "date"), ("year", "month", "day", "quarter", "doy", "isodow")
RULES = {
    "truth": [
        *(f"<{kind}> {sign} <{kind}>" for kind in COLUMNS for sign in ("=", "<>")),
        *(f"<{kind}> {sign} <{kind}>" for kind in ORDERED for sign in ("<", "<=", ">")),
        *(f"<{kind}> in (<{kind}>, <{kind}>)" for kind in COLUMNS), *(f"<{kind}> is not null" for kind in COLUMNS),
        *(f"<{kind}> between <{kind}> and <{kind}>" for kind in ORDERED),
        *["<truth> and <truth>", "<truth> or <truth>", "not <truth>"] * 5,
        *(f"<text> like '{pattern}'" for pattern in ("%", "a%", "é%", "%''%", "", "%us%", "%é")),
    ],
    "number": [
        *(f"<{one}> {sign} <number>" for one in ("number", "whole") for sign in "+-*/"),
        *(f"<{one}> {sign} <whole>" for one in ("number", "whole") for sign in "+-*/"),
        *["-<number>", "abs(<number>)", "<number> * <number> * <whole>"] * 2,
    ],
    "whole": [
        *["floor(<number>)", "ceil(<number>)", "length(<text>)"] * 4, *(f"<whole> % {n}" for n in (1, 2, 7, 1000)),
        *(f"extract({part} from <time>)" for part in (*DATE_PARTS, "hour", "minute", "second")),
        *(f"extract({part} from <date>)" for part in DATE_PARTS),
    ],
    "text": ["lower(<text>)", "upper(<text>)", "substr(<text>, 2, 2)", "substr(<text>, 3)", "substr(<text>, 1, 1)"],
    "time": [f"date_trunc('{unit}', <time>)" for unit in ("week", *DATE_PARTS[:4], "hour", "minute", "second")],
    "date": ["cast(<time> as date)"],
}  # fmt: skip


def write_expression(chance, kind, depth):
    if depth == 0 or chance.random() < 0.1:
        return chance.choice([*COLUMNS[kind] * 2, *LEAVES[kind]])
    rule = chance.choice(ANY if chance.random() < 0.2 else RULES[kind]).format(kind)
    return re.sub(r"<(\w+)>", lambda found: f"({write_expression(chance, found[1], depth - 1)})", rule)


AT_ONCE, TIMES = 36, 3


def _evaluated(databases, values):
    tables = []
    for database in databases:
        query = database.make_query("nasty", "who")
        with database.open_session() as look:
            table = look.plan_fetch(query.select(number="number", **values).table)()
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
            values[f"v{number}"] = write_expression(random.Random(1000 * seed + number), kind, number % 4)
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
    "(f + g) * (f + g) * (f - g) / (g * g * g)", "1 / (f - real)", "1 / g / g / g",
    "floor(g * g)",
    "floor(f / g * 1e80)", "ceil(-f * 3e15)", "a / 3 + 0.1", "0.1 + 0.2 - 0.3 + 0 * f", "g - 0.3", "real * 1e60",
    "real * real * real", "price * price / 0.07", "case when g = 0 then 1 else f / g end", "floor(a / 10) % 7",
    "coalesce(a / (case when b then 0 else 0 end), a)", "a % 7", "small % 5", "coalesce(f, a)",
    "case small when 5 then a else f end",
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


PLAIN = ibis.table(
    {OWNER: "string", "a": "int64", "f": "float64", "s": "string", "t": "timestamp(6)", "b": "boolean"}, name="records"
)


@pytest.mark.parametrize(
    "asked",
    [
        # Another value each time, or other records.
        "random() < 0.5", "t < now()", "t < current_timestamp", "f > avg(f)", "f > avg(f) over (partition by s)",
        "count(*) > 3", "a in (select a from other)", "exists (select 1)", "f > (select max(f) from other)",
        "other.f > 3", f"{OWNER} = 'ann'", "row_number() over () > 1",
        # May fail, has effects, or differs between databases.
        "pg_sleep(f) > 3", "cast(s as bigint) > 3", "cast(f as bigint) > 3", "cast(f as text) = '3'", "s::int > 3",
        "try_cast(s as date) is null", "round(f) > 3", "sqrt(f) > 1", "s || s = 'aa'", "s < 'b'", "b > false",
        "s between 'a' and 'b'", "s ilike 'a%'", "s ~ '(a+)+$'", "s similar to 'a'", "regexp_matches(s, '(a|a)*b')",
        "s glob '*a*'", "s like any ('a%', 'b%')", "concat(s, s) = s", "repeat(s, 9) = s", "length(s || s) > 3",
        "s like lower('%A%')", "s like '%' || 'a'", "hash(s) > 1", "s collate nocase = 'a'",
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
        Query(PLAIN, ("records", "who")).where(asked)


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
        Query(PLAIN, ("records", "who")).where(asked)
    assert len(str(caught.value)) < 700
