"""How sure an order of answers is: the joint error of neighbours, as by the definition, and as simulated."""

import itertools

import numpy as np
import pytest
import scipy
import shapely
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.releases.ranking import rank_answers

DOMAIN = dh.Domain((0, 0, 8, 6), (8, 6))
#: Neighbours that share cells at their rims, one that holds another's part, and one apart.
SHAPES = np.array(
    [
        shapely.Polygon([(0.3, 0.2), (3.4, 0.6), (3.1, 3.7), (0.1, 2.9)]),
        shapely.Polygon([(3.4, 0.6), (7.2, 0.1), (6.9, 3.2), (3.1, 3.7)]),
        shapely.box(2.5, 1.5, 5.25, 5),
        shapely.box(6, 4, 8, 6),
    ]
)
POINTS = np.random.default_rng(7).poisson(np.linspace(5, 60, 48)).reshape(8, 6)
RELEASE = dh.publish(POINTS, dh.Neighbourhood(DOMAIN, 1), "tents", 1.0, rng=np.random.default_rng(3))


def held(shapes, domain=DOMAIN):
    """Return the shares of cells (m, N) by their polygons."""
    edges = [domain.edges(axis) for axis in (0, 1)]
    corners = [(w, s, e, n) for w, e in itertools.pairwise(edges[0]) for s, n in itertools.pairwise(edges[1])]
    cells = shapely.box(*np.array(corners).T)
    return shapely.area(shapely.intersection(shapes[:, None], cells)) / shapely.area(cells)


def covariance(release):
    """Return the covariance of the estimates of cells, from the strategy's matrix alone."""
    strategy, inverse = release.strategy, []
    matrix = strategy.matrix().toarray().astype(float)
    for unit in np.eye(len(matrix)):
        inverse.append(release.decoder.estimate(unit, 0 if release.decoder.total_known else None).ravel())
    spread = np.array(inverse).T
    entry = np.stack([strategy.gather(row) for row in np.eye(len(matrix))])
    return spread @ (entry * release.decoder.draw_variance) @ entry.T @ spread.T


def misplaced(release, one, other):
    """Return the variance of where points lie, cell by cell: a point's weight is that of the part that it lies in."""
    (spread,) = release.placement.spreads((slice(None), slice(None)))
    f, g, both = held(np.array([one, other, shapely.intersection(one, other)]))
    square = (f - both) + (g - both)
    return float(np.maximum(((square - (f - g) ** 2) * spread.ravel()).sum(), 0))


@pytest.mark.parametrize(
    ("strategy", "sources"),
    [
        *((name, None) for name in ("identity", "tents", "flow", "spectral", "optimal")),
        *((name, "boundary") for name in ("flow:2", "hierarchical")),
    ],
)
def test_neighbours_are_told_apart_by_the_variance_of_their_difference(strategy, sources):
    near = dh.Neighbourhood(DOMAIN, 1, sources)
    budget = {"rho": 0.1} if strategy in ("spectral", "optimal") else {"epsilon": 0.5}
    release = dh.publish(POINTS, near, strategy, rng=np.random.default_rng(3), **budget)
    work = dh.workloads.regions(SHAPES)
    found = release.answers(work, level=0.95, nonnegative=False)
    ranked = rank_answers(release, work, found, level=0.95)
    value, order = found["estimate"], np.argsort(-found["estimate"])
    rows, spread = held(SHAPES), covariance(release)
    for one, other in itertools.pairwise(order):
        row = rows[one] - rows[other]
        places = misplaced(release, SHAPES[one], SHAPES[other])
        z = (value[one] - value[other]) / np.sqrt(row @ spread @ row + places)
        # Laplace noise has heavier tails: the correction is small where many draws enter.
        assert ranked["above_next"][one] == pytest.approx(scipy.special.ndtr(z), abs=0.02)
    assert np.isnan(ranked["above_next"][order[-1]])
    assert (ranked["order"][order] == np.arange(4)).all()


@pytest.mark.parametrize("other", [1, 2])
@pytest.mark.filterwarnings("ignore::deltahist.errors.DeltaHistWarning")
def test_points_at_a_border_are_in_one_region_or_in_the_other(other):
    """With next to no noise, by a gap of one standard error of where points lie: of neighbours, and of overlapping."""
    release = dh.publish(POINTS, dh.Neighbourhood(DOMAIN, 1), "identity", 40.0, rng=np.random.default_rng(3))
    shapes = SHAPES[[0, other]]
    gap = np.sqrt(misplaced(release, *shapes))
    assert gap**2 > 20 * (covariance(release).diagonal().max())
    ranked = rank_answers(release, dh.workloads.regions(shapes), {"estimate": np.array([gap, 0.0])}, level=0.95)
    assert ranked["above_next"][0] == pytest.approx(scipy.special.ndtr(1), abs=0.004)


@settings(max_examples=25)
@given(ends=st.lists(st.tuples(*[st.integers(0, 16)] * 2, *[st.integers(1, 8)] * 2), min_size=2, max_size=5))
def test_boxes_are_ranked_as_regions_of_their_shapes(ends):
    low = np.array(ends)[:, :2] / 2.0
    low[:, 1] *= 0.75
    corners = np.hstack([low, np.minimum(low + np.array(ends)[:, 2:] / 2, DOMAIN.high)])
    corners = corners[(corners[:, :2] < corners[:, 2:]).all(axis=1)]
    if len(corners) < 2:
        return
    release, shapes = RELEASE, shapely.box(*corners.T)
    found = dh.answer(release, dh.workloads.boxes(corners), rank=True)
    work = dh.workloads.regions(shapes)
    # In one order, whatever rounding makes of equal estimates.
    same = rank_answers(release, work, {"estimate": found["estimate"].sort_index().to_numpy()}, level=0.95)
    order = np.argsort(same["order"])
    assert found["above_next"].to_numpy() == pytest.approx(same["above_next"][order], abs=1e-6, nan_ok=True)


def test_the_order_is_right_as_often_as_is_said():
    """Of noise that is drawn anew, the share that would not turn the order around."""
    boxes, rng = np.array([[3, 0, 6, 5], [3, 1, 6, 6.0]]), np.random.default_rng(5)
    release = dh.publish(POINTS, dh.Neighbourhood(DOMAIN, 1), "tents", 0.1, rng=rng)
    found = dh.answer(release, dh.workloads.boxes(boxes), rank=True)
    upper, lower = (tuple(slice(*ends) for ends in ((w, e), (s, n))) for w, s, e, n in boxes.astype(int)[found.index])
    fields = [release.decoder.noise(rng) for _ in range(1500)]
    noise = np.array([field[upper].sum() - field[lower].sum() for field in fields])
    gap = found["estimate"].iloc[0] - found["estimate"].iloc[1]
    assert 0.55 < found["above_next"].iloc[0] < 0.99
    assert found["above_next"].iloc[0] == pytest.approx((noise < gap).mean(), abs=0.03)


def test_neighbours_that_are_hardly_told_apart_share_a_rank():
    counts = np.zeros((8, 6), dtype=int)
    counts[:2], counts[2:4], counts[4:6], counts[6:] = 1000, 1001, 500, 0
    release = dh.publish(counts, dh.Neighbourhood(DOMAIN, 1), "identity", 0.5, rng=np.random.default_rng(1))
    columns = [[x, 0, x + 2, 6] for x in (0, 2, 4, 6)]
    found = dh.answer(release, dh.workloads.boxes(columns), rank=True)
    assert found["rank"].tolist() == [1, 1, 3, 4]
    assert sorted(found.index[:2]) == [0, 1]
    assert found.index[2:].tolist() == [2, 3]


def test_two_halves_of_a_known_total_are_less_sure_than_their_own_errors_say():
    """Their noise is opposite: that of the difference is twice that of each, not the root of two."""
    release = dh.publish(POINTS, dh.Neighbourhood(DOMAIN, 1), "identity", 0.2, rng=np.random.default_rng(3))
    found = dh.answer(release, dh.workloads.boxes([[0, 0, 4, 6], [4, 0, 8, 6]]), rank=True)
    gap, error = found["estimate"].diff().abs().iloc[1], found["std_error"].iloc[0]
    assert found["above_next"].iloc[0] == pytest.approx(scipy.special.ndtr(gap / (2 * error)), abs=2e-3)


@pytest.mark.parametrize("mean", [False, True])
def test_sums_and_means_of_steps_are_ranked_by_their_joint_error(mean):
    from deltahist.preprocessing import Clock

    near, rng = dh.Neighbourhood(DOMAIN, 1), np.random.default_rng(4)
    steps = {day: dh.publish(POINTS, near, "identity", 1.0, rng=rng) for day in range(4)}
    series = dh.Series(Clock.of("2010-05-01", "1d"), 0, 3, steps)
    series = series.per_step() if mean else series
    boxes = dh.workloads.boxes([[0, 0, 4, 6], [4, 0, 8, 6]])
    found = dh.answer(series, boxes, rank=True)
    gap, error = found["estimate"].diff().abs().iloc[1], found["std_error"].iloc[0] * 2
    error *= 0.5 if mean else 1  # of a mean, as is stated, every error is divided by the number of steps
    assert found["above_next"].iloc[0] == pytest.approx(min(scipy.special.ndtr(gap / error), 1), abs=2e-2)
