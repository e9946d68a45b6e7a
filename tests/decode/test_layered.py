"""Decoding tents over a flow: least squares, errors that add up, intervals that cover."""

import math

import numpy as np
import pytest
from examples import EVERY_STRATEGY, random_domain, random_neighbourhood

import deltahist as dh
from deltahist.decode import DenseDecoder, LayeredDecoder, box_sums
from deltahist.decode.moments import SOLVED
from deltahist.mechanisms.calibration import calibrate
from deltahist.strategies import Layered


def cases(number, seed):
    """Random layers with a total that is public or not."""
    rng = np.random.default_rng(seed)
    while number:
        domain = random_domain(rng)
        near = random_neighbourhood(rng, domain)
        layered = EVERY_STRATEGY["Layered"](rng, near)
        if layered is not None and near.frontier.any():
            number -= 1
            laws = calibrate(layered, near, epsilon=0.7)
            yield rng, layered, laws, near.fixed_membership


def test_estimates_are_least_squares_whatever_the_flow():
    """The dense decoder weighs all noise by its covariance, and finds that the flow's does not matter."""
    for rng, layered, laws, known in cases(30, 1):
        if layered.inner.widths:
            continue
        own, dense = LayeredDecoder(layered, laws, known), DenseDecoder(layered, laws, known)
        values = rng.integers(-200, 400, layered.shape[0])
        assert np.allclose(own.estimate(values, 50), dense.estimate(values, 50), atol=1e-5)
        query = rng.random(layered.shape[1])
        assert query @ own.solve(values) == pytest.approx(own.adjoint(query) @ values)


def test_errors_are_those_of_the_draws():
    for _, layered, laws, known in cases(40, 2):
        decoder = LayeredDecoder(layered, laws, known)
        ranges = dh.workloads.all_ranges(layered.domain)
        told = decoder.moments(ranges)
        true = SOLVED.moments(decoder, ranges)
        if told.note == "exact":
            assert np.allclose(told.variance, true.variance, rtol=1e-6, atol=1e-7)
        else:
            assert (told.variance >= true.variance - 1e-7).all()
        assert decoder.mean_variance(ranges) == pytest.approx(told.variance.mean(), rel=1e-6)


def test_the_variance_and_the_intervals_are_those_of_releases():
    """300 releases; ratios of variances within 5 standard errors, coverage above 4 of them below the level."""
    domain = dh.Domain((0, 0, 16, 16), (16, 16))
    near = dh.Neighbourhood(domain, 1, limits=[(math.inf, 4)])
    mechanism = dh.Mechanism(near, Layered.tuned(near), dh.Budget(1))
    boxes = dh.workloads.boxes([[0, 0, 1, 1], [3, 2, 9, 13], [0, 0, 16, 8], [7, 0, 8, 16]])
    counts = np.random.default_rng(5).poisson(30, (16, 16))
    truth = box_sums(counts.astype(float), boxes.spans(domain))
    off, covered = [], 0
    for seed in range(300):
        release = dh.publish(counts, mechanism, rng=np.random.default_rng([7, seed]))
        found = dh.answer(release, boxes)
        off.append(found["estimate"] - truth)
        covered = covered + ((found["low"] <= truth) & (truth <= found["high"]))
    ratio = np.var(off, axis=0) / mechanism.variance(boxes)
    assert (np.abs(ratio - 1) < 5 * math.sqrt(4 / 300)).all()
    assert (covered / 300 >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 300)).all()


def test_a_saved_release_answers_the_same(tmp_path):
    near = dh.Neighbourhood(dh.Domain((0, 0, 20, 14), (20, 14)), 1, limits=[(4, 2), (math.inf, 4)])
    release = dh.publish(np.full((20, 14), 3), near, "layered", epsilon=1, rng=np.random.default_rng(2))
    release.save(tmp_path / "layered.parquet")
    again = dh.load(tmp_path / "layered.parquet")
    work = dh.workloads.random_boxes(20, near.domain)
    assert dh.answer(again, work).equals(dh.answer(release, work))
    assert again.cells(nonnegative=True).min() >= 0
