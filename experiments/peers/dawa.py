"""DAWA in 2-D (Li, Hay, Miklau 2014, "A data- and workload-aware algorithm for range queries").

Cells follow a Hilbert curve. A quarter of ε chooses buckets of even counts; the rest measures them by GreedyH. The
noise consists of floats, as in the paper: use it to measure errors, not to publish.

The cost of a bucket of L cells, Σ |count − mean|, changes by up to 2 − 2/L when a point is added or removed: its own
term by up to 1 − 1/L, the other L − 1 terms by up to 1/L each. The chosen partition stays the cheapest if the noise of
its bucket at that point falls by this change plus the largest change of any other bucket. So every bucket needs noise
of scale (2 − 2/L + 2 − 2/n) / ε₁, even a single cell.

DPBench draws half of this noise, none for single cells, and raises noisy costs to 1/ε₂. Its guarantee fails: on four
empty cells with ε₂ ≤ 1, a point added to the second cell multiplies the chance of four buckets by e^(2.6 ε₁). Twice
its noise is not enough: on eight cells a point in the fourth multiplies the chance of eight buckets by e^(3.07 ε₁).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from deltahist import Domain
from deltahist.space.workloads import all_ranges
from experiments.peers.noise import SENSITIVITY

#: The partition's share of ε (as in their experiments and DPBench), the workload's sample size, shares tried at a node.
_PARTITION, _QUERIES, _SHARES = 0.25, 1000, np.arange(100) / 100

Floats = NDArray[np.float64]


def dawa(counts: NDArray[np.int64], epsilon: float, *, rng: np.random.Generator, shipped: bool = False) -> Floats:
    """Partition the curve, measure the buckets, and spread each evenly over its cells; the total is public.

    `shipped` draws the partition's noise as DPBench does. This does not give ε-differential privacy.
    """
    xs, ys = hilbert_curve(counts.shape).T
    line = counts[xs, ys].astype(np.float64)
    # A move removes a point and adds one.
    first, second = (share * epsilon / SENSITIVITY for share in (_PARTITION, 1 - _PARTITION))
    edges = least_cost(noisy_costs(line, first, second, rng=rng, shipped=shipped))
    widths = np.diff(edges)
    queries = np.add.reduceat(_sample_workload(counts.shape), edges[:-1], axis=1, dtype=np.float64) / widths
    buckets = greedy_h(np.add.reduceat(line, edges[:-1]), queries, second, rng=rng)
    out = np.empty(counts.shape)
    out[xs, ys] = np.repeat(buckets / widths, widths)
    return out


@lru_cache(1)
def hilbert_curve(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the cells (n, 2) along a Hilbert curve through the enclosing square."""
    cells, n = np.zeros((1, 2), dtype=np.int64), 1
    while n < max(shape):
        x, y = cells.T
        parts = ((y, x), (x, y + n), (x + n, y + n), (2 * n - 1 - y, n - 1 - x))
        cells, n = np.concatenate([np.stack(part, axis=1) for part in parts]), 2 * n
    return cells[(cells < shape).all(axis=1)]


@lru_cache(1)
def _sample_workload(shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return random rectangles (queries, n) along the curve."""
    domain = Domain((0, 0, *shape), shape)
    spans: Any = all_ranges(domain).sample(_QUERIES, 1).spans(domain)
    inside = [
        (at >= low[:, None]) & (at < high[:, None])
        for at, (low, high) in zip(hilbert_curve(shape).T, spans, strict=True)
    ]
    return inside[0] & inside[1]


@lru_cache(2)
def _deviations(line: bytes) -> list[Floats]:
    """Return Σ |count − mean| of all intervals of length 1, 2, 4, …, by their start."""
    counts = np.frombuffer(line)
    out = []
    for length in 2 ** np.arange(len(counts).bit_length()):
        windows = sliding_window_view(counts, length)
        chunks = np.array_split(windows, -(-windows.size // 10**6))
        out.append(np.concatenate([np.abs(w - w.mean(axis=1, keepdims=True)).sum(axis=1) for w in chunks]))
    return out


def noisy_costs(
    line: Floats, first: float, second: float, *, rng: np.random.Generator, shipped: bool = False
) -> list[Floats]:
    """Return noisy costs of all intervals of length 2^k: deviation, and the noise 1 / `second` of a measured bucket."""
    out = []
    for level, deviation in enumerate(_deviations(line.tobytes())):
        scale = (4 - 2 / 2**level - 2 / len(line)) / first
        if shipped:
            scale *= 0.5 if level else 0
        cost = deviation + 1 / second + rng.laplace(0, scale, len(deviation))
        out.append(np.maximum(cost, 1 / second) if shipped else cost)
    return out


def least_cost(costs: list[Floats]) -> NDArray[np.int64]:
    """Return the edges of the cheapest partition into intervals; costs[k][i] is that of [i, i + 2^k)."""
    levels = [(2**k, cost.tolist()) for k, cost in enumerate(costs)]
    best, last = [0.0], [0]
    for end in range(1, len(costs[0]) + 1):
        total, length = min((best[end - n] + cost[end - n], n) for n, cost in levels if n <= end)
        best.append(total)
        last.append(length)
    edges = [len(costs[0])]
    while edges[-1]:
        edges.append(edges[-1] - last[edges[-1]])
    return np.array(edges[::-1])


def greedy_h(sums: Floats, queries: Floats, epsilon: float, *, rng: np.random.Generator) -> Floats:
    """Measure a binary tree over the buckets and decode by least squares, with a public total.

    From the leaves up, each node's own sum gets the share λ of its budget and its subtree the rest, with the λ that
    minimises the subtree's error for the part of the queries inside it (section 5). With C the covariance of the
    subtree alone and t = λ / (1 − λ), Sherman-Morrison gives (C − t² C11ᵀC / (1 + t² 1ᵀC1)) / (1 − λ)²; so the trace
    of QᵀQC, QC1 and 1ᵀC1 suffice. Here they are `error`, `answers` and `spread`. Ancestors also help with queries over
    both children, so as in DPBench t² and the cross terms fade by 2^(−d/2) at depth d while λ is chosen.
    """
    answers, spread, error = queries.T, np.ones(len(sums)), (queries**2).sum(axis=0)
    ratios = (_SHARES / (1 - _SHARES)) ** 2
    levels, totals = [(np.zeros(len(sums)), np.zeros(len(sums)), spread)], [sums]
    while len(spread) > 1:
        pairs = np.arange(0, len(spread), 2)
        alone = np.add.reduceat((answers**2).sum(axis=1), pairs)
        answers, spread, error, total = (np.add.reduceat(a, pairs) for a in (answers, spread, error, totals[-1]))
        fade = 2 ** (-(len(spread) - 1).bit_length() / 2)
        both = fade * (answers**2).sum(axis=1) + (1 - fade) * alone
        gains = ratios * fade / (1 + ratios * fade * spread[:, None])
        tried = (error[:, None] - gains * both[:, None]) / (1 - _SHARES) ** 2
        chosen = tried.argmin(axis=1)
        if len(levels[-1][0]) % 2:
            chosen[-1] = 0  # an only child
        if len(spread) == 1:
            chosen[0] = 0  # the public total
        share = _SHARES[chosen]
        gain = ratios[chosen] * spread / (1 + ratios[chosen] * spread)
        error = np.take_along_axis(tried, chosen[:, None], 1)[:, 0]
        shrink = (1 - gain) / (1 - share) ** 2
        answers, spread = answers * shrink[:, None], spread * shrink
        levels.append((share, gain, spread))
        totals.append(total)
    rest, measured = np.ones(1), []
    for (share, _, _), exact in zip(levels[:0:-1], totals[:0:-1], strict=True):
        own = np.maximum(rest * share, 1e-300)  # unused where the share is 0, since its gain is 0
        measured.append(np.where(share > 0, exact + rng.laplace(0, 1 / epsilon, len(own)) / own, 0))
        rest = np.repeat(rest * (1 - share), 2)[: len(totals[len(levels) - 1 - len(measured)])]
    estimates = [sums + rng.laplace(0, 1 / epsilon, len(sums)) / rest]
    for (_, gain, _), own in zip(levels[1:], measured[::-1], strict=True):
        below = np.add.reduceat(estimates[-1], np.arange(0, len(estimates[-1]), 2))
        estimates.append(below + gain * (own - below))
    final = totals[-1]
    for level in range(len(levels) - 2, -1, -1):
        here, spread = estimates[level], levels[level][2]
        pairs, n = np.arange(0, len(here), 2), len(here)
        missing = (final - np.add.reduceat(here, pairs)) / np.add.reduceat(spread, pairs)
        final = here + np.repeat(missing, 2)[:n] * spread
    return final
