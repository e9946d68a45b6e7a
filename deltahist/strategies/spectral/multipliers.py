"""The spectral problem: the best spectrum of a torus, from one multiplier for each displacement, with a certificate.

Problem: minimise Σ V̂/X̂ subject to 2 (x(0) − x(d)) ≤ w(d)² for every displacement d of a move, and x(0) ≤ w² for
arrivals. With multipliers λ that add up to one the best is X̂ = √(V̂ / L̂), L̂ = Σ_d λ_d |1 − e^{iω·d}|² / w(d)²
(+ λ₀ / w²); let f be the mean of √(V̂ L̂) over the frequencies. Then f² bounds the best from below, f times the
largest cost over its w² is what X̂ reaches once it is scaled to keep all bounds, and f is also the mean over λ of the
costs over their w², so that the two agree where every λ_d > 0 has the same, largest, of these. Each round raises the
multipliers of what costs more than the mean. Derivation: docs/theory.md, section 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deltahist.space.workloads.queries import power
from deltahist.strategies.gaussian import Ascent, bound_levels, least_arrival
from deltahist.strategies.spectral.torus import cosines, multiplicities, quarter_of

if TYPE_CHECKING:
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.workloads import Workload

#: Multipliers are found on a torus of at most this many cells a side, unless δ is long; finer ones start from them.
_COARSE = 256
#: Rounds on the coarse and on the full torus, and the gaps of the certificate at which they end.
_ROUNDS, _FINE_ROUNDS, _GAP = 400, 4, 1e-3
#: The same on the full torus under limits, whose multipliers are spread over all of it.
_LIMITED_ROUNDS, _LIMITED_GAP = 40, 3e-3
#: Part of the gap below which all multipliers together are nothing: a displacement may have to come back.
_IDLE = 1e-3
#: Share of the multipliers that a limit starts with which the coarse torus did not know.
_UNKNOWN = 1e-2
#: Weight of single cells beside the workload's queries: no frequency may be left out.
_CELLS = 1e-3


@dataclass(frozen=True)
class Multipliers:
    """Solution of the spectral problem: X̂ = √(V̂ / L̂) and how far from the best it can be.

    `spectrum` is √X̂ over a quarter of the torus' frequencies (the others mirror it), scaled so that the largest cost is
    its bound; `gap` bounds the variance's excess over that of the best strategy of the torus: the dual value certifies
    it.
    """

    spectrum: NDArray[np.float64]
    gap: float


def solve(near: Neighbourhood, workload: Workload | None, torus: tuple[int, ...]) -> Multipliers:
    """Return the best spectrum of a torus for a neighbourhood's moves and limits and a workload's sizes."""
    longest = int(max(near.reach.max(initial=1), len(near.reach) - 1 if len(torus) == 2 else 1, 1))
    coarse = tuple(min(n, max(_COARSE, 4 * longest)) for n in torus)
    chart = _Chart(near, workload, coarse)
    if not len(chart.scale):  # a single cell, which nobody enters: there is nothing to protect
        return Multipliers(np.ones(chart.place.shape), 0.0)
    climb = _limited if near.profile else _plain
    found = climb(chart, chart.start(), _ROUNDS, _GAP)
    if coarse != torus:
        fine = _Chart(near, workload, torus)
        start = fine.refined(chart, found.multipliers)
        if near.profile:
            found = _limited(fine, start, _LIMITED_ROUNDS, _LIMITED_GAP)
        else:
            found = _plain(fine, start, _FINE_ROUNDS, _GAP)
        chart = fine
    spectrum = found.spectrum / found.worst
    if not chart.arrivals:
        # The total is free, since no move changes it: measured as well as the best frequency.
        spectrum.flat[0] = spectrum.max()
    return Multipliers(np.sqrt(spectrum), found.gap)


@dataclass(frozen=True)
class _Found:
    """Multipliers, the spectrum that they lead to, the largest of its costs over their bounds, and the gap."""

    multipliers: NDArray[np.float64]
    spectrum: NDArray[np.float64]
    worst: float
    gap: float


class _Chart:
    """A torus with the displacements that are bounded marked on its quarter; 0 stands for arrivals.

    Multipliers are a flat array of those displacements alone, each for itself and its mirror images.
    """

    def __init__(self, near: Neighbourhood, workload: Workload | None, torus: tuple[int, ...]) -> None:
        self.torus, quarter = torus, quarter_of(torus)
        self.weight = power(workload, near.domain, torus)[quarter] + _CELLS
        place, squares = bound_levels(near)
        # A move that is longer than half the torus ends where a shorter one does, whose bound is no larger.
        known = place[quarter]
        missing = [(0, n // 2 + 1 - have) for n, have in zip(torus, known.shape, strict=True)]
        #: Which of the neighbourhood's relations bounds each displacement: the number of them if none does.
        self.place = np.pad(known, missing, constant_values=len(squares) - 1)
        entry = least_arrival(near)
        self.arrivals = math.isfinite(entry)
        self.place.flat[0] = 0 if self.arrivals else len(squares) - 1
        self.bounded = self.place < len(squares) - 1
        self.times = multiplicities(torus)[self.bounded]
        self.scale = 1 / (squares[self.place[self.bounded]])
        if self.arrivals:
            self.scale[0] = 1 / entry

    def start(self) -> NDArray[np.float64]:
        """Return multipliers to start from: each relation has the same share, evenly spread."""
        place = self.place[self.bounded]
        out = self.times / np.bincount(place, self.times)[place]
        return np.asarray(out / out.sum())

    def refined(self, coarse: _Chart, multipliers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return multipliers to start from, given a smaller torus with its multipliers.

        Those of relations that are all on the smaller torus are the same; others keep their sum, spread evenly.
        """
        place, before = self.place[self.bounded], coarse.place[coarse.bounded]
        number = int(place.max()) + 1
        size, had = (np.bincount(p, chart.times, number) for p, chart in ((place, self), (before, coarse)))
        share = np.maximum(np.bincount(before, multipliers, number), _UNKNOWN / number * (size > had))
        out = np.zeros(self.place.shape)
        out[self.bounded] = self.times * (share / np.maximum(size, 1))[place]
        same = np.append(size == had, False)
        inner = tuple(slice(0, n) for n in coarse.place.shape)
        kept = np.zeros(coarse.place.shape)
        kept[coarse.bounded] = multipliers
        known = coarse.bounded & same[np.where(coarse.bounded, coarse.place, number)]
        out[inner] = np.where(known, kept, out[inner])
        start = out[self.bounded]
        return np.asarray(start / start.sum())

    def evaluate(
        self, multipliers: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Return X̂, the costs over their bounds, 2 (x(0) − x(d)) / w², an arrival's first, and their mean f."""
        forces = np.zeros(self.place.shape)
        forces[self.bounded] = multipliers * self.scale / self.times
        entry = float(forces.flat[0])
        forces.flat[0] = 0
        waves = cosines(forces, self.torus)
        laplacian = 2 * (waves.flat[0] - waves) + entry
        with np.errstate(divide="ignore"):
            spectrum = np.sqrt(self.weight / np.maximum(laplacian, 0))
        if not self.arrivals:
            spectrum.flat[0] = 0
        x = cosines(spectrum, self.torus) / math.prod(self.torus)
        costs = 2 * (x.flat[0] - x)
        costs.flat[0] = x.flat[0]
        relative = np.maximum(costs[self.bounded] * self.scale, 0)
        return spectrum, relative, float(multipliers @ relative / multipliers.sum())


def _plain(chart: _Chart, start: NDArray[np.float64], number: int, gap: float) -> _Found:
    """Return the spectrum after rounds of λ ← λ · cost, enough where only moves within δ are bounded."""
    multipliers = start
    for _ in range(number):
        spectrum, relative, mean = chart.evaluate(multipliers)
        found = _Found(multipliers, spectrum, worst := float(relative.max()), worst / mean - 1)
        if found.gap <= gap:
            return found
        multipliers = multipliers * relative
        multipliers /= multipliers.sum()
    spectrum, relative, mean = chart.evaluate(multipliers)
    worst = float(relative.max())
    return _Found(multipliers, spectrum, worst, worst / mean - 1)


def _limited(chart: _Chart, start: NDArray[np.float64], number: int, gap: float) -> _Found:
    """Return the best spectrum of some steps of `Ascent`, with the best lower bound of all of them."""
    ascent = Ascent(np.log(start), floor=_IDLE * gap / len(start))
    dual, primal = 0.0, math.inf
    for _ in range(number):
        multipliers = ascent.weight()
        spectrum, relative, mean = chart.evaluate(multipliers)
        worst, dual = float(relative.max()), max(dual, mean)
        if mean * worst < primal:
            primal, best = mean * worst, (multipliers, spectrum, worst)
        if primal <= (1 + gap) * dual**2:
            break
        ascent.step(multipliers, relative / mean, mean)
    return _Found(*best, primal / dual**2 - 1)
