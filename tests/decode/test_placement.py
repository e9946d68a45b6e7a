"""Where points lie in cells: the law on data whose law is known, intervals of answers, and sums over cut cells."""

import numpy as np
import pytest

import deltahist as dh
from deltahist.decode.placement import learn_placement
from deltahist.releases.histogram import Rims
from deltahist.space.workloads import BoxCover

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
    assert learn_placement(cells, no_noise).law.shared > 0.95


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
        estimates.cost_so_far = -np.inf
        few = dh.answer(release, box, nonnegative=nonnegative).drop(columns="estimator", errors="ignore")
        assert np.allclose(few.loc[0].astype(float), many.loc[row, few.columns].astype(float), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("most", [1 << 20, 90])  # blocks of one cell, and of nine, the last of which is not whole
@pytest.mark.parametrize("shape", [(13, 31), (3, 40), (17,)])
def test_sums_over_cut_cells_are_those_of_all_cells(shape, most, monkeypatch):
    monkeypatch.setattr("deltahist.releases.histogram._MOST", most)
    monkeypatch.setattr("deltahist.releases.histogram._CELLS_AT_A_TIME", 100)
    rng, ndim = np.random.default_rng(6), len(shape)
    fields = rng.normal(size=(ndim + 2, *shape))
    low, high = np.sort(rng.uniform(0, shape, (2, 300, ndim)), axis=0)
    low[:60, 0], high[:90, -1] = np.floor(low[:60, 0]), np.ceil(high[:90, -1])
    high[90:150] = np.minimum(high[90:150], np.floor(low[90:150]) + 1)  # within one cell
    low[150:180, 0], high[150:180, 0] = 0, shape[0]
    cover = BoxCover(tuple(zip(low.T, high.T, strict=True)))
    rims = Rims(lambda chosen: [field[chosen] for field in fields], shape)
    found = rims.sum_over(cover)
    for number in range(len(low)):
        inside = [
            [np.clip(end[number, a], np.arange(n), np.arange(n) + 1) for end in (low, high)]
            for a, n in enumerate(shape)
        ]
        along = [b - a for a, b in inside]
        centroid = [a + b - 2 * np.arange(n) - 1 for (a, b), n in zip(inside, shape, strict=True)]
        share = along[0] if ndim == 1 else np.multiply.outer(*along)
        expected = [np.zeros(1), *((share * (1 - share) * u).sum() for u in fields[ndim:])]
        for axis in range(ndim):
            lean = share * (centroid[axis] if ndim == 1 else np.expand_dims(centroid[axis], 1 - axis))
            expected[0] = expected[0] + (lean * fields[axis]).sum()
        assert found[:, number] == pytest.approx(np.hstack(expected), abs=1e-9)
        (alone,) = rims.sum_over(cover[number : number + 1]).T
        assert np.array_equal(found[:, number], alone)
