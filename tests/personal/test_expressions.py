"""Expressions on records: none fails whatever the records hold, and both databases agree."""

import ibis
import numpy as np
import pyarrow as pa
import pytest

from deltahist.errors import InputError
from deltahist.personal.query import OWNER, Query
from tests.personal.nasty import COLUMNS, ROWS, Expressions, open_both

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
        "a > " + "9" * 5000,
        "f > 1" + "0" * 400 + ".5",
        f"a in ({','.join(map(str, range(20_000)))})",
        " + ".join(["f"] * 5000) + " > 3",
        "(" * 3000 + "b" + ")" * 3000,
        "f * f > 1".replace("f", "(f * f * f * f * f * f * f * f * f * f * f)").replace("f", "(f + f + f + f + f)"),
    ],
)
def test_long_expressions_are_refused_in_a_short_message(asked):
    with pytest.raises(InputError) as caught:
        QUERY.where(asked)
    assert len(str(caught.value)) < 700


def test_a_column_of_null_alone_is_refused():
    assert QUERY.select(one="1").columns == {"one": "whole"}
    with pytest.raises(InputError):
        QUERY.select(none="null")
