"""The statement in plain words: its one figure is a bound, and it says what holds of the release."""

import math

import numpy as np
import pytest
import scipy.stats

import deltahist as dh
from deltahist.domain.clock import Clock
from deltahist.domain.counting import Counting
from deltahist.mechanisms.plain import guess, judged, sections
from deltahist.mechanisms.step import Step

DOMAIN = dh.Domain.from_cell((560000, 4480000, 580000, 4500000), "1km", "EPSG:32618")
FIXED = dh.Neighbourhood(DOMAIN, "2km")


def release(near=FIXED, **more):
    counts = np.ones(near.domain.shape, dtype=int)
    return dh.publish(counts, near, dh.strategies.Identity(near.domain), **(more or {"epsilon": 1}))


def words(made):
    return " ".join(text for part in sections(made.mechanism, made.facts()) for text in part.paragraphs)


@pytest.mark.parametrize("epsilon", [0.1, 1, 3])
def test_a_guess_under_laplace_noise_is_right_as_often_as_said(epsilon):
    """One count that differs by 1: half of one and the total variation distance, which ε allows for exactly."""
    p = math.exp(-epsilon)
    k = np.arange(-2000, 2001)
    law = (1 - p) / (1 + p) * p ** np.abs(k)
    right = 0.5 + 0.25 * np.abs(law[1:] - law[:-1]).sum()
    assert guess({"rho": None}, {"exact": epsilon, "deltas": 1}) == pytest.approx(right)


@pytest.mark.parametrize("rho", [1e-3, 0.02, 0.5, 2, 20])
def test_a_guess_under_gaussian_noise_is_right_no_more_often_than_said(rho):
    right = scipy.stats.norm.cdf(math.sqrt(2 * rho) / 2)
    said = guess({"rho": rho}, {"exact": rho, "deltas": 1})
    assert right <= said <= min(1, 0.5 + 1.4 * (right - 0.5) + 1e-12)


def test_a_failure_probability_is_added_and_grows_with_the_distance():
    facts = {"rho": None, "epsilon": 1.0, "probability": 0.01}
    near, far = (guess(facts, {"exact": float(d), "deltas": float(d)}) for d in (1, 2))
    assert near == pytest.approx((math.e + 0.01) / (math.e + 1))
    assert far == pytest.approx((math.e**2 + 0.01 * (1 + math.e)) / (math.e**2 + 1))
    assert guess(facts, {"exact": 50.0, "deltas": 50.0}) is None
    assert guess(facts, {"exact": None, "deltas": 50.0}) is None


def test_the_table_is_that_of_the_facts():
    made = release()
    table = next(part for part in sections(made.mechanism, made.facts()) if part.header)
    assert table.rows[0] == ("2 km", "73.2 of 100", "1", "1")
    assert len(table.rows) == len(made.facts()["protection"])
    assert all(len(row) == len(table.header) for row in table.rows)


def test_points_and_people_are_told_apart():
    assert "Every single point is protected" in words(release())
    said = words(release(epsilon=1, contributions=3))
    assert "All places that were kept of a person, up to 3, are protected together." in said
    assert "Of each person at most 3 rows were kept" in said


def test_membership_is_said():
    assert "who is in the data, and how many they are, is taken to be known" in words(release())
    said = words(release(dh.Neighbourhood(DOMAIN, "2km", "boundary")))
    assert "for whoever is within 2 km of the domain's boundary" in said
    assert "The number of points is not published." in said


def test_what_was_left_out_is_said():
    near = dh.Neighbourhood(DOMAIN, "2km", "boundary")
    said = words(release(near, epsilon=1, dropped=["bad rows", "points outside"]))
    assert "Rows whose coordinates could not be used were left out." in said
    assert "points outside it were left out" in said


def test_a_condition_is_said():
    near = dh.Neighbourhood(DOMAIN, "2km")
    counting = Counting(where="kind = 'bus'")
    mechanism = dh.Mechanism(near, dh.strategies.Identity(DOMAIN), dh.Budget(1), counting)
    facts = mechanism.facts() | {"publishable": True}
    said = " ".join(text for part in sections(mechanism, facts) for text in part.paragraphs)
    assert "Only rows where kind = 'bus' were taken" in said


def test_a_step_says_what_all_steps_promise_together():
    near = dh.Neighbourhood(DOMAIN, "2km", "boundary")
    mechanism = dh.Mechanism(near, dh.strategies.Identity(DOMAIN), dh.Budget(1 / 8))
    step = Step(Clock.of("2010-05-01", "1d"), 0, 8, dh.Budget(1))
    account = dh.Account(dh.Window(8, epsilon=1), 0)
    made = dh.publish(np.ones(DOMAIN.shape, dtype=int), mechanism.at(step), account=account)
    said = words(made)
    assert "their guess is right in 53.2 of 100 cases at most" in said
    assert "step 2010-05-01 of a stream" in said
    assert "within 8 steps, by no more than δ in each, is right in 73.2 of 100 cases at most" in said


def test_seeded_noise_must_not_be_published():
    verdict, why = judged(release(epsilon=1, rng=np.random.default_rng(1)).facts())
    assert verdict == "no"
    assert "seeded generator" in why
    assert "This file keeps nothing of the following" in words(
        release(epsilon=1, rng=np.random.default_rng(1))
    )
    assert judged(release().facts())[0] == "yes"
    assert "keeps nothing" not in words(release())
