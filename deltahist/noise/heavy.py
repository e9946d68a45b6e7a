"""Heavy-tailed real noise, rounded to the lattice exactly: for scales that depend on the data.

Discrete noise needs a scale that may be known. Smooth sensitivity may not, so that x + S Z is drawn as a real
number and rounded. Z is a function of uniform reals, of which as many bits are drawn as decide the rounded value.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction

from deltahist.errors import InputError, one_of
from deltahist.noise.entropy import Words

#: Bits that are drawn of each uniform real at first, and again whenever they do not decide.
_BITS = 64

#: Bounds of a real number.
_Interval = tuple[Decimal, Decimal]


class _Real:
    """A uniform real in [0, 1), more of whose bits are drawn when they are needed."""

    def __init__(self, words: Words) -> None:
        self._words, self._value, self._bits = words, 0, 0
        self.refine()

    def refine(self) -> None:
        """Draw more bits."""
        self._value = self._value << _BITS | int(self._words.words(1)[0])
        self._bits += _BITS

    @property
    def bounds(self) -> _Interval:
        """The interval that the bits so far leave open."""
        unit = Decimal(2) ** -self._bits
        return self._value * unit, (self._value + 1) * unit


def student(words: Words) -> Iterator[_Interval]:
    """Student's t with two degrees of freedom, by inversion: P √(2 / (1 − P²)) for uniform P in (−1, 1)."""
    uniform = _Real(words)
    while True:
        low, high = (2 * u - 1 for u in uniform.bounds)
        if low > -1 and high < 1:
            yield _widened(_student(low), _student(high))
        uniform.refine()


def _student(p: Decimal) -> Decimal:
    return p * (2 / ((1 - p) * (1 + p))).sqrt()


def laplace(words: Words) -> Iterator[_Interval]:
    """Laplace of scale 1: a random sign and −ln U."""
    sign = _sign(words)
    uniform = _Real(words)
    while True:
        if uniform.bounds[0] > 0:
            low, high = _logarithm(uniform.bounds)
            yield _signed(sign, _widened(-high, -low))
        uniform.refine()


def lognormal(sigma: Fraction, words: Words) -> Iterator[_Interval]:
    """Laplace times e^(σ Y) with a standard normal Y (Bun and Steinke 2019)."""
    magnitude, normal = laplace(words), _normal(words)
    while True:
        exponent = decimal.Decimal(sigma.numerator) / decimal.Decimal(sigma.denominator)
        (low, high), (least, most) = next(magnitude), next(normal)
        factors = _widened(*_exponential((exponent * least, exponent * most)), absolute=False)
        ends = [z * f for z in (low, high) for f in factors]
        yield _widened(min(ends), max(ends))


def _normal(words: Words) -> Iterator[_Interval]:
    """Draw a standard normal by the polar method: u √(−2 ln s / s), (u, v) in the unit disc, s = u² + v²."""
    while True:
        pair = _Real(words), _Real(words)
        while True:
            u, v = ((2 * r.bounds[0] - 1, 2 * r.bounds[1] - 1) for r in pair)
            low, high = (a + b for a, b in zip(_square(u), _square(v), strict=True))
            if low >= 1:
                break
            if high < 1 and low > 0:
                # ln s / s rises with s below 1.
                least, most = _logarithm((low, high))
                factors = _widened((max(-2 * most, Decimal(0)) / high).sqrt(), (-2 * least / low).sqrt())
                ends = [a * f for a in u for f in factors]
                yield _widened(min(ends), max(ends))
            for real in pair:
                real.refine()


def _logarithm(x: _Interval) -> _Interval:
    """Bounds of ln x for x above zero, from one logarithm: ln(low + w) ≤ ln(low) + w/low."""
    low = x[0].ln()
    return low, low + (x[1] - x[0]) / x[0]


def _exponential(x: _Interval) -> _Interval:
    """Bound e^x; over a short interval from one exponential: e^(low + w) ≤ e^low / (1 − w) for w < 1."""
    low, width = x[0].exp(), x[1] - x[0]
    return low, low / (1 - width) if width < 1 else x[1].exp()


def _square(x: _Interval) -> _Interval:
    low, high = sorted((x[0] * x[0], x[1] * x[1]))
    return (Decimal(0) if x[0] < 0 < x[1] else low), high


def _sign(words: Words) -> int:
    return 1 if int(words.words(1)[0]) & 1 else -1


def _signed(sign: int, x: _Interval) -> _Interval:
    return x if sign > 0 else (-x[1], -x[0])


def _widened(low: Decimal, high: Decimal, absolute: bool = True) -> _Interval:
    """Bounds with room for the rounding of a few decimal operations."""
    digits = decimal.getcontext().prec - 10
    slack = max(abs(low), abs(high)).scaleb(-digits)
    if absolute:
        slack += Decimal(1).scaleb(-digits)
    return low - slack, high + slack


def rounded(
    kind: str, centre: int, scale: Fraction, words: Words, *, sigma: Fraction = Fraction(1, 2)
) -> int:
    """Return the whole number nearest to centre + scale · Z, exactly.

    Parameters
    ----------
    kind : "student" (two degrees of freedom), "laplace" or "lognormal", the law of Z.
    centre : a whole number. scale : above zero.
    words : random words.
    sigma : of the log-normal factor.

    Raises
    ------
    InputError
        On another kind, or a scale that is not above zero: the value would come out without noise.
    """
    one_of(("student", "laplace", "lognormal"), kind=kind)
    if not scale > 0:
        raise InputError(f"scale is {scale}: it must be above zero, or nothing hides the value")
    laws: dict[str, Callable[[], Iterator[_Interval]]] = {
        "student": lambda: student(words),
        "laplace": lambda: laplace(words),
        "lognormal": lambda: lognormal(sigma, words),
    }
    # Uniform reals of so many bits are exact decimals; what follows is rounded far below their spacing.
    digits = 2 * _BITS + 40
    context = decimal.Context(prec=digits, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
    with decimal.localcontext(context) as inner:
        for low, high in laws[kind]():
            least, most = (math.floor(centre + scale * Fraction(z) + Fraction(1, 2)) for z in (low, high))
            if least == most:
                return least
            inner.prec += _BITS
    raise AssertionError("noise never ends")
