"""People: they join once, with a budget that stays; records come with their owners, or not at all."""

from fractions import Fraction

import pytest

import deltahist as dh
from deltahist.accounts import databases
from deltahist.accounts.ledger import Ledger
from deltahist.personal.database import Database
from deltahist.personal.people import People
from tests.personal.city import city, frame, without_noise

ROWS = [("Ada", "bus", 8, 2.5), ("Bob", "tram", 9, 9.0), ("Ada", "bus", 9, 1.0)]


@pytest.fixture
def people(tmp_path):
    return city(tmp_path, ROWS)


def test_who_joins_again_stays_as_they_are(people):
    people.join(["Cyd", "Dan"], epsilon=[0.5, Fraction(1, 3)], radius=200)
    people.records.count(epsilon=0.25)
    people.join(["Eve", "Dan", "Cyd"], epsilon=[2, Fraction(1, 3), 0.5], radius=[7, 200.0, 200])
    people.join(["Ada"])
    assert people.spent(["Ada", "Cyd"]) == [Fraction(1, 2), 0]
    left = [Fraction(1, 2), Fraction(1, 2), Fraction(333_333_333, 10**9), 2]
    assert people.left(["Ada", "Cyd", "Dan", "Eve"]) == left


def test_who_cannot_join(people):
    for names, policy, why in (
        (["Cyd", "Ada"], {"epsilon": 2}, "joined with epsilon = 1 and no radius, and is to join with epsilon = 2"),
        (["Cyd", "Ada"], {"radius": 5}, "is to join with epsilon = 1 and a radius of 5: what .* never changes"),
        (["Cyd", "Cyd"], {}, "'Cyd' is named twice"),
        (["Cyd"], {"rho": 1}, "budgets of 'people' are in epsilon"),
        (["Cyd"], {"epsilon": -1}, "epsilon is -1"),
        (["Cyd"], {"epsilon": float("nan")}, "epsilon is nan"),
        (["Cyd"], {"epsilon": 1e-10}, "epsilon is 1e-10: a budget must be at least a billionth"),
        (["Cyd", "Dan"], {"epsilon": [1, 1, 1]}, "3 budgets for 2 people"),
        (["Cyd", "Dan"], {"radius": [1, 1, 1]}, "it must be a number for all, or one for each person"),
        (["Cyd"], {"radius": -1}, "radius is -1"),
        (["Cyd"], {"radius": "3km"}, "radius is '3km': it must be a number"),
    ):
        with pytest.raises(dh.InputError, match=why):
            people.join(names, **policy)
    assert (people.database.numbers(["Cyd", "Dan"]) < 0).all()


def test_a_person_needs_a_budget(tmp_path):
    people = city(tmp_path, epsilon=None)
    with pytest.raises(dh.InputError, match=r"2 owners have not joined \('Ada' is one\): .* epsilon=1"):
        people.insert(frame(ROWS))
    with pytest.raises(dh.InputError, match="each person needs one"):
        people.join(["Ada"])
    people.join(["Ada", "Bob"], epsilon=1)
    people.insert(frame(ROWS))
    people.records.count(epsilon=0.5)
    assert people.spent(["Ada", "Bob"]) == [1, Fraction(1, 2)]
    with pytest.raises(dh.InputError, match="'Zoe' has not joined"):
        people.spent(["Ada", "Zoe"])


def test_people_are_known_again(people, tmp_path):
    people.records.count(epsilon=0.25)
    again = People(people.database, "trip", owner="who", ledger=str(tmp_path / "city.ledger"))
    assert again.purses.unit == "epsilon"
    assert again.spent(["Ada", "Bob"]) == [Fraction(1, 2), Fraction(1, 4)]
    with pytest.raises(dh.InputError, match='unit was "epsilon", is "rho"'):
        People(people.database, "trip", owner="who", ledger=people.ledger, rho=1)
    with pytest.raises(dh.InputError, match="nobody"):
        People(people.database, "nobody", owner="who", ledger=people.ledger)


def test_nobody_pays_from_a_purse_of_an_old_copy_of_the_ledger(people, tmp_path, monkeypatch):
    """Of a time before anybody had joined: the first one who joins would be taken for whoever has the first number."""
    old = Ledger(tmp_path / "old.ledger")
    old.account("people", {"kind": "purses", "unit": "epsilon"})
    old.store("people", "database", people.database.standing.account)
    with pytest.raises(dh.InputError, match=r"\(is this one an old copy\?\)"):
        People(people.database, "trip", owner="who", ledger=old, epsilon=5)
    monkeypatch.setattr(People, "_bind", lambda *_: None)  # it was put back later
    other = People(people.database, "trip", owner="who", ledger=old, epsilon=5)
    for join in (
        lambda: other.join(["Ada"]),
        lambda: other.join(["Zed"]),
        lambda: other.insert(frame([("Zed", "bus", 8, 1.0)])),
    ):
        with pytest.raises(dh.InputError, match=r"belong to another .* \(is this one an old copy\?\), .* go on"):
            join()
    with other.purses.turn() as turn:
        assert not len(turn.limits)


def test_an_owner_whose_text_is_no_name_stops_no_question(tmp_path):
    """DuckDB holds such texts. An error would tell that there is one, and the command would print it."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("CREATE TABLE visits AS SELECT 'Ada' AS who UNION ALL SELECT 'Bob' || chr(0) || 'secret'")
    people = People(connection, "visits", owner="who", ledger=tmp_path / "l", epsilon=1000)
    assert people.enrol() == 1
    assert abs(people.records.count(epsilon=1000).estimate - 1) < 1
    assert people.enrol() == 0


def test_all_of_it_on_postgresql(postgres_url, monkeypatch):
    without_noise(monkeypatch)
    people = city(postgres_url, ROWS, where=postgres_url)
    assert people.records.where("kind = 'bus'").count(epsilon=0.4, key="k").estimate == 2
    assert people.records.where("kind = 'bus'").count(epsilon=0.4, key="k").estimate == 2
    assert people.records.histogram("kind", ["bus", "tram"], epsilon=0.4)["tram"].estimate == 1
    assert people.records.mean("fare", clip=(0, 10), epsilon=0.1).estimate == pytest.approx(12.5 / 3)
    assert [float(each) for each in people.spent(["Ada", "Bob"])] == [1.0, 0.5]
    for engine in databases._ENGINES.values():
        engine.dispose()


def test_an_account_and_a_data_base_belong_together(tmp_path):
    """Numbers of persons are nobody's in another account: with a new ledger everybody would have a new budget."""
    base = Database.open(tmp_path / "city.duckdb")
    base.create_records("trip", {"kind": "text"}, owner="who")

    def people(database, ledger="city.ledger", name="people"):
        return People(database, "trip", owner="who", ledger=tmp_path / ledger, name=name, epsilon=1)

    first = people(base)
    people(base)
    first.join(["Ada"])
    for other in ({"ledger": "new.ledger"}, {"name": "others"}):
        with pytest.raises(dh.InputError, match=r"budgets in another account than .* \(a new ledger\?\)"):
            people(base, **other)
    new = Database.open(":memory:")
    new.create_records("trip", {"kind": "text"}, owner="who")
    with pytest.raises(dh.InputError, match="the people of account 'people' are in another database"):
        people(new)
    people(new, name="others").join(["Ada"])
    base.close()
    again = Database.open(tmp_path / "city.duckdb")
    assert people(again).left(["Ada"]) == [1]
    again.close()


def test_a_crash_before_the_data_base_knows_its_account_is_no_harm(tmp_path, monkeypatch):
    base = Database.open(":memory:")
    base.create_records("trip", {"kind": "text"}, owner="who")

    def killed(self, account):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Database, "belong_to", killed)
        with pytest.raises(KeyboardInterrupt):
            People(base, "trip", owner="who", ledger=tmp_path / "l", epsilon=1)
    People(base, "trip", owner="who", ledger=tmp_path / "l", epsilon=1).join(["Ada"])
    assert base.standing.account == Ledger(tmp_path / "l").fact("people", "database")
