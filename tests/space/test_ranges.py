"""Boxes, all ranges and random squares."""

import math

import numpy as np
import pytest
import scipy.stats

import deltahist as dh

PLANE = dh.Domain((10, 20, 17, 25), (7, 10))


@pytest.mark.parametrize("shape", [(1,), (6,), (1, 1), (4, 3)])
def test_all_ranges_are_all_different_boxes_of_whole_cells(shape):
    domain = dh.Domain((0,) * len(shape) + shape, shape)
    work = dh.workloads.all_ranges(domain)
    rows = work.matrix(domain).toarray()
    assert len(work) == len(rows) == math.prod(n * (n + 1) // 2 for n in shape)
    assert set(np.unique(rows)) <= {0.0, 1.0}
    assert len(np.unique(rows, axis=0)) == len(rows)
    spans = work.spans(domain)
    for row, edges in zip(rows, zip(*(e for span in spans for e in span), strict=True), strict=True):
        box = np.zeros(shape)
        box[tuple(slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True))] = 1
        assert np.array_equal(row, box.ravel())


def test_sampled_ranges_are_uniform():
    domain = dh.Domain((0, 0, 3, 2), (3, 2))
    rows = dh.workloads.all_ranges(domain).sample(9000, seed=3).matrix(domain).toarray()
    _, number = np.unique(rows, axis=0, return_counts=True)
    assert len(number) == 6 * 3
    # A fixed seed; another one would fail once in a thousand.
    assert scipy.stats.chisquare(number).pvalue > 0.001


@pytest.mark.parametrize("side", [0.01, 1.3, 5])
def test_random_squares_are_inside_and_of_their_side(side):
    work = dh.workloads.random_squares(side, 400, PLANE, seed=5)
    assert work.corners.shape == (400, 4)
    assert (work.corners[:, :2] >= PLANE.low).all()
    assert (work.corners[:, 2:] <= PLANE.high).all()
    assert np.allclose(work.corners[:, 2:] - work.corners[:, :2], side)
    work.spans(PLANE)
    # Places are uniform: west runs from 10 to 17 − side.
    assert scipy.stats.kstest((work.corners[:, 0] - 10) / (7 - side), "uniform").pvalue > 0.001


@pytest.mark.parametrize(
    ("corners", "words"),
    [
        ([[11, 21, 12, math.inf]], "NaN"),
        ([[1, 2, 3]], "shape"),
        ([[12, 21, 11, 22]], "box 0"),
        ([[11, 21, 12, 22], [11, 22, 12, 22]], "box 1"),
        ([[9, 21, 12, 22]], "inside the domain"),
    ],
)
def test_bad_boxes_are_named_with_their_number(corners, words):
    with pytest.raises(dh.InputError, match=words):
        dh.workloads.boxes(corners).spans(PLANE)


def test_long_lists_of_explicit_queries_are_refused_before_they_are_made(monkeypatch):
    monkeypatch.setattr("deltahist._memory.available_memory", lambda: 10**6)
    domain = dh.Domain((0, 1), (1000,))
    with pytest.raises(dh.InputError, match="explicit queries"):
        dh.workloads.all_ranges(domain).matrix(domain)
