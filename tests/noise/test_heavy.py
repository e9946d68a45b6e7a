"""Heavy-tailed noise: laws, exact rounding, bits drawn on demand."""

import decimal
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

from deltahist.errors import InputError
from deltahist.noise import quantiles
from deltahist.noise.exact import source

LAWS = {
    "student": lambda z: scipy.stats.t(2).cdf(z),
    "laplace": lambda z: scipy.stats.laplace.cdf(z),
    # E over the normal factor, by quadrature.
    "lognormal": lambda z: _mixed(z),
}


def _mixed(z):
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    return (scipy.stats.laplace.cdf(np.asarray(z)[:, None] / np.exp(nodes / 2)) * weights).sum(
        axis=1
    ) / weights.sum()


@pytest.mark.parametrize("kind", LAWS)
def test_the_law(kind):
    """Kolmogorov-Smirnov on 1,000 draws. False alarms: 1 in 1,000 each."""
    words = source(np.random.default_rng(1))
    drawn = np.array([quantiles.rounded(kind, 5, Fraction(10**9), words) for _ in range(1000)])
    assert scipy.stats.kstest((drawn - 5) / 1e9, LAWS[kind]).pvalue > 1e-3


@pytest.mark.parametrize("kind", LAWS)
def test_rounding_to_a_coarse_lattice(kind):
    """P(round(Z) = k) = F(k + ½) − F(k − ½), by chi-square. False alarms: 1 in 1,000 each."""
    words = source(np.random.default_rng(2))
    drawn = np.array([quantiles.rounded(kind, -3, Fraction(1), words) for _ in range(1000)]) + 3
    edges = np.arange(-4, 4) + 0.5
    chance = np.diff(np.concatenate([[0.0], LAWS[kind](edges), [1.0]]))
    seen = np.bincount(np.searchsorted(edges, drawn), minlength=len(chance))
    assert scipy.stats.chisquare(seen, 1000 * chance).pvalue > 1e-3


class Scripted:
    """Words from a list, then zeros, counted."""

    def __init__(self, values):
        self.values, self.used = list(values), 0

    def words(self, number):
        self.used += number
        out = [self.values.pop(0) if self.values else 0 for _ in range(number)]
        return np.array(out, dtype=np.uint64)


def test_more_bits_are_drawn_until_they_decide():
    # U = 1/2 to 64 bits is Student's 0 but for its sign; on a lattice with a boundary there (scale so large that
    # the interval holds several whole numbers) further bits must be drawn.
    words = Scripted([1 << 63])
    assert quantiles.rounded("student", 0, Fraction(2) ** 90, words) == 0
    assert words.used >= 2


def test_bounds_hold_the_value():
    """Against the formulas at 300 digits, for scripted bits."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        script = rng.integers(0, 1 << 63, 8).tolist()
        with decimal.localcontext(decimal.Context(prec=300)):
            low, high = next(quantiles.student(Scripted(script)))
            p = 2 * Decimal(script[0]) / Decimal(2) ** 64 - 1
            assert low <= p * (2 / (1 - p * p)).sqrt() <= high
            low, high = next(quantiles.laplace(Scripted(script)))
            true = -(Decimal(script[1]) / Decimal(2) ** 64).ln() * (1 if script[0] & 1 else -1)
            assert low <= true <= high
            assert high - low < Decimal(10) ** -15


def real(*words):
    """The ends of what so many first bits of a uniform real leave open."""
    low = sum(Decimal(word) / Decimal(2) ** (64 * i) for i, word in enumerate(words, start=1))
    return low, low + Decimal(2) ** (-64 * len(words))


def student_of(u):
    return (2 * u - 1) * (2 / (1 - (2 * u - 1) ** 2)).sqrt()


def laplace_of(sign, u):
    return -u.ln() * (1 if sign & 1 else -1)


def normal_of(u, v):
    u, v = 2 * u - 1, 2 * v - 1
    return u * (-2 * (u * u + v * v).ln() / (u * u + v * v)).sqrt()


#: The bounds of a law, and its exact values at all ends of what the bits of a uniform x and a pair (u, v) leave open.
EXACT = {
    "student": (quantiles.student, lambda sign, x, u, v: [student_of(a) for a in x]),
    "laplace": (quantiles.laplace, lambda sign, x, u, v: [laplace_of(sign, a) for a in x]),
    "normal": (quantiles._normal, lambda sign, x, u, v: [normal_of(a, b) for a in u for b in v]),
    "lognormal": (
        lambda words: quantiles.lognormal(Fraction(1, 2), words),
        lambda sign, x, u, v: [
            laplace_of(sign, a) * (normal_of(b, c) / 2).exp() for a in x for b in u for c in v
        ],
    ),
}
#: Which of the words for (sign, x, u, v) a law draws, the sign only once.
DRAWS = {"student": [1], "laplace": [0, 1], "normal": [2, 3], "lognormal": [0, 1, 2, 3]}


@pytest.mark.parametrize("kind", EXACT)
def test_bounds_hold_every_value_that_the_bits_leave_open_and_hardly_more(kind):
    """Against the formulas at 400 digits, at both ends of each real; with the bits drawn first, and with more."""
    rng, (law, values) = np.random.default_rng(5), EXACT[kind]
    for _ in range(15):
        # Within the disc and not in the middle, so that the polar method takes them.
        first = [int(rng.integers(0, 1 << 64, dtype=np.uint64)), *rng.integers(1 << 62, 3 << 61, 3).tolist()]
        more = rng.integers(0, 1 << 63, 4).tolist()
        script = [first[i] for i in DRAWS[kind]] + [more[i] for i in DRAWS[kind] if i]
        with decimal.localcontext(decimal.Context(prec=168)):
            found = law(Scripted(script))
            bounds = [next(found), next(found)]
        with decimal.localcontext(decimal.Context(prec=400)):
            for (low, high), known in zip(bounds, ([first], [first, more]), strict=True):
                width = Decimal(10) ** (3 - 19 * len(known))
                reals = [real(*(words[i] for words in known)) for i in (1, 2, 3)]
                exact = values(first[0], *reals)
                assert low <= min(exact)
                assert max(exact) <= high
                assert high - low < width


def test_a_value_is_never_returned_as_it_is():
    for scale in (Fraction(0), Fraction(-1)):
        with pytest.raises(InputError, match=r"scale is .* nothing hides the value"):
            quantiles.rounded("student", 17, scale, source(None))
    with pytest.raises(InputError, match="kind is 'cauchy'"):
        quantiles.rounded("cauchy", 0, Fraction(1), source(None))


def test_the_normal_factor_is_normal():
    words = source(np.random.default_rng(4))
    with decimal.localcontext(decimal.Context(prec=200)):
        drawn = [float(next(quantiles._normal(words))[0]) for _ in range(1000)]
    # False alarms: 1 in 1,000.
    assert scipy.stats.kstest(drawn, "norm").pvalue > 1e-3
    assert math.isfinite(max(drawn))
