"""Central intervals for answers: normal, corrected for heavy tails, and exact on the whole numbers."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.moments import Moments
from deltahist.errors import InputError, is_number
from deltahist.privacy import Law

#: Sums of integer noise with a standard deviation up to this one are treated with their exact law.
_MOST_EXACT = 4.0


def interval(moments: Moments, law: Law, level: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How far an interval of a given level reaches below and above each estimate.

    The normal (or Student's) quantile with the Cornish-Fisher correction for the excess kurtosis of
    symmetric noise, z + κ (z³ − 3 z) / 24: single Laplace draws need wider intervals than sums of many.

    Where the noise is a sum of whole draws (`moments.draws`) the interval holds a whole number of integers.
    The number whose probability is nearest the level is taken; an even one reaches one further up than
    down, since a symmetric interval could miss the level by twice as much.

    Parameters
    ----------
    moments : of the answers. law : of a single draw. level : between 0 and 1.
    """
    probability = (1 + level) / 2
    z = -NormalDist().inv_cdf((1 - level) / 2)
    start = z if np.isinf(moments.freedom) else float(scipy.special.stdtrit(moments.freedom, probability))
    # No law needs more than Chebyshev's bound; draws that are nearly always 0 have a huge kurtosis.
    most = 1 / math.sqrt(1 - level)
    # Below z = √3 the correction is negative; where draws are nearly always 0, more so than the quantile is positive.
    half = np.clip(start + moments.kurtosis * ((z**3 - 3 * z) / 24), 0.0, most) * np.sqrt(moments.variance)
    down, up = half.copy(), half.copy()
    if moments.draws is None:
        return down, up
    whole = np.flatnonzero(moments.draws > 0)
    held = np.maximum(np.rint(2 * half[whole]), 1.0)
    draws = moments.draws[whole]
    few = draws * law.variance() <= _MOST_EXACT**2
    numbers, place = np.unique(draws[few], return_inverse=True)
    held[few] = np.array([_integers_held(law, int(n), level) for n in numbers])[place] if len(numbers) else 0
    down[whole] = (held - 1) // 2 + 0.5
    up[whole] = held // 2 + 0.5
    return down, up


@functools.lru_cache(maxsize=4096)
def _integers_held(law: Law, draws: int, level: float) -> int:
    """How many integers around 0 have a probability nearest `level`, for the sum of so many draws."""
    size = 1024
    k = np.minimum(np.arange(size), size - np.arange(size)).astype(np.float64)
    weight = law.weights(k)
    transform = np.fft.rfft(weight / weight.sum())
    pmf = np.fft.irfft(transform**draws, size)
    # 0, 1, −1, 2, −2, ...: the sets that grow by the likeliest integer each time
    order = np.empty(size - 1, dtype=np.int64)
    order[0] = 0
    order[1::2] = np.arange(1, size // 2)
    order[2::2] = -np.arange(1, size // 2)
    held = np.cumsum(pmf[order])
    return int(np.argmin(np.abs(held - level))) + 1


def check_level(level: float) -> None:
    """Raise InputError unless the level of an interval lies between 0 and 1."""
    if not is_number(level) or not 0 < level < 1:
        hint = " (a percentage?)" if is_number(level) and 1 < level <= 100 else ""
        raise InputError(f"level is {level!r}: it must lie between 0 and 1, such as 0.95{hint}")
