"""What stands out: by chance at most one family of estimates in twenty shows anything, whatever its noise."""

from fractions import Fraction

import numpy as np
import pytest

from deltahist.decode import stands_out
from deltahist.privacy import Gaussian, Laplace

SIZES = 500


@pytest.mark.parametrize("draws", [1, 2, 5, 60])
@pytest.mark.parametrize("law", [Laplace(Fraction(1, 3)), Laplace(1), Laplace(4), Gaussian(9)], ids=str)
def test_noise_alone_stands_out_in_one_family_of_twenty_at_most(law, draws):
    rng = np.random.default_rng(5)
    if isinstance(law, Laplace):
        chance = -np.expm1(-1 / law.scale)
        up, down = rng.geometric(chance, (2, SIZES, 200, draws)) - 1
        noise = (up - down).sum(axis=-1)
    else:
        noise = rng.normal(0, law.scale, (SIZES, 200, draws)).round().sum(axis=-1)
    error, kurtosis = np.sqrt(draws * law.variance()), law.kurtosis() / draws
    for sides in (False, True):
        alarms = np.mean([stands_out(each, error, kurtosis, either_side=sides).any() for each in noise])
        assert alarms <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / SIZES)
        if draws == 60 and law.unit == "rho":  # where the tail is exact nothing is given away
            assert alarms >= 0.02


def test_what_is_far_above_the_noise_is_found():
    rng = np.random.default_rng(3)
    truth = np.where(np.arange(4000) % 100 == 0, 60.0, 0.0)
    found = [stands_out(truth + noise, 3 * np.sqrt(2)) for noise in rng.laplace(0, 3, (20, 4000))]
    assert np.all([each[truth > 0].sum() >= 38 for each in found])
    assert np.sum([each[truth == 0].any() for each in found]) <= 3


def test_those_that_are_found_leave_their_share_of_the_level():
    """Holm: beside 999 that surely stand out, one is tested as if it were alone."""
    assert stands_out(np.append(np.full(999, 1e3), 17.2), 10.0, 0.0).all()
    assert not stands_out(np.append(np.zeros(999), 17.2), 10.0, 0.0).any()


def test_exact_counts_stand_out_if_there_is_anything():
    assert stands_out([1e-12, 1, -1], 0.0).tolist() == [False, True, False]
    assert stands_out([0, 1, -1], 0.0, either_side=True).tolist() == [False, True, True]


def test_an_unknown_kurtosis_is_that_of_a_single_draw():
    sizes = np.linspace(1, 10, 50)
    heavy = stands_out(sizes, 1.0, 3.0)
    assert np.array_equal(stands_out(sizes, 1.0, np.nan), heavy)
    assert stands_out(sizes, 1.0, 0.0).sum() > heavy.sum()
