"""Power spectra of workloads on a torus: what a translation-invariant strategy knows of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deltahist.space.domain import Domain
from deltahist.space.workloads.ranges import AllRanges, Boxes, same_domain

if TYPE_CHECKING:
    from deltahist.space.workloads.polygons import Regions

#: Regions of a longer list are thinned out to this many.
_MOST_REGIONS = 64


def power(
    work: Boxes | AllRanges | Regions | None, domain: Domain, torus: tuple[int, ...]
) -> NDArray[np.float64]:
    """Mean |q̂(ω)|² of the queries over the frequencies of a torus, mirrored along every axis.

    Parameters
    ----------
    work : the queries; all ranges when None. Sizes of boxes are rounded to whole cells.
    domain : of the queries. torus : cells along each axis.
    """
    if work is None or isinstance(work, AllRanges):
        if work is not None:
            same_domain(domain, work.domain)
        axes = [_all_lengths(n, _frequencies(p)) for n, p in zip(domain.shape, torus, strict=True)]
    elif isinstance(work, Boxes):
        return _of_boxes(work, domain, torus)
    else:
        return _of_regions(work, domain, torus)
    return axes[0] if len(axes) == 1 else np.multiply.outer(*axes)


def _frequencies(p: int) -> NDArray[np.float64]:
    return 2 * np.pi * np.arange(p) / p


def _all_lengths(n: int, omega: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of |q̂|² over all intervals of n cells, through Fejér's kernel.

    For an interval of l cells, |q̂|² = (1 − cos lω) / (1 − cos ω).
    """
    out = np.full(len(omega), (n + 1) * (n + 2) / 6)
    half = omega[1:] / 2
    fejer = np.sin((n + 1) * half) ** 2 / np.sin(half) ** 2
    out[1:] = ((n + 1) ** 2 - fejer) / (4 * np.sin(half) ** 2) / (n * (n + 1) / 2)
    return out


def _of_boxes(work: Boxes, domain: Domain, torus: tuple[int, ...]) -> NDArray[np.float64]:
    sides = [np.maximum(np.rint(high - low), 1).astype(np.int64) for low, high in work.spans(domain)]
    kinds = [np.unique(side, return_inverse=True) for side in sides]
    each = [_of_length(lengths, _frequencies(p)) for (lengths, _), p in zip(kinds, torus, strict=True)]
    if len(each) == 1:
        return np.asarray(np.bincount(kinds[0][1]) @ each[0] / len(work))
    (first, i), (second, j) = kinds
    number = np.bincount(i * len(second) + j, minlength=len(first) * len(second))
    return np.asarray(each[0].T @ number.reshape(len(first), len(second)) @ each[1] / len(work))


def _of_length(lengths: NDArray[np.int64], omega: NDArray[np.float64]) -> NDArray[np.float64]:
    """|q̂|² of intervals (lengths, frequencies)."""
    out = np.empty((len(lengths), len(omega)))
    out[:, 0] = lengths.astype(np.float64) ** 2
    out[:, 1:] = np.sin(np.multiply.outer(lengths, omega[1:] / 2)) ** 2 / np.sin(omega[1:] / 2) ** 2
    return out


def _of_regions(work: Regions, domain: Domain, torus: tuple[int, ...]) -> NDArray[np.float64]:
    rows = work.matrix(domain)
    out = np.zeros(torus)
    chosen = range(0, rows.shape[0], -(-rows.shape[0] // _MOST_REGIONS))
    for i in chosen:
        cells = np.unravel_index(rows[[i]].indices, domain.shape)
        field = np.zeros(torus)
        # Cells a torus apart have the same phase at its frequencies.
        np.add.at(field, tuple(c % p for c, p in zip(cells, torus, strict=True)), rows[[i]].data)
        out += np.abs(np.fft.fftn(field)) ** 2
    for axis in range(out.ndim):
        out = (out + np.roll(np.flip(out, axis), 1, axis)) / 2
    return out / len(chosen)
