"""Chains: what they say, what they refuse, and laws of noise that may be refined."""

from fractions import Fraction

import pytest

import deltahist as dh
from deltahist.laws import gaussian_epsilon
from deltahist.mechanisms.base import Chain
from deltahist.noise.samplers import RoundedGaussianSampler

NAME = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    "chain",
    [
        Chain(NAME, (Fraction(1, 3), Fraction(2))),
        Chain(NAME, (Fraction(2),), Fraction(1, 7), 2 * NAME),
        Chain("", (Fraction(2),), Fraction(1), 2 * NAME),
    ],
)
def test_descriptions_are_exact(chain):
    assert Chain.from_description(chain.describe()) == chain
    assert Chain.from_description(None) is None


def test_a_mechanism_spends_what_its_chain_says():
    near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    cells = dh.strategies.Identity(near.domain)
    with pytest.raises(dh.InputError, match=r"epsilon is 1, but the chain states 2"):
        dh.Mechanism(near, cells, dh.Budget(1), chain=Chain(NAME, (Fraction(2),)))
    mechanism = dh.Mechanism(near, cells, dh.Budget(1)).with_chain(Chain(NAME, (Fraction(1), Fraction(2))))
    assert mechanism.budget.epsilon == 2
    assert mechanism.with_budget(dh.Budget(3)).chain is None


@pytest.mark.parametrize("first", [Fraction(1, 10**9), Fraction(1, 1000), Fraction(1, 2)])
def test_a_failure_probability_is_that_of_noise_on_its_lattice(first):
    """The lattice stays that of the first release: far from it the noise is not as fine as the real numbers."""
    line = dh.Neighbourhood(dh.Domain((0, 16), (16,)), delta=1)
    mechanism = dh.Mechanism(line, dh.strategies.Identity(line.domain), dh.Budget(rho=1))
    mechanism = mechanism.with_chain(Chain("0" * 32, (first, Fraction(1))))
    process = RoundedGaussianSampler.for_level(first / mechanism.laws[0].parameter)
    steps = float(process.variance(1 / mechanism.laws[0].parameter))
    least = gaussian_epsilon(1.0, 1e-6, least_variance=steps, draws=mechanism.draws)
    assert least <= mechanism.approximate(1e-6) < 1.001 * least


@pytest.mark.parametrize(
    "given",
    [("x" * 32, (Fraction(1),)), (NAME, ()), (NAME, (Fraction(2), Fraction(1))), (NAME, (Fraction(1),), Fraction(2))],
)
def test_amounts_of_a_chain_rise_and_copies_have_less(given):
    with pytest.raises(dh.InputError):
        Chain(*given)
