"""Choice of cells: the prior of clumping, and cells of the least expected error."""

import math

import numpy as np
import pytest
import shapely

import deltahist as dh
from deltahist.planning import CellChoice, on_cells, plan_cells
from deltahist.space.workloads import random_boxes


@pytest.mark.parametrize("shape", ["boxes", "regions", "intervals"])
def test_shares_of_cut_cells_are_those_of_all_cells(shape):
    rng = np.random.default_rng(4)
    if shape == "intervals":
        domain, ends = dh.Domain((0, 20), (20,)), np.sort(rng.random((30, 2)) * 20)
        work = dh.workloads.boxes(np.vstack([ends, [[3.25, 3.5], [3.5, 4], [3.5, 5.5], [4, 5]]]))
    else:
        domain, low = dh.Domain((0, 0, 20, 20), (20, 20)), rng.random((30, 2)) * 17
        corners = np.hstack([low, low + rng.random((30, 2)) * 3])
        work = dh.workloads.boxes(corners)
        if shape == "regions":
            work = dh.workloads.regions(shapely.box(*corners.T))
    shares = work.matrix(domain).toarray()
    np.testing.assert_allclose(work.cover(domain).unsure, (shares * (1 - shares)).sum(axis=1), atol=1e-8)


def test_more_points_take_smaller_cells_and_more_noise_larger_ones():
    def side(points, epsilon):
        best = plan_cells(on_cells((0, 0, 64, 64), 4), points, strategy="flow", epsilon=epsilon)[0]
        return best.mechanism.domain.cell[0]

    assert side(1e2, 1) > side(1e4, 1) > side(1e6, 1)
    assert side(1e4, 0.1) > side(1e4, 10)


def test_cells_are_ranked_by_both_errors_together():
    near = list(on_cells((0, 0, 64, 64), 4))
    found = plan_cells(near, 1e4, lambda domain: random_boxes(300, domain, seed=3), epsilon=1, strategy="flow")
    errors = [math.hypot(choice.noise_error, choice.placement_error) for choice in found]
    assert errors == sorted(errors)
    assert [CellChoice.of(c.mechanism, 1e4, random_boxes(300, c.mechanism.domain, seed=3)) for c in found] == found


def test_cells_end_where_there_are_too_many_or_fewer_than_two():
    assert [n.domain.size for n in on_cells((0, 0, 16, 16), 1, most=300)] == [64, 256]
    assert [n.domain.size for n in on_cells((0, 0, 1, 1), 1)] == [4, 16, 64]
    metres = list(on_cells((500_000, 4_500_000, 504_000, 4_504_000), "1km", "EPSG:32618"))
    assert [round(n.domain.ground(n.domain.cell[0])) for n in metres] == [2000, 1000, 500, 250, 125]
