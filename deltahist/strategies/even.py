"""Arrays on a torus that are even along every axis, kept as their quarter: entries 0, ..., n // 2 of each axis."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray


def quarter_of(torus: Sequence[int]) -> tuple[slice, ...]:
    """The part of a torus that says all of an even array."""
    return tuple(slice(0, n // 2 + 1) for n in torus)


def spread(quarter: NDArray[Any], torus: Sequence[int]) -> NDArray[Any]:
    """The whole array of a quarter, equal to the last bit on both sides of every axis."""
    return quarter[np.ix_(*(np.minimum(np.arange(n), n - np.arange(n)) for n in torus))]


def often(torus: Sequence[int]) -> NDArray[np.float64]:
    """How many entries of the torus each entry of the quarter stands for."""
    counts = []
    for n in torus:
        times = np.full(n // 2 + 1, 2.0)
        times[0] = 1.0
        if n % 2 == 0:
            times[-1] = 1.0
        counts.append(times)
    return functools.reduce(np.multiply.outer, counts)


def cosines(quarter: NDArray[np.float64], torus: Sequence[int]) -> NDArray[np.float64]:
    """The Fourier transform of an even array, which is real and even as well, from quarter to quarter."""
    out = quarter
    for axis, n in enumerate(torus):
        if n % 2 == 0:
            out = scipy.fft.dct(out, 1, axis=axis)
        else:
            index = np.minimum(np.arange(n), n - np.arange(n))
            out = scipy.fft.rfft(np.take(out, index, axis), axis=axis).real
    return np.asarray(out)
