"""Points of users are bounded inside Spark: exactly so many, whatever other rows are there, by a key in no plan."""

import numpy as np
import pandas as pd
import pytest

import deltahist as dh

#: The sockets to Java are closed when Java is.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{each}")
    for each in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning")
]

DOMAIN = dh.Domain((0, 0, 4, 2), (4, 2))
MOST, NUMBER = 5, 400
LINE = dh.Domain((0, NUMBER), (NUMBER,))


def kept_rows(spark, make_table, path, rows, **how):
    """Return the numbers of the rows that are kept; each lies in a cell of its own."""
    make_table("tried", path, {name: rows[name].to_numpy() for name in rows} | {"who": list(rows["who"])})
    how = {"x": "at", "user": "who", "max_per_user": MOST, "key": bytes(32), "drop_bad_rows": True} | how
    counts = dh.count_table("tried", LINE, database=spark, **how).counts
    assert counts.max() == 1
    return set(np.flatnonzero(counts))


def test_one_user_has_so_many_points_whatever_the_others_do(spark, make_table, tmp_path):
    """The same rows of a user stay when points move, and when others come, go or have bad rows."""
    rng = np.random.default_rng(11)
    who = rng.choice(["ann", "bob", "eve", "zo\u00eb"], NUMBER, p=[0.3, 0.3, 0.39, 0.01])
    rows = pd.DataFrame({"at": np.arange(NUMBER) + 0.5, "who": who})
    named, path = rows["who"].to_numpy(), tmp_path / "tried.parquet"
    stay = kept_rows(spark, make_table, path, rows)
    per_user = rows["who"].value_counts()
    assert 0 < per_user["zo\u00eb"] < MOST
    assert pd.Series(named[list(stay)]).value_counts().to_dict() == per_user.clip(upper=MOST).to_dict()
    # All points move: the same rows stay, at other places.
    moved = rows.assign(at=rows["at"].to_numpy()[::-1])
    assert kept_rows(spark, make_table, path, moved) == {NUMBER - 1 - row for row in stay}
    # Neither the first rows nor the last ones are preferred, and another key takes others.
    own = [kept_rows(spark, make_table, path, rows, key=None, max_per_user=60) for _ in range(2)]
    assert own[0] != own[1]
    assert 20 < sum(row < NUMBER / 3 for row in own[0]) < 100
    # Bob goes; Max comes, between Ann's rows, with rows that have no place or no name: Ann's rows stand elsewhere.
    ann, others = rows[rows["who"] == "ann"], rows[rows["who"] == "eve"]
    new = pd.DataFrame({"at": np.where(rows.index % 3, np.nan, rows["at"]), "who": np.where(rows.index % 2, "max", "")})
    more = pd.concat([ann, others, new.loc[~new.index.isin(ann.index.union(others.index)) & (new.index % 5 > 0)]])
    more = more.sort_index(kind="stable")
    found = kept_rows(spark, make_table, path, more)
    for name in ("ann", "eve"):
        whose = set(np.flatnonzero(named == name))
        assert found & whose == stay & whose
    assert len(found) == 3 * MOST
    assert not [each for each in spark.catalog.listTables() if each.isTemporary and "deltahist" in each.name]


def test_the_key_of_users_is_in_no_plan(spark, visits, monkeypatch, capfd):
    from deltahist.counting import spark as module

    plans, run = [], module._SparkSession._run

    def explain(look, statement, expression):
        carried = module.carried_tables(expression)
        secrets = [rows["secret"][0].as_py() for rows in carried.values()]
        for name, rows in carried.items():
            spark.createDataFrame(rows).createOrReplaceTempView(name)
        spark.sql(statement).explain("extended")
        plans.append((secrets, statement + capfd.readouterr().out))
        return run(look, statement, expression)

    monkeypatch.setattr(module._SparkSession, "_run", explain)
    dh.count_table("visits", DOMAIN, database=spark, x="east", y="north", user="who", max_per_user=3)
    (((secret,), told),) = plans
    assert "Physical Plan" in told
    assert secret not in told


