"""People join once, with a budget that never changes, and have one purse whatever database their records are in."""

from fractions import Fraction

import pytest

import deltahist as dh
from deltahist.personal import People
from tests.personal.city import city, insert, without_noise

ROWS = [("Ada", "bus", 8, 2.5), ("Bob", "tram", 9, 9.0), ("Ada", "bus", 9, 1.0)]


@pytest.fixture
def people(tmp_path):
    return city(tmp_path, ROWS)


def test_joining_again_changes_nothing(people):
    people.join(["Cyd", "Dan"], epsilon=[0.5, Fraction(1, 3)])
    people.records.count(epsilon=0.25)
    people.join(["Eve", "Dan", "Cyd"], epsilon=[2, Fraction(1, 3), 0.5])
    people.join(["Ada"])
    assert people.enrol() == 0
    assert people.spent(["Ada", "Cyd"]) == [Fraction(1, 2), 0]
    left = [Fraction(1, 2), Fraction(1, 2), Fraction(333_333_333, 10**9), 2]
    assert people.left(["Ada", "Cyd", "Dan", "Eve"]) == left


def test_bad_names_and_budgets_let_nobody_join(people):
    for names, policy in (
        (["Cyd", "Ada"], {"epsilon": 2}),
        (["Cyd", "Cyd"], {"epsilon": [1, 2]}),
        (["Cyd"], {"epsilon": 1e-10}),
        (["Cyd"], {"rho": 1}),
        (["Cyd"], {"epsilon": 10**10}),
        *((["Dan", name], {}) for name in ("", " ", 1.5, None, True)),
    ):
        with pytest.raises(dh.InputError):
            people.join(names, **policy)
    for name in ("Cyd", "Dan"):
        with pytest.raises(dh.InputError, match=name):
            people.left([name])


def test_a_person_needs_a_budget(tmp_path):
    people = city(tmp_path, epsilon=None)
    for join in (lambda: insert(people, ROWS), lambda: people.join(["Ada"])):
        with pytest.raises(dh.InputError):
            join()
    people.join(["Ada", "Bob"], epsilon=1)
    assert people.left(["Ada", "Bob"]) == [1, 1]


def test_people_are_known_again_in_any_database(people, tmp_path, monkeypatch):
    """A copy, an older one, or one that is made anew: the ledger knows people by their names."""
    people.records.count(epsilon=0.25)
    again = People(people.where, "trip", owner="who", ledger=str(tmp_path / "city.ledger"))
    assert again.purses.unit == "epsilon"
    without_noise(monkeypatch)
    other = city(tmp_path, [("Ada", "bus", 8, 2.5), ("Cyd", "bus", 8, 2.5)])
    assert other.spent(["Ada", "Bob", "Cyd"]) == [Fraction(1, 2), Fraction(1, 4), 0]
    assert other.records.count(epsilon=0.75).estimate == 1
    assert people.spent(["Ada", "Bob", "Cyd"]) == [Fraction(1, 2), Fraction(1, 4), Fraction(3, 4)]


def test_questions_of_people_on_postgresql(postgres_url, monkeypatch):
    without_noise(monkeypatch)
    people = city(postgres_url, ROWS, where=postgres_url)
    for _ in range(2):
        assert people.records.where("kind = 'bus'").count(epsilon=0.4, key="k").estimate == 2
    assert people.records.histogram("kind", ["bus", "tram"], epsilon=0.4)["tram"].estimate == 1
    assert people.records.mean("fare", clip=(0, 10), epsilon=0.1).estimate == pytest.approx(12.5 / 3)
    assert [float(each) for each in people.spent(["Ada", "Bob"])] == [1.0, 0.5]
