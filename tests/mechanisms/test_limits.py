"""What is promised beyond δ: in the statement, in its data, on its page and along the curve."""

import math

import numpy as np
import pytest

import deltahist as dh
from deltahist.mechanisms.limits import factor_promised, limits_in_words
from deltahist.releases.page import page

DOMAIN = dh.Domain.from_cell((560000, 4480000, 580000, 4500000), "1km", "EPSG:32618")
LIMITS = [("4km", 2), (math.inf, 4)]


def made(near, **budget):
    counts = np.ones(near.domain.shape, dtype=int)
    return dh.publish(counts, near, dh.strategies.Cumulative(near.domain), **(budget or {"epsilon": 0.5}))


def test_the_statement_has_the_limits():
    release = made(dh.Neighbourhood(DOMAIN, "1km", limits=LIMITS))
    text, facts = release.statement(), release.facts()
    assert "Limits              a move over up to 4 km costs at most 2 ε, any move at all at most 4 ε" in text
    assert "ε promised" in text
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


def test_without_limits_nothing_is_said_of_them():
    release = made(dh.Neighbourhood(DOMAIN, "1km"))
    assert "Limits" not in release.statement()
    assert "ε bound" in release.statement()
    assert release.facts()["limits"] == []
    assert release.mechanism.promise.endswith("moving up to 1000 m")
    # Having said that there are none makes no other promise.
    free = made(dh.Neighbourhood(DOMAIN, "1km", limits=()))
    assert free.mechanism.statement() == release.mechanism.statement()


def test_factors_of_rho_are_squared():
    release = made(dh.Neighbourhood(DOMAIN, "1km", limits=LIMITS), rho=0.1)
    assert "a move over up to 4 km costs at most 4 ρ, any move at all at most 16 ρ" in release.statement()
    assert release.facts()["protection"][-1]["bound"] == pytest.approx(1.6)
    assert [limit["times"] for limit in release.facts()["limits"]] == [4, 16]


def test_arrivals_are_limited_by_their_distance():
    near = dh.Neighbourhood(DOMAIN, "1km", "boundary", LIMITS)
    words = (
        "a move over up to 4 km, or appearing within 4 km of the domain's boundary, costs at most 2 ε; any move at "
        "all, or appearing anywhere, at most 4 ε"
    )
    assert limits_in_words(near, "ε", 1) == words
    release = dh.publish(np.ones(DOMAIN.shape, dtype=int), near, "identity", epsilon=1)
    assert words in release.statement()
    assert release.facts()["appear_anywhere"] <= 4


def test_of_many_steps_a_few_are_named():
    near = dh.Neighbourhood(DOMAIN, "1km", limits="proportional")
    assert len(near.profile) > 50
    words = limits_in_words(near, "ε", 1)
    assert words.startswith(f"as a function of the distance, in {len(near.profile)} steps: a move over up to ")
    assert words.count("at most") == 4
    assert "any move at all" in words
    facts = made(near).facts()
    assert len(facts["limits"]) == len(near.profile)
    assert len(facts["protection"]) <= 8
    assert made(near).mechanism.promise.count("at most") == 1


def test_limits_together_promise_what_their_moves_do():
    near = dh.Neighbourhood(dh.Domain((0, 90), (90,)), 1, limits=[(4, 2), (10, 3)])
    steps = {1: 1, 1.5: 2, 4: 2, 5: 3, 8: 3, 10: 3, 11: 4, 12: 5, 14: 5, 20: 6, 33: 11}
    assert {r: int(factor_promised(near, r)) for r in steps} == steps
    rising = [factor_promised(near, r) for r in np.linspace(0.1, 90, 400)]
    assert rising == sorted(rising)


@pytest.mark.parametrize("budget", [{"epsilon": 1}, {"rho": 0.2}])
def test_the_curve_jumps_at_limits(budget):
    release = made(dh.Neighbourhood(DOMAIN, "1km", limits=[("3.3km", 2), ("any", 4)]), **budget)
    curve = dh.protection_curve(release, 12)
    assert 3300.0 in curve["distance"]
    assert (curve["exact"] <= curve["bound"] * (1 + 1e-12)).all()
    assert (np.diff(curve["bound"]) >= 0).all()
    at = dict(zip(curve["distance"].tolist(), curve["bound"].tolist(), strict=True))
    amount, norm = (1, 1) if "epsilon" in budget else (0.2, 2)
    assert at[3300.0] == pytest.approx(2**norm * amount)
    assert curve["bound"][-1] == pytest.approx(4**norm * amount)


def test_the_page_says_what_limits_mean_for_guesses():
    near = dh.Neighbourhood(DOMAIN, "1km", limits=LIMITS)
    text = page(made(near), "markdown")
    assert (
        "the protection is weaker, but limited (a guess is right in 73.2 of 100 cases at most up to 4 km apart, right "
        "in 88.1 of 100 cases at most however far apart they are): the table says how much."
    ) in text
    assert "| ε | ε promised |" in text
    assert "and the limits" in text
    assert "promised, with limits" in page(made(near), "html")
    plain = page(made(near.with_limits(None)), "markdown")
    assert "the protection is weaker: the table says how much." in plain
    assert "| ε | ε by rule |" in plain


def test_limits_as_they_may_be_written():
    near = dh.Neighbourhood(dh.Domain((0, 90), (90,)), 1)
    assert near.with_limits([("any", 2)]).profile == near.with_limits([(math.inf, 2)]).profile
    # Of a profile and a cap the least holds, once.
    both = near.with_limits(["proportional", ("any", 2)])
    assert [limit.any for limit in both.profile] == [False] * (len(both.profile) - 1) + [True]
    assert both.profile[-1].factor == 2
    for given in (4, 2.5):
        with pytest.raises(dh.InputError, match="must be a list of pairs"):
            near.with_limits(given)
    with pytest.raises(dh.InputError, match=r"the limit for any move is 0\.5"):
        near.with_limits([("any", 0.5)])


@pytest.mark.parametrize("hair", [0, 1e-9, 3e-8, 4.9e-8])
@pytest.mark.parametrize("shape", [(3000,), (60, 3)])
def test_the_path_bound_counts_whole_lattice_steps(hair, shape):
    """δ a hair above whole cells: the allowance for rounding is made once, not for each move on the way."""
    domain = dh.Domain((0,) * len(shape) + shape, shape)
    near = dh.Neighbourhood(domain, 1 + hair, limits=())
    mechanism = dh.Mechanism(near, dh.strategies.Flow(domain), dh.Budget(epsilon=1))
    for times in (1, 2, 7, 1000, 2000):
        distance = times * (1 + hair)
        if distance < near.diameter:
            exact, bound = mechanism.cost_within(distance)
            far = near.moves_within(distance)
            crossed = int(far.reach[0]) if len(shape) == 1 else len(far.reach) - 1
            # On a line every border that is crossed costs one; each move within δ crosses so many.
            assert exact == mechanism.cost_under(far) <= bound
            assert bound >= -(-crossed // (int(near.reach[0]) if len(shape) == 1 else len(near.reach) - 1))


def test_a_promise_on_the_way_counts_whole_lattice_steps_as_well():
    near = dh.Neighbourhood(dh.Domain((0, 3000), (3000,)), 1, limits=[(2 + 4e-8, 2)])
    mechanism = dh.Mechanism(near, dh.strategies.Flow(near.domain), dh.Budget(epsilon=1))
    for times in (1, 2, 10, 700):
        distance = times * (2 + 4e-8)
        exact, bound = mechanism.cost_within(distance)
        assert mechanism.cost_under(near.moves_within(distance)) == exact <= bound


def test_distances_that_are_none():
    mechanism = made(dh.Neighbourhood(DOMAIN, "1km")).mechanism
    assert mechanism.cost_within(float("inf")) == mechanism.cost_within(mechanism.neighbourhood.diameter)
    for distance in (float("nan"), 0, -1, float("-inf")):
        with pytest.raises(dh.InputError, match="distance is"):
            mechanism.cost_within(distance)
