"""Decoding tents: the noise between cells and tents, the error of many boxes, waves for non-negative estimates."""

import numpy as np
import pytest
from examples import quiet, random_tents

import deltahist as dh
from deltahist.decode import DenseDecoder
from deltahist.decode.forms import PublicTotal
from deltahist.space.workloads import range_gram
from deltahist.strategies import Tents, tents


def mechanisms(number, seed, most=9):
    """Tents of any kind with a public total, and with one that is not."""
    rng = np.random.default_rng(seed)
    for case in range(number):
        shape = tuple(rng.integers(2, most + 1, 1 + case % 2).tolist())
        domain = dh.Domain((0,) * len(shape) + shape, shape)
        near = quiet(domain, 1, [None, "boundary"][case // 2 % 2])
        budget = dh.Budget(0.7) if case % 3 else dh.Budget(rho=0.2)
        yield rng, dh.Mechanism(near, random_tents(rng, domain), budget)


def test_what_a_public_total_takes_away_over_all_ranges():
    rng = np.random.default_rng(1)
    for shape in ((7,), (1,), (5, 8), (1, 6)):
        domain = dh.Domain((0,) * len(shape) + shape, shape)
        total, ranges = PublicTotal(rng.random(shape)), dh.workloads.all_ranges(domain)
        taken = total.box_reduction(ranges.spans(domain))
        along = total.along.ravel()
        assert taken == pytest.approx((ranges.matrix(domain) @ along) ** 2 / along.sum())
        assert total.mean_reduction() == pytest.approx(taken.mean())
        assert total.mean_reduction() == pytest.approx(along @ range_gram(domain) @ along / along.sum() / len(ranges))


def test_large_domains_agree_with_what_is_solved_query_by_query():
    for shape, spacing, degree in (((300,), (11,), 3), ((60, 30), (7, 12), 2)):
        domain = dh.Domain((0,) * len(shape) + shape, shape)
        for sources in (None, "boundary"):
            near = quiet(domain, 2, sources)
            mechanism = dh.Mechanism(near, Tents(domain, spacing, degree, (1, 2)), dh.Budget(1))
            boxes = dh.workloads.random_boxes(8, domain)
            one, other = mechanism.decoder.moments(boxes), mechanism.decoder.solved_moments(boxes)
            assert np.allclose(one.variance, other.variance, rtol=1e-9)


def test_the_stated_kurtosis_is_at_least_that_of_the_draws():
    larger = 0
    for _, mechanism in mechanisms(20, 3):
        work = dh.workloads.all_ranges(mechanism.domain)
        stated, dense = (d.moments(work) for d in (
            mechanism.decoder, DenseDecoder(mechanism.strategy, mechanism.laws, mechanism.total_known)
        ))  # fmt: skip
        some = stated.variance > 0
        assert (stated.kurtosis[some] >= dense.kurtosis[some] - 1e-9).mean() > 0.995
        larger += int((stated.kurtosis[some] > 2 * dense.kurtosis[some]).sum())
    assert larger  # it is a bound


def test_the_metric_has_the_variance_of_every_cosine():
    import scipy.fft

    for _, mechanism in mechanisms(12, 4):
        decoder = mechanism.decoder
        variance = decoder.noise_metric().variance
        shape = mechanism.domain.shape
        waves = np.array(
            [scipy.fft.idctn(w.reshape(shape), norm="ortho").ravel() for w in np.eye(mechanism.domain.size)]
        )
        weights = np.array([decoder.solve_adjoint(w) for w in waves])
        exact = (weights * weights) @ decoder.draw_variance
        frequency = sum(
            (2 - 2 * np.cos(np.pi * np.arange(n) / n)).reshape([-1 if a == axis else 1 for a in range(len(shape))])
            for axis, n in enumerate(shape)
        )
        trust = np.sqrt(frequency / frequency.max()).ravel()
        assert np.allclose(variance.ravel()[1:], exact[1:] * trust[1:], rtol=1e-7)
        longest = variance.ravel()[1:][np.argmin(trust[1:])]
        assert variance.flat[0] == (0 if mechanism.total_known else pytest.approx(min(exact[0], longest)))


def test_boxes_that_share_their_intervals_have_the_same_errors_as_alone(monkeypatch):
    for sources in (None, "boundary"):
        near = quiet(dh.Domain((0, 0, 20, 20), (20, 20)), 1, sources)
        decoder = dh.Mechanism(near, Tents(near.domain, (2, 2)), dh.Budget(1)).decoder
        blocks = dh.workloads.boxes([[x, y, x + 2.5, y + 2] for x in range(0, 16, 2) for y in range(0, 16, 2)])
        alone = decoder.answer_variance(blocks)
        monkeypatch.setattr(tents, "_SHARED", 1)
        assert (decoder.answer_variance(blocks) == alone).all()
        monkeypatch.undo()
