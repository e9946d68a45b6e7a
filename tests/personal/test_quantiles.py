"""Quantiles of values that come and go: costs against their definition, what one value more changes, the law."""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

from deltahist.noise.exact import source
from deltahist.personal.quantiles import bound_amiss, draw_quantile, largest_change, stretches

QUANTILES = [Fraction(1, 2), Fraction(1, 4), Fraction(9, 10), Fraction(0), Fraction(1)]


def costs_of(values, places, q):
    """Of every place, by the definition."""
    n, a, b = len(values), q.numerator, q.denominator
    out = []
    for z in range(places):
        below, upto = sum(x < z for x in values), sum(x <= z for x in values)
        out.append(max(0, b * below - a * n, a * n - b * upto))
    return out


def small_sets(places, most):
    return itertools.chain.from_iterable(
        itertools.combinations_with_replacement(range(places), number) for number in range(most + 1)
    )


@pytest.mark.parametrize("q", QUANTILES, ids=str)
def test_stretches_cost_what_the_definition_says(q):
    for values in small_sets(5, 4):
        starts, widths, costs = stretches(np.array(values, dtype=np.int64), 5, q)
        assert (widths > 0).all()
        spread = np.concatenate([np.arange(s, s + w) for s, w in zip(starts, widths, strict=True)])
        assert spread.tolist() == list(range(5))
        assert np.repeat(costs, widths).tolist() == costs_of(values, 5, q)
        assert costs.min() == 0


@pytest.mark.parametrize("q", QUANTILES, ids=str)
def test_one_value_more_changes_costs_by_the_share_and_the_law_by_epsilon(q):
    """Over all sets of up to four values on five places; with equality somewhere for the costs."""
    epsilon, largest = 0.7, 0
    for values in small_sets(5, 3):
        before = np.array(costs_of(values, 5, q))
        for more in range(5):
            after = np.array(costs_of([*values, more], 5, q))
            largest = max(largest, np.abs(after - before).max())
            laws = [np.exp(-epsilon * costs / (2 * largest_change(q))) for costs in (before, after)]
            ratio = np.log(laws[0] / laws[0].sum()) - np.log(laws[1] / laws[1].sum())
            assert np.abs(ratio).max() <= epsilon + 1e-12
    assert largest == largest_change(q)


#: Family-wise 0.1% over three cases.
@pytest.mark.parametrize(("values", "q"), [([], "1/2"), ([2, 2, 5], "1/2"), ([0, 7, 7, 3], "9/10")])
def test_the_law_of_what_is_drawn(values, q):
    values, q, words = np.array(values, dtype=np.int64), Fraction(q), source(np.random.default_rng(8))
    drawn = Counter(draw_quantile(values, 8, q, Fraction(3), words) for _ in range(3000))
    chance = np.exp(-3 * np.array(costs_of(values, 8, q)) / (2 * largest_change(q)))
    seen, expected = np.array([drawn[z] for z in range(8)]), 3000 * chance / chance.sum()
    rare = expected < 5
    seen, expected = (np.append(each[~rare], each[rare].sum()) for each in (seen, expected))
    assert scipy.stats.chisquare(seen[expected > 0], expected[expected > 0]).pvalue > 0.001 / 3


def test_so_many_values_lie_amiss_at_most():
    """The bound is kept in 99% of draws and more: it is meant for 95%."""
    rng, q, epsilon = np.random.default_rng(2), Fraction(3, 4), Fraction(1, 5)
    values = rng.integers(0, 1000, 5000)
    bound, kept = bound_amiss(1000, q, epsilon), 0
    for _ in range(300):
        place = draw_quantile(values, 1000, q, epsilon, source(rng))
        amiss = max(0, (values < place).sum() - q * 5000, q * 5000 - (values <= place).sum())
        kept += amiss <= bound
    assert kept >= 297
