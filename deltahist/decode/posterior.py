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
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.projection import Metric
from deltahist.space.workloads import Span
from deltahist.space.workloads.cover import box_sums

Field = NDArray[np.float64]
Single = NDArray[np.float32]
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
#: Standard deviation, in cells, of the window in which the shares of the parts are learnt, and the whole map's share.
_NEAR, _WHOLE = 2.0, 0.01
#: Steps that the shares take each time that they are learnt.
_STEPS = 3
#: Standard deviations below zero from where the hazard of the normal law is as good as its asymptote.
_FAR = 30.0
#: Least share of a part, and least variance of a cell in points².
_SMALLEST = 1e-12
#: Steps of conjugate gradients at most.
_MOST_STEPS = 300
#: Precision of a cell, in means of the waves', of which as much is said by its own law as by the noise.
_EVEN = 3.0
#: Cells a side for each of the longest cosines that are solved exactly in every step, and their least and most number.
_SIDE, _LONGEST = 16, (8, 24)
#: Share of a preconditioner's size below which what it makes of a constant is rounding.
_NOTHING = 1e-12


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
    errors: Single
    slope: float
    excess: float

    def __post_init__(self) -> None:
        self.cells.flags.writeable = False

    def variance(self, held: Callable[[Field], Field]) -> Field:
        """Return the variance of the errors of linear answers (m,): `held` gives them for a field of cells (shape)."""
        total = sum(held(error.astype(np.float64)) ** 2 for error in self.errors)
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
    change, own, gain = np.zeros((3, *metric.grid))
    for _ in range(_ROUNDS):
        cell = sites(seen, spread, shares)
        shares = cell.shares
        here = np.clip(1 / cell.variance - 1 / spread, _CELLS[0] / alone, _CELLS[1] / alone)
        given = cell.mean * (here + 1 / spread) - seen / spread
        own[metric.inside], gain[metric.inside] = here, given
        rest = pulled + gain - own * (start + change) - precision.of_noise(change)
        change = change + precision.solver(own)(rest.astype(np.float32), _SOLVED * precision.free(own))
        mean = (start + change)[metric.inside]
        left = scipy.ndimage.gaussian_filter(np.minimum(cell.variance, alone), _ALIKE, mode="reflect")
        spread = np.exp((1 - _DAMPED) * np.log(spread) + _DAMPED * spread_left(np.log(left)))
        root = np.sqrt(spread)
        target = mean + spread * (here * mean - given)
        target = np.clip(target, seen - _MOST_MOVED * root, seen + _MOST_MOVED * root)
        seen = seen + _DAMPED * (np.maximum(target, -_LOWEST * root) - seen)
        apart = float(np.sqrt(np.mean((mean - cell.mean) ** 2 / (cell.variance + _TINY * alone))))
        if not _SETTLED <= apart < np.inf:
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
    left, by_others = np.empty((2, len(precision)))
    for i, each in enumerate(precision):
        rest = share / (1 + each * variance)
        left[i] = (rest * variance).sum()
        by_others[i] = left[i] / rest.sum()
    at, value = np.log(left[::-1]), np.log(by_others[::-1])
    return lambda logarithm: np.interp(logarithm, at, value), alone


def _draw_errors(
    precision: Precision, own: Field, noise: Callable[[np.random.Generator], Field], residual: Field
) -> tuple[Single, float]:
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
    solve, within = precision.solver(own), _DRAWN * precision.free(own)
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


class Sites(NamedTuple):
    """Mean and variance of every cell (shape), and the shares of the parts nearby (1 + means, *shape)."""

    mean: Field
    variance: Field
    shares: Single


def even_shares(shape: tuple[int, ...]) -> Single:
    """Return shares before anything is learnt."""
    return np.full((len(MEANS) + 1, *shape), 1 / (len(MEANS) + 1), dtype=np.float32)


def sites(seen: Field, spread: Field, shares: Single) -> Sites:
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
        shares = _nearby(_weigh_parts(shares, single))
    weight = _weigh_parts(shares, likelihood)
    first, second = np.zeros((2, *seen.shape))
    for part, own, mean in zip(fit[1:], weight[1:], MEANS, strict=True):
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


def _weigh_parts(shares: NDArray[Any], likelihood: NDArray[Any]) -> NDArray[Any]:
    """Return the probability of each part in each cell."""
    weight = np.maximum(shares, _SMALLEST) * likelihood
    weight /= weight.sum(axis=0)
    return weight


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


class Precision:
    """M + D on changes of a map: M the inverse variance of waves, D a diagonal of cells.

    A change is zero beyond the domain's part of the grid, and adds up to zero where the total is known.
    Waves without variance are left out. Fields may be stacks (…, *grid).
    """

    def __init__(self, metric: Metric, total_known: bool) -> None:
        self.metric, self.total_known = metric, total_known
        self.waves = metric.precision
        self.inside = np.zeros(metric.grid)
        self.inside[metric.inside] = 1.0
        self.size = float(self.inside.sum())
        self._even = self._even_precision(self.waves)
        self._long = () if metric.periodic else tuple(map(_cosines, metric.grid))
        #: Where the longest waves stand among all.
        self._corner = tuple(slice(0, len(cosines)) for cosines in self._long) or (slice(0, 0),)
        short = self.waves.copy()
        short[self._corner] = self.waves.min()
        self._even_of_short = self._even_precision(short)

    def _even_precision(self, waves: Field) -> float:
        copies = self.metric.copies
        return _EVEN * float((copies * waves).sum() / copies.sum())

    def change(self, field: NDArray[Any]) -> NDArray[Any]:
        """Return the nearest change to a field, in its place."""
        if self.size < self.inside.size:
            field *= self.inside.astype(field.dtype, copy=False)
        if self.total_known:
            inside: tuple[Any, ...] = (..., *self.metric.inside)
            field[inside] -= field.sum(self.metric.axes, keepdims=True) / self.size
        return field

    def of_noise(self, field: Field) -> Field:
        """Return M of a field."""
        return self.metric.filter(field, self.waves)

    def free(self, cells: Field) -> float:
        """Return the number of free cells: the sum of the noise's shares in all that is known of each."""
        return float((self.inside * self._even / (cells + self._even)).sum())

    def solver(self, cells: Field) -> Callable[[Single, float], Single]:
        """Return a function that solves (M + D) x = field along all changes, D of cells (*grid).

        It takes preconditioned conjugate gradients in single precision: its callers need no more. They end at a squared
        distance from the solution, in standard errors, the second argument: as the preconditioner estimates it, a few
        times too large.
        """
        nearly_solved, long_waves = self._nearly_solved(cells), self._long_waves(cells)
        diagonal, waves = cells.astype(np.float32), self.waves.astype(np.float32)

        def times(along: Single, image: Single, spare: Single) -> Single:
            np.copyto(image, along)
            image = self.metric.filter(image, waves, overwrite=True)
            image += np.multiply(diagonal, along, out=spare)
            return self.change(image)

        def solve(right: Single, within: float) -> Single:
            # In units of the largest: squares of single precision overflow early.
            unit = np.float32(np.abs(right).max() or 1.0)
            rest = self.change(right / unit)
            # Memory of its own for each field: to ask for more in every step costs as much as the transforms.
            found, along, image, spare = (np.zeros_like(rest) for _ in range(4))
            if long_waves is not None:
                found = long_waves(rest, None, found)
                rest -= times(found, image, spare)
            size: Field = np.zeros(1)
            for _ in range(_MOST_STEPS):
                image = nearly_solved(rest, image, spare)
                if long_waves is not None:
                    image = long_waves(rest, image, spare)
                before, size = size, self._product(rest, image, spare)
                if size.max() <= within / float(unit) / float(unit):
                    break
                along *= _ratio(size, before)
                along += image
                image = times(along, image, spare)
                length = _ratio(size, self._product(along, image, spare))
                found += np.multiply(length, along, out=spare)
                rest -= np.multiply(length, image, out=spare)
            found *= unit
            return self.change(found)

        return solve

    def _long_waves(self, cells: Field) -> Callable[[Single, Single | None, Single], Single] | None:
        """Return the solver for the longest waves W, from the residual r and a change z (or zero) to

        z + W (Wᵀ(M + D)W)⁻¹ Wᵀ(r − (M + D) z). A preconditioner leaves most of its error there, where M is large: steps
        grew with the side of the map. With this after it they do not (Tang et al. 2009, A-DEF2). None on a torus, where
        no change is a wave.
        """
        if not self._long:
            return None
        both = scipy.fft.dctn(cells)
        for at, cosines in enumerate(self._long):
            # Products of two cosines are the means of two others: axis by axis, waves become pairs of waves.
            number, size = len(cosines), cells.shape[at]
            i, j = np.arange(number)[:, None], np.arange(number)
            root = np.where(j, 1.0, np.sqrt(0.5)) / np.sqrt(2 * size)
            scale = np.multiply.outer(root, root).reshape(number, number, *[1] * (cells.ndim - at - 1))
            both = (both.take(abs(i - j), 2 * at) + both.take(i + j, 2 * at)) * scale
        order = (*range(0, 2 * cells.ndim, 2), *range(1, 2 * cells.ndim, 2))
        waves = self.waves[self._corner]
        matrix = both.transpose(order).reshape(waves.size, waves.size) + np.diag(waves.ravel())
        first = int(self.total_known)
        inverse = np.zeros_like(matrix)
        inverse[first:, first:] = np.linalg.inv(matrix[first:, first:])
        solution, diagonal, spectrum = (each.astype(np.float32) for each in (inverse, cells, waves))
        *across, along = (each.astype(np.float32) for each in self._long)

        def onto(field: Single) -> Single:
            """Return Wᵀ of a field."""
            some = field @ along.T
            return across[0] @ some if across else some

        def solved(rest: Single, found: Single | None, spare: Single) -> Single:
            if found is None:
                left = onto(rest)
            else:
                np.subtract(rest, np.multiply(diagonal, found, out=spare), out=spare)
                left = onto(spare) - spectrum * onto(found)
            lead = left.shape[: left.ndim - spectrum.ndim]
            share = (left.reshape(*lead, -1) @ solution).reshape(left.shape) @ along
            more = across[0].T @ share if across else share
            return more if found is None else np.add(found, more, out=found)

        return solved

    def _nearly_solved(self, cells: Field) -> Callable[[Single, Single, Single], Single]:
        """Return the preconditioner: from fields, and memory for two, to changes that nearly solve the equations.

        Where cells are known, D⁻¹ does, elsewhere M⁻¹, which is the noise's variance: with a = D / (D + even),
        a (D + even)⁻¹ + √(1 − a) M⁻¹ √(1 − a). Changes add up to zero in its own metric: taken off in the plain one,
        a constant would cost cells that are known.
        """
        even = self._even_of_short
        known = self.inside * cells / (cells + even) ** 2
        scale = self.inside * np.sqrt(even / (cells + even))
        constant = known + scale * self.metric.filter(scale, self.metric.variance)
        level = float((constant * self.inside).sum())
        most = float((known + scale**2 * self.metric.variance.max()).sum())
        level = self.total_known * (1 / level if level > _NOTHING * most else 0.0)
        own, around, even_part = (each.astype(np.float32) for each in (known, scale, level * constant))
        variance = self.metric.variance.astype(np.float32)

        def nearly_solved(field: Single, out: Single, spare: Single) -> Single:
            out = self.metric.filter(np.multiply(around, field, out=out), variance, overwrite=True)
            out *= around
            out += np.multiply(own, field, out=spare)
            if level:
                out -= np.multiply(even_part, out.sum(self.metric.axes, keepdims=True), out=spare)
            return out

        return nearly_solved

    def _product(self, one: Single, other: Single, spare: Single) -> Field:
        """Return the inner product of fields, or of each of a stack with its own; a field is spared for it."""
        return np.multiply(one, other, out=spare).sum(self.metric.axes, keepdims=True).astype(np.float64)


def _ratio(one: Field, other: Field) -> Single:
    return np.divide(one, other, out=np.zeros_like(one), where=other > 0).astype(np.float32)


def _cosines(n: int) -> Field:
    """Return the longest cosines (waves, n), of length 1: at most as many as have products that are cosines, too."""
    number = min(int(np.clip(n // _SIDE, *_LONGEST)), (n + 1) // 2)
    return np.asarray(scipy.fft.idct(np.eye(number, n), norm="ortho", axis=1))
