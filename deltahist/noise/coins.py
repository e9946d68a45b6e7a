"""Exact coins of any rational chance."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deltahist.noise.entropy import Words
from deltahist.noise.exact import TABLE_BITS, certified, less_than

#: Coins thrown at a time, so that the working memory does not grow with the array.
_BLOCK = 1 << 20


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
    bounds = [functools.partial(_rational_bounds, chance) for chance in chances]
    thresholds = certified([b(TABLE_BITS) for b in bounds], lambda k, bits: bounds[k](bits))
    flat, out = which.reshape(-1), np.empty(which.size, dtype=bool)
    for start in range(0, flat.size, _BLOCK):
        chosen = flat[start : start + _BLOCK]
        word, threshold = words.words(len(chosen)), thresholds[chosen]
        part = word < threshold
        # A word that equals the chance's first bits does not say on which side of it the real lies.
        for i in np.flatnonzero(word == threshold):
            part[i] = less_than(int(word[i]), bounds[chosen[i]], words)
        out[start : start + _BLOCK] = part
    return out.reshape(which.shape)


def _rational_bounds(chance: Fraction, bits: int) -> tuple[int, int]:
    scaled = chance.numerator << bits
    return scaled // chance.denominator, -(-scaled // chance.denominator)
