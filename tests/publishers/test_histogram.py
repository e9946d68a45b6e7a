"""Publishing: exact integers, what is public, and what is refused."""

import threading
from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.noise import samplers
from deltahist.publishers import publication

DOMAIN = dh.Domain((0, 0, 6, 6), (6, 6))
NEAR = dh.Neighbourhood(DOMAIN, 1.0)
COUNTS = np.arange(36).reshape(6, 6)


def test_noise_is_drawn_with_the_exact_scale(monkeypatch):
    seen = []

    def draw(law, size, rng):
        seen.append((law.parameter, size))
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(publication, "sample_law", draw)
    A = dh.strategies.Hierarchical(DOMAIN, 6, shares=(1, Fraction(1, 2)))
    dh.publish(COUNTS, NEAR, A, 0.1, contributions=3)
    # Only cells are crossed by a move: 2 · 1/2 = 1; three points; shares 1 and 1/2.
    assert seen == [(3 / Fraction(0.1), 1), (6 / Fraction(0.1), 36)]


class Listed(dh.strategies.Wavelet):
    """Groups that list their members."""

    groups = (dh.strategies.Group("even", np.arange(0, 32, 2)), dh.strategies.Group("odd", np.arange(1, 32, 2)))


@pytest.mark.parametrize("kind", [dh.strategies.Wavelet, Listed])
def test_noise_drawn_in_parts_is_the_noise_drawn_at_once(monkeypatch, kind):
    line = dh.Domain((0, 32), (32,))
    A = kind(line)
    mechanism = dh.Mechanism(dh.Neighbourhood(line, 1), A, dh.Budget(0.01))

    def noise(seed):
        rng = None if seed is None else np.random.default_rng(seed)
        return dh.publishers.publish_mechanism(mechanism, np.zeros(32, dtype=int), rng=rng).values

    monkeypatch.setattr(samplers.exact, "BLOCK", 4)
    at_once = noise(3)
    monkeypatch.setattr(publication, "BLOCK", 8)
    drew, draw = set(), publication.sample_law
    monkeypatch.setattr(publication, "sample_law", lambda *a: drew.add(threading.get_ident()) or draw(*a))
    assert np.array_equal(noise(3), at_once)
    assert drew == {threading.get_ident()}  # a generator's words have an order
    # Of a scale of hundreds: 32 draws from entropy are hardly ever zero, and no two parts are alike.
    fresh = noise(None).reshape(4, 8)
    assert np.count_nonzero(fresh) > 24
    assert len(np.unique(fresh, axis=0)) == 4


def test_one_cell_with_dropped_rows_is_refused_before_an_account_pays():
    """Its number is exact, and would tell whether one person's row was dropped."""
    near, account = dh.Neighbourhood(dh.Domain((0, 1), (1,)), 0.5), dh.accounts.Account.total(epsilon=1)
    with pytest.raises(dh.InputError, match="single cell"):
        dh.publish(np.array([7]), near, epsilon=1, dropped=["bad rows"], account=account)
    assert account.spent == 0


def test_too_large_grids_are_refused_before_anything_is_drawn(monkeypatch):
    monkeypatch.setattr("deltahist.errors.available_memory", lambda: 2**20)
    domain = dh.Domain((0, 0, 256, 256), (256, 256))
    with pytest.raises(dh.InputError, match="GiB"):
        dh.publish(np.ones((256, 256), int), dh.Neighbourhood(domain, 1), dh.strategies.Identity(domain), 1.0)


@pytest.mark.parametrize("strategy", ["tents", "spectral"])
def test_counts_beyond_what_a_strategy_holds_are_refused_before_an_account_pays(strategy):
    """Else whether a charge came to nothing would depend on the number of points."""
    near = dh.Neighbourhood(dh.Domain((0, 0, 16, 16), (16, 16)), 1, sources="boundary")
    account, many = dh.accounts.Account.total(rho=1), np.full((16, 16), 1 << 43)
    with pytest.raises(dh.InputError, match=r"than strategy .* can measure"):
        dh.publish(many, near, strategy, rho=0.1, account=account)
    assert account.spent == 0


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (COUNTS[:5], "shape"),
        (-COUNTS, "whole numbers"),
        (COUNTS + 0.5, "whole numbers"),
        *((np.full((6, 6), bad), "counts") for bad in (np.nan, 2.0**63, np.uint64(2**63), 2**64)),
    ],
    ids=str,
)
def test_counts_that_are_no_counts_are_refused(counts, words):
    with pytest.raises(dh.InputError, match=words):
        dh.publish(counts, NEAR, epsilon=1.0)


def test_noise_that_32_bits_do_not_hold_is_kept_whole(monkeypatch):
    """It comes once in e^2000 draws; here it comes in every part."""
    near = dh.Neighbourhood(dh.Domain((0, 0, 8, 8), (8, 8)), 1)
    mechanism = dh.Mechanism(near, dh.strategies.Identity(near.domain), dh.Budget(1))
    right = publication.sample_law
    assert publication.draw_noise(mechanism, None)[0].dtype == np.int32
    monkeypatch.setattr(publication, "sample_law", lambda law, number, rng: right(law, number, rng) + (1 << 40))
    (drawn,) = publication.draw_noise(mechanism, None)
    assert (np.abs(drawn - (1 << 40)) < 1000).all()
