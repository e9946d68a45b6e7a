"""Noisy bits, and when one is a coarser version of another: binary channels, and Laplace noise cut at a threshold.

A channel says how often a 0 and a 1 are reported as 1. A coarser channel that is a finer one followed by something
that never looks at the true bit tells nothing beyond the finer one (docs/privacy/rappor.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from deltahist.errors import InputError, is_number, positive, whole

#: Lattice steps between the two values of a bit in `Threshold`: odd, so that no step lies on ½.
STEPS = (1 << 16) + 1
#: ε of a threshold is a multiple of this.
_UNIT = 1 << 40


@dataclass(frozen=True)
class Channel:
    """A binary channel: zero is P(1 | 0), one is P(1 | 1); InputError on anything but probabilities.

    Flips one of a quarter and one of an eighth: the first is the second, flipped again with probability 1/6.

    >>> Channel.flips(Fraction(1, 4)).remainder(Channel.flips(Fraction(1, 8)))
    Channel(zero=Fraction(1, 6), one=Fraction(5, 6))
    """

    zero: Fraction
    one: Fraction

    def __post_init__(self) -> None:
        for name in ("zero", "one"):
            object.__setattr__(self, name, probability(**{name: getattr(self, name)}))

    @classmethod
    def flips(cls, chance: Fraction) -> Channel:
        """Return the channel that flips either bit with the same probability."""
        return cls(chance, 1 - chance)

    @property
    def channel(self) -> Channel:
        """The channel itself, as a threshold has one."""
        return self

    @property
    def log_odds(self) -> float:
        """Cost of a 1 and a 0 together: ln(one (1 − zero) / (zero (1 − one))), for 0 < zero ≤ one < 1."""
        odds = self.one * (1 - self.zero) / (self.zero * (1 - self.one))
        if odds > 1 << 1000:
            return math.log(odds.numerator) - math.log(odds.denominator)
        return math.log1p(float(odds - 1))

    @property
    def exact(self) -> bool:
        """Whether it reports the true bit."""
        return self.zero == 0 and self.one == 1

    def then(self, after: Channel) -> Channel:
        """Return this channel followed by another one."""
        rise = after.one - after.zero
        return Channel(after.zero + rise * self.zero, after.zero + rise * self.one)

    def remainder(self, finer: Channel) -> Channel:
        """Return the channel that makes this one of a finer one: `finer.then(...)` is this channel.

        Solved from P(1 | 0) and P(1 | 1). Its probabilities are between 0 and 1 exactly if neither a reported 1 nor a
        reported 0 tells more here than in the finer channel, as a ratio of likelihoods; else InputError.
        """
        if finer.zero == finer.one and self.zero == self.one:
            return self if self != finer else Channel(Fraction(0), Fraction(1))
        by_one = self.one * finer.zero <= finer.one * self.zero
        by_zero = (1 - self.zero) * (1 - finer.one) <= (1 - finer.zero) * (1 - self.one)
        if finer.one <= finer.zero or self.one < self.zero or not (by_one and by_zero):
            raise InputError(
                f"a reported {0 if by_one else 1} would tell less of the true bit than it has told: what was told "
                "cannot be taken back"
            )
        rise = finer.one - finer.zero
        return Channel(
            (self.zero * finer.one - self.one * finer.zero) / rise,
            (self.one * (1 - finer.zero) - self.zero * (1 - finer.one)) / rise,
        )

    def refining(self, coarse: Channel) -> tuple[Fraction, ...]:
        """Return P(this channel's bit is 1 | true bit x, coarser channel's bit y) at 2x + y, by Bayes.

        Where x never gives y, the chance is that of x alone.

        >>> Channel.flips(Fraction(1, 8)).refining(Channel.flips(Fraction(1, 4)))
        (Fraction(1, 36), Fraction(5, 12), Fraction(7, 12), Fraction(35, 36))
        """
        after = coarse.remainder(self)
        chances = []
        for one in (self.zero, self.one):
            for given_zero, given_one in ((1 - after.zero, 1 - after.one), (after.zero, after.one)):
                seen = (1 - one) * given_zero + one * given_one
                chances.append(one * given_one / seen if seen else one)
        return tuple(chances)


@dataclass(frozen=True)
class Threshold:
    """A bit plus Laplace noise, cut at a threshold; on a lattice, so that it is exact.

    A bit b stands at b · `steps`; two-sided geometric noise of scale steps/ε is added, and 1 is reported from `at` on.
    As the lattice gets finer this is 1[b + V ≥ at/steps] with V ~ Laplace(1/ε) (docs/rappor.md). To know the noisy
    number costs ε per bit.
    """

    epsilon: Fraction
    at: int
    steps: int = STEPS

    def __post_init__(self) -> None:
        positive(epsilon=self.epsilon)
        whole(steps=self.steps)

    @classmethod
    def near(cls, channel: Channel) -> Threshold:
        """Make the threshold of a channel's probabilities; InputError if they are 0, 1 or as good as equal.

        One that flips both bits alike is met within 10⁻¹¹, of others P(1 | 0) and P(0 | 1) by a factor within
        1 ± ε / `STEPS`.
        """
        zero, one = channel.zero, channel.one
        half, low, high = Fraction(1, 2), float(zero), float(1 - one)
        if not (low > 0 and zero < one and high > 0):
            raise InputError(
                f"a bit is reported as 1 with probability {float(zero):g} and {float(one):g}: with Laplace noise that "
                "is cut, 0 < p < q < 1 (p = 0 with q = 1 stands for no noise)"
            )
        if zero < half < one:
            # The tails are a^at/(1 + a) and a^(steps + 1 − at)/(1 + a) for a = e^(−ε/steps).
            rate = -math.log(4 * low * high)
            lean = math.log(high / low)
        else:
            # Both beyond the threshold on one side: their ratio is e^ε.
            rate = math.log(float(one / zero if one <= half else (1 - zero) / (1 - one)))
            lean = 2 * (-math.log(2 * low) if one <= half else rate + math.log(2 * high)) - rate
        # 2 cosh(ε / (2 steps)) √(low · high) = e^(−ε/2): two rounds suffice, ε/steps being small.
        epsilon = rate
        for _ in range(3 if zero < half < one else 0):
            epsilon = rate - 2 * math.log(math.cosh(epsilon / (2 * STEPS)))
        exact = Fraction(math.floor(epsilon * _UNIT), _UNIT)
        if not exact > 0:
            raise InputError(f"a bit is reported as 1 with probability {low:.9g} and {float(one):.9g}: too much alike")
        return cls(exact, round((STEPS + lean / epsilon * STEPS + 1) / 2 if lean else (STEPS + 1) / 2))

    @property
    def scale(self) -> Fraction:
        """Scale of the integer noise."""
        return self.steps / Fraction(self.epsilon)

    @property
    def exact(self) -> bool:
        return False

    @property
    def channel(self) -> Channel:
        """How often either bit is reported as 1, to the last digits of floats."""
        return Channel(*(self._beyond(self.at - b * self.steps) for b in (0, 1)))

    def _beyond(self, least: int) -> Fraction:
        """Return P(noise ≥ least); a probability near 1 is as exact as its complement."""
        rate = float(self.epsilon) / self.steps
        if least <= 0:
            return 1 - self._beyond(1 - least)
        return Fraction(math.exp(-rate * least) / (1 + math.exp(-rate)))


def probability(**parameter: Fraction | float) -> Fraction:
    """Return the one keyword's value as an exact fraction; InputError unless it is from 0 to 1."""
    ((name, value),) = parameter.items()
    if not is_number(value) or not 0 <= value <= 1:
        raise InputError(f"{name} is {value!r}: it must be a probability, from 0 to 1")
    return Fraction(value)
