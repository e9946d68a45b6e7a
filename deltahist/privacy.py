"""Noise laws and guarantees as plain data: what noise costs, how large it is, how guarantees add up."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError, exact, is_number, one_of, positive, whole

#: Kind of Gaussian noise that may be refined later.
ROUNDED = "rounded gaussian"


@dataclass(frozen=True)
class Law:
    """The law of one group's noise, with its exact parameter.

    Parameters
    ----------
    kind : "laplace" (two-sided geometric, P(k) ∝ exp(−|k|/scale)), "gaussian" (P(k) ∝ exp(−k²/(2 σ²))) or "rounded
        gaussian" (a continuous Gaussian, rounded), all on the integers.
    parameter : the scale b, or the variance parameter σ²; zero means no noise (nothing was private).
    """

    kind: str
    parameter: Fraction

    def __post_init__(self) -> None:
        one_of(("laplace", "gaussian", ROUNDED), kind=self.kind)

    def weights(self, k: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities of whole numbers, up to a common factor."""
        value = float(self.parameter)
        if self.kind == "laplace":
            return np.exp(-np.abs(k) / value)
        if self.kind == "gaussian":
            return np.exp(-k * k / (2 * value))
        from scipy.special import ndtr

        nearer, farther = ((np.abs(k) + half) / math.sqrt(value) for half in (-0.5, 0.5))
        return np.asarray(ndtr(-nearer) - ndtr(-farther))

    def variance(self, *, continuous: bool = False) -> float:
        """Variance; of the continuous law with the same parameter if asked (2 b², σ²)."""
        value = float(self.parameter)
        if continuous or value == 0:
            return 2 * value * value if self.kind == "laplace" else value
        if self.kind == "laplace":
            p, rest = math.exp(-1 / value), -math.expm1(-1 / value)
            return 2 * p / (rest * rest)
        return self._moments[0]

    def kurtosis(self) -> float:
        """Excess kurtosis: fourth cumulant over squared variance; 3 for Laplace noise of a large scale."""
        value = float(self.parameter)
        if value == 0:
            return 0.0
        if self.kind == "laplace":
            p = math.exp(-1 / value)
            # The fourth cumulant of a two-sided geometric is 2 p (1 + 4 p + p²) / (1 − p)⁴.
            return (1 + 4 * p + p * p) / (2 * p) if p > 0 else 0.0
        second, fourth = self._moments
        # Step by step: the square of a small variance is no float any more.
        return fourth / second / second - 3 if second > 0 else 0.0

    @property
    def _moments(self) -> tuple[float, float]:
        """Second and fourth moment of Gaussian noise."""
        value = float(self.parameter)
        if value > 25:  # the sums and the integrals agree to the last digit from far below
            off = (1 / 12, value / 2 + 1 / 80) if self.kind == ROUNDED else (0.0, 0.0)
            return value + off[0], 3 * value * value + off[1]
        k = np.arange(0, 200, dtype=np.float64)
        weight = self.weights(k) * np.where(k == 0, 1.0, 2.0)
        weight /= weight.sum()
        return float(weight @ k**2), float(weight @ k**4)

    def describe(self) -> dict[str, str]:
        """Return a JSON-ready description; the fraction is kept exact."""
        return {"kind": self.kind, "parameter": str(self.parameter)}


@dataclass(frozen=True)
class Guarantee:
    """A privacy guarantee under a stated neighbourhood: pure ε, ε with a failure probability, or ρ-zCDP.

    Parameters
    ----------
    epsilon : ε; or
    rho : ρ of zCDP.
    probability : with epsilon, δ_prob, ε holds but for; 0 for pure ε.

    Raises
    ------
    InputError
        Unless exactly one of epsilon and rho is given, or on a probability that is not from 0 to below 1 or stands
        with rho.

    >>> (Guarantee(epsilon=Fraction(1, 2)) + Guarantee(epsilon=Fraction(1, 4))).epsilon
    Fraction(3, 4)
    """

    epsilon: Fraction | None = None
    rho: Fraction | None = None
    probability: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.rho is None):
            raise InputError(
                "a guarantee is either epsilon, with or without a probability, or rho: give one of them"
            )
        amount = self.epsilon if self.rho is None else self.rho
        if amount is None or not is_number(amount) or not 0 <= amount < math.inf:
            raise InputError(f"a guarantee of {amount!r}: it must be a finite number, zero or more")
        if self.probability:
            object.__setattr__(self, "probability", exact(probability=self.probability))
            if self.probability >= 1 or self.rho is not None:
                raise InputError(
                    f"probability is {float(self.probability):g}: it goes with epsilon and must be less than 1, else "
                    "nothing is promised"
                )

    def __add__(self, other: Guarantee) -> Guarantee:
        """Sequential composition (2014, section 3.2; Bun and Steinke 2016, lemma 1.7). Pure ε is (ε²/2)-zCDP.

        Failure probabilities add up like ε (Dwork et al. 2006).

        Raises InputError if one is in ρ and the other has a failure probability, which zCDP cannot express.
        """
        if self.epsilon is not None and other.epsilon is not None:
            return Guarantee(self.epsilon + other.epsilon, probability=self.probability + other.probability)
        return Guarantee(rho=self.as_rho() + other.as_rho())

    def as_rho(self) -> Fraction:
        """ρ of the zCDP that the guarantee implies (Bun and Steinke 2016, proposition 1.4).

        Raises InputError if ε holds but for a failure probability only: that implies no zCDP.
        """
        if self.rho is not None:
            return self.rho
        assert self.epsilon is not None
        if self.probability:
            raise InputError(
                f"ε = {float(self.epsilon):g} but for a probability of {float(self.probability):g} is no zCDP: bring "
                "what is in ρ to (ε, δ_prob) instead, with Guarantee(epsilon=g.approximate(p), probability=p)"
            )
        return self.epsilon * self.epsilon / 2

    @property
    def certainty(self) -> float:
        """How often whoever holds two neighbouring data sets for equally likely guesses right from a release, at most.

        That is (1 + their total variation) / 2: e^ε / (1 + e^ε) for pure ε, reached by randomised response, and
        Φ(√(ρ/2)) for Gaussian noise of ρ; integer noise far below one can be 0.006 above that (docs/privacy/weak.md).

        >>> round(Guarantee(epsilon=1).certainty, 3), round(Guarantee(rho=Fraction(1, 2)).certainty, 3)
        (0.731, 0.691)
        """
        if self.epsilon is not None:
            return 1 - (1 - float(self.probability)) / (1 + math.exp(min(float(self.epsilon), 700.0)))
        mu = math.sqrt(2 * float(self.rho or 0))
        return 0.5 if mu == 0 else (1 + gaussian_failure(mu, 0.0)) / 2

    def times(self, steps: int) -> Guarantee:
        """Return the guarantee between data sets `steps` neighbours apart.

        That is group privacy (Dwork and Roth 2014, theorem 2.2). A failure probability grows to
        δ_prob (1 + e^ε + ... + e^((steps − 1) ε)), rounded up.

        Raises InputError where that reaches 1: nothing is promised any more.
        """
        whole(least=0, steps=steps)
        if self.epsilon is None:
            assert self.rho is not None
            return Guarantee(rho=self.rho * steps * steps)
        if not self.probability or steps <= 1:
            return Guarantee(self.epsilon * steps, probability=self.probability * min(steps, 1))
        each = float(self.epsilon)
        if each * (steps - 1) > 700:  # more than any failure probability that a float holds
            return Guarantee(self.epsilon * steps, probability=Fraction(1))
        grown = math.exp(each * (steps - 1)) * math.expm1(-each * steps) / math.expm1(-each)
        return Guarantee(self.epsilon * steps, probability=self.probability * Fraction(grown * (1 + 1e-12)))

    def approximate(self, probability: float) -> float:
        """ε of the (ε, δ_prob) guarantee at a failure probability δ_prob.

        For zCDP the smallest ε over orders α of ρ α + (ln(1/δ_prob) + (α − 1) ln(1 − 1/α) − ln α) / (α − 1)
        (Canonne, Kamath, Steinke 2020, proposition 12 at the Rényi divergences ρ α).

        Raises InputError if the guarantee holds but for a larger probability only.
        """
        if not positive(probability=probability) < 1:
            raise InputError(f"probability is {probability!r}: it must lie between 0 and 1, such as 1e-6")
        if self.epsilon is not None:
            if self.probability > probability:
                raise InputError(
                    f"probability is {probability!r}, but ε = {float(self.epsilon):g} holds but for "
                    f"{float(self.probability):g}: nothing is promised at a smaller failure probability"
                )
            return float(self.epsilon)
        assert self.rho is not None
        alpha, own, log = _orders()
        value = float(self.rho) * alpha + (-math.log(probability) + own - log) / (alpha - 1)
        return max(0.0, float(value.min()))


@functools.cache
def _orders() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Orders α that are tried, with (α − 1) ln(1 − 1/α) and ln α."""
    alpha = 1 + np.logspace(-3, 7, 20001)
    return alpha, (alpha - 1) * np.log1p(-1 / alpha), np.log(alpha)


#: Parts of the variance that are set aside to make the discrete Gaussian a rounded continuous one.
_SET_ASIDE = (0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)
#: Relative error allowed to the float evaluation of the Gaussian mechanism's failure probability.
_FLOAT_ERROR = 1e-9


def gaussian_epsilon(rho: float, probability: float, *, least_variance: float, draws: int) -> float:
    """ε at a failure probability δ_prob of discrete Gaussian noise whose zCDP is ρ; infinite if none is proved.

    A discrete Gaussian of variance σ² is, up to a factor within e^(±κ), a continuous one of variance σ² − τ²
    that is rounded at random: the guarantee is that of the continuous mechanism (Balle and Wang 2018, theorem
    8) with μ² = 2ρ σ² / (σ² − τ²), at ε − 2κ and δ_prob / e^κ. Proof: docs/privacy/gaussian.md.

    Parameters
    ----------
    rho : Σ over draws of (change)² / (2 σ²), at most.
    probability : δ_prob.
    least_variance : smallest variance parameter among the draws. draws : their number.
    """
    positive(rho=rho)
    positive(probability=probability)
    best = math.inf
    for aside in _SET_ASIDE:
        if aside >= least_variance:
            break
        # Poisson summation: the rounding's normalising sums vary by a relative 2 Σ_m exp(−2 π² τ² m²).
        theta = 2.0001 * math.exp(-2 * math.pi**2 * aside)
        kappa = 2.1 * theta * draws
        if kappa > 0.1:
            continue
        mu = math.sqrt(2 * rho * least_variance / (least_variance - aside))
        target = probability * math.exp(-kappa) * (1 - _FLOAT_ERROR)
        # Most parts cannot do better than the best so far, which one look tells.
        if best == math.inf or gaussian_failure(mu, max(best - 2 * kappa, 0.0)) <= target:
            best = min(best, gaussian_curve(mu, target) + 2 * kappa)
    return best


def gaussian_curve(mu: float, probability: float) -> float:
    """Smallest ε with Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) ≤ probability, rounded up."""
    low, high = 0.0, 1.0
    while gaussian_failure(mu, high) > probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if not low < middle < high:  # no float lies between them
            break
        low, high = (middle, high) if gaussian_failure(mu, middle) > probability else (low, middle)
    return high * (1 + 1e-12)


def gaussian_failure(mu: float, epsilon: float) -> float:
    """Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), rounded up: the failure probability of continuous noise at ε."""
    from scipy.special import log_ndtr

    first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    # Where μ is small the two all but cancel: what their floats may be off is added.
    off = 4e-15 * (1 + abs(first) + abs(second) + epsilon)
    return float(math.exp(first) * (1 + 1e-12) * -math.expm1(min(second - first, 0.0) - off))
