"""Arithmetic on a torus: exact convolution of whole numbers, and cosine transforms of a quarter."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.errors import InputError

Whole = NDArray[np.int64]
#: Bound of a transform's relative error per doubling of its length, in units of the float's precision.
_PER_LEVEL = 8
#: Errors below this leave the nearest whole number without doubt.
_SURE = 0.25
#: Entries that are squared at once.
_AT_ONCE = 1 << 16
#: Binary digits that are tried where numbers are too long as they stand.
_SHORTER = (31, 21, 16, 13, 11, 9, 8, 7, 6, 5)


def convolve(kernel: Whole, field: NDArray[Any]) -> NDArray[Any]:
    """Return the circular convolution of two arrays of one shape: exact for integers, else as exact as floats are.

    Whole numbers are cut into digits so short that the transforms' error stays under a quarter; sums of
    products of digits, rounded, are then exact. Raises InputError if a result could exceed 64 bits.
    """
    if field.dtype.kind == "f":
        return np.asarray(scipy.fft.irfftn(_transform(kernel) * _transform(field), field.shape))
    if float(np.abs(kernel).max()) * float(np.abs(field).sum(dtype=np.float64)) >= 2.0**62:
        raise InputError("sums of counts times the strategy's rows exceed 64 bits: there are too many points")
    longest = 1 + max(int(np.abs(part).max(initial=0)).bit_length() for part in (kernel, field))
    for bits in (longest, *(bits for bits in _SHORTER if bits < longest)):
        left, right = _digits(kernel, bits), _digits(field, bits)
        # Without a transform first: a spectrum's mean square is the sum of squares, its largest entry no less.
        if max(_error(a, _norm(a), b) for a in left for b in right) >= _SURE:
            continue
        spectra = [_transform(d) for d in left]
        highest = [float(np.abs(spectrum).max()) for spectrum in spectra]
        if all(_error(a, high, b) < _SURE for a, high in zip(left, highest, strict=True) for b in right):
            break
    else:
        raise InputError(f"a torus of {field.size:,} cells is too large for exact sums: use fewer cells")
    out = np.zeros(field.shape, dtype=np.int64)
    for j, b in enumerate(right):
        other = _transform(b)
        for i, spectrum in enumerate(spectra):
            found = scipy.fft.irfftn(spectrum * other, field.shape)
            out += np.rint(found).astype(np.int64) << (bits * (i + j))
    return out


def squared_distance(kernel: Whole, move: Sequence[int] | None) -> int:
    """Return the exact Σ (k(w) − k(w − move))², or Σ k(w)² without a move."""
    step = max(1, _AT_ONCE * len(kernel) // kernel.size)
    total = 0
    for start in range(0, len(kernel), step):
        change = kernel[start : start + step]
        if move is not None:
            from_where = np.arange(start, start + len(change)) - move[0]
            moved = kernel.take(from_where, axis=0, mode="wrap")
            change = change - np.roll(moved, move[1:], range(1, kernel.ndim))
        total += _sum_of_squares(change.ravel())
    return total


def _sum_of_squares(numbers: Whole) -> int:
    """Return the exact sum of squares, in floats if it is small enough for these to stay whole."""
    plain = numbers.astype(np.float64)
    found = float(plain @ plain)
    if found < 2.0**52:
        return int(found)
    if float(np.abs(plain).max()) >= 2.0**31:
        raise InputError("the strategy's rows are too large: entries must be below 2^30")
    square = numbers * numbers
    return (int((square >> 32).sum()) << 32) + int((square & 0xFFFFFFFF).sum())


def _transform(field: NDArray[Any]) -> NDArray[np.complex128]:
    return np.asarray(scipy.fft.rfftn(field.astype(np.float64, copy=False)))


def _digits(field: Whole, bits: int) -> list[Whole]:
    """Return signed digits in base 2^bits, lowest first; at least one."""
    out: list[Whole] = []
    rest, half = field, np.int64(1) << (bits - 1)
    while not out or rest.any():
        low = ((rest + half) & ((half << 1) - 1)) - half
        out.append(low)
        rest = (rest - low) >> bits
    return out


def _error(a: Whole, highest: float, b: Whole) -> float:
    """Return the bound of the largest error of a ∗ b: three transforms, each with a relative error in the 2-norm.

    `highest` is the largest entry of the spectrum of a.
    """
    return relative_error(a.size) * _norm(b) * (2 * _norm(a) + highest)


def _norm(digits: Whole) -> float:
    return math.sqrt(float(np.square(digits, dtype=np.float64).sum()))


def relative_error(size: int) -> float:
    """Return the bound of a transform's relative error in the 2-norm."""
    return float(_PER_LEVEL * max(1.0, math.log2(size)) * np.finfo(np.float64).eps)


def quarter_of(torus: Sequence[int]) -> tuple[slice, ...]:
    """Return the part of a torus that says all of an even array."""
    return tuple(slice(0, n // 2 + 1) for n in torus)


def spread(quarter: NDArray[Any], torus: Sequence[int]) -> NDArray[Any]:
    """Return the whole array of a quarter, equal to the last bit on both sides of every axis."""
    return quarter[np.ix_(*(np.minimum(np.arange(n), n - np.arange(n)) for n in torus))]


def multiplicities(torus: Sequence[int]) -> NDArray[np.float64]:
    """Return how many entries of the torus each entry of the quarter stands for."""
    places = (np.minimum(np.arange(n), n - np.arange(n)) for n in torus)
    return functools.reduce(np.multiply.outer, [np.bincount(place).astype(np.float64) for place in places])


def cosines(quarter: NDArray[np.float64], torus: Sequence[int]) -> NDArray[np.float64]:
    """Return the Fourier transform of an even array, which is real and even as well, from quarter to quarter."""
    out = quarter
    for axis, n in enumerate(torus):
        if n % 2 == 0:
            out = scipy.fft.dct(out, 1, axis=axis)
        else:
            index = np.minimum(np.arange(n), n - np.arange(n))
            out = scipy.fft.rfft(np.take(out, index, axis), axis=axis).real
    return np.asarray(out)
