"""Inputs as people have them: each is counted right, or refused."""

import uuid
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltahist as dh
from deltahist.preprocessing import Clock

MAP = dh.Domain((0, 0, 10, 10), (10, 10))
XY = {"x": "x", "y": "y"}
USERS = {**XY, "user": "u", "max_per_user": 9}
DROPPED = {**USERS, "drop_bad_rows": True}
ROWS = "".join(f"{i},{i % 10}.5,{i % 7}.5,name\n" for i in range(300))
LINES = "1,1,z\n" * 30_000
BROKEN = ROWS.replace("5,name\n150", '5,"name\n150')

#: File, its text, how it is read, and the numbers of points and of users; None where it must be refused.
TEXTS = {
    "quote that never closes": ("p.csv", f"i,x,y,n\n{BROKEN}", XY, None),
    "quote that never closes, dropped": ("p.csv", f"i,x,y,n\n{BROKEN}", XY | {"drop_bad_rows": True}, None),
    "characters after a quote": ("p.csv", f'i,x,y,n\n{ROWS}1,1,1,"na"me\n', XY, None),
    "file that ends in a quote": ("p.csv", f'i,x,y,n\n{ROWS}1,1,1,"', XY, None),
    "tabs without quoting": ("p.tsv", 'x\ty\tn\n1\t1\t"open\n2\t2\t5" pipe\n', XY, (2, None)),
    "tabs with quoting": ("p.tsv", '"x"\t"y"\t"n"\n"1"\t"1"\t"two\nlines"\n', XY, (1, None)),
    "line break in the header": ("p.csv", '"x\n(east)",y\n1,1\n', {"x": "x\n(east)", "y": "y"}, (1, None)),
    "blank lines before the header": ("p.csv", "\n\nx,y\n1,1\n", XY, (1, None)),
    "lines before the header": ("p.csv", "Exported by X, 2026\n\nid;x;y\n1;1;1\n2;2;2\n", XY, None),
    "rows before the header": ("p.csv", "1,1,1\n2,2,2\nid,x,y\n3,3,3\n", XY, None),
    "fewer names than fields": ("p.csv", "x,y\n\n1,1,,\n2,2,,\n", XY, None),
    "two columns of one name": ("p.csv", "x,y,x\n1,1,99\n", {"x": "0", "y": "1"}, (1, None)),
    "forms of one name": ("p.csv", "x,y,u\n1,1,José\n1,1,Jose\u0301\n1,1,7\n1,1,7 \n1,1,\u00a07\t\n", USERS, (5, 2)),
    "users that are missing": ("p.csv", "x,y,u\n1,1,a\n1,1,\\N\n1,1,None\n1,1,NULL\n1,1, \n", DROPPED, (1, 1)),
    "points as text": ("p.csv", 'i,geom\n1,POINT (1.5 2)\n2,point z(1 2 3)\n', {}, (2, None)),
    "an empty point": ("p.csv", "geom\nPOINT (1 2)\nPOINT EMPTY\n", {"drop_bad_rows": True}, (1, None)),
    "nothing": ("p.csv", "\n", XY, None),
    "lines as text": ("p.csv", 'i,geom\n1,POINT (1.5 2)\n2,"LINESTRING (1 2, 3 4)"\n', {}, None),
    "numbers in JSON": ("p.jsonl", '{"x":1,"y":1,"n":3}\n{"x":2,"y":1,"n":4.0}\n', XY | {"where": "n = 4"}, (1, None)),
    "users in JSON": ("p.jsonl", '{"x":1,"y":1,"u":3}\n{"x":1.5,"y":1,"u":"3"}\n', USERS, (2, 1)),
    "a line of 5 MB": ("p.csv", f"x,y,n\n1,1,z\n{'1,1,z' + 'z' * 5_000_000}\n", XY, None),
    "a last line of 40 MB": ("p.csv", f"x,y,n\n{LINES}1,1,{'z' * 40_000_000}\n", XY, None),
}  # fmt: skip
#: The same of a column of users in Parquet.
IDS = {
    "UUIDs": (duckdb.sql("SELECT md5((i % 3)::VARCHAR)::UUID AS u FROM range(9) AS r(i)"), 3),
    "floats": (pa.array([1.0, 1.0, 2.0]), 2),
    "floats beyond 2^53": (pa.array([2.0**60, 2.0**60 + 256]), None),
    "fractions": (pa.array([1.5, 2.5]), None),
    "integers to 2^64": (pa.array([2**64 - 1, 2**64 - 2], pa.uint64()), 2),
    "decimals": (pa.array([Decimal(3), Decimal(4)]), 2),
    "dictionaries": (pa.array(["a", "b", "a"]).dictionary_encode(), 2),
    "empty text in dictionaries": (pa.array(["a", "", "a"]).dictionary_encode(), None),
    "truth": (pa.array([True, False]), None),
    "bytes": (pa.array([b"a"]), None),
}


def _check(path, how, points, users=None):
    if points is None:
        with pytest.raises(dh.InputError):
            dh.count_file(path, MAP, **how)
    else:
        found = dh.count_file(path, MAP, **how)
        assert (found.kept, found.users) == (points, users)


@pytest.mark.parametrize("name", TEXTS)
def test_text(tmp_path, name):
    file, text, how, expected = TEXTS[name]
    (tmp_path / file).write_text(text)
    _check(tmp_path / file, how, *(expected or (None,)))


@pytest.mark.parametrize("name", IDS)
def test_columns_of_users(tmp_path, name):
    ids, users = IDS[name]
    if isinstance(ids, duckdb.DuckDBPyRelation):
        ids.project("1.5 AS x, 1.5 AS y, u").to_parquet(str(tmp_path / "p.parquet"))
        number = len(ids)
    else:
        number = len(ids)
        pq.write_table(pa.table({"x": [1.5] * number, "y": [1.5] * number, "u": ids}), tmp_path / "p.parquet")
    _check(tmp_path / "p.parquet", USERS, None if users is None else number, users)


@pytest.mark.parametrize(
    ("ids", "users"),
    [([1, "1", "1 ", 1.0], 1), ([2**70, 2**70 + 1, 2**65, 1], 4),
     (pd.Categorical(["a", "b", "a", "b"], categories=["a", "b", "z"]), 2),
     (pd.array(["a", None, "b", "c"], dtype="string[pyarrow]"), None), (["None", "a", "b", "c"], None),
     ([uuid.UUID(int=1)] * 4, 1), (np.ma.array([1, 2, 3, 3], mask=[0, 0, 0, 1]), None), ([1.5, 2, 3, 4], None),
     (pd.date_range("2026-01-01", periods=4), None)],
)  # fmt: skip
def test_ids_in_memory(ids, users):
    points = np.ones((4, 2))
    if users is None:
        with pytest.raises(dh.InputError):
            dh.count(points, MAP, user=ids, max_per_user=1)
    else:
        assert dh.count(points, MAP, user=ids, max_per_user=1).sum() == users


def test_spaces_around_a_name_make_no_other_user(tmp_path):
    """Else one person would keep K points under each form; `str.strip` says what a space is."""
    names = [f"{before}a{behind}" for each in map(chr, range(1, 0x3001)) if each.isspace()
             for before, behind in (("", each), (each, ""))]  # fmt: skip
    rows = pd.DataFrame({"x": 1.0, "y": 1.0, "u": ["a", *names]})
    rows.to_parquet(tmp_path / "p.parquet")
    assert dh.count_file(tmp_path / "p.parquet", MAP, **{**USERS, "max_per_user": 1}).counts.sum() == 1
    assert dh.count(rows[["x", "y"]], MAP, user=rows["u"], max_per_user=1).sum() == 1


def test_masked_values_are_missing():
    line = dh.Neighbourhood(dh.Domain((0, 120), (120,)), delta=5)
    for given in (np.ma.array([20.0, 100.0], mask=[False, True]), pd.Series([20.0, None], dtype="Float64")):
        for publish in (lambda v: dh.publishers.publish_quantile(v, 0.9, line, epsilon=1),
                        lambda v: dh.publishers.publish_sorted(v, line, epsilon=1),
                        lambda v: dh.count(v, line.domain)):  # fmt: skip
            with pytest.raises(dh.InputError):
                publish(given)
    points = np.ma.array(np.ones((9, 2)), mask=np.repeat(np.arange(9) > 5, 2).reshape(9, 2))
    users = np.ma.array(np.arange(9) // 2, mask=np.arange(9) == 0)
    kept = dh.count(points, MAP, user=users, max_per_user=1, drop_bad_rows=True)
    assert kept.sum() == 3
    near = dh.Neighbourhood(MAP, delta=1)
    assert dh.publish(kept, near, epsilon=1).total is None
    with pytest.raises(dh.InputError):
        dh.publish(np.ma.array(np.ones((10, 10), int), mask=np.eye(10)), near, "identity", epsilon=1)


# --- times ----------------------------------------------------------------------------------------------------

BERLIN = ["2024-03-30T22:59:59Z", "2024-03-30T23:00:00Z", "2024-03-31T21:59:59Z", "2024-03-31T22:00:00Z",
          "2024-04-01 00:00:00+02"]  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "clock", "numbers"),
    [
        (["2024-03-09 01:00:00 UTC", "2024-03-09 01:00:00.1 UTC", "2024-03-10 02:00:00.123456 UTC"],
         ("2024-03-09", "1d"), [2, 1, 0]),
        (BERLIN, ("2024-03-30", "1d", None, "Europe/Berlin"), [1, 2, 2]),
        (BERLIN, ("2024-03-30", "1d"), [2, 3, 0]),
        (BERLIN, ("2024-02", "month", None, "Europe/Berlin"), [0, 3, 2]),
        (BERLIN, ("2024-02", "month"), [0, 5, 0]),
        ([1711843199, 1711843200, 1711922400], ("2024-03-30", "1d", "unix", "Europe/Berlin"), [0, 2, 1]),
        ([1711843199, 1711843200, 1711922400], ("2023-12-01", "2months", "unix"), [0, 3, 0]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_steps_of_time(tmp_path, form, texts, clock, numbers):
    """The day on which clocks in Berlin go forward has 23 hours; months have their own lengths."""
    times = pd.Series(texts)
    if form == "parquet" and isinstance(texts[0], str):
        times = pd.to_datetime(times, utc=True, format="mixed")
    getattr(pd.DataFrame({"x": 1.0, "y": 1.0, "t": times}), f"to_{form}")(tmp_path / f"p.{form}", index=False)
    found = dh.count_file(tmp_path / f"p.{form}", MAP, clock=Clock.of(*clock), steps=3, time="t", **XY)
    assert [found.counts_of(step).sum() for step in range(3)] == numbers
    assert found.before == found.after == 0


def test_times_of_another_format(tmp_path):
    texts = ["01/03/2026 06:00", "2/3/2026 23:59", "01/03/2026 00:00", "03/03/2026 00:00"]
    how = {"clock": Clock.of("2026-03-01", "1d", "%d/%m/%Y %H:%M"), "steps": 3, "time": "t", **XY}
    pd.DataFrame({"x": 1.0, "y": 1.0, "t": texts}).to_csv(tmp_path / "p.csv", index=False)
    found = dh.count_file(tmp_path / "p.csv", MAP, **how)
    assert [found.counts_of(step).sum() for step in range(3)] == [2, 1, 1]
    pd.DataFrame({"x": 1.0, "y": 1.0, "t": [*texts, "never"]}).to_csv(tmp_path / "p.csv", index=False)
    with pytest.raises(dh.InputError, match="1 of 5"):
        dh.count_file(tmp_path / "p.csv", MAP, **how)


def test_clocks():
    days = Clock.of("2024-03-30", "1d", tz="Europe/Berlin")
    assert days.label(1) == "2024-03-31"
    months = Clock.of("2023-11", "month")
    assert [months.label(step) for step in range(3)] == ["2023-11", "2023-12", "2024-01"]
    assert [months.step(text) for text in ("2023-11-30", "2024-02-29", "2024-02")] == [0, 3, 3]
    assert months.begin(3) == 1706745600
    assert months.since(2).label(0) == "2024-01"
    for wrong in (("2023-11-02", "month"), ("2023-11-01", "6h", None, "Europe/Berlin"), ("1", None, None, "UTC"),
                  ("2023-11-01", "1d", None, "Nowhere/City"), ("2023-11-01", "d")):  # fmt: skip
        with pytest.raises(dh.InputError):
            Clock.of(*wrong)
