"""Queries: each derived record is its owner's, made of the owner's records alone, and place leaves its trace."""

from collections import Counter

import duckdb
import ibis
import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings, strategies as st

from deltahist.errors import InputError
from deltahist.personal.query import OWNER, Query

TABLE = ibis.table(
    {OWNER: "int64", "a": "int64", "kind": "string", "x": "float64", "y": "float64"}, name="records"
)
QUERY = Query(TABLE, placed=frozenset("xy"), source=("records",))
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
            condition = draw(
                st.sampled_from(["a > 1", "kind = 'u' or x > 1", "x < 2", "not (kind in ('v'))"])
            )
            query = query.where(condition)
        elif step == 1:
            query = query.select("kind", **draw(st.sampled_from([
                {"a": "floor(x)", "x": "x + 1"}, {"a": "a % 2", "x": "0.5"},
                {"a": "coalesce(a, floor(x))", "x": "a / 2"},
            ])))  # fmt: skip
        elif step == 2:
            copy = {"a": "a", "kind": "kind", "x": "x"}
            other = draw(st.sampled_from([
                {**copy, "x": "x - 1"}, {**copy, "where": "x > 0.5"}, {"a": "floor(x)", "kind": "'w'", "x": "a / 4"},
            ]))  # fmt: skip
            query = query.flat_map(copy, other)
        elif step == 3:
            query = query.union(query.where("kind = 'v'"))
        elif step == 4:
            query = query.distinct()
        elif step == 5:
            query = query.at_most(draw(st.integers(1, 3)))
        elif step == 6:
            query = query.at_most(
                draw(st.integers(1, 3)), by=draw(st.sampled_from(["a", "x", ("kind", "a")]))
            )
        elif step == 7:
            query = (
                query.join(SEATS, "kind").select("kind", "x", a="a + seats").select("kind", "x", a="floor(a)")
            )
        else:
            query = query.partition("a", [0, 1])[draw(st.integers(0, 1))]
    return query


@settings(max_examples=25)
@given(_queries(), _ROWS)
def test_what_is_derived_is_the_union_of_what_is_derived_from_each_owner_alone(derived, query, rows):
    together, *alone = derived(query, rows, *([row for row in rows if row[0] == owner] for owner in range(3)))
    assert together == sum(alone, Counter())
    assert all({record[0] for record in own} <= {owner} for owner, own in enumerate(alone))


@settings(max_examples=25)
@given(_queries(), _ROWS, st.randoms(use_true_random=False))
def test_what_does_not_depend_on_place_is_the_same_wherever_the_records_are(derived, query, rows, chance):
    assume(not query.by_place)
    moved = [(*row[:3], chance.choice([None, 0.0, 1.0, 2.5]), chance.choice([-1.0, 0.5])) for row in rows]
    steady = [0] + [at for at, name in enumerate(query.table.columns) if name not in query.placed and at]
    before, after = (
        Counter(tuple(record[at] for at in steady) for record in found.elements())
        for found in derived(query, rows, moved)
    )
    assert before == after


@pytest.mark.parametrize(
    ("query", "placed", "by_place"),
    [
        (QUERY, {"x", "y"}, False),
        (QUERY.where("a > 1"), {"x", "y"}, False),
        (QUERY.where("x > 1"), {"x", "y"}, True),
        (QUERY.where(lambda t: ibis.cases((t.a > 1, t.x > 3), else_=True)), {"x", "y"}, True),
        (QUERY.select("a", "x"), {"x"}, False),
        (QUERY.select("a", far="abs(x) + 1").select("a", b="far * a"), {"b"}, False),
        (QUERY.select("a", b="case when a > 1 then 1 when a > 0 then y else 3 end"), {"b"}, False),
        (QUERY.select("a", b="case when y > 1 then 1 else 3 end"), {"b"}, False),
        (QUERY.select("a", b="nullif(a, floor(x))"), {"b"}, False),
        (QUERY.select("a", b="kind in ('u', 'v')"), set(), False),
        (QUERY.flat_map({"p": "a"}, {"p": "x"}), {"p"}, False),
        (QUERY.flat_map({"p": "a"}, {"p": "a", "where": "y > 1"}), set(), True),
        (QUERY.select("a").union(QUERY.where("x > 1").select("a")), set(), True),
        (QUERY.select("a").union(QUERY.select(a="floor(x)")), {"a"}, False),
        (QUERY.distinct("a"), set(), False),
        (QUERY.distinct("a", "x"), {"x"}, True),
        (QUERY.distinct(), {"x", "y"}, True),
        (QUERY.at_most(2), {"x", "y"}, True),
        (QUERY.at_most(2, by="a"), {"x", "y"}, False),
        (QUERY.at_most(2, by=["a", "y"]), {"x", "y"}, True),
        (QUERY.partition("kind", ["u"])["u"], {"x", "y"}, False),
        (QUERY.select(a="floor(x)").partition("a", [3])[3], {"a"}, True),
        (QUERY.join(SPOTS, "a"), {"x", "y"}, False),
        (QUERY.select("y", a="floor(x)").join(SPOTS, "a"), {"a", "y", "spot"}, True),
        (QUERY.where("x > 1").select("a"), set(), True),
    ],
)  # fmt: skip
def test_place_leaves_its_trace(query, placed, by_place):
    assert (set(query.placed), query.by_place) == (placed, by_place)


@pytest.mark.parametrize(
    ("derive", "untouched"),
    [
        (lambda q: q.where("x > 1").at_most(2).distinct(), {"x", "y"}),
        (lambda q: q.select("a", x="x"), set()),
        (lambda q: q.select("x", y="a / 2"), {"x"}),
        (lambda q: q.flat_map({"x": "x", "y": "y"}, {"x": "y", "y": "x"}), set()),
        (lambda q: q.select("a", "x").union(q.select("a", x="x + 0")), set()),
        (lambda q: q.select("a").join(pd.DataFrame({"a": [1], "x": [0.5]}), "a"), set()),
    ],
)
def test_only_places_as_they_were_are_untouched(derive, untouched):
    query = Query(TABLE, placed=frozenset("xy"), untouched=frozenset("xy"), source=("records",))
    assert derive(query).untouched == untouched


_OWN = [
    (0, 1, "u", 0.0, 0.5),
    (0, 1, "v", 1.0, 0.5),
    (0, 2, "u", 2.0, 0.5),
    (1, 1, "u", 0.0, 0.5),
    (0, 1, "v", 1.0, 0.5),
]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (QUERY.distinct("a"), {(0, 1): 1, (0, 2): 1, (1, 1): 1}),
        (QUERY.select("a").at_most(2), {(0, 1): 2, (1, 1): 1}),
        # Three records of person 0 are alike in a: not all of them fit, and so none stays.
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


def test_steps_together_make_a_thousand_records_of_one_at_most():
    query = QUERY.select("kind")
    for step in range(1, 4):
        query = _times(query, 10).where("kind = 'u'").at_most(3)
        assert (query.copies, query.most) == (10**step, 3)
    with pytest.raises(InputError, match="up to 2,000 records of one: flat_map and union together make 1,000"):
        _times(query, 2)
    with pytest.raises(InputError, match="up to 1,001 records of one"):
        query.union(QUERY.select("kind"))


def test_a_query_knows_how_many_records_of_a_person_there_are_at_most():
    few, all_of = QUERY.select("kind").at_most(4), QUERY.select("kind")
    assert (all_of.most, few.most, few.at_most(9).most, few.at_most(2).most) == (None, 4, 4, 2)
    assert (few.union(few.at_most(1)).most, few.union(all_of).most, all_of.union(few).most) == (5, None, None)
    assert (_times(few, 3).most, _times(all_of, 3).most) == (12, None)
    assert few.partition("kind", ["u"])["u"].join(SEATS, "kind").distinct().most == 4


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda q: q.select("b"), "column 'b', which is not there: there are 'a', 'kind', 'x', 'y'"),
        (lambda q: q.where("b > 3"), "column 'b', which is not there: there are 'a', 'kind', 'x', 'y'"),
        (lambda q: q.where(f"{OWNER} = 3"), "column '_person', which is not there"),
        (lambda q: q.select(OWNER), "column '_person', which is not there"),
        (lambda q: q.select(_person="a"), "'_person', which is kept for the numbers of persons: rename it"),
        (lambda q: q.select(_PERSON="a"), "'_PERSON', which is kept"),
        (lambda q: q.rows(_person="a"), "'_person', which is kept"),
        (lambda q: q.flat_map({"_person": "a"}), "'_person', which is kept"),
        (lambda q: q.join(SPOTS.rename(columns={"spot": "_Person"}), "a"), "'_Person', which is kept"),
        (lambda q: q.select("a", A="x"), "called 'a' and 'A': names must differ by more than capitals"),
        (lambda q: q.select(**{"é" * 32: "x"}), "names are texts of 1 to 63 bytes"),
        (
            lambda q: q.union(Query(TABLE, source=("other",))),
            "both must come from one table",
        ),
        (
            lambda q: q.union(Query(TABLE, source=(*q.source, "rider", frozenset()))),
            "both must come from one table, with the same columns of owners and places",
        ),
        (lambda q: q.union(q.select("a")), "both must have the same, by select"),
        (lambda q: q.flat_map(), "at least one record of each one"),
        (lambda q: q.flat_map(*[{"p": "a"}] * 1001), "makes up to 1,001 records of one"),
        (lambda q: q.flat_map(*[{"p": "a"}] * 501).distinct().flat_map({"p": "p"}, {"p": "1 - p"}), "up to 1,002"),
        (lambda q: _times(_times(q, 20).at_most(1), 20).union(_times(q, 601)), "up to 1,001 records of one"),
        (lambda q: q.flat_map({"p": "a"}, {"q": "a"}), "all must have the same columns"),
        (lambda q: q.flat_map({"where": "a > 1"}), "at least one record of each one"),
        (lambda q: q.flat_map({"p": "a"}, {"p": "kind"}), "takes a whole number for text"),
        (lambda q: q.partition("kind", ["u", "u"]), "each must be there once"),
        (lambda q: q.partition("kind", ["u", None]), "none may be missing .ask for these by where, is null"),
        (lambda q: q.partition("x", [float("nan")]), "none may be missing .ask for these by where, is null"),
        (lambda q: q.partition("b", [1]), "column 'b', which is not there"),
        (lambda q: q.distinct("b"), "column 'b', which is not there"),
        (lambda q: q.at_most(0), "number is 0: it must be a whole number of at least 1"),
        (lambda q: q.at_most(2, by="b"), "column 'b', which is not there"),
        (lambda q: q.join(SEATS, "b"), "column 'b', which is not there"),
        (
            lambda q: q.join(SEATS, "a"),
            r"join on \['a'\]: the public table has the columns \['kind', 'seats'\]",
        ),
        (
            lambda q: q.join(pd.concat([SEATS, SEATS]), "kind"),
            r"keys \['kind'\] that repeat, in row 2: each record would",
        ),
        (lambda q: q.join(TABLE, "kind"), "join with Table: it must be a pandas frame, which is public"),
        (lambda q: q.join(q, "kind"), "join with Query: it must be a pandas frame"),
        (lambda q: q.join(SEATS[:0], "kind"), "has 0 rows"),
        (lambda q: q.join(SEATS.assign(kind=["u", None]), "kind"), "join on 'kind'.* none is missing"),
        (
            lambda q: q.join(SEATS.assign(kind=[1, 2]), "kind"),
            "kind 'whole' in the public table and 'text' in the records",
        ),
        (lambda q: q.join(pd.DataFrame({"x": [1.5]}), "x"), "no numbers with a point"),
        (lambda q: q.join(SEATS.assign(x=1), "kind"), "called 'x' and 'x'"),
        (lambda q: q.join(SEATS.assign(seats=[1, "two"]), "kind"), "'seats' holds values of several types"),
        (lambda q: q.join(SEATS.assign(seats=[1, np.inf]), "kind"), "not of a size of 1e-100 to 1e100"),
        (lambda q: q.where(3), "is of the kind 'whole': a condition is true or false"),
        (lambda q: q.where([]), "has list where an expression belongs"),
    ],
)
def test_what_is_refused_is_refused_with_the_reason(ask, message):
    with pytest.raises(InputError, match=message):
        ask(QUERY)
