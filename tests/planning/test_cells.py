"""Choice of cells: the prior of clumping, and cells of the least expected error."""

import math

import numpy as np
import pytest
import shapely

import deltahist as dh
from deltahist.planning import CellChoice, on_cells, plan_cells
from deltahist.planning.advice import CLUMPING, cut_shares, expected_spread
from deltahist.space.workloads import random_boxes


def cascade(rng, levels, points, exponent):
    """Points of random cascades in which two points share a quarter with chance 4^−exponent, at every level."""
    # One of four quarters, at random, has a share w of the points, the others share the rest alike.
    share = (1 + math.sqrt(1 - 4 * (1 - 3 * 4**-exponent))) / 4  # of w² + (1 − w)² / 3 = 4^−exponent
    weight = np.ones((1, 1))
    for _ in range(levels):
        rich, finer = rng.integers(0, 4, weight.shape), np.empty((2 * len(weight), 2 * len(weight)))
        for k in range(4):
            finer[k // 2 :: 2, k % 2 :: 2] = np.where(rich == k, share, (1 - share) / 3) * weight
        weight = finer
    return rng.multinomial(points, (weight / weight.sum()).ravel()).reshape(weight.shape)


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
    np.testing.assert_allclose(cut_shares(work, domain), (shares * (1 - shares)).sum(axis=1), atol=1e-8)


def test_the_prior_is_that_of_points_that_clump_so():
    # Errors of even shares over boxes at half cells, in the mean over cascades; 100 draws scatter by about a tenth.
    rng = np.random.default_rng(8)
    coarse, levels, points = 8, 6, 5_000
    domain = dh.Domain((0, 0, 8, 8), (coarse, coarse))
    low = rng.integers(0, 8, (200, 2)) + 0.5 * rng.integers(0, 2, (200, 2))
    boxes = np.column_stack([low, np.minimum(low + rng.integers(1, 9, (200, 2)) / 2, 8)])
    boxes = boxes[(boxes[:, 2:] > boxes[:, :2]).all(axis=1)]
    work = dh.workloads.boxes(boxes)
    rows = work.matrix(domain)
    squares = np.zeros(len(boxes))
    for _ in range(100):
        fine = cascade(rng, levels, points, CLUMPING)
        half = fine.reshape(16, 4, 16, 4).sum(axis=(1, 3))
        cells = half.reshape(8, 2, 8, 2).sum(axis=(1, 3)).astype(float)
        total = np.pad(half.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
        x0, y0, x1, y1 = (2 * boxes.T).astype(int)
        truth = total[x1, y1] - total[x0, y1] - total[x1, y0] + total[x0, y0]
        squares += (rows @ cells.ravel() - truth) ** 2
    expected = expected_spread(domain, points) * cut_shares(work, domain)
    assert math.sqrt(squares.mean() / 100) == pytest.approx(math.sqrt(expected.mean()), rel=0.2)


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
