"""Maps and quantiles that people pay for; radii of their own."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.personal import maps
from deltahist.personal.aggregates import QuantileAggregate
from deltahist.personal.maps import Map

DOMAIN = dh.Domain((0, 0, 800, 800), (8, 8))
NEAR = dh.Neighbourhood(DOMAIN, 100)
#: Whose each record is, and where.
ROWS = [("Ada", 50, 50), ("Ada", 250, 50), ("Bob", 50, 750), ("Cyd", 450, 450), ("Cyd", 900, -20), ("Dan", None, 3)]


@pytest.fixture
def people(tmp_path):
    return city(tmp_path / "l", 2)


def city(ledger, limit, place=("x", "y")):
    """Cyd has a radius of 100, Eve and Dan have one of 300."""
    base = dh.Database.open(":memory:")
    base.create_records("visit", {"x": "number", "y": "number", "day": "whole"}, owner="who")
    made = dh.People(base, "visit", owner="who", ledger=ledger, epsilon=limit, place=place)
    made.join(["Cyd", "Dan", "Eve"], radius=[100, 300, 300])
    made.insert(pd.DataFrame([(*row, 1) for row in ROWS], columns=["who", "x", "y", "day"]))
    made.insert(pd.DataFrame([("Eve", 50, 50, 2)], columns=["who", "x", "y", "day"]))
    return made


def spent(people):
    names = ["Ada", "Bob", "Cyd", "Dan", "Eve"]
    return dict(zip(names, people.spent(names), strict=True))


@pytest.fixture
def counted(monkeypatch):
    """Counts that go into a map."""
    seen = []
    publish = maps.publish

    def look(counts, mechanism, **more):
        seen.append(np.array(counts))
        return publish(counts, mechanism, **more)

    monkeypatch.setattr(maps, "publish", look)
    return seen


def test_a_map_is_paid_for_by_those_on_it(people, counted):
    release = people.records.where("day = 1").publish(NEAR, "x", "y", "identity", epsilon=0.5)
    # Cyd's second place is outside and counts at the rim; Dan has none, and pays nothing.
    assert np.argwhere(counted[0]).tolist() == [[0, 0], [0, 7], [2, 0], [4, 4], [7, 0]]
    assert spent(people) == {"Ada": 1, "Bob": Fraction(1, 2), "Cyd": 1, "Dan": 0, "Eve": 0}
    assert release.total is None
    assert release.publishable
    assert "records of people who could not pay were left out" in " ".join(release.statement().split())


def test_a_radius_costs_what_a_move_over_it_does(people):
    """Sums along a line cost more the further somebody moves: three cells three times what one does."""
    line = dh.Neighbourhood(dh.Domain((0, 800), (8,)), 100)
    asked = Map(line, "x", strategy="cumulative", membership_known=True, epsilon=Fraction(1, 4))
    assert asked.cost(np.array([np.nan, 100, 300, 1.0, 10_000])).tolist() == [
        *(8 * 250_000_000, 250_000_000, 750_000_000, 250_000_000, 7 * 250_000_000)
    ]
    people.records.ask(asked)
    # Ada would pay eight times a quarter for each of two places, and has 2; so has Bob, for one.
    assert spent(people) == {
        "Ada": 0, "Bob": 2, "Cyd": Fraction(1, 2), "Dan": 0, "Eve": Fraction(3, 4)
    }  # fmt: skip


def test_a_radius_of_any_size_ends_no_question(people):
    """A map that failed would tell everybody what a person chose; beyond the map a move costs what any move does."""
    people.join(["Fay", "Gus"], radius=[1e308, 1e-308])
    people.insert(pd.DataFrame([("Fay", 50, 50, 1), ("Gus", 50, 50, 1)], columns=["who", "x", "y", "day"]))
    asked = Map(NEAR, "x", "y", strategy="cumulative", epsilon=Fraction(1, 1000))
    people.records.ask(asked)
    assert people.spent(["Fay", "Gus"]) == [Fraction(int(nano), 10**9) for nano in asked.cost(np.array([1e6, 1.0]))]


def test_with_a_radius_nobody_is_chosen_by_place(people, counted):
    for chosen in (
        people.records.where("x > 0"),
        people.records.at_most(1, by="y"),
        people.records.select(x="x + 100", y="y"),
        people.records.union(people.records.where("y > 0")),
    ):
        chosen.publish(NEAR, "x", "y", "identity", epsilon=0.01)
    assert spent(people)["Cyd"] == spent(people)["Eve"] == 0
    assert spent(people)["Bob"] == Fraction(5, 100)
    people.records.sum("x", clip=(0, 800), epsilon=0.01)
    assert spent(people)["Cyd"] == 0
    people.records.where("day > 0").select("x", "y", "day").publish(NEAR, "x", "y", "identity", epsilon=0.01)
    people.records.sum("day", clip=(0, 5), epsilon=0.01)
    people.records.distinct("day").count(epsilon=0.01)
    assert spent(people)["Cyd"] == Fraction(5, 100)
    assert counted[-1].sum() == 6


@pytest.mark.parametrize(("place", "paid"), [(None, 0), ((), Fraction(3, 10)), (("x", "y"), Fraction(1, 10))])
def test_with_a_radius_nobody_is_asked_until_it_is_said_what_is_a_place(tmp_path, place, paid):
    """Else a move from one half to the other would change two questions, and each by all that Eve has."""
    again = city(tmp_path / "l", 2, place)
    again.records.where("x > 40").count(epsilon=0.1)
    again.records.where("x < 40 or day = 2 or x > 800").count(epsilon=0.1)
    again.records.count(epsilon=0.1)
    assert spent(again)["Eve"] == paid
    assert spent(again)["Bob"] == Fraction(2, 10)


def test_moves_within_a_radius_charge_alike_and_cost_the_limit(tmp_path, monkeypatch):
    """Brute force: Eve is at one of all cells; what she is charged never differs, and two places that lie within her
    radius differ by what she was charged at most."""
    drawn = []
    monkeypatch.setattr(maps, "publish", lambda counts, mechanism, **_: drawn.append(np.array(counts)))
    line = dh.Neighbourhood(dh.Domain((0, 6), (6,)), 1)
    asked = [
        Map(line, "x", strategy=name, membership_known=True, epsilon=Fraction(1, 4))
        for name in ("cumulative", "identity", "hierarchical:2")
    ]
    found = {}
    for cell in range(6):
        base = dh.Database.open(":memory:")
        base.create_records("v", {"x": "number"}, owner="who")
        people = dh.People(base, "v", owner="who", ledger=tmp_path / f"{cell}", epsilon=1, place=("x",))
        people.join(["Eve"], radius=2)
        people.insert(pd.DataFrame({"who": ["Eve"], "x": [cell + 0.5]}))
        drawn.clear()
        for each in asked:
            people.records.ask(each)
        people.records.where("x > 3").count(epsilon=0.01)
        found[cell] = people.spent(["Eve"])[0], [*drawn]
    assert len({charged for charged, _ in found.values()}) == 1
    charged = found[0][0]
    for one in range(6):
        for other in range(6):
            cost = sum(
                sum(
                    abs(each.mechanism.strategy.measure(a - b)[g.members]).sum() / law.parameter
                    for g, law in zip(each.mechanism.strategy.groups, each.mechanism.laws, strict=True)
                )
                for each, a, b in zip(asked, found[one][1], found[other][1], strict=True)
            )
            assert cost <= charged or abs(one - other) > 2


def test_maps_in_rho_and_in_another_crs(tmp_path):
    base = dh.Database.open(":memory:")
    base.create_records("visit", {"lon": "number", "lat": "number"}, owner="who")
    people = dh.People(base, "visit", owner="who", ledger=tmp_path / "l", rho=1, place=("lon", "lat"), crs="EPSG:4326")
    rows = [("Ada", -74.0, 40.7), ("Ada", -74.0, 40.7), ("Bob", -73.99, 40.72), ("Cyd", 0.0, 95.0)]
    people.insert(pd.DataFrame(rows, columns=["who", "lon", "lat"]))
    domain = dh.Domain.from_degrees((-74.05, 40.65, -73.95, 40.75), "1km")
    release = people.records.publish(
        dh.Neighbourhood(domain, "1km"), "lon", "lat", "identity", crs="EPSG:4326", rho=0.1
    )
    # Cyd is nowhere that the map's CRS knows.
    assert people.spent(["Ada", "Bob", "Cyd"]) == [Fraction(2, 5), Fraction(1, 10), 0]
    assert "UTM" in release.mechanism.counting.projection.name


def test_prices_of_maps_are_rounded_up():
    asked = Map(NEAR, "x", "y", strategy="identity", epsilon=Fraction(1, 3))
    assert asked.cost(np.array([np.nan, 100])).tolist() == [333_333_334, 333_333_334]


def test_a_map_under_a_key_comes_back_as_it_was(people):
    first = people.records.publish(NEAR, "x", "y", epsilon=0.1, key="map")
    again = people.records.publish(NEAR, "x", "y", epsilon=0.1, key="map")
    assert (first.values == again.values).all()
    assert first.mechanism.describe() == again.mechanism.describe()
    assert spent(people)["Bob"] == Fraction(1, 10)
    with pytest.raises(dh.InputError, match="used for another request"):
        people.records.publish(NEAR, "x", "y", "identity", epsilon=0.1, key="map")


def test_maps_that_cannot_be_made(people):
    for options, why in (
        ({"y": None}, "y is None on a map of 2 dimensions"),
        ({"crs": "EPSG:4326"}, "and the map has none"),
        ({"y": "x"}, "y is 'x' on a map of 2 dimensions"),
        ({"near": dh.Neighbourhood(dh.Domain((0, 8), (8,)), 1), "y": "x"}, "y is 'x' on a map of 1 dimensions"),
        ({"strategy": "flow", "membership_known": True}, "keeps the number of points exactly"),
        ({"epsilon": 50}, "hardly|can be|noise in a cell"),
        ({"x": "where"}, "'where', which is not there"),
    ):
        given = {"near": NEAR, "x": "x", "y": "y", "strategy": "identity", "epsilon": 0.1} | options
        with pytest.raises(dh.InputError, match=why):
            people.records.publish(**given)
    assert set(spent(people).values()) == {0}


@pytest.mark.parametrize("budget", [{"epsilon": 1e-9}, {"rho": 1e-9}, {"rho": Fraction(1, 10**30)}])
def test_quantiles_that_would_take_for_ever_are_refused_at_once(budget):
    with pytest.raises(dh.InputError, match=r"for q = 0.999: .* take more (epsilon|rho), or a q of fewer decimals"):
        QuantileAggregate("x", clip=(0, 10), q=0.999, **budget)


def test_quantiles_in_rho_draw_with_what_rho_allows():
    asked = QuantileAggregate("x", (0, 1), q=0.5, rho=Fraction(1, 50))
    # Ledgers keep the description: the name of the class is not in it.
    assert asked.describe()["question"] == "quantile"
    assert asked.pure == Fraction(1, 5)
    assert QuantileAggregate("x", (0, 1), rho=0.3).pure ** 2 / 2 <= Fraction(3, 10)
    with pytest.raises(dh.InputError, match=r"q is 1\.5"):
        QuantileAggregate("x", (0, 1), q=1.5, epsilon=1)


QUESTIONS = [
    lambda records: records.count(epsilon=0.5),
    lambda records: records.sum("day", clip=(0, 5), epsilon=0.5),
    lambda records: records.mean("day", clip=(0, 5), epsilon=0.5),
    lambda records: records.histogram("day", [1, 2], epsilon=0.5),
    lambda records: records.quantile("day", clip=(0, 5), epsilon=0.5),
    lambda records: records.publish(NEAR, "x", "y", "identity", epsilon=0.5),
]


def test_nothing_but_the_answer_tells_whether_anybody_could_pay(tmp_path, capfd):
    """Neither an error nor a warning (which would be an error here), nor the form or the words of an answer."""

    def said(answer):
        if isinstance(answer, dh.Release):
            return answer.describe(), answer.values.shape, answer.mechanism.statement()
        return type(answer), answer.words, sorted(answer.to_json())

    rich, poor = city(tmp_path / "rich", 20), city(tmp_path / "poor", 1e-9)
    for ask in QUESTIONS:
        found = {str(said(ask(records))) for records in (rich.records, poor.records, rich.records.where("day > 99"))}
        assert len(found) == 1
    assert max(spent(poor).values()) == 0 < max(spent(rich).values())
    assert capfd.readouterr() == ("", "")
