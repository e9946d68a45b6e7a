"""What single cells say: moments against quadrature of the plain definition, and what is learnt of the cells around."""

import importlib
import itertools

import numpy as np
import pytest

from deltahist.decode.posterior import MEANS, even_shares, sites

module = importlib.import_module("deltahist.decode.posterior")


def by_quadrature(seen, spread, shares):
    """Mean and variance of a count whose prior is the mixture, seen with normal noise."""
    mode, width = np.maximum(seen, 0.0), np.sqrt(spread)
    # Where the density of any part may be: around what was seen, and close above zero where that lies far below.
    close = spread / max(-seen, width)
    knots = np.unique(
        np.concatenate([mode + width * np.linspace(-12, 12, 97), close * np.geomspace(1e-3, 60, 120), [0.0]])
    )
    knots = knots[knots >= 0]
    x, weight = np.polynomial.legendre.leggauss(20)
    half = np.diff(knots)[:, None] / 2
    at = (knots[:-1, None] + half * (1 + x)).ravel()
    weights = (half * weight).ravel()
    # Relative to the noise at zero, so that no density is lost far below.
    log_noise = (2 * seen * at - at**2) / (2 * spread)
    parts = np.log(shares[1:, None] / MEANS[:, None]) - at / MEANS[:, None] + log_noise
    most = max(parts.max(), np.log(shares[0]))
    density = np.exp(parts - most).sum(axis=0)
    whole = np.exp(np.log(shares[0]) - most) + weights @ density
    mean = weights @ (density * at) / whole
    square = weights @ (density * (at - mean) ** 2) + np.exp(np.log(shares[0]) - most) * mean**2
    return mean, square / whole


def alone(seen, spread, shares, monkeypatch):
    """Moments with the shares as they are given: nothing is learnt."""
    monkeypatch.setattr(module, "_STEPS", 0)
    seen, spread = np.atleast_1d(seen).astype(float), np.broadcast_to(np.float64(spread), np.shape(seen))
    return sites(seen, spread, np.repeat(shares[:, None], len(seen), axis=1))


@pytest.mark.parametrize("away", [-300.0, -40.0, -31.0, -29.0, -8.0, -1.0, 0.0, 0.3, 3.0, 40.0, 1e4])
def test_moments_are_those_of_the_prior_times_the_noise(away, monkeypatch):
    for spread in (1e-4, 0.1, 1.0, 30.0, 1e4, 1e8):
        rng = np.random.default_rng(1)
        for shares in (even_shares((1,))[:, 0], rng.dirichlet(np.full(8, 0.3)) + 1e-9):
            shares = shares / shares.sum()
            seen = away * np.sqrt(spread)
            found = alone([seen], spread, shares, monkeypatch)
            mean, variance = by_quadrature(seen, spread, shares)
            # Far below zero the asymptote serves, whose first neglected term is 2 / away².
            assert found.mean[0] == pytest.approx(mean, rel=4 / 30**2, abs=1e-8)
            assert found.variance[0] == pytest.approx(variance, rel=16 / 30**2, abs=1e-6 * spread + 2e-12)


def test_nothing_overflows(monkeypatch):
    """A million standard errors below zero, a thousand million above."""
    for seen, spread in itertools.product([-1.0, 0.0, 1e-6, 1.0, 1e9], [1e-12, 1e-6, 1e12, 1e18]):
        found = alone([seen], spread, even_shares((1,))[:, 0], monkeypatch)
        for moment in (found.mean, found.variance):
            assert np.isfinite(moment).all()
            assert (moment >= 0).all()
        if seen == 1e9 and spread <= 1:
            assert found.mean[0] == pytest.approx(seen)


@pytest.mark.parametrize("shape", [(50,), (30, 30), (1, 50), (3, 4)])
@pytest.mark.parametrize("place", ["in the middle", "in a corner"])
def test_a_cell_does_not_teach_itself(shape, place):
    """One cell of another kind: it learns of its kind what the whole map has of it, its neighbours more."""
    held = np.zeros((8, *shape))
    held[0] = 1.0
    at = tuple(n // 2 if place == "in the middle" else 0 for n in shape)
    held[(0, *at)], held[(3, *at)] = 0.0, 1.0
    shares = module._nearby(held)
    assert shares[(3, *at)] == pytest.approx(module._WHOLE / np.prod(shape), rel=1e-6)
    beside = (*at[:-1], at[-1] + 1)
    assert shares[(3, *beside)] > 0.5 * module._weight_of_itself(len(shape))
    assert np.allclose(shares.sum(axis=0), 1)
