"""Noise that is refined: every marginal and every transition against its exact law.

Each test of goodness of fit has one false alarm in 50,000; there are about twenty: together less than 0.1%.
"""

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from deltahist import InputError
from deltahist.noise import samplers
from deltahist.noise.exact import open_words
from deltahist.noise.samplers import LaplaceSampler, RoundedGaussianSampler, _draw_gaussian_around
from tests.words import p_value

FALSE_ALARM = 2e-5
DRAWS = 200_000
#: Levels a < b: usual ones, a small step, one whose table would be long, a large step, hardly any noise.
LEVELS = [
    (Fraction(1, 2), Fraction(1)),
    (Fraction(1), Fraction(101, 100)),
    (Fraction(1, 1000), Fraction(1, 800)),
    (Fraction(1, 20), Fraction(3)),
    (Fraction(2), Fraction(6)),
]


def mass(level, k):
    """P(V = k) of two-sided geometric noise."""
    p = np.exp(-float(level))
    return (1 - p) / (1 + p) * p ** np.abs(k)


def transition(a, b, x, v):
    """P(V_b = v | V_a = x), a < b, by Bayes from P(V_a = x | V_b = v), which is given by definition."""
    with mpmath.workdps(60):
        p, r = (mpmath.exp(-mpmath.mpf(c.numerator) / c.denominator) for c in (a, b))
        q = (r / p) * ((1 - p) / (1 - r)) ** 2
        forward = (q if v == x else 0) + (1 - q) * (1 - p) / (1 + p) * p ** abs(x - v)
        own, wide = ((1 - s) / (1 + s) * s ** abs(k) for s, k in ((r, v), (p, x)))
        return own * forward / wide


@pytest.mark.parametrize(("a", "b"), LEVELS)
def test_marginals_after_refining_and_tightening(a, b):
    rng = np.random.default_rng(1)
    coarse = LaplaceSampler().start(a, DRAWS, rng=rng)
    fine = LaplaceSampler().refine(coarse, a, b, rng=rng)
    again = LaplaceSampler().tighten(fine, b, a, rng=rng)
    for values, level in ((fine, b), (again, a)):
        far = int(np.abs(values).max()) + 1
        k = np.arange(-far, far + 1)
        assert p_value(np.bincount(values + far, minlength=len(k)), mass(level, k)) > FALSE_ALARM


def test_the_least_steps_move_nothing_and_lesser_ones_are_refused():
    """A value moves with a chance of about `step` times a few of its scales: at most 10⁻⁹ for all of them together."""
    level, sampler = Fraction(1), LaplaceSampler()
    coarse = sampler.start(level, 2000, rng=np.random.default_rng(3))
    finer = level + Fraction(1, 2**49)
    assert np.array_equal(sampler.refine(coarse, level, finer), coarse)
    assert np.array_equal(sampler.tighten(coarse, finer, level), coarse)
    for move, before, after in ((sampler.refine, 1, level + Fraction(1, 2**50)), (sampler.tighten, 1, 1)):
        with pytest.raises(InputError, match="must exceed"):
            move(coarse, before, after)


def test_values_beyond_what_noise_can_be_are_refused():
    for values in ([1 << 60], [-(1 << 60)], [-(1 << 63)], np.array([1 << 63], dtype=np.uint64)):
        for change in (LaplaceSampler().refine, RoundedGaussianSampler(9).refine):
            with pytest.raises(InputError, match="within ±2"):
                change(values, 1, 2)
    assert LaplaceSampler().refine([(1 << 60) - 1], 1, 2).dtype == np.int64


@pytest.mark.parametrize("x", [0, 1, -3, 12])
@pytest.mark.parametrize(("a", "b"), LEVELS[:2])
def test_transitions_are_those_of_bayes(a, b, x):
    drawn = LaplaceSampler().refine(np.full(DRAWS, x), a, b, rng=np.random.default_rng(2))
    far = 60
    k = np.arange(-far, far + 1)
    expected = np.array([float(transition(a, b, x, int(v))) for v in k])
    assert p_value(np.bincount(np.clip(drawn, -far, far) + far, minlength=len(k)), expected) > FALSE_ALARM


@pytest.mark.parametrize(("a", "b"), LEVELS)
def test_thresholds_are_those_of_the_probabilities(a, b):
    """All tables again, with 300 digits."""
    with mpmath.workdps(300):
        exact = [mpmath.mpf(c.numerator) / c.denominator for c in (a, b)]
        p, s = (mpmath.exp(-c) for c in exact)
        inwards, keeps = (1 - p * s) / (1 - s * s), (1 - p * p) / (1 - p * s)
        still = (s / p) * ((1 - p) / (1 - s)) ** 2
        tables = [
            (samplers._inward_table(a, b), [inwards]),
            (samplers._outward_table(a, b), [1 - keeps]),
            (samplers._tightening_table(a, b), [still]),
        ]
        if samplers._count_entries(1 / (b - a)) <= samplers._LONGEST_TABLE:
            table = samplers._first_move_table(a, b)
            tables.append((table, [1 - inwards * (s / p) ** j for j in range(len(table.thresholds))]))
        for table, chances in tables:
            for k, chance in enumerate(chances):
                assert int(table.thresholds[k]) == min(int(mpmath.floor(chance * 2**64)), 2**64 - 1)
                low, high = table.bounds(k, 200)
                assert low <= chance * 2**200 <= high
                assert high - low < 2**8


# ------------------------------------------------------------------------------------------------- Gaussian


@pytest.mark.parametrize(("share", "variance"), [(Fraction(1, 3), Fraction(9, 4)), (Fraction(7, 9), Fraction(70, 3))])
def test_gaussian_noise_around_any_centre(share, variance):
    """Many of these are decided by bounds on e^−γ, since floats may not decide near the threshold."""
    values = np.full(10_000, 10)
    drawn = _draw_gaussian_around(values, share, variance, open_words(np.random.default_rng(7)))
    k = np.arange(-80, 100)
    weight = np.exp(-((k - float(10 * share)) ** 2) / (2 * float(variance)))
    assert p_value(np.bincount(drawn + 80, minlength=len(k)), weight / weight.sum()) > FALSE_ALARM


@pytest.mark.parametrize("sigma2", [Fraction(1, 50), Fraction(10), Fraction(10**7)])
def test_a_gaussian_path_has_normal_marginals(sigma2):
    rng = np.random.default_rng(8)
    made = RoundedGaussianSampler.for_level(1 / sigma2)
    unit = 2.0**made.bits
    assert made.variance(1 / sigma2) == 4**made.bits * sigma2 * (1 + Fraction(1, 1 << 40))  # pays for the lattice
    levels = [1 / sigma2, 2 / sigma2, 50 / sigma2]
    values = [made.start(levels[0], DRAWS // 4, rng=rng)]
    for a, b in itertools.pairwise(levels):
        values.append(made.refine(values[-1], a, b, rng=rng))
    values.append(made.tighten(values[-1], levels[-1], levels[0], rng=rng))
    for drawn, level in zip(values, [*levels, levels[0]], strict=True):
        assert stats.kstest(drawn / unit * float(level) ** 0.5, "norm").pvalue > FALSE_ALARM
    gone = (values[0] - values[1]) / unit
    assert stats.kstest(gone * float(2 / sigma2) ** 0.5, "norm").pvalue > FALSE_ALARM
    assert abs(np.corrcoef(gone, values[1])[0, 1]) < 4.3 / len(gone) ** 0.5


def test_moves_by_whole_numbers_pass_through_rounding():
    """What the proof needs: noise moved by U whole numbers is rounded to what is moved by U."""
    made = RoundedGaussianSampler(5)
    values = np.arange(-200, 200)
    assert RoundedGaussianSampler(2).round_values([-6, -3, -2, 1, 2, 5, 6]).tolist() == [-1, -1, 0, 0, 1, 1, 2]
    for u in (-3, 1, 10**6):
        assert (made.round_values(values + (u << 5)) == made.round_values(values) + u).all()
