"""Queries: each derived record belongs to one owner, and depends on that owner's records alone."""

from collections import Counter

import duckdb
import ibis
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from deltahist.errors import InputError
from deltahist.personal.query import OWNER, Query

TABLE = ibis.table({OWNER: "string", "a": "int64", "kind": "string", "x": "float64", "y": "float64"}, name="records")
QUERY = Query(TABLE, ("records", "who"))
SEATS = pd.DataFrame({"kind": ["u", "v"], "seats": [1, 2]})
SPOTS = pd.DataFrame({"a": [0, 1, 2], "spot": ["here", "there", "here"]})


@pytest.fixture(scope="module")
def derived():
    """What queries derive from rows, as (owner, values ...) with how often each comes."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.execute(f"CREATE TABLE records ({OWNER} BIGINT, a BIGINT, kind TEXT, x DOUBLE, y DOUBLE)")

        def of(query, *tables):
            for op in query.table.op().find(ibis.expr.operations.InMemoryTable):
                connection.register(op.name, op.data.to_pyarrow(op.schema))
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
        step = draw(st.integers(0, 8))
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
            query = query.union(query.where("kind = 'v'"))
        elif step == 4:
            query = query.distinct()
        elif step <= 6:
            by = draw(st.sampled_from(["a", "x", ("kind", "a")])) if step == 5 else ()
            query = query.at_most(draw(st.integers(1, 3)), by=by)
        elif step == 7:
            query = query.join(SEATS, "kind").select("kind", "x", a="a + seats").select("kind", "x", a="floor(a)")
        else:
            query = query.partition("a", [0, 1])[draw(st.integers(0, 1))]
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
        (QUERY.select("a").union(QUERY.select("a")), {(0, 1): 6, (0, 2): 2, (1, 1): 2}),
        (QUERY.join(SEATS, "kind").select("seats"), {(0, 1): 2, (0, 2): 2, (1, 1): 1}),
        (QUERY.join(pd.DataFrame({"a": [2], "more": [0.1]}), "a").select("more"), {(0, 0.1): 1}),
        (QUERY.where("x > 0").flat_map({"p": "x"}, {"p": "0.5", "where": "a = 2"}).select("p"),
         {(0, 1.0): 2, (0, 2.0): 1, (0, 0.5): 1}),
        (QUERY.partition("kind", ["u", "z"])["u"].select("kind"), {(0, "u"): 2, (1, "u"): 1}),
        (QUERY.select(b="a > 1").partition("b", [True])[True], {(0, True): 1}),
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
    for more, number in ((lambda: _times(query, 2), "2,000"), (lambda: query.union(QUERY.select("kind")), "1,001")):
        with pytest.raises(InputError, match=number):
            more()
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
    assert (few.union(few.at_most(1)).most, few.union(all_of).most, all_of.union(few).most) == (5, None, None)
    assert (_times(few, 3).most, _times(all_of, 3).most) == (12, None)
    assert few.partition("kind", ["u"])["u"].join(SEATS, "kind").distinct().most == 4


@pytest.mark.parametrize(
    "ask",
    [
        lambda q: q.where("b > 3"),
        lambda q: q.where(f"{OWNER} = 3"), lambda q: q.select(OWNER), lambda q: q.select(_person="a"),
        lambda q: q.join(SPOTS.rename(columns={"spot": "_Person"}), "a"), lambda q: q.select("a", A="x"),
        lambda q: q.select(**{"é" * 32: "x"}), lambda q: q.union(Query(TABLE, ("other", "who"))),
        lambda q: q.union(q.select("a")), lambda q: q.flat_map(),
        lambda q: _times(_times(q, 20).at_most(1), 20).union(_times(q, 601)),
        lambda q: q.flat_map({"p": "a"}, {"q": "a"}), lambda q: q.flat_map({"where": "a > 1"}),
        lambda q: q.flat_map({"p": "a"}, {"p": "kind"}), lambda q: q.partition("kind", ["u", "u"]),
        lambda q: q.partition("b", [1]), lambda q: q.at_most(0), lambda q: q.join(pd.concat([SEATS, SEATS]), "kind"),
        lambda q: q.join(SEATS.assign(kind=["u", None]), "kind"), lambda q: q.join(SEATS.assign(kind=[1, 2]), "kind"),
        lambda q: q.join(pd.DataFrame({"x": [1.5]}), "x"), lambda q: q.join(SEATS.assign(x=1), "kind"),
        lambda q: q.join(SEATS.assign(seats=[1, np.inf]), "kind"),
        lambda q: q.select(long=f"case when a = 1 then '{'x' * 1001}' else kind end"),
    ],
)  # fmt: skip
def test_bad_steps_are_refused(ask):
    with pytest.raises(InputError):
        ask(QUERY)
