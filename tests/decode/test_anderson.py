"""Acceleration of fixed points: what it does where the residual is affine, and where it must start anew."""

import numpy as np

from deltahist.decode.projection import Anderson


def affine(size, rng):
    """A contraction x ↦ x + r(x), slow along some directions, and its fixed point."""
    basis = np.linalg.qr(rng.normal(size=(size, size)))[0]
    matrix, fixed = basis @ np.diag(np.linspace(0.5, 0.999, size)) @ basis.T, rng.normal(size=size)
    return (lambda point: matrix @ (point - fixed) + fixed - point), fixed


def run(residual, point, steps):
    accelerated = Anderson(point.size)
    for _ in range(steps):
        point = accelerated.step(point, residual(point))
    return point


def test_an_affine_iteration_ends_after_as_many_steps_as_it_has_directions():
    residual, fixed = affine(6, np.random.default_rng(1))
    found, plain = run(residual, np.zeros(6), 10), np.zeros(6)
    for _ in range(10):
        plain = plain + residual(plain)
    assert np.abs(found - fixed).max() < 1e-4
    assert np.abs(plain - fixed).max() > 0.1


def test_a_worse_residual_takes_it_back_to_the_best_point_and_makes_it_start_anew():
    accelerated = Anderson(2)
    accelerated.step(np.zeros(2), np.array([1.0, 0.0]))
    assert not np.allclose(accelerated.step(np.ones(2), np.array([0.5, 0.1])), [1.5, 1.1])
    assert np.array_equal(accelerated.step(np.full(2, 9.0), np.array([5.0, 0.0])), [1.5, 1.1])
    assert np.array_equal(accelerated.step(np.full(2, 7.0), np.array([5.0, 0.0])), [12.0, 7.0])
