"""Expressions on records: none fails whatever the records hold, and both databases say the same."""

import time

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import numpy as np
import pyarrow as pa
import pytest
from nasty import COLUMNS, ROWS, Expressions, open_both

from deltahist.counting.expressions import make_safe
from deltahist.errors import InputError
from deltahist.personal.query import OWNER, Query

AT_ONCE, TIMES = 36, 4


def _evaluated(databases, query, values):
    tables = []
    for database in databases:
        with database.snapshot() as look:
            table = look.fetch(query.rows(number="number", **values))
        tables.append(table.sort_by("number").drop_columns(["number"]))
    return tables


def test_random_expressions_on_nasty_values_never_fail_and_agree(postgres_url):
    databases = open_both(postgres_url)
    query, other = (database.query("nasty", "who") for database in databases)
    assert query.columns == other.columns
    given = 0
    for seed in range(TIMES):
        values = {}
        for number in range(AT_ONCE):
            kind = list(COLUMNS)[number % len(COLUMNS)]
            values[f"v{number}"] = lambda table, number=number, kind=kind, seed=seed: Expressions(
                table, 1000 * seed + number
            ).of(kind, number % 4)
        one, same = _evaluated(databases, query, values)
        assert one.num_rows == ROWS
        for name in values:
            assert one[name].equals(same[name]), (name, seed, ibis.to_sql(query.rows(v=values[name]), "duckdb"))
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


@pytest.mark.parametrize("texts", [_HARD, _HARD_TRUTHS], ids=["numbers", "conditions"])
def test_what_fails_without_guards_is_null_in_both_data_bases(postgres_url, texts):
    databases = open_both(postgres_url)
    query = databases[0].query("nasty", "who")
    one, same = _evaluated(databases, query, {f"v{number}": text for number, text in enumerate(texts)})
    for number, text in enumerate(texts):
        column = one[f"v{number}"]
        assert column.equals(same[f"v{number}"]), text
        assert column.null_count < ROWS, text
        if pa.types.is_floating(column.type):
            sizes = np.abs(column.drop_null().to_numpy())
            assert ((sizes == 0) | ((sizes >= 1e-100) & (sizes <= 1e100))).all(), text


TABLE = ibis.table(
    {OWNER: "int64", "a": "int64", "f": "float64", "s": "string", "t": "timestamp(6)", "b": "boolean"}, name="records"
)
QUERY = Query(TABLE)


@ibis.udf.scalar.builtin
def pg_sleep(x: float) -> float:
    """A function with side effects."""


class Floor(ops.Unary):
    """An operation of the user's own, with the name of one of Ibis."""

    dtype = dt.int64


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (lambda t: ibis.random() < 0.5, "RandomScalar: it gives something else each time"),
        (lambda t: t.t < ibis.now(), "TimestampNow: it gives something else each time"),
        (lambda t: t.f > t.f.mean(), "Mean: it looks at other records"),
        (lambda t: t.f > t.f.mean().over(ibis.window(group_by="s")), "WindowFunction: it looks at other records"),
        (lambda t: t.f > t.f.lag(), "Lag: it looks at other records"),
        (lambda t: t.count() > 3, "CountStar: it looks at other records"),
        (lambda t: t.a.isin(TABLE.a), "InSubquery: it looks at other records"),
        (lambda t: t.f > ibis.table({"f": "float64"}, name="other").f.max().as_scalar(), "looks at other records"),
        (lambda t: TABLE.f > 3, "'f' of another table: it looks at other records"),
        (lambda t: TABLE[OWNER] > 3, "'_person' of another table"),
        (lambda t: pg_sleep(t.f) > 3, "pg_sleep_0: it could fail"),
        (lambda t: Floor(t.f).to_expr() > 3, "Floor: it could fail"),
        (lambda t: t.s.cast("int64") > 3, "takes text for a whole number"),
        (lambda t: t.f.cast("int64") > 3, "takes a number for a whole number"),
        (lambda t: t.a.cast("int8") > 3, "a cast to int8: it must be to int64"),
        (lambda t: t.f.cast("string") == "3", "takes a number for text"),
        (lambda t: t.f.round() > 3, r"Round: halves are rounded in different ways; write floor\(x"),
        (lambda t: t.f.exp() > 3, "Exp: its last digits differ"),
        (lambda t: t.s + "x" == "yx", "StringConcat: texts could grow"),
        (lambda t: t.s < "m", "Less of text: databases order text in different ways"),
        (lambda t: t.s.between("a", "b"), "Between of text"),
        (lambda t: t.b > True, "Greater of true or false: true and false have no order"),
        (lambda t: t.s.like("a\\%"), "without a backslash"),
        (lambda t: t.s.like(t.s), "the pattern None: it must be a constant"),
        ("s like 'a%_b'", r"the pattern 'a%_b': it must have no _ after a %"),
        ("s like '%a%b%'", r"the pattern '%a%b%': .*at most two %"),
        (lambda t: t.s.like("%%%"), r"the pattern '%%%': .*at most two %"),
        (lambda t: t.s.startswith("a_"), "the pattern None: it must be a constant"),
        (lambda t: t.s.re_search("(a+)+$"), "RegexSearch: it could fail"),
        (lambda t: t.s.substr(t.a, 2) == "x", "where it starts, and its length, must be constants"),
        (lambda t: t.a % 0 == 1, "function that fails .* modulo by zero"),
        (lambda t: t.a % -7 == 1, "by a whole constant above 0"),
        ("a % 0 = 1", "does not go with the kinds of its parts"),
        (lambda t: t.a % t.a == 1, "by a whole constant above 0"),
        (lambda t: t.a & 1 == 1, "BitwiseAnd: it could fail"),
        (lambda t: t.f.isnan(), "IsNan: a NaN is missing; ask whether it is null"),
        (lambda t: t.t + ibis.interval(days=1) > t.t, "TimestampAdd: it could fail"),
        (lambda t: t.t.truncate("ms") > t.t, "truncates times to 'ms'"),
        ("t > 'yesterday'", "times with '2026-05-01 22:30:00'"),
        ("t > cast('yesterday' as timestamp)", "compares a time with 'yesterday': write it as 2026-05-01"),
        ("t > '01/05/2026'", "compares a time with '01/05/2026': write it as 2026-05-01"),
        ('s = "bus"', "column 'bus', which is not there: text stands in single quotes"),
        ("t > 'now'", "compares a time with 'now': write it as 2026-05-01"),
        (lambda t: t.s == "a\0", "must not hold the character 0"),
        (lambda t: t.f > 1e200, "numbers are 0 or of a size of 1e-100 to 1e100"),
        (lambda t: t.f > ibis.literal(float("nan")), "the constant nan"),
        (lambda t: t.a == t.s, "whole number|go with|not compar|fails on"),
        (lambda t: t.f, "is of the kind 'number': a condition is true or false"),
        (lambda t: t.nothing > 3, "function that fails on a table of 'a', 'f', 's', 't', 'b'"),
        (lambda t: t, "has Table where an expression belongs"),
    ],
)
def test_what_cannot_be_made_total_is_refused_with_the_reason(asked, reason):
    with pytest.raises(InputError, match=reason):
        QUERY.where(asked)


def test_lengths_of_expressions_are_bounded_guards_included():
    def power(table):
        out = table.f
        for _ in range(9):
            out = out * out
        return out > 1

    with pytest.raises(InputError, match="more than 4,000 parts, guards included, or nested more than 60 deep"):
        QUERY.where(power)
    with pytest.raises(InputError, match="by select first"):
        QUERY.where(" + ".join(["f"] * 5000) + " > 3")


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("a > " + "9" * 5000, r"the number '9{40}\.\.\.' \(5,000 characters\): whole numbers are below 2\^63"),
        ("a > 9223372036854775808", r"whole numbers are below 2\^63"),
        ("f > 1" + "0" * 400 + ".5", "numbers are 0 or of a size"),
        (f"substr(k, {'9' * 5000}) = 'a'", "the query says .* characters"),
        (lambda t: t.a.isin(range(4001)), "more than 4,000 parts"),
        (f"a in ({','.join(map(str, range(20_000)))})", r"\(108,\d{3} characters\): .* at most 65,536 characters"),
        (f"a in ({','.join(map(str, range(9_000)))})", "more than 4,000 parts"),
    ],
)
def test_long_numbers_and_lists_are_refused_in_one_short_line_and_soon(asked, reason):
    started = time.process_time()
    with pytest.raises(InputError, match=reason) as caught:
        QUERY.where(asked)
    assert len(str(caught.value)) < 700
    assert time.process_time() - started < 2
    assert QUERY.where(lambda t: t.a == 0x7FFFFFFFFFFFFFFF).columns


def test_an_expression_knows_all_columns_that_it_depends_on():
    made = make_safe(TABLE.f + TABLE.a > ibis.cases((TABLE.b, TABLE.t.hour()), else_=3), TABLE, TABLE)
    assert made.columns == {"f", "a", "b", "t"}


def test_expressions_may_be_deferred_and_constants():
    assert QUERY.where(ibis._.f > 3).columns == QUERY.columns
    assert QUERY.select(one=lambda table: 1).columns == {"one": "whole"}
    with pytest.raises(InputError, match="of NULL alone"):
        QUERY.select(none="null")
