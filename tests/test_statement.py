"""The privacy statement: each fact of a release stands in its data, its text and its page."""

import json
import math

import numpy as np
import pytest
import shapely

import deltahist as dh
from deltahist.counting.private import Private
from deltahist.mechanisms.base import Step
from deltahist.preprocessing import UNPAID, Clock, Preprocessing
from deltahist.releases.page import render_page
from deltahist.statement import explain_limits

DOMAIN = dh.Domain.from_cell((560000, 4480000, 580000, 4500000), "1km", "EPSG:32618")
FIXED = dh.Neighbourhood(DOMAIN, "1km")
BOUNDARY = dh.Neighbourhood(DOMAIN, "1km", "boundary")
LIMITS = [("4km", 2), (math.inf, 4)]
SQUARE = dh.Domain((0, 0, 1, 1), (16, 16))


def publish(near=FIXED, strategy="identity", **how):
    how = how if "rho" in how else {"epsilon": 1} | how
    return dh.publish(np.ones(near.domain.shape, dtype=int), near, strategy, **how)


def one_step():
    mechanism = dh.Mechanism(BOUNDARY, dh.strategies.Identity(DOMAIN), dh.Budget(1 / 8))
    step = Step(Clock.of("2010-05-01", "1d"), 0, 8, dh.Budget(1))
    account = dh.Account(dh.Window(8, epsilon=1), 0)
    return dh.publish(np.ones(DOMAIN.shape, dtype=int), mechanism.with_step(step), account=account)


def chosen_rows():
    private = Private.of(np.ones(DOMAIN.shape, dtype=int), Preprocessing(where="kind < 'b'"), DOMAIN)
    account = dh.Account.total(epsilon=3, name="city")
    return dh.publish(private, FIXED, "identity", epsilon=1, account=account)


def kept_points(near=FIXED):
    users = {"user": [1, 1, 2, 2], "max_per_user": 1}
    counts = dh.count(np.full((4, 2), 4_505_000.0), DOMAIN, outside="clamp", **users)
    return dh.publish(counts, near, dh.strategies.Identity(DOMAIN), 1.0)


#: What a release is, and words of its text, of its page, and of neither.
CASES = {
    "a map": (
        publish,
        [
            "ε = 1 (pure)",
            "1,000 m = 1 × 1 cells",
            "Unit of privacy     one point",
            "who is in the data is fixed",
            "published exactly",
            "the domain's diameter",
            "laplace",
            "May be published    yes",
            "EPSG:32618",
            "ε bound",
            "nobody keeps the sum",
        ],
        [
            "**May be published: yes.** The noise came from the operating system",
            "Every single point is protected",
            "who is in the data, and how many they are, is taken to be known",
            "the protection is weaker: the table says how much.",
            "| ε | ε by rule |",
            "| 1 km | 73.2 of 100 | 1 | 1 |",
        ],
        ["Limits", "far from any source", "This file keeps nothing", "a stream", "left out"],
    ),
    "gaussian noise from a seed": (
        lambda: publish(rho=0.5, rng=np.random.default_rng(1)),
        ["ρ = 0.5 zero-concentrated", "no: noise from a seeded generator"],
        ["**May be published: no.** The noise came from a seeded", "This file keeps nothing of the following"],
        ["yes"],
    ),
    "users of several points": (
        lambda: publish(BOUNDARY, contributions=5, dropped=["bad rows", "points outside"]),
        [
            "one user, at most 5 points, all moving at once",
            "may be absent if within that distance of the domain's boundary",
            "a record more or less of a user can exchange others that are kept, far from any source too:",
            "like appearing, vanishing or moving anywhere, not like absence near a source",
            "rows without usable coordinates, user or time were dropped",
            "points outside the bounds were dropped",
            "not published: who takes part is protected",
            "appearing, vanishing or moving anywhere costs ε = 1",
        ],
        [
            "All places that were kept of a person, up to 5, are protected together.",
            "Of each person at most 5 rows were kept",
            "for whoever is within 1 km of the domain's boundary",
            "The number of points is not published.",
            "Rows whose coordinates could not be used were left out.",
            "points outside it were left out",
        ],
        [],
    ),
    "users of one point": (
        kept_points,
        [
            "one user, at most 1 point",
            "the one kept point of one user may be anywhere",
            "about the points that were kept",
        ],
        ["The one place that was kept of each person is protected."],
        ["far from any source", "point of all"],
    ),
    "dropped rows": (
        lambda: publish(dropped=["bad rows"]),
        ["not published: rows were dropped, and how many may depend on a person"],
        ["The number of points is not published."],
        ["published exactly"],
    ),
    "rows by a condition": (
        chosen_rows,
        ["only those where kind < 'b'", "what the condition asks for is not, nor how many rows meet it"],
        ["Only rows where kind \\< 'b' were taken", "- **Account**: 'city' has spent ε = 1 of 3"],
        ["nobody keeps the sum"],
    ),
    "numbers that do not determine cells": (
        lambda: publish(dh.Neighbourhood(SQUARE, 1 / 16), dh.strategies.ShiftedGrids(SQUARE, width=4, shift=1)),
        ["the numbers do not determine every cell"],
        ["The numbers do not determine every cell"],
        [],
    ),
    "limits": (
        lambda: publish(FIXED.with_limits(LIMITS), "cumulative", epsilon=0.5),
        ["Limits              a move over up to 4 km costs at most 2 ε, any move at all at most 4 ε", "ε promised"],
        [
            "the protection is weaker, but limited (a guess is right in 73.2 of 100 cases at most up to 4 km apart, "
            "right in 88.1 of 100 cases at most however far apart they are): the table says how much.",
            "| ε | ε promised |",
            "and the limits",
        ],
        ["ε bound"],
    ),
    "limits of arrivals": (
        lambda: publish(BOUNDARY.with_limits(LIMITS)),
        [
            "a move over up to 4 km, or appearing within 4 km of the domain's boundary, costs at most 2 ε; any move at "
            "all, or appearing anywhere, at most 4 ε"
        ],
        [],
        [],
    ),
    "limits under rho": (
        lambda: publish(FIXED.with_limits(LIMITS), rho=0.1),
        ["a move over up to 4 km costs at most 4 ρ, any move at all at most 16 ρ"],
        [],
        [],
    ),
    "a step": (
        one_step,
        ["step 2010-05-01 of a stream: every 8 steps in a row", "for data that differ within 8 steps in a row;"],
        [
            "their guess is right in 53.2 of 100 cases at most",
            "This is step 2010-05-01 of a stream",
            "within 8 steps, by no more than δ in each, is right in 73.2 of 100 cases at most",
        ],
        [],
    ),
    "weak protection": (
        lambda: publish(
            epsilon=50,
            weak_protection_accepted=True,
            account=dh.Account.total(epsilon=100, name="people"),
        ),
        ["WEAK PROTECTION: whoever", "can be 100% sure", "only if everybody in the data accepts weak protection"],
        [
            "**May be published: only if everybody in the data accepts weak protection.** Hardly anybody is protected",
            "can be 100% sure",
            "- **Account**: 'people' has spent ε = 50 of 100",
        ],
        ["published: yes"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_statement_says(name):
    make, in_text, on_page, nowhere = CASES[name]
    release = make()
    text, page = release.statement(), render_page(release, "markdown")
    json.dumps(release.facts())
    assert [words for words in in_text if words not in text] == []
    assert [words for words in on_page if words not in page] == []
    assert [words for words in nowhere if words in text + page] == []


def test_the_facts_are_complete():
    facts = publish().facts()
    assert [round(row["deltas"]) for row in facts["protection"][:-1]] == [1, 2, 5, 10]
    assert facts["protection"][-1]["distance"] == pytest.approx(FIXED.diameter)
    assert facts["total"] == DOMAIN.size
    assert facts["delta"] == pytest.approx(1000)
    assert 1000 - facts["delta_guaranteed"] < 0.0011
    assert (facts["unit_of_privacy"], facts["points_per_user"], facts["limits"]) == ("point", None, [])
    facts = kept_points().facts()
    assert (facts["unit_of_privacy"], facts["points_per_user"]) == ("user", 1)
    gaussian = publish(rho=0.5)
    assert gaussian.facts()["epsilon_at_1e-6"] == pytest.approx(gaussian.guarantee.approximate(1e-6))


@pytest.mark.parametrize(
    ("sources", "steps"),
    [(None, 1), ("boundary", 1), (shapely.Point(DOMAIN.low), 2)],
    ids=["fixed", "boundary", "geometry"],
)
def test_delta_for_raw_coordinates_is_less_by_lattice_steps(sources, steps):
    """Rounding to the lattice takes a step from δ; a geometry's vertices are rounded too."""
    release = publish(dh.Neighbourhood(DOMAIN, "1km", sources))
    step = max(DOMAIN.step) / DOMAIN.scale
    facts = release.facts()
    assert facts["delta_guaranteed"] == pytest.approx(1000 - steps * step, abs=step / 100)
    assert facts["delta_guaranteed"] < facts["delta"]
    words = {1: "one lattice step less", 2: "two lattice steps less"}[steps]
    assert f"for raw coordinates {1000 - steps * step:.10g}: {words}" in release.statement()


def test_limits_are_facts():
    release = publish(FIXED.with_limits(LIMITS), "cumulative", epsilon=0.5)
    facts = release.facts()
    assert facts["limits"] == [
        {"distance": 4000.0, "factor": 2.0, "times": 2.0},
        {"distance": None, "factor": 4.0, "times": 4.0},
    ]
    rows = [(row["distance"], row["bound"]) for row in facts["protection"]]
    assert rows[:4] == [(1000, 0.5), (2000, 1), (4000, 1), (5000, 1.5)]
    assert [bound for _, bound in rows[4:]] == [2, 2]
    assert all(row["exact"] <= row["bound"] for row in facts["protection"])
    line = "ε = 0.5 for each point moving up to 1000 m, at most 2 ε up to 4 km, at most 4 ε however far"
    assert release.mechanism.promise == line
    assert f"promise: {line}" in repr(release)
    facts = publish(FIXED.with_limits(LIMITS), rho=0.1).facts()
    assert facts["protection"][-1]["bound"] == pytest.approx(1.6)
    assert [limit["times"] for limit in facts["limits"]] == [4, 16]
    assert publish(BOUNDARY.with_limits(LIMITS)).facts()["appear_anywhere"] <= 4
    # Having said that there are none makes no other promise.
    free = publish(dh.Neighbourhood(DOMAIN, "1km", limits=()))
    assert free.mechanism.statement() == publish().mechanism.statement()
    assert free.mechanism.promise.endswith("moving up to 1000 m")


def test_of_many_limits_a_few_are_named():
    near = FIXED.with_limits("proportional")
    assert len(near.profile) > 50
    words = explain_limits(near, "ε", 1)
    assert words.startswith(f"as a function of the distance, in {len(near.profile)} steps: a move over up to ")
    assert words.count("at most") == 4
    assert "any move at all" in words
    facts = publish(near).facts()
    assert len(facts["limits"]) == len(near.profile)
    assert len(facts["protection"]) <= 8
    assert publish(near).mechanism.promise.count("at most") == 1


def test_people_who_pay_by_themselves_are_stated():
    near = dh.Neighbourhood(dh.Domain((0, 0, 8, 8), (8, 8)), 1).appearing_anywhere()
    counting = Preprocessing(dropped=(UNPAID,))
    found = dh.Mechanism(near, dh.strategies.Identity(near.domain), dh.Budget(epsilon=1), counting)
    assert not found.total_known
    assert "records of people who could not pay were left out" in " ".join(found.statement().split())
    assert dh.Mechanism.from_description({**found.describe(), "version": 2}).counting == counting
