"""Errors of regions by their rims, against the plain definition: query by query, from every draw."""

import math

import numpy as np
import pytest
import scipy.sparse
import shapely

import deltahist as dh
from deltahist.planning.ranking import mechanism_for

DOMAIN = dh.Domain((0, 0, 40, 30), (40, 30))


def regions(domain=DOMAIN):
    """Rows (m, N) of hulls of all sizes, frames, strips along cell edges, everything and nothing."""
    rng, out = np.random.default_rng(11), []
    for reach in (1, 3, 8, 30, 30):
        x, y = rng.uniform(0, 40 - reach), rng.uniform(0, 30.001 - reach)
        out.append(shapely.convex_hull(shapely.multipoints(rng.uniform((x, y), (x + reach, y + reach), (7, 2)))))
    whole = shapely.box(0, 0, 40, 30)
    out += [whole, whole.difference(shapely.box(2.5, 4, 33, 27.2)), shapely.box(3, 0, 4, 30)]
    out += [shapely.union_all([shapely.box(0, 0, 2, 2), shapely.box(38, 28, 40, 30), shapely.box(2, 2, 5, 5)])]
    out += [shapely.box(3, 1, 9, 29), shapely.box(10, 10, 14, 12.5)]  # a low one behind a high one
    rows = dh.workloads.regions(out).cover(domain).rows
    return scipy.sparse.csr_array(scipy.sparse.vstack([rows, rows[:0], 0 * rows[[0]]]))


def flow(near, **more):
    return mechanism_for(near, dh.strategies.Flow(DOMAIN, centred=True, **more), 1).decoder


NEAR, WIDE = (dh.Neighbourhood(DOMAIN, delta, limits=[(math.inf, 6)]) for delta in (1, 3))
OPEN = dh.Neighbourhood(DOMAIN, 1, sources="boundary")
CASES = {
    "borders alone": flow(NEAR, widths=()),
    "sums": flow(NEAR, widths=(4,)),
    "two levels of sums": flow(NEAR, widths=(3, 9)),
    "hubs": flow(NEAR, widths=(4,), hubs=3),
    "sums of hubs": flow(NEAR, widths=(5,), hubs=3, hub_widths=(4,)),
    "strips of hubs": flow(NEAR, widths=(5,), hubs=1, hub_widths=(2, 6), hub_strips=True),
    "strips of hubs, total unknown": flow(OPEN, widths=(4,), hubs=3, hub_widths=(4,), hub_strips=True),
    "blocks": flow(WIDE, block=(3, 4), widths=(3,), hubs=3, hub_widths=(2,)),
    "hubs, total unknown": flow(OPEN, widths=(4,), hubs=3, hub_widths=(4,)),
    "arrivals": flow(OPEN, widths=(4,), arrivals="boundary"),
}


@pytest.mark.parametrize("case", CASES)
def test_errors_by_rims_are_those_of_every_draw(case):
    decoder, rows = CASES[case], regions()
    found, expected = decoder.moments(rows), decoder.solved_moments(rows)
    assert found.variance == pytest.approx(expected.variance, rel=1e-11, abs=decoder.rounding_floor)
    # Draws beyond the rim that sums reach are left out of the kurtosis.
    assert found.kurtosis == pytest.approx(expected.kurtosis, rel=0.05, abs=2e-3)


@pytest.mark.parametrize("case", ["sums of hubs", "blocks", "arrivals"])
def test_regions_have_the_errors_of_their_rows(case):
    decoder = CASES[case]
    shapes = [shapely.box(1.5, 2, 30, 25), shapely.Point(20, 15).buffer(9), shapely.box(0, 0, 40, 30)]
    cover = dh.workloads.regions(shapes).cover(DOMAIN)
    assert len(cover.share) < cover.rows.nnz / 4
    found, expected = decoder.moments(cover), decoder.moments(cover.rows)
    assert found.variance == pytest.approx(expected.variance, rel=1e-11, abs=decoder.rounding_floor)
    assert found.kurtosis == pytest.approx(expected.kurtosis, rel=1e-6, abs=1e-8)  # in single precision
    assert decoder.answer_variance(cover) == pytest.approx(expected.variance, rel=1e-11, abs=decoder.rounding_floor)


@pytest.mark.parametrize("case", ["two levels of sums", "sums of hubs", "strips of hubs", "blocks"])
def test_errors_of_boxes_are_those_of_every_draw(case):
    """Cells at either end may be cut, and edges between the same hubs are alike."""
    decoder = CASES[case]
    low, high = np.sort(np.random.default_rng(5).uniform(0, 1, (2, 400, 2)), axis=0) * DOMAIN.shape
    boxes = dh.workloads.boxes(np.hstack([low, high]))
    expected = decoder.solved_moments(boxes).variance
    assert decoder.answer_variance(boxes) == pytest.approx(expected, rel=1e-9, abs=decoder.rounding_floor)


@pytest.mark.parametrize("sources", [None, "boundary"])
def test_errors_of_regions_under_tents_are_those_of_every_draw(sources):
    near = dh.Neighbourhood(DOMAIN, 3, sources=sources)
    decoder, rows = mechanism_for(near, "tents", 1).decoder, regions()
    shapes = [shapely.box(0, 0, 40, 30), shapely.box(2, 3, 4, 5), shapely.Point(20, 15).buffer(9)]
    cover = dh.workloads.regions(shapes).cover(DOMAIN)
    assert len(cover.whole) > len(shapes)
    for work in (rows, cover):
        found, expected = decoder.moments(work), decoder.solved_moments(work)
        assert found.variance == pytest.approx(expected.variance, rel=1e-11, abs=decoder.rounding_floor)
        assert (found.kurtosis >= expected.kurtosis).all()  # a bound, as of boxes
        assert decoder.answer_variance(work) == pytest.approx(found.variance, rel=1e-13)
