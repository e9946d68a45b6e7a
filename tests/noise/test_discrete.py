"""Discrete Laplace and Gaussian noise: laws, ties, tails, very large scales, types, shapes, blocks.

Statistical tests have fixed seeds and a false-alarm rate of one in a million each.
"""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import deltahist as dh
from deltahist.noise import discrete_gaussian, discrete_laplace, exact, samplers
from tests.words import Scripted, p_value

ALARM = 1e-6
DRAWS = 200_000
DRAW = {"laplace": discrete_laplace, "gaussian": discrete_gaussian}
both = pytest.mark.parametrize("kind", DRAW)


def fit(draws, kind, scale):
    """The p-value of draws under the exact pmf."""
    far = max(3, int((14 if kind == "laplace" else 6) * scale) + 2)
    k = np.arange(-far, far + 1)
    weight = np.exp(-np.abs(k) / scale if kind == "laplace" else -(k * k) / (2 * scale * scale))
    return p_value(np.bincount(np.clip(draws, -far, far) + far, minlength=2 * far + 1), weight / weight.sum())


@both
@pytest.mark.parametrize("scale", [0.1, 1, 90, 92, 1e4])
def test_draws_follow_the_exact_law(kind, scale):
    draws = DRAW[kind](scale, DRAWS, rng=np.random.default_rng(7))
    assert draws.dtype == np.int64
    assert fit(draws, kind, scale) > ALARM
    if scale in (1, 92):  # the same check catches a scale that is off by a twentieth
        assert fit(DRAW[kind](1.05 * scale, 4 * DRAWS, rng=np.random.default_rng(8)), kind, scale) < ALARM


def distribution(kind, parameter):
    """2^64 P(|X| ≤ k) for each k, or 2^64 P(G ≤ k) of the geometric law or its digit, summed from the pmf itself."""
    number = {"gaussian": 60, "digit": 1024}.get(kind, 400)
    exponent = (lambda j: Fraction(j * j) / (2 * parameter)) if kind == "gaussian" else (lambda j: j / parameter)
    sides = 2 if kind in ("gaussian", "magnitude") else 1
    with mpmath.workdps(120):
        weights = [power(exponent(j)) * (sides if j else 1) for j in range(number)]
        return [int(part / sum(weights) * 2**64) for part in itertools.accumulate(weights)]


def power(x):
    """e^-x, in mpmath's digits."""
    return mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator)


# Sums stop where less than 2^-140 is left, so that they are exact to far more than 64 bits.
LAWS = {
    "gaussian": (samplers._gaussian_table, Fraction(22, 7)),
    "magnitude": (samplers._laplace_size_table, Fraction(37, 10)),
    "geometric": (samplers._geometric_table, Fraction(5, 3)),
    "digit": (samplers._digit_table, Fraction(2000)),
}


@pytest.mark.parametrize("kind", LAWS)
def test_thresholds_equal_sums_of_the_pmf(kind):
    table, parameter = LAWS[kind]
    thresholds = table(parameter).thresholds
    assert (thresholds[1:] >= thresholds[:-1]).all()
    assert thresholds[:18].tolist() == distribution(kind, parameter)[: min(18, len(thresholds))]


def test_a_real_that_ties_with_several_thresholds_keeps_its_bits():
    # 1 − F(k) = e^(−(k+1)/3.7): with k = 164, 165, 166 it is 0.79, 0.60, 0.46 of 2^-64, all below the last word.
    table = samplers._geometric_table(Fraction(37, 10))
    most = 2**64 - 1
    assert table.thresholds.tolist().count(most) == 3 == len(table.thresholds) - 164
    for share, found in [(0.1, 164), (0.3, 165), (0.5, 166), (0.7, 167)]:
        # The word after the deciding one would tell the opposite.
        words = Scripted(most, int(share * 2**64), 0 if share > 0.4 else most, 0)
        assert table.draw(1, words)[0] == found


@pytest.mark.parametrize("scale", [Fraction(1000), Fraction(10**7, 3)])
def test_the_last_table_of_a_large_scale_and_what_is_beyond_it(scale):
    """G = unit · k + digits: k against P(k ≤ j) = 1 − e^(−(j+1)/rest) at 100 digits, where it is rarest."""
    digits, table = samplers._digit_tables(scale)
    unit, length = 1024 ** len(digits), len(table.thresholds)
    rng, most, seen = np.random.default_rng(9), 2**64 - 1, set()
    with mpmath.workdps(100):
        upto = [1 - power((j + 1) * unit / scale) for j in range(length)]
        assert [int(p * 2**64) for p in upto] == table.thresholds.tolist()
        fifth = int(table.thresholds[4]) + 1  # a word that means 5
        for halvings in range(1, 80):
            # A real 2^−halvings below one, at 192 bits.
            bits = 2**192 - 1 - int(rng.integers(1 << 62, 1 << 63)) * 2 ** (192 - halvings) // 2**63
            below = sum(p * 2**192 <= bits for p in upto)
            word, further = bits >> 128, bits >> 64 & most
            tied = [further] if word in table.thresholds else []
            # Beyond the table a geometric variable starts anew.
            expected = below if below < length else length + 5
            words = Scripted(*[0] * len(digits), word, *tied, fifth)
            assert samplers.draw_geometric(scale, 1, words).tolist() == [unit * expected]
            seen.add(below)
    assert length in seen
    assert len(seen) > 20


def test_beyond_the_table_a_magnitude_goes_on_as_a_geometric_variable():
    scale, most = Fraction(37, 10), 2**64 - 1
    length = len(samplers._laplace_size_table(scale).thresholds)
    fifth = int(samplers._geometric_table(scale).thresholds[4]) + 1
    assert samplers._draw_narrow_laplace(scale, 1, Scripted(most, most, fifth)).tolist() == [length + 5]


def test_beyond_the_table_a_gaussian_magnitude_goes_on(monkeypatch):
    most = 2**64 - 1
    length, asked = len(samplers._gaussian_table(Fraction(4)).thresholds), []
    monkeypatch.setattr(
        samplers, "_draw_gaussian_tail", lambda variance, start, words: asked.append(start) or start + 3
    )
    assert samplers._draw_narrow_gaussian(Fraction(4), 1, Scripted(most, most)).tolist() == [length + 3]
    assert asked == [length]


@pytest.mark.parametrize("variance", [Fraction(160_001), Fraction(10**13, 3)])
def test_proposal_times_acceptance_is_the_gaussian_as_fractions(monkeypatch, variance):
    # |y| / t + γ(y) − y² / (2 σ²) must be one constant; every decision is forced to be the exact one.
    scales, chances = [], []
    offers = np.arange(65) * int(math.sqrt(variance) / 20)
    geometric = iter([offers, np.zeros(65, dtype=np.int64)])
    decide = samplers._decide
    monkeypatch.setattr(samplers, "_decide", lambda floats, error, *more: decide(floats, 2.0, *more))
    monkeypatch.setattr(samplers, "draw_geometric", lambda scale, *_: scales.append(scale) or next(geometric))
    exp_bounds = samplers.exp_bounds
    monkeypatch.setattr(samplers, "exp_bounds", lambda x, bits: chances.append(x) or exp_bounds(x, bits))
    samplers._draw_wide_gaussian(variance, 1, Scripted(*[1] * 65))
    assert len(set(scales)) == 1
    assert len(chances) == 65
    constants = {
        y / scales[0] + gamma - Fraction(y * y) / (2 * variance)
        for y, gamma in zip(offers.tolist(), chances, strict=True)
    }
    assert len(constants) == 1


@pytest.mark.parametrize(("variance", "start"), [(Fraction(4), 3), (Fraction(22, 7), 40)])
def test_tail_proposal_times_acceptance_is_the_gaussian_as_fractions(monkeypatch, variance, start):
    scales, chances = [], []
    offers = iter(range(5))
    exp_bounds = samplers.exp_bounds
    monkeypatch.setattr(samplers, "exp_bounds", lambda x, bits: chances.append(x) or exp_bounds(x, bits))
    monkeypatch.setattr(samplers, "draw_geometric", lambda scale, *_: scales.append(scale) or np.array([next(offers)]))
    # The fifth offer is accepted, whatever the words.
    monkeypatch.setattr(exact.UniformReal, "is_below", lambda real, bounds: bool(bounds(64)) and len(scales) == 5)
    assert samplers._draw_gaussian_tail(variance, start, Scripted(*[0] * 5)) == start + 4
    constants = {j / scales[j] + gamma - Fraction((start + j) ** 2) / (2 * variance) for j, gamma in enumerate(chances)}
    assert (len(chances), len(constants)) == (5, 1)


@pytest.mark.parametrize("offer", [1, 501, 900])
@pytest.mark.parametrize("above", [False, True])
def test_acceptance_at_large_sigma_is_decided_by_the_exact_chance(monkeypatch, offer, above):
    # The word ties with e^-γ at 64 bits, where a float is blind; the next word lies just beside the real.
    variance = Fraction(500) ** 2
    gamma = (offer - variance / 501) ** 2 / (2 * variance)
    with mpmath.workdps(120):
        chance = int(power(gamma) * 2**128)
    tie, following = chance >> 64, (chance & (2**64 - 1)) + (1 if above else -1)
    zeros = np.zeros(65, dtype=np.int64)
    geometric = iter([np.full(65, offer), zeros, np.full(65, 7), zeros])
    monkeypatch.setattr(samplers, "draw_geometric", lambda scale, size, words: next(geometric))
    accept, reject = 0, 2**64 - 1
    words = Scripted(tie, *[reject] * 64, following, accept, *[reject] * 64)
    found = samplers._draw_wide_gaussian(variance, 1, words)
    assert found.tolist() == [7 if above else offer]


# A NumPy integer's arithmetic wraps around: squared as it is, 100000 in 32 bits would be a σ of 37557.
@pytest.mark.parametrize("make", [np.int32, np.uint32, np.float32, np.longdouble])
def test_numbers_of_every_type_mean_their_value(make):
    value = 100_000
    for draw in (discrete_laplace, discrete_gaussian):
        ours, plain = (draw(x, 500, rng=np.random.default_rng(2)) for x in (make(value), value))
        assert np.array_equal(ours, plain)


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "1", 2**51, Fraction(1, 10**5000)])
def test_impossible_scales_are_named(bad):
    for draw, name in ((discrete_laplace, "scale"), (discrete_gaussian, "sigma")):
        with pytest.raises(dh.InputError, match=name):
            draw(bad, 3)


@both
@pytest.mark.parametrize("scale", [3, 1000])
def test_shapes_and_seeds(kind, scale):
    for shape, expected in (((), ()), (0, (0,)), ((2, 0), (2, 0)), ([2, 3], (2, 3)), (np.int64(2), (2,))):
        out = DRAW[kind](scale, shape)
        assert (out.shape, out.dtype, out.flags.writeable) == (expected, np.int64, True)
    one, two = (DRAW[kind](scale, 50, rng=np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(one, two)


def test_working_memory_does_not_grow_with_the_array():
    import tracemalloc

    discrete_laplace(3, 1)
    tracemalloc.start()
    out = discrete_laplace(3, 5_000_000, rng=np.random.default_rng(1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < out.nbytes + 64 * exact.BLOCK
