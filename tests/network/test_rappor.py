"""RAPPOR's channels, settings and costs, and estimates from its reports."""

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, strategies as st

from deltahist.errors import InputError
from deltahist.network import rappor
from deltahist.network.rappor import Channel, Rappor, Reports

F = Fraction


def test_the_figures_of_the_original_paper():
    """Erlingsson et al. 2014, section 5: k = 2, f = ½, p = ½, q = ¾."""
    mechanism = Rappor(hashes=2, f=0.5, p=0.5, q=0.75)
    one, zero = F(11, 16), F(9, 16)
    assert (mechanism.report.one, mechanism.report.zero) == (one, zero)
    assert float(mechanism.guarantee.epsilon) == pytest.approx(4 * math.log(3), rel=1e-13)
    expected = 2 * math.log(one * (1 - zero) / (zero * (1 - one)))
    assert float(mechanism.report_guarantee.epsilon) == pytest.approx(expected, rel=1e-13)


def test_positions_are_fixed_by_text_cohort_and_hash_and_spread_evenly():
    """Written down, since reports of one version are decoded by another. Chi-square, one false alarm in 10⁶."""
    found = Rappor(bits=128, hashes=2, cohorts=3).find_positions(["cafe", "Ωmega"])
    assert found.tolist() == [[[105, 6], [92, 84], [14, 66]], [[2, 127], [55, 86], [94, 113]]]
    many = Rappor(bits=50, hashes=2, cohorts=10).find_positions([str(i) for i in range(1000)])
    assert scipy.stats.chisquare(np.bincount(many.ravel(), minlength=50)).pvalue > 1e-6


COARSE = Rappor(f=0.5, p=0.5, q=0.75)


# The last has more noise in reports, and less altogether.
@pytest.mark.parametrize("after", [{"f": 0.2}, {"p": 0.4, "q": 0.75}, {"f": 0.05, "q": 0.7}])
def test_what_relaxes(after):
    finer = COARSE.relaxed(**after)
    assert finer.guarantee.epsilon >= COARSE.guarantee.epsilon
    assert finer.report_guarantee.epsilon >= COARSE.report_guarantee.epsilon
    assert finer.report.then(COARSE.report.find_remainder(finer.report)) == COARSE.report


SMALL = Rappor(bits=2, hashes=1, cohorts=2)


@pytest.mark.parametrize(
    "make",
    [
        *(lambda given=given: COARSE.relaxed(**given) for given in ({"f": 0.6}, {"p": 0.6}, {"p": 0.25, "q": 0.6})),
        lambda: Rappor(p=0, q=1).relaxed(p=0.1),
        *(lambda given=given: Rappor(**given)
          for given in ({"f": 0}, {"p": -0.1}, {"p": 0.5, "q": 0.5}, {"hashes": 2.5})),
        *(lambda ones=ones, texts=texts: Rappor(bits=4, cohorts=2).decode(ones, [5, 5], list(texts))
          for ones, texts in ((np.zeros((2, 3)), "a"), (np.full((2, 4), 6), "a"), (np.zeros((2, 4)), "aa"))),
    ],
)  # fmt: skip
def test_settings_and_counts_that_cannot_be(make):
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize(
    ("cohorts", "bits"),
    [([0, 2], [[0, 1], [1, 1]]), ([0, -1], [[0, 1], [1, 1]]), ([0], [[0, 1], [1, 1]]), ([0], [[1]])],
)
def test_reports_that_do_not_fit_are_not_decoded(cohorts, bits):
    with pytest.raises((ValueError, IndexError)):
        Reports(SMALL, cohorts, bits).decode(["a"])


def _exact(part):
    """P(1 | 0) and P(1 | 1), to 300 digits."""
    return [Decimal(x.numerator) / x.denominator for x in (part.zero, part.one)]


@pytest.mark.parametrize("rates", [(0, 1), (1e-9, 1 - 1e-9)])
@pytest.mark.parametrize("epsilon", [0.001, 4.0, 1000.0])
def test_no_guarantee_is_below_the_truth(rates, epsilon):
    """Where a 1 is nearly always reported as such, what is left of a probability is what counts."""
    mechanism = Rappor.costing(epsilon, hashes=2, p=rates[0], q=rates[1])
    assert mechanism.guarantee.epsilon <= Fraction(epsilon)
    with localcontext() as exactly:
        exactly.prec = 600
        low, high = _exact(mechanism.instantaneous)
        zero, one = (low + (high - low) * bit for bit in _exact(mechanism.permanent))
        truth = 2 * (one * (1 - zero) / (zero * (1 - one))).ln()
        said = mechanism.report_guarantee.epsilon
        assert truth <= Decimal(said.numerator) / said.denominator <= truth * (1 + Decimal("1e-9"))


PARTS = st.fractions(0, 1, max_denominator=12)


def chance(channel, x, y):
    one = channel.one if x else channel.zero
    return one if y else 1 - one


@given(PARTS, PARTS, PARTS, PARTS)
def test_a_remainder_is_there_exactly_if_its_probabilities_are(a, b, c, d):
    """Against the definition: solve for the channel and see whether its probabilities are probabilities."""
    coarse, finer = Channel(*sorted((a, b))), Channel(*sorted((c, d)))
    if finer.zero == finer.one:
        possible = coarse.zero == coarse.one
    else:
        rise = (coarse.one - coarse.zero) / (finer.one - finer.zero)
        zero = coarse.zero - rise * finer.zero
        possible = 0 <= zero <= 1 and 0 <= zero + rise <= 1
    if possible:
        assert finer.then(coarse.find_remainder(finer)) == coarse
    else:
        with pytest.raises(InputError):
            coarse.find_remainder(finer)


@given(PARTS, PARTS, PARTS, PARTS)
def test_refining_is_bayes(a, b, c, d):
    """The fine bit by its channel, the coarse one from it: the same joint law as the coarse one, then the fine one."""
    finer, after = Channel(*sorted((a, b))), Channel(*sorted((c, d)))
    if finer.zero == finer.one:
        return
    coarse = finer.then(after)
    chances = finer.find_refinement(coarse)
    for x, y, z in itertools.product((0, 1), repeat=3):
        one = chances[2 * x + y]
        assert chance(coarse, x, y) * (one if z else 1 - one) == chance(finer, x, z) * chance(after, z, y)


def test_log_odds_are_precise_where_they_are_small_and_large():
    assert Channel.flipping(F(1, 2) - F(1, 10**9)).log_odds == pytest.approx(8e-9, rel=1e-12)
    assert Channel.flipping(F(1, 10**200)).log_odds == pytest.approx(400 * math.log(10), rel=1e-12)


NAMES = [f"text {i}" for i in range(30)]


def counts_of(mechanism, true, rng, unlisted=()):
    """Ones and users, drawn by their exact law: cohorts multinomial, reports of a bit binomial."""
    true = np.concatenate([true, np.ones(len(unlisted), dtype=int)])
    where = rng.multinomial(true, np.full(mechanism.cohorts, 1 / mechanism.cohorts))
    users, there = where.sum(axis=0), np.zeros((mechanism.cohorts, mechanism.bits), dtype=int)
    positions = mechanism.find_positions([*NAMES, *unlisted])
    for text in range(len(true)):
        for cohort in range(mechanism.cohorts):
            there[cohort, np.unique(positions[text, cohort])] += where[text, cohort]
    ones = rng.binomial(there, float(mechanism.report.one))
    return ones + rng.binomial(users[:, None] - there, float(mechanism.report.zero)), users


SETTINGS = {
    "much noise": Rappor(bits=32, cohorts=8, f=0.5, p=0.5, q=0.75),
    "little noise": Rappor(bits=32, cohorts=8, f=0.05, p=0, q=1),
    "one hash": Rappor(bits=24, hashes=1, cohorts=5, f=0.25, p=0.1, q=0.9),
}


@pytest.mark.parametrize("mechanism", SETTINGS.values(), ids=SETTINGS)
def test_least_squares_is_unbiased_and_knows_its_error(mechanism):
    """120 collections, the same ten candidates in each: means and spreads of (estimate − truth) / standard error.

    Bonferroni over 2 · 10 figures in 3 settings; false alarms 0.1% in all.
    """
    rng = np.random.default_rng(3)
    true = np.array([4000, 3000, 2000, 1500, 1000, 500, 300, 200, 100, 0] + [0] * 20)
    positions = mechanism.find_positions(NAMES[:10])
    off = []
    for _ in range(120):
        ones, users = counts_of(mechanism, true, rng)
        seen = rappor._Seen(ones, users, mechanism.report)
        estimate, error = rappor._estimate_candidates(rappor._build_design(positions, seen).toarray(), seen)
        off.append((estimate - true[:10]) / error)
    off, alarm = np.array(off), 0.001 / 60
    limit = scipy.stats.norm.isf(alarm / 2)
    assert (np.abs(off.mean(axis=0)) * np.sqrt(120) < limit).all()
    low, high = scipy.stats.chi2.ppf([alarm / 2, 1 - alarm / 2], 119) / 119
    assert (off.var(axis=0, ddof=1) > low).all()
    assert (off.var(axis=0, ddof=1) < high).all()


def test_the_selection_is_the_non_negative_lasso():
    """Its optimality conditions, on the design itself."""
    mechanism, rng = SETTINGS["one hash"], np.random.default_rng(6)
    ones, users = counts_of(mechanism, np.arange(30) * 20, rng)
    seen = rappor._Seen(ones, users, mechanism.report)
    design = rappor._build_design(mechanism.find_positions(NAMES), seen)
    chosen = rappor._select_candidates(design, seen)
    dense = np.column_stack([design.toarray(), seen.others])
    penalty = np.append(np.sqrt(2 * np.log(30)) * np.linalg.norm(dense[:, :30], axis=0), 0)
    active = [*chosen, 30]
    part = dense[:, active]
    found = np.linalg.solve(part.T @ part, part.T @ seen.target - penalty[active])
    assert 0 < len(chosen) < 30
    assert (found > 0).all()
    slack = penalty - dense.T @ (seen.target - part @ found)
    assert (np.delete(slack, active) >= -1e-6).all()


def test_a_cohort_without_users_and_nothing_at_all():
    mechanism = Rappor(bits=16, cohorts=3, f=0.01, p=0, q=1)
    positions = mechanism.find_positions(["cafe"])[0]
    ones, users = np.zeros((3, 16), dtype=int), np.array([400, 0, 400])
    for cohort in (0, 2):
        ones[cohort, positions[cohort]] = 398
    (row,) = mechanism.decode(ones, users, ["cafe"]).to_dict("records")
    assert row["significant"]
    assert row["estimate"] == pytest.approx(800, abs=30)
    (row,) = mechanism.decode(0 * ones, 0 * users, ["cafe"]).to_dict("records")
    assert (row["estimate"], row["p_value"], row["significant"]) == (0, 1, False)
    assert np.isnan(row["std_error"])
    assert mechanism.decode(ones, users, []).empty
