"""What Table 5 and Figure 4 are computed with, against the library and against the definitions."""

import numpy as np
import pytest

import deltahist as dh
from deltahist.space.workloads import box_sums
from experiments import _shifted
from experiments._shifted import Prior, Shifted, least_squares
from experiments._squares import Squares, equi_width

POINTS = np.random.default_rng(1).random((500, 2))
SIZES = (0.1, 0.35)


@pytest.mark.parametrize("width", [0.1, 0.15])
def test_equi_width_is_the_library_s_error(width):
    squares = Squares.of(POINTS, SIZES, 30)
    domain = dh.Domain((0, 0, 1, 1), cell=width)
    # The boundary as a source: the total is not public, as in the paper's baseline.
    near = dh.Neighbourhood(domain, delta=width, sources="boundary")
    A = dh.strategies.Identity(domain)
    noise = squares.mean(dh.expected_error(A, near, squares.boxes, 1.0, continuous=True))
    cells = dh.count(POINTS, domain).array.astype(float)
    bias = squares.mean((box_sums(cells, squares.boxes.spans(domain)) - squares.truth) ** 2)
    np.testing.assert_allclose(equi_width(POINTS, squares, width), (bias, noise))


@pytest.mark.parametrize("length", [0.0, 0.1])
def test_least_squares_is_its_definition(length, monkeypatch):
    prior, grids = Prior(clusters=6.5e6, length=length), Shifted(0.1, 0.2, 0.1)
    squares = Squares.of(POINTS, SIZES, 20)
    monkeypatch.setattr(_shifted, "_NOISE", {})
    monkeypatch.setattr(_shifted, "FIELDS", 200)
    A, n = grids.strategy.matrix().toarray().astype(float), grids.domain.shape[0]
    from scipy.fft import dct

    wave = np.kron(*[dct(np.eye(n), axis=0, norm="ortho")] * 2)
    penalty = wave.T @ np.diag(prior.penalty(n).ravel() if length else np.ones(n * n)) @ wave
    inverse = np.linalg.inv(A.T @ A + grids.noise * n * n / prior.spread * penalty) @ A.T
    queries = squares.boxes.matrix(grids.domain).toarray()
    counts, mean = dh.count(POINTS, grids.domain).array.ravel(), len(POINTS) / n**2
    bias = squares.mean((queries @ (inverse @ (A @ (counts - mean)) + mean) - squares.truth) ** 2)
    noise = squares.mean(grids.noise * ((queries @ inverse) ** 2).sum(axis=1))
    found = least_squares(POINTS, squares, grids, prior)
    np.testing.assert_allclose(found[0], bias, rtol=1e-3)
    np.testing.assert_allclose(found[1], noise, rtol=0.2)
