"""Where points lie in cells: the law on data whose law is known, and intervals of answers."""

import numpy as np
import pytest

import deltahist as dh
from deltahist.decode.placement import learn_clumping

DOMAIN = dh.Domain((0, 0, 1, 1), (40, 40))
NEAR = dh.Neighbourhood(DOMAIN, 1 / 40)


def no_noise(widths):
    return 0.0


def release_of(points, epsilon=1.0, seed=1):
    return dh.publish(dh.count(points, DOMAIN), NEAR, epsilon=epsilon, rng=np.random.default_rng(seed))


def squares(rng, number=300):
    side = rng.uniform(0.03, 0.4, number)
    corner = rng.random((number, 2)) * (1 - side[:, None])
    return np.column_stack([corner, corner + side[:, None]])


def clumps(rng, places, points):
    """Points in few places, of sizes that fall as a power: much like check-ins."""
    where = rng.random((places, 2))
    share = 1 / np.arange(1, places + 1)
    return where[rng.choice(places, points, p=share / share.sum())]


def test_blocks_that_are_one_place_are_recovered():
    """All points of a block in one of its four cells: d² = B², so that ρ = 1."""
    rng = np.random.default_rng(4)
    blocks = rng.integers(5, 500, (30, 30))
    cells = np.zeros((60, 60))
    i, j = np.indices(blocks.shape)
    cells[2 * i + rng.integers(0, 2, blocks.shape), 2 * j + rng.integers(0, 2, blocks.shape)] = blocks
    assert learn_clumping(cells, no_noise).shared > 0.95


@pytest.mark.parametrize("kind", ["clumped", "one place"])
def test_intervals_of_squares_at_any_place_hold(kind):
    """300 squares: were each covered by 93% alone, fewer than 88% of correlated ones would still be a surprise."""
    rng = np.random.default_rng(6)
    points = {
        "clumped": lambda: clumps(rng, 3000, 40_000),
        "one place": lambda: np.vstack([rng.random((4000, 2)), np.full((4000, 2), 0.517)]),
    }[kind]()
    release, corners = release_of(points), squares(rng)
    truth = ((points[:, None] >= corners[:, :2]) & (points[:, None] < corners[:, 2:])).all(axis=2).sum(axis=0)
    for nonnegative in (True, False):
        found = dh.answer(release, corners, nonnegative=nonnegative)
        assert ((found["low"] <= truth) & (truth <= found["high"])).mean() >= 0.88
    error = np.sqrt(np.mean((found["estimate"] - truth) ** 2))
    assert np.sqrt(np.mean(found["std_error"] ** 2)) <= 4 * error
    if kind == "clumped":  # noise alone would not do
        assert (np.abs(found["estimate"] - truth) <= 1.96 * found["noise_error"]).mean() < 0.75


@pytest.mark.parametrize(("kind", "side"), [("even", 0.5), ("clumped", 0.1)])
def test_intervals_of_small_squares_at_busy_places_hold(kind, side):
    """300 squares of a tenth of a cell to a cell, about true points: the noise and blind placing gave 30 to 90%."""
    rng = np.random.default_rng(7)
    points = rng.random((40_000, 2)) if kind == "even" else clumps(rng, 3000, 40_000)
    release, half = release_of(points), side / 80
    centre = np.clip(points[rng.integers(0, len(points), 300)], half, 1 - half)
    # A point of its own square is inside, whatever rounding does.
    found = dh.answer(release, np.column_stack([centre - half, centre + half]))
    truth = [(np.abs(points - each).max(axis=1) < half * (1 + 1e-9)).sum() for each in centre]
    assert ((found["low"] <= truth) & (truth <= found["high"])).mean() >= 0.92


@pytest.mark.parametrize(("nonnegative", "smooth"), [(False, True), (True, False)])
def test_few_boxes_and_many_have_the_same_answers(nonnegative, smooth):
    """The first boxes are summed cell by cell; the sums over the map are made once many were asked for."""
    rng = np.random.default_rng(14)
    release = release_of(rng.beta(2, 5, (20_000, 2)) if smooth else clumps(rng, 500, 20_000))
    assert (release.placement.law.trust > 0) == smooth  # of clumps no slope is trusted
    asked = squares(rng, 60)
    asked[:12] = np.round(asked[:12] * 40) / 40
    asked[12:20, 2:] = asked[12:20, :2] + 0.01
    many = dh.answer(release, asked, nonnegative=nonnegative)
    estimates = release._nonnegative_sums if nonnegative else release._unbiased_sums
    assert "rim_sums" in vars(estimates)
    for row, box in enumerate(asked):
        estimates.asked = -np.inf
        few = dh.answer(release, box, nonnegative=nonnegative).drop(columns="estimator", errors="ignore")
        assert np.allclose(few.loc[0].astype(float), many.loc[row, few.columns].astype(float), rtol=1e-7, atol=1e-7)
