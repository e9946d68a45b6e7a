"""Two-phase histograms: AHP and DPCube. Both group noisy counts, then measure the groups with fresh noise.

The groups are a function of the first phase's noisy counts, so the phases compose: their shares of ε add up. Groups are
disjoint, and so are the counts of the first phase. A move therefore costs each phase its share. The total is public.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from experiments.peers.noise import SENSITIVITY, add_noise

#: DPBench's share of ε for AHP's first phase and its threshold η, and DPCube's ξ₀ in variances of a noisy count.
_SHARE, _ETA, _UNEVEN = Fraction("0.85"), 0.35, 80

Floats = NDArray[np.float64]


def ahp(counts: NDArray[np.int64], epsilon: float, *, rng: np.random.Generator) -> Floats:
    """AHP (Zhang, Chen, Xu, Meng, Xie 2014, "Towards accurate histogram publication under differential privacy").

    1. Add noise to all n counts with ε₁ = 0.85 ε. Set those up to the threshold η ln(n) / ε₁ to 0.
    2. Sort the noisy counts and cut the order into clusters (`cut_sorted`).
    3. Add noise to each cluster's true sum with ε₂ = ε − ε₁, and spread the sum evenly over its cells.

    The parameters are DPBench's. Their neighbours differ by one point, so formulas use half of ε.
    """
    first = _SHARE * Fraction(epsilon)
    noisy = add_noise(counts, first, rng=rng).ravel()
    noisy[noisy <= _ETA * math.log(counts.size) / float(first / SENSITIVITY)] = 0
    order = noisy.argsort(kind="stable")
    second = Fraction(epsilon) - first
    edges = cut_sorted(noisy[order].astype(float), 2 / float(second / SENSITIVITY) ** 2)
    sums = add_noise(np.add.reduceat(counts.ravel()[order], edges[:-1]), second, rng=rng).astype(float)
    sums += (counts.sum() - sums.sum()) / len(sums)
    out = np.empty(counts.size)
    out[order] = np.repeat(sums / np.diff(edges), np.diff(edges))
    return out.reshape(counts.shape)


def cut_sorted(values: Floats, noise: float) -> NDArray[np.int64]:
    """Return the edges of clusters of sorted values, found greedily (their section 4).

    A cluster of L values costs Σ (value − mean)² + noise / L: the noise of its sum, spread over L cells. The next value
    x joins unless leaving it out is cheaper. Then x costs at least (x − mean)² + noise / L² in the best cluster that
    starts with it.
    """
    sums, lengths = np.cumsum(np.append(0, values)), np.arange(1, len(values) + 1)
    squares = np.cumsum(np.append(0, values**2))
    edges, last = [0], noise

    def cost(start: int, end: int) -> float:
        return float(squares[end] - squares[start] - ((sums[end] - sums[start]) ** 2 - noise) / (end - start))

    for at in range(1, len(values)):
        joined = cost(edges[-1], at + 1)
        if joined >= last:
            size = lengths[: len(values) - at]
            apart = (values[at] - (sums[at + 1 :] - sums[at]) / size) ** 2 + noise / size**2
            if joined >= last + apart.min():
                edges.append(at)
                joined = noise
        last = joined
    return np.array([*edges, len(values)])


def dpcube(counts: NDArray[np.int64], epsilon: float, *, rng: np.random.Generator) -> Floats:
    """DPCube (Xiao, Xiong, Fan, Goryczka, Li 2014, "DPCube: Differentially private histogram release").

    1. Add noise to all counts with half of ε, as in DPBench.
    2. Cut the map into blocks, from these noisy counts alone, as a kd-tree (`cut_evenly`).
    3. Add noise to each block's true sum with the other half.
    4. Combine both sums of a block by least squares, and spread the result evenly over its cells.

    Their threshold ξ₀ on a block's unevenness depends on the data. Here it is 80 variances of a noisy count. Of 30 to
    800, this was among the best on Twitter and taxi counts. A cut may be along either axis. The first counts are those
    of cells, as in the paper. DPBench's are 11 × 11 blocks, far too coarse for 128 × 128 cells.
    """
    share = Fraction(epsilon) / 2
    noisy = add_noise(counts, share, rng=rng)
    blocks = cut_evenly(noisy.astype(float), _UNEVEN * 2 * float(SENSITIVITY / share) ** 2)
    again = add_noise(np.array([counts[block].sum() for block in blocks]), share, rng=rng)
    first, sizes = (np.array([f(noisy[block]) for block in blocks]) for f in (np.sum, np.size))
    # The first sum of a block of L noisy counts has L times the variance of the second.
    sums = (first + sizes * again) / (1 + sizes)
    variances = sizes / (1 + sizes)
    sums += (counts.sum() - sums.sum()) * variances / variances.sum()
    out = np.empty(counts.shape)
    for block, total in zip(blocks, sums, strict=True):
        out[block] = total / out[block].size
    return out


def cut_evenly(cells: Floats, most: float) -> list[tuple[slice, slice]]:
    """Return blocks (slices) of a kd-tree: cut a block where Σ (value − mean)² falls most, if it exceeds `most`."""
    sums, squares = (np.pad(a, ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1) for a in (cells, cells**2))
    found, todo = [], [(0, cells.shape[0], 0, cells.shape[1])]
    while todo:
        x0, x1, y0, y1 = todo.pop()
        xs, ys, size = np.arange(x0 + 1, x1), np.arange(y0 + 1, y1), (x1 - x0) * (y1 - y0)
        total, square = (a[x1, y1] - a[x0, y1] - a[x1, y0] + a[x0, y0] for a in (sums, squares))
        if size == 1 or square - total**2 / size <= most:
            found.append((slice(x0, x1), slice(y0, y1)))
            continue
        left = sums[xs, y1] - sums[xs, y0] - sums[x0, y1] + sums[x0, y0]
        below = sums[x1, ys] - sums[x0, ys] - sums[x1, y0] + sums[x0, y0]
        part, share = np.append(left, below), np.append((xs - x0) / (x1 - x0), (ys - y0) / (y1 - y0))
        best = int(((part - share * total) ** 2 / (share * (1 - share))).argmax())
        if best < len(xs):
            todo += [(x0, xs[best], y0, y1), (xs[best], x1, y0, y1)]
        else:
            todo += [(x0, x1, y0, ys[best - len(xs)]), (x0, x1, ys[best - len(xs)], y1)]
    return found
