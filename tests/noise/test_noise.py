"""Exact noise: goodness of fit, exact decisions at ties, streams. False alarms are stated per test."""

import math
import os
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

import deltahist as dh
from deltahist.noise import discrete_gaussian, discrete_laplace
from deltahist.noise.discrete import (
    _digit_table,
    _gaussian_table,
    _gaussian_tail,
    _geometric_table,
    _magnitude_table,
    geometric,
)
from deltahist.noise.exact import InversionTable, KeyStream, exp_bounds, less_than
from deltahist.privacy import Gaussian, Laplace

#: One false alarm in a million for each goodness-of-fit test, of which there are about fifty.
ALARM = 1e-6
DRAWS = 200_000


def log_weight(kind, scale, k):
    return -np.abs(k) / scale if kind == "laplace" else -(k * k) / (2 * scale * scale)


def p_value(draws, kind, scale):
    """Chi-square test against the exact pmf; cells are pooled to at least 20 expected draws."""
    far = max(3, int((14 if kind == "laplace" else 6) * scale) + 2)
    k = np.arange(-far, far + 1)
    weight = np.exp(log_weight(kind, scale, k.astype(float)))
    cdf = np.cumsum(weight / weight.sum()) * len(draws)
    observed = np.cumsum(np.bincount(np.clip(draws, -far, far) + far, minlength=2 * far + 1))
    # Ends of the pooled cells: wherever another 20 (or a thousandth) of the draws are expected.
    step = max(20.0, len(draws) / 1000)
    ends = np.unique(np.append(np.searchsorted(cdf, np.arange(step, len(draws) - step, step)), 2 * far))
    expected = np.diff(cdf[ends], prepend=0)
    seen = np.diff(observed[ends], prepend=0)
    keep = expected > 5
    statistic = ((seen[keep] - expected[keep]) ** 2 / expected[keep]).sum()
    return stats.chi2.sf(statistic, max(1, keep.sum() - 1))


def sample(kind, scale, rng, number=DRAWS):
    return (
        discrete_laplace(scale, number, rng=rng)
        if kind == "laplace"
        else discrete_gaussian(scale, number, rng=rng)
    )


SCALES = [0.1, 0.5, 1, 3.7, 10, 90, 92, 100, 1e3, 1e4]


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", SCALES)
def test_draws_follow_the_exact_law(kind, scale):
    draws = sample(kind, scale, np.random.default_rng(7))
    assert draws.dtype == np.int64
    assert p_value(draws, kind, scale) > ALARM


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", SCALES[1:])
def test_the_same_check_catches_a_scale_off_by_a_twentieth(kind, scale):
    draws = sample(kind, 1.05 * scale, np.random.default_rng(8), 4 * DRAWS)
    assert p_value(draws, kind, scale) < ALARM


@pytest.mark.parametrize("scale", [3.0, 200.0, 1e5])
def test_tails_are_as_heavy_as_they_should_be(scale):
    # A binomial count of draws beyond 8 scales; false alarm below one in a million each.
    draws = discrete_laplace(scale, 1_000_000, rng=np.random.default_rng(9))
    edge = int(8 * scale)
    p = math.exp(-1 / scale)
    beyond = 2 * p ** (edge + 1) / (1 + p)
    assert stats.binomtest(int((np.abs(draws) > edge).sum()), len(draws), beyond).pvalue > ALARM


@pytest.mark.parametrize("unit", [1024, 1024**2])
def test_digits_of_a_large_scale_are_uniform_and_independent_enough(unit):
    # Low digits of a geometric variable with a huge scale are nearly uniform.
    draws = geometric(Fraction(10**9), DRAWS, SeededWords(11))
    digit = draws // unit % 16
    assert stats.chisquare(np.bincount(digit, minlength=16)).pvalue > ALARM


def test_moments_agree_with_the_stated_variance_and_kurtosis():
    # Five standard errors: false alarm one in two million.
    for law, draws in [
        (
            Laplace(Fraction(5, 2)),
            discrete_laplace(Fraction(5, 2), 10**6, rng=np.random.default_rng(1)),
        ),
        (
            Gaussian(Fraction(1, 3)),
            discrete_gaussian(variance=Fraction(1, 3), shape=10**6, rng=np.random.default_rng(2)),
        ),
    ]:
        error = np.std(draws.astype(float) ** 2) / 1000
        assert abs(np.mean(draws.astype(float) ** 2) - law.variance()) < 5 * error
        assert abs(draws.mean()) < 5 * math.sqrt(law.variance()) / 1000
        fourth = np.mean(draws.astype(float) ** 4)
        assert abs(fourth / law.variance() ** 2 - 3 - law.kurtosis()) < 0.2


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_draws_agree_with_opendp(kind):
    # Two-sample chi-square on pooled values, false alarm one in a million.
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64"))
    make = (
        dp.m.make_laplace(space, dp.l1_distance(T="i64"), scale=4.0)
        if kind == "laplace"
        else dp.m.make_gaussian(space, dp.l2_distance(T="f64"), scale=4.0)
    )
    theirs = np.array(make([0] * 50_000))
    ours = sample(kind, 4.0, np.random.default_rng(3), 50_000)
    table = [np.bincount(np.clip(x, -15, 15) + 15, minlength=31) for x in (theirs, ours)]
    keep = np.sum(table, axis=0) > 10
    assert stats.chi2_contingency(np.array(table)[:, keep]).pvalue > ALARM


class FixedWords:
    """Words from a list, then zeros or ones for ever."""

    def __init__(self, *words, then=0):
        self.list, self.then = list(words), then

    def words(self, number):
        out = [self.list.pop(0) if self.list else self.then for _ in range(number)]
        return np.array(out, dtype=np.uint64)


class SeededWords:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def words(self, number):
        return self.rng.integers(0, 1 << 64, number, dtype=np.uint64)


TABLES = {
    "geometric": _geometric_table(Fraction(37, 10)),
    "digit": _digit_table(Fraction(5000)),
    "magnitude": _magnitude_table(Fraction(1, 2)),
    "gaussian": _gaussian_table(Fraction(7)),
}


@pytest.mark.parametrize("name", TABLES)
def test_thresholds_are_certified_at_far_more_bits(name):
    table = TABLES[name]
    for k, threshold in enumerate(table.thresholds.tolist()):
        low, high = table.bounds(k, 512)
        assert low <= high <= low + (1 << 200)
        assert min(low >> 448, 2**64 - 1) == threshold


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("k", [0, 3, 9])
def test_a_tie_is_settled_by_further_bits(name, k):
    table = TABLES[name]
    k = min(k, len(table.thresholds) - 1)
    word = int(table.thresholds[k])
    following = table.bounds(k, 128)[0] & (2**64 - 1)
    # The real begins like F(k); its next word is just below or above F(k)'s own next word.
    below = table.draw(1, FixedWords(word, following - 1))[0]
    above = table.draw(1, FixedWords(word, following + 1))[0]
    assert (below, above) == (k, k + 1)
    # The second word ties as well, and the third decides.
    third = table.bounds(k, 192)[0] & (2**64 - 1)
    assert table.draw(1, FixedWords(word, following, max(third - 1, 0)))[0] == k
    assert table.draw(1, FixedWords(word, following, third + 1))[0] == k + 1


class Listed:
    """The words of a list, then those of a seeded generator."""

    def __init__(self, word, seed):
        self.rest, self.then = word, SeededWords(seed)

    def words(self, number):
        out, self.rest = self.rest[:number], self.rest[number:]
        return np.concatenate([out, self.then.words(number - len(out))])


def searched(table, word, words):
    """The definition of a draw: how many thresholds are at most a word; more words decide ties, one by one."""
    found = np.searchsorted(table.thresholds, word, side="right")
    for i in np.flatnonzero(np.isin(word, table.thresholds)):
        found[i] = table._decide(int(word[i]), words)
    return found


@pytest.mark.parametrize(
    "table",
    [
        *TABLES.values(),
        _magnitude_table(Fraction(90)),
        _gaussian_table(Fraction(90000)),
        InversionTable(np.zeros(1, dtype=np.uint64), lambda k, bits: (0, 0)),
        InversionTable(np.array([0, 1 << 48, (1 << 64) - 1], dtype=np.uint64), lambda k, bits: (k, k + 1)),
    ],
)
def test_a_guide_finds_what_the_search_finds(table):
    # The first and the last word of every fifth place of the guide, and all words around a threshold.
    starts = np.arange(0, 1 << 16, 5, dtype=np.uint64) << np.uint64(48)
    near = [
        table.thresholds + np.uint64(step) for step in (0, 1, (1 << 64) - 1)
    ]  # wraps around: any word will do
    word = np.concatenate([starts, starts - np.uint64(1), starts + np.uint64(1), *near])
    listed = Listed(word, 6)
    drawn = table.draw(len(word), listed)
    assert drawn.dtype == np.int64
    then = SeededWords(6)
    assert np.array_equal(drawn, searched(table, word, then))
    assert listed.words(1) == then.words(1)  # both took as many words
    # A few words are searched without a guide.
    some = np.concatenate([word[:: len(word) // 1000], *near])[:4000]
    assert np.array_equal(table.draw(len(some), Listed(some, 7)), searched(table, some, SeededWords(7)))


def test_words_beyond_a_table_start_anew():
    table = _geometric_table(Fraction(1))
    most = 2**64 - 1
    assert table.draw(1, FixedWords(most, then=most))[0] >= len(table.thresholds) - 1
    assert geometric(Fraction(1), 1, FixedWords(most, most, 0))[0] >= len(table.thresholds)


def test_the_gaussian_tail_is_exact_too():
    # Given |X| ≥ 3 with σ² = 4; chi-square, false alarm one in a million.
    words = SeededWords(5)
    draws = np.array([_gaussian_tail(Fraction(4), 3, words) for _ in range(4000)])
    k = np.arange(3, 12)
    weight = np.exp(-(k**2) / 8.0)
    seen = np.bincount(np.minimum(draws, 8), minlength=9)[3:]
    expected = np.append(weight[:5], weight[5:].sum()) / weight.sum() * len(draws)
    assert stats.chisquare(seen, expected).pvalue > ALARM


@given(st.fractions(0, 60), st.integers(64, 256))
def test_bounds_of_exp_hold_and_are_close(x, bits):
    import decimal

    low, high = exp_bounds(x, bits)
    with decimal.localcontext(decimal.Context(prec=200)):
        value = (-(decimal.Decimal(x.numerator) / decimal.Decimal(x.denominator))).exp() * decimal.Decimal(
            2
        ) ** bits
        assert low - 1 <= value <= high + 1
    assert high - low <= 4


def test_comparison_with_a_real_is_exact():
    x = Fraction(3, 7)
    bits = exp_bounds(x, 256)[0]
    words = [bits >> shift & (2**64 - 1) for shift in (192, 128, 64)]
    bounds = lambda b: exp_bounds(x, b)  # noqa: E731
    assert less_than(words[0], bounds, FixedWords(words[1], words[2] - 1))
    assert not less_than(words[0], bounds, FixedWords(words[1], words[2] + 1))
    assert less_than(words[0] - 1, bounds, FixedWords())
    assert not less_than(words[0] + 1, bounds, FixedWords())


def test_rejection_decides_near_ties_exactly(monkeypatch):
    # With a margin of one half, every decision goes the exact way; the law must not change.
    import deltahist.noise.discrete as discrete

    monkeypatch.setattr(discrete, "_MARGIN", 2.0)
    rng_draws = discrete_gaussian(500.0, 2000, rng=np.random.default_rng(4))
    monkeypatch.undo()
    assert np.array_equal(rng_draws, discrete_gaussian(500.0, 2000, rng=np.random.default_rng(4)))


def test_streams_are_fresh_and_differ_between_forks():
    assert not np.array_equal(KeyStream().words(4), KeyStream().words(4))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, discrete_laplace(1e6, 4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 64) != discrete_laplace(1e6, 4).tobytes()


def test_words_are_uniform():
    # Chi-square on bytes, false alarm one in a million.
    counts = np.bincount(KeyStream().words(200_000).view(np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > ALARM


def test_shapes_and_seeds():
    assert discrete_laplace(2, (2, 0, 3)).shape == (2, 0, 3)
    assert discrete_gaussian(2, ()).shape == ()
    one, two = (discrete_laplace(3, 50, rng=np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(one, two)
    assert (discrete_laplace(0.001, 10_000) == 0).all()


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "1", None, True, 2.0**51])
def test_bad_scales_are_named(bad):
    with pytest.raises(dh.InputError, match="scale is"):
        discrete_laplace(bad, 3)


def test_bad_calls_are_named():
    with pytest.raises(dh.InputError, match="sigma or variance"):
        discrete_gaussian(shape=3)
    with pytest.raises(dh.InputError, match="sigma or variance"):
        discrete_gaussian(1.0, 3, variance=1.0)
    with pytest.raises(dh.InputError, match="rng is 5"):
        discrete_laplace(1, 3, rng=5)


def test_global_numpy_randomness_is_not_used():
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    discrete_laplace(4, 100)
    discrete_gaussian(4, 100)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
