"""Noise laws and privacy guarantees as plain data, without samplers."""

from __future__ import annotations

import abc
import functools
import math
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import NormalDist
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.errors import InputError, check_finite, check_positive, check_whole, is_number

#: Largest noise scale. Larger noise could overflow 64 bits with non-negligible probability.
MOST_SCALE = 1 << 50


@dataclass(frozen=True)
class Law(abc.ABC):
    """The probability law of a group's whole-number noise.

    To add a law, write a class here, list it in `LAWS`, and add a sampler to `noise/samplers.py`.

    parameter : exact scale, raised to the power `norm`. Zero means no noise, because neighbours have equal answers.
    continuous : whether to compute moments for the continuous law with the same parameter, for comparison with papers.
    """

    parameter: Fraction
    continuous: bool = field(default=False, kw_only=True, repr=False)
    #: The law's name in files, its name in options, and a phrase that describes the noise.
    kind: ClassVar[str]
    noise: ClassVar[str]
    words: ClassVar[str]
    #: Unit of the budget that the noise spends, and norm in which changes are measured.
    unit: ClassVar[str]
    norm: ClassVar[int]
    #: Whether the law applies to releases that can be refined, releases that cannot, or both.
    refinable: ClassVar[tuple[bool, ...]]

    @classmethod
    def hiding(cls, change: Fraction, amount: Fraction) -> Law:
        """Return the law whose noise hides a change Δ at a cost of `amount`. `change` is Δ for ε, and Δ² for ρ.

        Laplace noise has b = Δ/ε, as in f(D) + Lap(Δ/ε). Gaussian noise has σ² = Δ²/(2ρ).
        Source: 2014, section 2.2; 2015, Definition 8, eq. (11), (17), (30).

        Raises InputError if the scale would exceed 2^50.
        """
        parameter = change / (cls.norm * amount)
        if parameter > MOST_SCALE**cls.norm:
            raise InputError(f"{cls.unit} is {float(amount):.10g}: increase it so that the noise scale is at most 2^50")
        return cls(parameter)

    @property
    def scale(self) -> float:
        """Scale of the noise, which is b or σ."""
        return float(self.parameter) ** (1 / self.norm)

    @abc.abstractmethod
    def weights(self, k: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return weights in proportion to the probabilities of whole numbers."""

    @abc.abstractmethod
    def variance(self) -> float:
        """Return the variance."""

    @abc.abstractmethod
    def kurtosis(self) -> float:
        """Return the excess kurtosis, which is the fourth cumulant divided by the squared variance."""

    @abc.abstractmethod
    def reach(self, level: float) -> float:
        """Return k such that noise of a large scale stays within k standard deviations with probability `level`."""

    @abc.abstractmethod
    def tail(self, draws: int, alpha: float) -> float:
        """Return the value that the sum of `draws` draws exceeds with probability `alpha`."""

    @abc.abstractmethod
    def simulate(self, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw continuous noise of the same variance, for simulations only."""

    def least_variance(self, times: float) -> float | None:
        """Return the variance, in squared steps, that the proof of (ε, δ_prob) may assume, or None without a proof.

        `times` is the release's budget divided by the budget of the first release in its chain.
        """
        return None

    def describe(self) -> dict[str, str]:
        """Return a JSON-ready description with the exact parameter."""
        return {"kind": self.kind, "parameter": str(self.parameter)}


class Laplace(Law):
    """Two-sided geometric noise, the discrete form of Lap(b): P(k) ∝ exp(−|k|/b). Source: 2014, section 2.2."""

    kind, noise, words = "laplace", "laplace", "Laplace noise on whole numbers"
    unit, norm, refinable = "epsilon", 1, (False, True)

    def weights(self, k: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.exp(-np.abs(k) / self.scale)

    def variance(self) -> float:
        if self.continuous or not self.parameter:
            return 2 * self.scale * self.scale
        p, rest = math.exp(-1 / self.scale), -math.expm1(-1 / self.scale)
        return 2 * p / (rest * rest)

    def kurtosis(self) -> float:
        # The fourth cumulant of a two-sided geometric is 2 p (1 + 4 p + p²) / (1 − p)⁴.
        p = math.exp(-1 / self.scale) if self.parameter else 0.0
        return (1 + 4 * p + p * p) / (2 * p) if p > 0 else 0.0

    def reach(self, level: float) -> float:
        return math.log(1 / (1 - level)) / math.sqrt(2)

    def tail(self, draws: int, alpha: float) -> float:
        return self.scale * _laplace_tail(draws, alpha)

    def simulate(self, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
        return rng.laplace(0, math.sqrt(self.variance()) / math.sqrt(2), size)


class Gaussian(Law):
    """Discrete Gaussian noise: P(k) ∝ exp(−k² / (2σ²))."""

    kind, noise, words = "gaussian", "gaussian", "Gaussian noise on whole numbers"
    unit, norm, refinable = "rho", 2, (False,)
    #: Numbers s, t, u: the second moment exceeds that of the continuous law by s, and the fourth by t σ² + u.
    _OFF: ClassVar[tuple[float, float, float]] = (0.0, 0.0, 0.0)

    def weights(self, k: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.exp(-k * k / (2 * float(self.parameter)))

    def variance(self) -> float:
        return float(self.parameter) if self.continuous or not self.parameter else self._moments[0]

    def kurtosis(self) -> float:
        second, fourth = self._moments if self.parameter else (0.0, 0.0)
        # Divide twice, because the square of a small variance would underflow.
        return fourth / second / second - 3 if second > 0 else 0.0

    @property
    def _moments(self) -> tuple[float, float]:
        """Second and fourth moments."""
        value, (second, slope, fourth) = float(self.parameter), self._OFF
        if value > 25:  # far above the values from which sums and integrals agree to the last digit
            return value + second, 3 * value * value + (slope * value + fourth)
        k = np.arange(0, 200, dtype=np.float64)
        weight = self.weights(k) * np.where(k == 0, 1.0, 2.0)
        weight /= weight.sum()
        return float(weight @ k**2), float(weight @ k**4)

    def reach(self, level: float) -> float:
        return NormalDist().inv_cdf((1 + level) / 2)

    def tail(self, draws: int, alpha: float) -> float:
        return -NormalDist().inv_cdf(alpha) * math.sqrt(draws * max(float(self.parameter), self.variance()))

    def simulate(self, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
        return rng.normal(0, math.sqrt(self.variance()), size)

    def least_variance(self, times: float) -> float | None:
        return float(self.parameter) or None


class RoundedGaussian(Gaussian):
    """Rounded continuous Gaussian noise, which can be refined later (docs/privacy/gradual.md)."""

    kind, words, refinable = "rounded gaussian", "Gaussian noise rounded to whole numbers", (True,)
    _OFF = (1 / 12, 1 / 2, 1 / 80)

    def weights(self, k: NDArray[np.float64]) -> NDArray[np.float64]:
        nearer, farther = ((np.abs(k) + half) / math.sqrt(float(self.parameter)) for half in (-0.5, 0.5))
        return np.asarray(scipy.special.ndtr(-nearer) - scipy.special.ndtr(-farther))

    def least_variance(self, times: float) -> float | None:
        # Rounding costs no privacy. The variance of a chain's first release is at least 2^46 squared steps of its
        # lattice (`noise/samplers.py`), and later releases use the same lattice.
        return 2.0**46 / times if self.parameter else None


#: Laws by their names in files.
LAWS: dict[str, type[Law]] = {law.kind: law for law in (Laplace, Gaussian, RoundedGaussian)}


@functools.lru_cache(maxsize=4096)
def _laplace_tail(draws: int, alpha: float) -> float:
    """Return the value that a sum of Laplace draws of scale 1 exceeds with probability `alpha`.

    A sum of m draws is the difference of two Gamma(m) variables, each the duration of m exponential stages. With
    probability C(2m − r − 1, m − 1) / 2^(2m − r), the first has r stages left when the second ends. The difference is
    then Gamma(r). Sums of more than 4,096 draws are treated as normal, with a correction for kurtosis.
    """
    z = -float(scipy.special.ndtri(alpha))
    if draws > 4096:
        return (z + 3 / draws * (z**3 - 3 * z) / 24) * math.sqrt(2 * draws)
    left = np.arange(1, draws + 1)
    gammaln = scipy.special.gammaln
    chance = gammaln(2 * draws - left) - gammaln(draws) - gammaln(draws - left + 1)
    chance = np.exp(chance - (2 * draws - left) * math.log(2))

    def excess(t: float) -> float:
        return math.log(float(chance @ scipy.special.gammaincc(left, t))) - math.log(alpha)

    return float(scipy.optimize.brentq(excess, 0.0, -2 * math.log(alpha) + 2 * math.sqrt(-2 * draws * math.log(alpha))))


@dataclass(frozen=True)
class Guarantee:
    """A privacy guarantee under a stated neighbourhood: pure ε or ρ-zCDP.

    Pure ε means Pr(A(D₁) ∈ R) ≤ e^ε Pr(A(D₂) ∈ R) for all neighbours D₁, D₂ and all sets R of results.
    Source: 2014, eq. (1), (2), (4); 2015, Definition 2, eq. (4); 2018, Definition 1. For zCDP: Bun and Steinke 2016.

    Parameters
    ----------
    epsilon : ε.
    rho : ρ of zCDP, given instead of ε.

    Raises InputError unless exactly one of them is given, and it is finite and non-negative.

    >>> (Guarantee(epsilon=Fraction(1, 2)) + Guarantee(epsilon=Fraction(1, 4))).epsilon
    Fraction(3, 4)
    """

    epsilon: Fraction | None = None
    rho: Fraction | None = None

    def __post_init__(self) -> None:
        one = (self.epsilon is None) != (self.rho is None)
        if not one or not is_number(self.amount) or not 0 <= self.amount < math.inf:
            rule = "exactly one must be given, and it must be finite and non-negative"
            raise InputError(f"epsilon is {self.epsilon}, rho is {self.rho}: {rule}")

    @property
    def amount(self) -> Fraction:
        """ε or ρ."""
        amount = self.epsilon if self.rho is None else self.rho
        assert amount is not None
        return amount

    def __add__(self, other: Guarantee) -> Guarantee:
        """Return the joint guarantee of two releases by sequential composition, Σ ε_i. Pure ε implies (ε²/2)-zCDP.

        Source: 2014, section 3.2; 2015, Proposition 4; Bun and Steinke 2016, lemma 1.7 and proposition 1.4.
        """
        if self.epsilon is not None and other.epsilon is not None:
            return Guarantee(self.epsilon + other.epsilon)
        parts = [one.rho or 0 if one.epsilon is None else one.epsilon**2 / 2 for one in (self, other)]
        return Guarantee(rho=Fraction(sum(parts)))

    @property
    def certainty(self) -> float:
        """Largest probability of guessing correctly which of two equally likely neighbours a release describes.

        It is (1 + total variation) / 2. For pure ε, this is e^ε / (1 + e^ε), which randomised response attains. For
        Gaussian noise, it is Φ(√(ρ/2)), which integer noise with a scale far below one can exceed by 0.006
        (docs/privacy/weak.md).

        >>> round(Guarantee(epsilon=1).certainty, 3), round(Guarantee(rho=Fraction(1, 2)).certainty, 3)
        (0.731, 0.691)
        """
        if self.epsilon is not None:
            return 1 - 1 / (1 + math.exp(min(float(self.epsilon), 700.0)))
        mu = math.sqrt(2 * float(self.rho or 0))
        return 0.5 if mu == 0 else (1 + gaussian_failure(mu, 0.0)) / 2

    def times(self, steps: int) -> Guarantee:
        """Return the guarantee for c = `steps` changes: c ε or c² ρ (2014, eq. (3); Dwork and Roth, theorem 2.2)."""
        check_whole(least=0, steps=steps)
        return Guarantee(rho=self.rho * steps**2) if self.rho is not None else Guarantee(self.amount * steps)

    def approximate(self, probability: float) -> float:
        """Return the ε of the guarantee with failure probability δ_prob. A pure ε stays the same.

        For zCDP, ε is the minimum over orders α of ρ α + (ln(1/δ_prob) + (α − 1) ln(1 − 1/α) − ln α) / (α − 1)
        (Canonne, Kamath, Steinke 2020, proposition 12 at the Rényi divergences ρ α).
        """
        check_finite(above=0, below=1, probability=probability)
        if self.epsilon is not None:
            return float(self.epsilon)
        alpha = 1 + np.logspace(-3, 7, 20001)
        own, log = (alpha - 1) * np.log1p(-1 / alpha), np.log(alpha)
        value = float(self.amount) * alpha + (-math.log(probability) + own - log) / (alpha - 1)
        return max(0.0, float(value.min()))


def gaussian_epsilon(rho: float, probability: float, *, least_variance: float, draws: int) -> float:
    """Return ε for discrete Gaussian noise with ρ-zCDP and failure probability δ_prob, or ∞ if there is no proof.

    Up to a factor between e^−κ and e^κ, discrete Gaussian noise of variance σ² has the probabilities of randomly
    rounded continuous noise of variance σ² − τ². So its guarantee is that of the continuous mechanism (Balle and Wang
    2018, theorem 8) with μ² = 2ρ σ² / (σ² − τ²), at ε − 2κ and δ_prob / e^κ. Proof: docs/privacy/gaussian.md.

    rho : upper bound on the sum of (change)² / (2 σ²) over draws.
    probability : δ_prob.
    least_variance : smallest σ² of any draw. draws : number of draws.
    """
    check_positive(rho=rho)
    check_positive(probability=probability)
    best = math.inf
    for aside in (0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0):
        if aside >= least_variance:
            break
        # By Poisson summation, the rounding's normalising sums vary by 2 Σ_m exp(−2 π² τ² m²), relative to their mean.
        kappa = 2.1 * 2.0001 * math.exp(-2 * math.pi**2 * aside) * draws
        if kappa > 0.1:
            continue
        mu = math.sqrt(2 * rho * least_variance / (least_variance - aside))
        # Leave a margin for rounding, and skip τ² if it cannot improve on the best so far.
        target = probability * math.exp(-kappa) * (1 - 1e-9)
        if best == math.inf or gaussian_failure(mu, max(best - 2 * kappa, 0.0)) <= target:
            best = min(best, gaussian_curve(mu, target) + 2 * kappa)
    return best


def gaussian_curve(mu: float, probability: float) -> float:
    """Return the smallest ε with Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) ≤ probability, rounded up."""
    low, high = 0.0, 1.0
    while gaussian_failure(mu, high) > probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if not low < middle < high:  # there is no float between low and high
            break
        low, high = (middle, high) if gaussian_failure(mu, middle) > probability else (low, middle)
    return high * (1 + 1e-12)


def gaussian_failure(mu: float, epsilon: float) -> float:
    """Return the failure probability of continuous noise at ε, Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), rounded up."""
    log_ndtr = scipy.special.log_ndtr
    first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    # For small μ the two terms nearly cancel, so add a bound on their rounding errors.
    off = 4e-15 * (1 + abs(first) + abs(second) + epsilon)
    return float(math.exp(first) * (1 + 1e-12) * -math.expm1(min(second - first, 0.0) - off))
