"""Paths for every user: exact whole numbers, laws at one level and at two, and what they are functions of."""

import decimal
import itertools
import math
from decimal import Decimal

import mpmath
import numpy as np
import pytest
import scipy.special
import scipy.stats

from deltahist.errors import InputError
from deltahist.noise import paths as module
from deltahist.noise.paths import BitPaths, Uniforms, VectorPaths

KEY = bytes(range(32))
UNIT = 10**9
#: False alarms of all tests of this file together: 1 in 1,000, shared by so many single ones.
ALARM = 1e-3 / 100
USERS = np.arange(10_000)


def levels_of(epsilon, number=10_000):
    return np.full(number, round(epsilon * UNIT))


def normal_p(samples, mean):
    z = (samples.mean() - mean) / (samples.std() / np.sqrt(len(samples)))
    return 2 * scipy.stats.norm.sf(abs(z))


def characteristic(s, level, dimension):
    return (1 + (s / level) ** 2) ** (-(dimension + 1) / 2)


# Laws.


@pytest.mark.parametrize("epsilon", [0.4, 2.5])
def test_the_rounded_law_on_a_line(epsilon):
    """P(k) = F(k + ½) − F(k − ½), by chi-square, with a reach of 2 lattice steps: one p-value for each level."""
    drawn = VectorPaths(KEY, 1, 2).at(USERS, levels_of(epsilon))[:, 0]
    edges = np.arange(-6, 7) + 0.5
    law = scipy.stats.laplace(scale=2 / epsilon)
    chance = np.diff(np.concatenate([[0], law.cdf(edges), [1]]))
    seen = np.bincount(np.searchsorted(edges, drawn), minlength=len(chance))
    kept = chance * len(USERS) > 5
    if not kept.all():
        seen, chance = (np.append(v[kept], v[~kept].sum()) for v in (seen, chance))
    assert scipy.stats.chisquare(seen, len(USERS) * chance).pvalue > ALARM


@pytest.mark.parametrize("dimension", [1, 3, 20])
def test_two_levels_on_either_side_of_the_base(dimension):
    """Lengths, and the difference and its independence of the finer value: 8 p-values for each of 3 dimensions."""
    users = USERS if dimension < 20 else USERS[:1000]
    paths = VectorPaths(KEY, dimension, 10**4)
    values = {e: paths.at(users, levels_of(e, len(users))) / 1e4 for e in (0.7, 1.3)}
    for epsilon, value in values.items():
        length = np.linalg.norm(value, axis=1) * epsilon
        assert scipy.stats.kstest(length, scipy.stats.gamma(dimension).cdf).pvalue > ALARM
    along = np.arange(1, dimension + 1) / np.linalg.norm(np.arange(1, dimension + 1))
    step, end = (values[0.7] - values[1.3]) @ along, values[1.3] @ along
    for s in (0.3, 1.0):
        difference = characteristic(s, 0.7, dimension) / characteristic(s, 1.3, dimension)
        assert normal_p(np.cos(s * step), difference) > ALARM
        both = difference * characteristic(0.5, 1.3, dimension)
        assert normal_p(np.cos(s * step + 0.5 * end), both) > ALARM
    same = int((values[0.7] == values[1.3]).all(axis=1).sum())
    assert scipy.stats.binomtest(same, len(users), (0.7 / 1.3) ** (dimension + 1)).pvalue > ALARM


def test_users_keys_and_reaches_are_independent():
    """Correlations of normal scores: 5 p-values."""

    def scores(paths, users):
        ranks = scipy.stats.rankdata(paths.at(users, levels_of(1, len(users)))[:, 0])
        return scipy.stats.norm.ppf(ranks / (len(users) + 1))

    some = USERS[:4000]
    own = scores(VectorPaths(KEY, 2, 10**4), some)
    others = [
        scores(VectorPaths(KEY, 2, 10**4), some + 4000),
        scores(VectorPaths(bytes(32), 2, 10**4), some),
        scores(VectorPaths(KEY, 2, 10**4 + 1), some),
        scores(VectorPaths(KEY, 1, 10**4), some),
        np.roll(own, 1),
    ]
    for other in others:
        assert scipy.stats.pearsonr(own, other).pvalue > ALARM


@pytest.mark.parametrize("size", [0.3, 4.0])
def test_which_clock_rang_matters(size):
    """T given z: t^(1/2) e^(−t − z²/(4t)), in every dimension; with the other clock's variable it is another law."""
    rng, rows = np.random.default_rng(7), 20_000 // 8
    words = rng.integers(0, 1 << 64, (rows, module.UP_SLOTS + 2, 1), np.uint64)
    by_size = rng.random(rows) < size / (1 + size)
    law = scipy.stats.geninvgauss(1.5, size, scale=size / 2)
    right, wrong = (
        module.jump_up(np.full((rows, 1), size), clock, Uniforms(words)).total for clock in (by_size, ~by_size)
    )
    assert scipy.stats.kstest(right, law.cdf).pvalue > ALARM > scipy.stats.kstest(wrong, law.cdf).pvalue


@pytest.mark.parametrize("dimension", [1, 2, 3, 20])
def test_jumps_downwards_have_the_papers_bessel_law(dimension):
    """Its Table I: r^(n/2) K_(n/2 − 1)(r), at level 1; one p-value for each of 4 dimensions."""
    words = np.random.default_rng(dimension).integers(
        0, 1 << 64, (20_000, module.DOWN_SLOTS + dimension + dimension % 2, 1), np.uint64
    )
    radius = np.linalg.norm(module.jump_down(dimension, Uniforms(words)).value, axis=1)
    # ∫ r^(n/2) K_(n/2 − 1) = −r^(n/2) K_(n/2).
    order, scale = dimension / 2, 2 ** (1 - dimension / 2) / scipy.special.gamma(dimension / 2)

    def distribution(r):
        return 1 - scale * r**order * scipy.special.kv(order, r)

    assert scipy.stats.kstest(radius, distribution).pvalue > ALARM


# What they are functions of.


def requests(number=3000, users=60, least=0.05, most=30.0, seed=1):
    rng = np.random.default_rng(seed)
    levels = (UNIT * np.exp(rng.uniform(math.log(least), math.log(most), number))).astype(np.int64)
    return rng.integers(0, users, number), levels


def test_order_and_range_do_not_matter():
    users, levels = requests()
    together = VectorPaths(KEY, 2, 50).at(users, levels)
    one_by_one = VectorPaths(KEY, 2, 50)
    for i in np.argsort(np.abs(levels - UNIT))[:: len(levels) // 30]:  # ever further from the base
        assert (one_by_one.at(users[i : i + 1], levels[i : i + 1])[0] == together[i]).all()
    backwards = VectorPaths(KEY, 2, 50).at(users[::-1], levels[::-1])[::-1]
    assert (backwards == together).all()


@pytest.mark.parametrize("bits", [(), (1,), (0,)])
def test_a_signal_is_what_requests_would_get(bits):
    kind, least, most = (lambda: BitPaths(KEY)) if bits else (lambda: VectorPaths(KEY, 2, 3)), UNIT // 1000, 20 * UNIT
    paths = kind()
    for user in range(8):
        starts, held = paths.signal(user, *bits, least, most)
        assert starts[0] == least
        assert (np.diff(starts) > 0).all()
        assert starts[-1] <= most
        asked = np.unique(np.concatenate([starts, starts[1:] - 1, [most]]))
        found = kind().at(np.full(len(asked), user), asked, *(np.full(len(asked), bit) for bit in bits))
        assert (found == held[np.searchsorted(starts, asked, side="right") - 1]).all()
        assert all(np.any(before != after) for before, after in itertools.pairwise(held))


def test_known_values():
    """The noise of a key may never change: what was given out once must be given out again."""
    users, levels = np.array([0, 1, 2**40]), np.array([UNIT // 2, 3 * UNIT, UNIT])
    assert VectorPaths(KEY, 2, 1000).at(users, levels).tolist() == [[793, 772], [-164, -307], [814, 913]]
    assert BitPaths(KEY).at(np.arange(8), levels_of(1, 8), np.zeros(8, int)).tolist() == [0, 0, 0, 0, 0, 0, 0, 1]


# Bits.


def channel(least, most):
    """P(response at the lower level | response at the higher one), (2, 2), as docs/internals/processes.md states it."""
    stay = math.tanh(least / 2) / math.tanh(most / 2)
    return stay * np.eye(2) + (1 - stay) / 2


def test_bits_at_three_levels_form_a_chain():
    """Their joint law is that of composed channels, by chi-square on 10,000 users."""
    levels, paths = (0.5, 1.2, 2.5), BitPaths(KEY)
    drawn = [paths.at(USERS, levels_of(e), np.ones(len(USERS), int)).astype(int) for e in levels]
    seen = np.bincount(4 * drawn[0] + 2 * drawn[1] + drawn[2], minlength=8)
    steps = channel(0.5, 1.2), channel(1.2, 2.5), channel(2.5, math.inf)[1]
    chance = np.einsum("ba,cb,c->abc", *steps).ravel()
    assert scipy.stats.chisquare(seen, len(USERS) * chance).pvalue > ALARM


# Floats leave open what is then decided exactly.


class Recorded(module.PathSteps):
    """What a formula says, with its bounds."""

    def __init__(self, users):
        super().__init__(users)
        self.said = {}

    def add_jump(self, rows, place, level, blur):
        super().add_jump(rows, place, level, blur)
        for row, x, bound in zip(rows, level, level.astype(float) * blur, strict=True):
            self.said["level", row, place] = (x, bound)

    def add_value(self, rows, place, value, error):
        super().add_value(rows, place, value, error)
        for row, v, bound in zip(rows, value, error, strict=True):
            for i, x in enumerate(v):
                self.said["value", row, place, i] = (x, bound)


def said(paths, users, span, planes):
    with decimal.localcontext(decimal.Context(prec=20 * planes, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)):
        steps = paths._walk(users, span, planes)
    return {k: v for k, v in steps.said.items() if not steps.undecided[k[1]]}


@pytest.mark.parametrize(
    ("paths", "span", "number"),
    [
        (VectorPaths(KEY, 1, 1), (0.05, 20), 40),
        (VectorPaths(KEY, 2, 1000), (0.5, 15), 40),
        (VectorPaths(KEY, 20, 1), (0.7, 2), 5),
        (BitPaths(KEY), (1e-6, math.inf), 100),
    ],
)
def test_float_and_decimal_evaluate_the_same_formula(monkeypatch, paths, span, number):
    """Floats stay ten times within their bounds, which are narrow enough to leave next to nothing open."""
    monkeypatch.setattr(module, "PathSteps", Recorded)
    floats, exact = (said(paths, np.arange(number), span, planes) for planes in (2, 3))
    assert len(floats) > 5 * number
    assert floats.keys() <= exact.keys()
    for place, (x, bound) in floats.items():
        true = exact[place][0]
        assert abs(Decimal(float(x)) - Decimal(true)) <= Decimal(bound) / 10
        assert bound <= 1e-5 * max(1, abs(x))


def coarse(bits, edge):
    """Floats from the first bits of the reals only, undecided nearer to 0 or 1 than an edge."""

    class Coarse(Uniforms):
        def __init__(self, words, exact=False):
            if not exact:
                words = (words >> np.uint64(64 - bits) << np.uint64(64 - bits))[..., :1]
            super().__init__(words, exact)

        def are_extreme(self):
            exact = self._words.shape[2] > 1
            return super().are_extreme() if exact else ((self.value < edge) | (self.rest < edge)).any(axis=1)

    return Coarse


@pytest.mark.parametrize("paths", [VectorPaths, BitPaths])
def test_answers_do_not_depend_on_the_precision_of_the_floats(monkeypatch, paths):
    """With 40 bits of the reals, and a unit of 2^-26 to match, next to all numbers are open: answers are the same.

    With the unit of full floats they are not: this is what the evaluation in Decimal is for.
    """
    users, levels = requests(1000, 8, 0.5, 8)

    def answers():
        if paths is BitPaths:
            return BitPaths(KEY).at(users, levels, np.ones(len(users), int))
        return VectorPaths(KEY, 2, 10**11).at(users, levels)

    true = answers()
    monkeypatch.setattr(module, "Uniforms", coarse(40, 2.0**-38))
    if paths is VectorPaths:
        assert (answers() != true).any()
    monkeypatch.setattr(module, "Uniforms", coarse(40, 2.0**-8))
    monkeypatch.setattr(module, "_step_error", lambda planes: 2.0 ** (-26 * (planes - 1)))
    assert (answers() == true).all()


def test_a_value_begins_with_the_first_billionth_above_its_jump(monkeypatch):
    """At the billionth below it the response would tell of a level that is above what was promised."""
    monkeypatch.setattr(module, "PathSteps", Recorded)
    for paths, bit in ((VectorPaths(KEY, 2, 1000), ()), (BitPaths(KEY), (1,))):
        exact = said(paths, np.arange(10), (0.4, 9), 3)
        for user in range(10):
            jumps = (x for (kind, row, *_), (x, _) in exact.items() if (kind, row) == ("level", user))
            above = {math.floor(x * UNIT) + 1 for x in jumps}
            assert set(paths.signal(user, *bit, UNIT // 2, 8 * UNIT)[0][1:].tolist()) <= above


# Uniform reals, as floats and as Decimal objects.


def test_a_real_next_to_0_or_1_keeps_its_distance():
    words = np.zeros((2, 1, 2), dtype=np.uint64)
    words[1] = 2**64 - 1
    with decimal.localcontext(decimal.Context(prec=90)):
        for exact in (False, True):
            near = Uniforms(words, exact).exponential(0).astype(float)
            assert near == pytest.approx([129 * math.log(2), 2.0**-129], rel=1e-14)


def test_the_circle_has_all_digits():
    words = np.random.default_rng(1).integers(0, 1 << 64, (20, 1, 3), np.uint64)
    with decimal.localcontext(decimal.Context(prec=60)):
        some = Uniforms(words, exact=True).value[:, 0]
    turns = np.append(some, [decimal.Decimal(0), decimal.Decimal("0.5"), decimal.Decimal(1)])
    with mpmath.workdps(80), decimal.localcontext(decimal.Context(prec=60)):
        for turn, cosine, sine in zip(turns, *module.cos_and_sin(turns), strict=True):
            angle = 2 * mpmath.pi * mpmath.mpf(str(turn))
            assert abs(mpmath.mpf(str(cosine)) - mpmath.cos(angle)) < mpmath.mpf(10) ** -56
            assert abs(mpmath.mpf(str(sine)) - mpmath.sin(angle)) < mpmath.mpf(10) ** -56


# Input.


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: BitPaths(b"secret"), "key"),
        (lambda: VectorPaths(KEY, 0, 5), "dimension"),
        (lambda: VectorPaths(KEY, 2, 5).at(np.array([1]), np.array([0])), "levels"),
        (lambda: VectorPaths(KEY, 2, 10**8).at(np.array([1]), np.array([1])), "levels"),
        (lambda: VectorPaths(KEY, 2, 5).signal(1, 9, 8), "levels"),
        (lambda: BitPaths(KEY).signal(1, 0, 0, 8), "levels"),
    ],
)
def test_bad_input(call, name):
    with pytest.raises(InputError, match=name):
        call()
