"""Counts as they may be, given an estimate and its noise: their mean, and how far from it they lie together.

Expectation propagation (Minka 2001) with a prior that is learnt nearby (`sites`): each cell is seen with the noise that
remains when all others are known as well as they are; what its prior then says is given back as a normal law of its
own, and all cells are joined again through the noise's metric. docs/theory.md, section 8, derives it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.metric import Metric, Precision
from deltahist.space.workloads import Span
from deltahist.space.workloads.sums import box_sums

Field = NDArray[np.float64]
#: Rounds at most, and how far, in standard errors, cells by themselves may lie from cells together when they end ...
_ROUNDS, _SETTLED = 40, 0.002
#: ... or, after the last, to be sure of itself; what is below this share of the noise's variance is nothing.
_UNSETTLED, _TINY = 0.1, 0.01
#: Share of each round's result that is taken.
_DAMPED = 0.5
#: How far, in standard errors, what a cell is seen as moves in a round, and how far below zero it gets.
_MOST_MOVED, _LOWEST = 2.0, 5.0
#: Least and most precision that a cell's prior has, in those of the noise.
_CELLS = (1e-3, 1e6)
#: Cells over which the spread that is left is taken to be alike (standard deviation of the window).
_ALIKE = 2.0
#: Squared distances per free cell at which equations count as solved, as `Precision` estimates them: of the mean (a box
#: is off by about 0.2% of its standard error) and of a draw (4%; so few draws leave 12% open).
_SOLVED, _DRAWN = 1e-4, 5e-2
#: By how much draws are too narrow, and the share of the unbiased error that no draw has, where the noise's spectrum
#: has at least the slope `_BLUE`, and for each unit below it: set by measurement (docs/experiments.md).
_BLUE, _TIMES, _SHARE = 2.0, (1.05, 0.3), (0.08, 0.08)
#: Fields from which the level of noise is learnt, and how far, in inverse roots of the number of cells, theirs must be
#: above it.
_LEVELS, _CLEAR = 8, 5.0
#: Boxes on which residuals are looked at, standard errors above which an excess is one, and the excess, as a share of
#: the unbiased variance, that says that the prior does not fit.
_BOXES, _SIGNIFICANT, _ASTRAY = 512, 2.0, 0.1
#: Squared mean over variance above which a gamma law is taken for normal; least mean in points.
_NORMAL, _LEAST = 1e3, 1e-9
#: Variance of the noise, in points², below which whole counts are read off it as they are.
_KNOWN = 1e-6
#: Draws of the joint error, and numbers that are drawn at a time: what is in a cache is faster.
DRAWS, _AT_A_TIME = 32, 1 << 16
#: Cells at most: beyond, it would take many minutes.
MOST_CELLS = 1 << 18
#: Means of the exponential parts, in points per cell; beside them there is exactly zero.
MEANS = 4.0 ** np.arange(7)
#: Standard deviation, in cells, of the window in which the shares of the parts are learnt.
_NEAR = 2.0
#: Share of the whole map in what is learnt nearby.
_WHOLE = 0.01
#: Steps that the shares take each time that they are learnt.
_STEPS = 3
#: Standard deviations below zero from where the hazard of the normal law is as good as its asymptote.
_FAR = 30.0
#: Least share of a part, and least variance of a cell in points².
_SMALLEST = 1e-12


@dataclass(frozen=True, eq=False)
class Posterior:
    """Counts as they may be: their mean, and draws of its joint error.

    Parameters
    ----------
    cells : in points (shape), not negative; they add up to the total if that is known.
    errors : draws of their joint error, in points (draws, *shape).
    slope : of the noise's spectrum (`Metric.slope`): the whiter the noise, the more is left to the prior.
    excess : what residuals show of bias, as a share of the variance of unbiased answers.
    """

    cells: Field
    errors: NDArray[np.float32]
    slope: float
    excess: float

    def __post_init__(self) -> None:
        self.cells.flags.writeable = False

    def variance(self, held: Callable[[Field], Field]) -> Field:
        """Return the variance of the errors of linear answers (m,): `held` gives them for a field of cells (shape)."""
        total: Field | float = 0.0
        for error in self.errors:
            total = total + held(error.astype(np.float64)) ** 2
        return np.asarray(total / len(self.errors))

    def inflate_variance(self, own: Field, unbiased: Field) -> Field:
        """Return the variance (m,) with bias that the draws do not hold, from that of the `unbiased` answers (m,).

        Priors that are learnt from few cells pull towards their neighbours. The part that shows in the estimates is
        measured (`excess`); for what their noise hides there stands a share of the unbiased error, more of it the
        whiter the noise (docs/theory.md, section 8). No more is added than makes the unbiased variance.
        """
        white = max(_BLUE - self.slope, 0.0)
        times, share = _TIMES[0] + _TIMES[1] * white, _SHARE[0] + _SHARE[1] * white
        found = times**2 * own + (share**2 + self.excess) * unbiased
        return np.minimum(found, unbiased)

    def interval(self, estimate: Field, variance: Field, level: float) -> tuple[Field, Field]:
        """Return the reach below and above estimates (m,) of intervals, for this variance (`inflate_variance`).

        Student's quantile for the number of draws and half a point, since counts are whole; above at least what a
        gamma law of the same mean and variance needs: where next to nothing was found, what was missed lies above.
        """
        probability = (1 + level) / 2
        some = np.where(variance > 0, 0.5, 0.0)
        half = float(scipy.special.stdtrit(len(self.errors), probability)) * np.sqrt(variance)
        mean = np.maximum(estimate, _LEAST)
        shape = mean**2 / np.maximum(variance, _LEAST)
        high = scipy.special.gammaincinv(np.clip(shape, 1e-3, _NORMAL), probability) * variance / mean - mean
        up = np.where(shape < _NORMAL, np.maximum(np.minimum(high, 2 * half), half), half)
        return half + some, up + some


def posterior(
    field: Field, metric: Metric, total: float | None, noise: Callable[[np.random.Generator], Field]
) -> Posterior | None:
    """Return the counts' approximate posterior, or None where the method is not sure of itself.

    So it is with more than `MOST_CELLS`, where noise is nearly white and no cell stands out from it, where the cells
    do not settle, and where the residual is more than noise.

    Parameters
    ----------
    field : unbiased estimates on the metric's grid, with the total if that is known.
    metric : of their noise. total : number of points, or None if it is not known.
    noise : draws noise of the field (grid), without the total.
    """
    seen = field[metric.inside]
    if (total is not None and total <= 0) or metric.of_a_cell < _KNOWN or seen.size > MOST_CELLS:
        return None
    if metric.slope < _BLUE and not _stands_out(seen, metric, noise):
        return None
    precision = Precision(metric, total is not None)
    found = _settle(field, metric, total, precision)
    if found is None:
        return None
    cells, own = found
    cells = np.maximum(cells, 0.0)
    if total is not None:
        if not cells.any():
            return None
        cells *= total / cells.sum()
    errors, excess = _draw_errors(precision, own, noise, seen - cells)
    if excess > _ASTRAY:
        return None
    return Posterior(cells, errors, metric.slope, excess)


def _stands_out(field: Field, metric: Metric, noise: Callable[[np.random.Generator], Field]) -> bool:
    """Return whether cells are more than noise: else, where noise is nearly white, a prior would learn noise."""
    rng = np.random.default_rng(20140607)
    level = np.mean([np.mean(noise(rng)[metric.inside] ** 2) for _ in range(_LEVELS)])
    return bool(np.mean(field**2) > level * (1 + _CLEAR / math.sqrt(field.size)))


def _settle(
    field: Field, metric: Metric, total: float | None, precision: Precision
) -> tuple[Field, Field] | None:
    """Return the means of cells (shape), and their own precision (grid); None if they do not settle."""
    spread_left, alone = _cavities(metric)
    start = np.zeros(metric.grid) if total is None else precision.inside * (total / precision.size)
    pulled = precision.of_noise(field - start)
    seen = field[metric.inside]
    spread = np.full(seen.shape, alone)
    shares = even_shares(seen.shape)
    change, own, gain = np.zeros(metric.grid), np.zeros(metric.grid), np.zeros(metric.grid)
    apart = np.inf
    for _ in range(_ROUNDS):
        cell = sites(seen, spread, shares)
        shares = cell.shares
        here = np.clip(1 / cell.variance - 1 / spread, _CELLS[0] / alone, _CELLS[1] / alone)
        given = cell.mean * (here + 1 / spread) - seen / spread
        own[metric.inside], gain[metric.inside] = here, given
        rest = pulled + gain - own * (start + change) - precision.of_noise(change)
        # What is still to be found needs no more than single precision.
        change = change + precision.solver(own, np.float32)(rest.astype(np.float32), _SOLVED * precision.free(own))
        mean = (start + change)[metric.inside]
        left = scipy.ndimage.gaussian_filter(np.minimum(cell.variance, alone), _ALIKE, mode="reflect")
        spread = np.exp((1 - _DAMPED) * np.log(spread) + _DAMPED * spread_left(np.log(left)))
        root = np.sqrt(spread)
        target = mean + spread * (here * mean - given)
        target = np.clip(target, seen - _MOST_MOVED * root, seen + _MOST_MOVED * root)
        seen = seen + _DAMPED * (np.maximum(target, -_LOWEST * root) - seen)
        apart = float(np.sqrt(np.mean((mean - cell.mean) ** 2 / (cell.variance + _TINY * alone))))
        if not apart < np.inf:
            return None
        if apart < _SETTLED:
            break
    return (mean, own) if apart < _UNSETTLED else None


def _cavities(metric: Metric) -> tuple[Callable[[Field], Field], float]:
    """Return the function from the cells' variances to their cavities' (logarithms), and the noise's own variance.

    Were every cell known with the same precision γ of its own, the mean of V / (1 + γ V) over waves would be left, and
    the others would see a cell with that over the mean of 1 / (1 + γ V).
    """
    alone, some = metric.of_a_cell, metric.variance > 0
    variance, share = metric.variance[some], metric.copies[some] / metric.copies.sum()
    precision = np.concatenate([[0.0], np.geomspace(1e-6, 1e6, 200)]) / alone
    left, by_others = np.empty(len(precision)), np.empty(len(precision))
    for i, each in enumerate(precision):
        rest = share / (1 + each * variance)
        left[i] = (rest * variance).sum()
        by_others[i] = left[i] / rest.sum()
    at, value = np.log(left[::-1]), np.log(by_others[::-1])
    return lambda logarithm: np.interp(logarithm, at, value), alone


def _draw_errors(
    precision: Precision, own: Field, noise: Callable[[np.random.Generator], Field], residual: Field
) -> tuple[NDArray[np.float32], float]:
    """Return draws of the error (draws, *shape), and by how much the residual (shape) is larger than they have it.

    For e with (M + D) e = M η + D ζ, η noise of the field itself, which the metric only resembles, ζ of variance D⁻¹:
    what noise and the cells' own laws leave when both are joined. The residual, of the field from its estimate, is then
    η − e. What it has beyond that on boxes, significantly, is bias: a share of the unbiased variance.
    """
    # What anybody may draw again: the same release has the same intervals.
    rng = np.random.default_rng(20140606)
    metric, root = precision.metric, np.sqrt(own)
    out = np.empty((DRAWS, *residual.shape), dtype=np.float32)
    spans = _draw_boxes(residual.shape, rng)
    unbiased, rest = np.empty((2, DRAWS, _BOXES))
    # Single precision is far below what so few draws can tell.
    solve, within = precision.solver(own, np.float32), _DRAWN * precision.free(own)
    batch = max(1, min(DRAWS, _AT_A_TIME // own.size))
    for first in range(0, DRAWS, batch):
        number = min(batch, DRAWS - first)
        drawn = np.stack([noise(rng) for _ in range(number)])
        right = precision.of_noise(drawn) + root * rng.normal(size=drawn.shape)
        solved = solve(right.astype(np.float32), within)
        out[first : first + number] = solved[(slice(None), *metric.inside)]
        for i in range(number):
            part = drawn[i][metric.inside]
            unbiased[first + i] = box_sums(part, spans) ** 2
            rest[first + i] = box_sums(part - out[first + i], spans) ** 2
    each = unbiased.mean(axis=0)
    some = each > 0
    if not some.any():
        return out, 0.0
    expected = (rest[:, some] / each[some]).mean(axis=1)
    found = float((box_sums(residual, spans)[some] ** 2 / each[some]).mean())
    return out, max(0.0, found - float(expected.mean()) - _SIGNIFICANT * float(expected.std()))


def _draw_boxes(shape: tuple[int, ...], rng: np.random.Generator) -> list[Span]:
    """Draw boxes anywhere, of all sizes alike: the logarithms of their sides are even."""
    spans: list[Span] = []
    for n in shape:
        side = np.floor(np.exp(rng.uniform(0, np.log(n), _BOXES)))
        low = np.floor(rng.random(_BOXES) * (n - side + 1))
        spans.append((low, low + side))
    return spans


@dataclass(frozen=True, eq=False)
class Sites:
    """Mean and variance of every cell (shape), and the shares of the parts nearby (1 + means, *shape)."""

    mean: Field
    variance: Field
    shares: NDArray[np.float32]


def even_shares(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return shares before anything is learnt."""
    return np.full((len(MEANS) + 1, *shape), 1 / (len(MEANS) + 1), dtype=np.float32)


def sites(seen: Field, spread: Field, shares: NDArray[np.float32]) -> Sites:
    """Return the posterior of every cell that is seen with normal noise, by its prior alone.

    Parameters
    ----------
    seen : of each cell (shape), in points. spread : variance of the noise on it (shape). shares : to begin with.
    """
    root = np.sqrt(spread)
    fit = np.empty(shares.shape)
    fit[0] = -(seen**2) / (2 * spread) - np.log(2 * np.pi * spread) / 2
    for part, mean in zip(fit[1:], MEANS, strict=True):
        part[...] = scipy.special.log_ndtr((seen - spread / mean) / root)
        part += spread / (2 * mean**2) - seen / mean - np.log(mean)
    fit -= fit.max(axis=0)
    likelihood = np.exp(fit)
    # Shares need no more than single precision; differences of moments do.
    single = likelihood.astype(np.float32)
    for _ in range(_STEPS):
        shares = _nearby(_held(shares, single))
    held = _held(shares, likelihood)
    first, second = np.zeros(seen.shape), np.zeros(seen.shape)
    for part, own, mean in zip(fit[1:], held[1:], MEANS, strict=True):
        middle = seen - spread / mean
        z = middle / root
        far = z < -_FAR
        # Of a normal law cut at zero: its density there over the probability above, as of an empty cell over this part.
        hazard = root / mean * np.exp(np.where(far, 0.0, fit[0] - part))
        rest = root / np.maximum(-z, 1.0)
        one = np.where(far, rest, np.maximum(middle + root * hazard, _SMALLEST))
        two = np.where(far, 2 * rest**2, np.maximum(spread * (1 - hazard * (z + hazard)), 0.0) + one**2)
        first += own * one
        second += own * two
    return Sites(first, np.maximum(second - first**2, _SMALLEST), shares)


def _held(shares: NDArray[Any], likelihood: NDArray[Any]) -> NDArray[Any]:
    """Return how likely each part holds in each cell."""
    held = np.maximum(shares, _SMALLEST) * likelihood
    held /= held.sum(axis=0)
    return held


def _nearby(held: NDArray[Any]) -> NDArray[Any]:
    """Return shares around each cell, its own not counted, and a little of the whole map's."""
    own = _weight_of_itself(held.ndim - 1)
    # Nothing is mirrored at the borders: cells there would count themselves.
    sides = (_window(np.ones(n)) for n in held.shape[1:])
    others = np.maximum(functools.reduce(np.multiply.outer, sides) - own, _SMALLEST)
    share = ((1 - _WHOLE) / others).astype(held.dtype)
    out = np.empty_like(held)
    for part, here in zip(out, held, strict=True):
        np.maximum(_window(here) - own * here, 0.0, out=part)
        part *= share
        part += _WHOLE * here.mean()
    out /= out.sum(axis=0)
    return out


def _window(field: NDArray[Any]) -> NDArray[Any]:
    """Return weighted sums around each cell; there is nothing beyond the map."""
    return np.asarray(scipy.ndimage.gaussian_filter(field, _NEAR, mode="constant"))


def _weight_of_itself(ndim: int) -> float:
    """Return the weight of a cell in the window around it."""
    side = np.zeros(8 * int(_NEAR) + 1)
    side[side.size // 2] = 1
    return float(scipy.ndimage.gaussian_filter1d(side, _NEAR).max()) ** ndim
