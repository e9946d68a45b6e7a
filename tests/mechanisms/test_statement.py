"""The privacy statement: figures at a distance, and what it says in words."""

import json

import numpy as np
import pytest
import shapely
from examples import STRATEGIES, random_domain

import deltahist as dh
from deltahist.domain.counting import UNPAID, Counting
from deltahist.mechanisms.calibration import explicit_edge_cost


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_cost_of_a_distance_is_that_of_its_worst_move(name):
    rng = np.random.default_rng([9, len(name)])
    for case in range(10):
        domain = random_domain(rng)
        near = dh.Neighbourhood(domain, float(rng.integers(1, 3)) * max(domain.cell))
        A = STRATEGIES[name](rng, domain)
        budget = {"epsilon": 1.0} if case % 2 else {"rho": 1.0}
        release = dh.publish(np.ones(domain.shape, dtype=int), near, A, **budget)
        norm = 1 if case % 2 else 2
        own = explicit_edge_cost(A, near, norm)
        for times in (1, 1.5, 3, 10):
            distance = times * near.delta_ground
            exact, bound = release.mechanism.cost_within(distance)
            steps = int(np.ceil(times))
            assert bound == (steps if norm == 1 else steps**2)
            assert exact <= bound
            if own:
                wide = explicit_edge_cost(A, near.moves_within(distance), norm)
                assert exact == min(wide / own, bound)


def release_of(near, **more):
    return dh.publish(
        np.ones(near.domain.shape, dtype=int), near, dh.strategies.Identity(near.domain), **more
    )


DOMAIN = dh.Domain.from_cell((560000, 4480000, 580000, 4500000), "1km", "EPSG:32618")


def test_the_statement_is_complete():
    release = release_of(dh.Neighbourhood(DOMAIN, "1km"), epsilon=1.0)
    text = release.statement()
    for words in (
        "ε = 1 (pure)",
        "1,000 m = 1 × 1 cells",
        "one point",
        "who is in the data is fixed",
        "published exactly",
        "the domain's diameter",
        "laplace",
        "May be published    yes",
        "EPSG:32618",
    ):
        assert words in text, words
    facts = release.facts()
    json.dumps(facts)
    assert [round(p["deltas"]) for p in facts["protection"][:-1]] == [1, 2, 5, 10]
    assert facts["protection"][-1]["distance"] == pytest.approx(release.neighbourhood.diameter)
    assert facts["total"] == DOMAIN.size
    assert facts["delta"] == pytest.approx(1000)
    assert 1000 - facts["delta_guaranteed"] < 0.0011


@pytest.mark.parametrize(
    ("sources", "steps"),
    [(None, 1), ("boundary", 1), (shapely.Point(DOMAIN.low), 2)],
    ids=["fixed", "boundary", "geometry"],
)
def test_delta_for_raw_coordinates_is_less_by_lattice_steps(sources, steps):
    """Rounding to the lattice takes a step from δ; a geometry's vertices are rounded too."""
    release = release_of(dh.Neighbourhood(DOMAIN, "1km", sources), epsilon=1.0)
    step = max(DOMAIN.step) / DOMAIN.scale
    facts = release.facts()
    assert facts["delta_guaranteed"] == pytest.approx(1000 - steps * step, abs=step / 100)
    assert facts["delta_guaranteed"] < facts["delta"]
    words = {1: "one lattice step less", 2: "two lattice steps less"}[steps]
    assert f"for raw coordinates {1000 - steps * step:.10g}: {words}" in release.statement()


def test_users_of_one_point_are_users():
    near = dh.Neighbourhood(DOMAIN, "1km")
    users = {"user": [1, 1, 2, 2], "max_per_user": 1}
    counts = dh.count(np.full((4, 2), 4_505_000.0), DOMAIN, outside="clamp", **users)
    release = dh.publish(counts, near, dh.strategies.Identity(DOMAIN), 1.0)
    text = release.statement()
    assert "one user, at most 1 point" in text
    assert "the one kept point of one user may be anywhere" in text
    assert "about the points that were kept" in text
    assert "far from any source" not in text
    assert (release.facts()["unit_of_privacy"], release.facts()["points_per_user"]) == ("user", 1)
    assert release_of(near, epsilon=1.0).facts()["unit_of_privacy"] == "point"


def test_what_bounding_users_does_to_arrivals_is_said():
    """A row more near a source can push out a kept one anywhere: that is no absence near the source."""
    near = dh.Neighbourhood(DOMAIN, "1km", "boundary")
    text = release_of(near, epsilon=1.0, contributions=2).statement()
    assert (
        "a record more or less of a user can exchange others that are kept, far from any source too:" in text
    )
    assert "like appearing, vanishing or moving anywhere, not like absence near a source" in text
    assert "far from any source" not in release_of(near, epsilon=1.0).statement()


def test_users_sources_and_drops_are_said():
    near = dh.Neighbourhood(DOMAIN, "1km", "boundary")
    text = release_of(near, epsilon=1.0, contributions=5, dropped=["bad rows", "points outside"]).statement()
    assert "one user, at most 5 points, all moving at once" in text
    assert "may be absent if within that distance of the domain's boundary" in text
    assert "rows without usable coordinates, user or time were dropped" in text
    assert "points outside the bounds were dropped" in text
    assert "not published: who takes part is protected" in text
    assert "appearing, vanishing or moving anywhere costs ε = 1" in text


def test_dropped_rows_withdraw_the_total():
    text = release_of(dh.Neighbourhood(DOMAIN, "1km"), epsilon=1.0, dropped=["bad rows"]).statement()
    assert "not published: rows were dropped" in text


def test_gaussian_noise_and_seeds_are_said():
    release = release_of(dh.Neighbourhood(DOMAIN, "1km"), rho=0.5, rng=np.random.default_rng(1))
    text = release.statement()
    assert "ρ = 0.5 zero-concentrated" in text
    assert "no: noise from a seeded generator" in text
    assert release.facts()["epsilon_at_1e-6"] == pytest.approx(release.guarantee.approximate(1e-6))


def test_undetermined_strategies_say_so():
    domain = dh.Domain((0, 0, 1, 1), (16, 16))
    near = dh.Neighbourhood(domain, 1 / 16)
    A = dh.strategies.ShiftedGrids(domain, width=4, shift=1)
    assert "do not determine every cell" in dh.publish(np.ones((16, 16), dtype=int), near, A, 1.0).statement()


def test_the_curve_rises_to_the_diameter():
    domain = dh.Domain((0, 0, 1, 1), (64, 64))
    near = dh.Neighbourhood(domain, 1 / 64)
    A = dh.strategies.ShiftedGrids(domain, width=8, shift=1)
    curve = dh.protection_curve(dh.publish(np.ones((64, 64), dtype=int), near, A, 1.0), points=25)
    assert (np.diff(curve["exact"]) >= 0).all()
    assert (curve["exact"] <= curve["bound"]).all()
    assert curve["exact"][0] == 1
    assert 1 < curve["exact"][-1] < curve["bound"][-1]


def test_people_who_pay_by_themselves_are_stated():
    near = dh.Neighbourhood(dh.Domain((0, 0, 8, 8), (8, 8)), 1).appearing_anywhere()
    counting = Counting(dropped=(UNPAID,))
    found = dh.Mechanism(near, dh.strategies.Identity(near.domain), dh.Budget(epsilon=1), counting)
    assert not found.total_known
    assert "records of people who could not pay were left out" in " ".join(found.statement().split())
    assert dh.Mechanism.from_description({**found.describe(), "version": 2}).counting == counting
