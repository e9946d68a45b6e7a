"""MWEM (Hardt, Ligett, McSherry 2012, "A simple and practical algorithm for differentially private data release")."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist import Domain
from deltahist.space.workloads import all_ranges, box_sums

#: Queries to select from, and passes over all measurements per round.
_QUERIES, _PASSES = 5000, 100
#: DPBench's number of rounds, by the number of points times ε (Hay et al. 2016, trained on made-up data).
_SIGNAL = (0, 500, 1e3, 5e3, 1e4, 1e5, 5e5, 1e6, 5e6, 1e7)
_ROUNDS = (12, 12, 12, 32, 32, 60, 120, 140, 140, 140)


def mwem(counts: NDArray[np.int64], epsilon: float, *, rng: np.random.Generator) -> NDArray[np.float64]:
    """Measure in each round the rectangle that the estimate answers worst, and update by multiplicative weights.

    The total is public. A move changes a rectangle's count by at most 1, so half of a round's ε selects by the
    exponential mechanism with exp(ε/2 · error); the other half measures. The noise consists of floats.
    """
    total, domain = float(counts.sum()), Domain((0, 0, *counts.shape), counts.shape)
    spans: Any = all_ranges(domain).sample(_QUERIES, 1).spans(domain)
    truth = box_sums(counts.astype(np.float64), spans)
    rounds = int(np.interp(total * epsilon, _SIGNAL, _ROUNDS))
    half = epsilon / rounds / 2
    estimate = np.full(counts.shape, total / counts.size)
    measured: list[tuple[tuple[slice, ...], float]] = []
    free = np.ones(len(truth), dtype=bool)
    for _ in range(min(rounds, len(truth))):
        score = np.where(free, half / 2 * np.abs(truth - box_sums(estimate, spans)), -np.inf)
        chance = np.exp(score - score.max())
        worst = rng.choice(len(truth), p=chance / chance.sum())
        free[worst] = False
        box = tuple(slice(int(low[worst]), int(high[worst])) for low, high in spans)
        measured.append((box, truth[worst] + rng.laplace(0, 1 / half)))
        scale = 1.0  # of the whole estimate, applied after the passes
        for _ in range(_PASSES):
            for inside, value in measured:
                part = estimate[inside]
                held = scale * part.sum()
                factor = math.exp((value - held) / (2 * total))
                part *= factor
                scale *= total / (total + (factor - 1) * held)
        estimate *= total / estimate.sum()
    return estimate
