"""Exact coins of any rational chance, and integer Laplace noise that is made finer bit by bit of budget."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.noise.discrete import _BLOCK, _complement, _geometric, _ratio
from deltahist.noise.entropy import Words
from deltahist.noise.exact import _TABLE_BITS, Bounds, certified, exp_bounds, less_than


def coins(chances: Sequence[Fraction], which: NDArray[np.uint8], words: Words) -> NDArray[np.bool_]:
    """Independent coins: the one at i comes up with probability chances[which[i]], exactly.

    Parameters
    ----------
    chances : rationals from 0 to 1. which : numbers of chances, any shape. words : random words.

    Returns
    -------
    bool array, of the shape of `which`.

    >>> from deltahist.noise.entropy import source
    >>> coins([Fraction(0), Fraction(1)], np.array([[0, 1], [1, 0]], dtype=np.uint8), source(None))
    array([[False,  True],
           [ True, False]])
    """
    return _coins([functools.partial(_rational_bounds, chance) for chance in chances], which, words)


def _coins(chances: Sequence[Bounds], which: NDArray[np.uint8], words: Words) -> NDArray[np.bool_]:
    """The same for reals that are known by bounds."""
    thresholds = certified([b(_TABLE_BITS) for b in chances], lambda k, bits: chances[k](bits))
    flat, out = which.reshape(-1), np.empty(which.size, dtype=bool)
    for start in range(0, flat.size, _BLOCK):
        chosen = flat[start : start + _BLOCK]
        word, threshold = words.words(len(chosen)), thresholds[chosen]
        part = word < threshold
        # A word that equals the chance's first bits does not say on which side of it the real lies.
        for i in np.flatnonzero(word == threshold):
            part[i] = less_than(int(word[i]), chances[chosen[i]], words)
        out[start : start + _BLOCK] = part
    return out.reshape(which.shape)


def _rational_bounds(chance: Fraction, bits: int) -> tuple[int, int]:
    scaled = chance.numerator << bits
    return scaled // chance.denominator, -(-scaled // chance.denominator)


def finer_laplace(
    coarse: NDArray[np.int64], scale: Fraction, finer: Fraction, words: Words
) -> NDArray[np.int64]:
    """Integer Laplace noise of a smaller scale of which `coarse` is the coarser version.

    With p = e^(−1/scale) and r = e^(−1/finer), coarse noise is fine noise plus, but for a probability, integer Laplace
    noise of parameter p. Backwards: i is kept with probability (r/p)^(|i| + 1) (1 − p²)/(1 − r²), else j is drawn with
    weight r^|j| p^|i − j| (Koufogiannis, Han and Pappas 2015, theorem 12, on the integers; docs/privacy/rappor.md).

    Parameters
    ----------
    coarse : of `scale`, any shape; private. scale, finer : the scales, finer ≤ scale.
    words : random words.

    Raises
    ------
    InputError
        If the scale would grow.

    >>> from deltahist.noise.entropy import source
    >>> finer_laplace(np.array([3, 0]), Fraction(2), Fraction(1, 1000), source(None))
    array([0, 0])
    """
    if finer > scale:
        raise InputError(f"scale is {float(finer):g}, and was {float(scale):g}: it must not grow")
    if finer == scale:
        return coarse.copy()
    size, sign = np.abs(coarse.reshape(-1)), np.where(coarse.reshape(-1) < 0, -1, 1)
    rate, fine_rate = 1 / scale, 1 / finer
    slow, fast = 1 / (fine_rate - rate), 1 / (fine_rate + rate)
    kept = _heads(2 * rate, 2 * fine_rate, len(size), words)
    kept &= _geometric(slow, len(size), words) > size
    out, left = size.copy(), np.flatnonzero(~kept)
    while len(left):
        # Offers fall like (r/p)^j above zero and (r p)^−j below it. Beyond i the weights fall faster, by p² a step.
        above = _heads(rate + fine_rate, 2 * fine_rate, len(left), words)
        offer = np.where(above, _geometric(slow, len(left), words), -1 - _geometric(fast, len(left), words))
        taken = _geometric(scale / 2, len(left), words) >= offer - size[left]
        out[left[taken]] = offer[taken]
        left = left[~taken]
    return (out * sign).reshape(coarse.shape)


def _heads(above: Fraction, below: Fraction, number: int, words: Words) -> NDArray[np.bool_]:
    """Coins of chance (1 − e^(−above)) / (1 − e^(−below)), above ≤ below."""

    def bounds(bits: int) -> tuple[int, int]:
        # Small rates lose as many bits as their exponentials are near to one.
        more = bits + 64 + max(0, -2 * _magnitude(above))
        part, whole = (_complement(exp_bounds(x, more), more) for x in (above, below))
        return _ratio(part, whole, bits)

    return _coins([bounds], np.zeros(number, dtype=np.uint8), words)


def _magnitude(x: Fraction) -> int:
    """About log2 x."""
    return x.numerator.bit_length() - x.denominator.bit_length()
