"""The paper's shifted grids on random squares, decoded by averaging (as in the paper) or by least squares.

Both decode the same release y = A c + η. Section 5.4.2 averages the grids' answers by area. The bias of that average
is close to the bias of a single histogram of the same width. Least squares (A⁺ of section 5.2) combines the lines of
all grids, which are δ apart. In 2-D the shifted grids do not determine every cell, so least squares needs a prior: a
random field around the mean n/N. Its variance and correlation length are fixed in advance, from public knowledge.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from scipy.fft import dctn, idctn
from scipy.sparse.linalg import LinearOperator, cg

import deltahist as dh
from deltahist.space.workloads import box_sums
from experiments._squares import SEED, Floats, Squares, grid_answers

#: The prior assumes this number of points, which is public and round, so that sets of similar size share it.
NUMBER = 180_000
#: Noise fields to simulate: the noise variance of least-squares answers has no closed form.
FIELDS = 2
#: The artificial data set for planning: its number of places, and the number of points at each.
_PLACES, _EACH = 5000, 20


@dataclass(frozen=True)
class Prior:
    """An assumption made before any data are seen: points form `clusters` equal, independent clusters.

    `length` is the size of a cluster, or 0 if its points share one place.
    """

    clusters: float
    length: float = 0.0

    @property
    def spread(self) -> float:
        """The variance of the number of points per unit of area."""
        return NUMBER**2 / self.clusters

    def made_up(self) -> tuple[Floats, float]:
        """Return an artificial data set (for choosing widths) and the weight of its squared bias."""
        rng = np.random.default_rng(SEED)
        places = np.repeat(rng.random((_PLACES, 2)), _EACH, axis=0)
        points = places + self.length * rng.normal(size=places.shape)
        return np.clip(points, 0, 1 - 1e-9), self.spread / (_PLACES * _EACH**2)

    def penalty(self, n: int) -> Floats:
        """Return the inverse spectrum (n, n) of a cell, (1 + ℓ²|ω|²)², scaled so that its inverse averages 1."""
        omega = np.pi * np.arange(n)
        spectrum = (1 + self.length**2 * (omega[:, None] ** 2 + omega**2)) ** 2.0
        return np.asarray(spectrum * np.mean(1 / spectrum))


@dataclass(frozen=True, eq=False)
class Shifted:
    """Grids of one width shifted by δ (m = width/δ), on a domain fine enough for both, with their sensitivity."""

    delta: float
    width: float
    cell: float

    @functools.cached_property
    def domain(self) -> dh.Domain:
        """The unit square in cells."""
        n = round(1 / self.cell)
        return dh.Domain((0, 0, 1, 1), (n, n))

    @functools.cached_property
    def strategy(self) -> dh.strategies.ShiftedGrids:
        """The strategy A."""
        width, shift = round(self.width / self.cell), round(self.delta / self.cell)
        return dh.strategies.ShiftedGrids(self.domain, width=width, shift=shift)

    @functools.cached_property
    def sensitivity(self) -> int:
        """The exact sensitivity with fixed membership: 4, or 2 for a single grid."""
        return int(dh.sensitivity(self.strategy, dh.Neighbourhood(self.domain, self.delta)))

    @property
    def noise(self) -> float:
        """The variance of one value's Laplace noise at ε = 1."""
        return 2.0 * self.sensitivity**2


def averaged(points: Floats, squares: Squares, grids: Shifted) -> tuple[Floats, Floats]:
    """Return, per size, the exact squared bias and noise variance of the average over the grids."""
    shape, starts = grids.domain.shape, grids.strategy.starts
    cells, spans = grids.domain.locate(points), squares.boxes.spans(grids.domain)
    answers, shares = np.zeros(len(squares.truth)), np.zeros(len(squares.truth))
    for first in starts:
        answer, share = grid_answers(cells, first, shape, spans)
        answers += answer / len(starts)
        shares += share / len(starts) ** 2
    return squares.mean((answers - squares.truth) ** 2), squares.mean(grids.noise * shares)


def least_squares(points: Floats, squares: Squares, grids: Shifted, prior: Prior) -> tuple[Floats, Floats]:
    """Return, per size, the squared bias and noise variance of least squares with a public prior.

    Decoding is linear, so the bias on these points is exact. The noise variance is simulated.
    """
    counts = dh.count(points, grids.domain).array
    mean = len(points) / grids.domain.size  # membership is fixed, so n is public
    measure = grids.strategy.measure
    centred = measure(counts) - mean * measure(np.ones(grids.domain.shape, dtype=np.int64))
    answers = box_sums(_decode(centred, grids, prior) + mean, squares.boxes.spans(grids.domain))
    return squares.mean((answers - squares.truth) ** 2), _noise_of_least_squares(squares, grids, prior)


_NOISE: dict[tuple[object, ...], Floats] = {}


def _noise_of_least_squares(squares: Squares, grids: Shifted, prior: Prior) -> Floats:
    """Return the noise variance per size. It does not depend on the data, so one figure serves all data sets."""
    key = (grids.delta, grids.width, grids.cell, prior, squares.sizes, len(squares.truth))
    if key not in _NOISE:
        rng = np.random.default_rng(SEED)
        spans, total = squares.boxes.spans(grids.domain), np.zeros(len(squares.sizes))
        for _ in range(FIELDS):
            field = rng.laplace(scale=grids.sensitivity, size=grids.strategy.shape[0])
            total += squares.mean(box_sums(_decode(field, grids, prior), spans) ** 2)
        _NOISE[key] = total / FIELDS
    return _NOISE[key]


def _decode(values: Floats, grids: Shifted, prior: Prior) -> Floats:
    """Return (AᵀA + λP)⁻¹ Aᵀ y by conjugate gradients; P is the prior's penalty, λ noise over prior variance."""
    A, shape, size = grids.strategy, grids.domain.shape, grids.domain.size
    ridge = grids.noise / (prior.spread / size)
    penalty = ridge * prior.penalty(shape[0]) if prior.length else np.full(shape, ridge)

    def through(spectrum: Floats, x: Floats) -> Floats:
        if not prior.length:  # the same factor everywhere
            return x * spectrum[0, 0]
        waves = dctn(x.reshape(shape), norm="ortho", workers=2)
        return np.asarray(idctn(waves * spectrum, norm="ortho", workers=2)).ravel()

    def normal(x: Floats) -> Floats:
        return np.asarray(A.rmatmat(A.matmat(x.reshape(-1, 1))))[:, 0] + through(penalty, x)

    # Every grid counts a cell once, so AᵀA is m plus terms for cells that share blocks.
    near_inverse = 1 / (penalty + len(A.starts))
    operator, guess = (
        LinearOperator((size, size), matvec=f, dtype=np.float64) for f in (normal, lambda x: through(near_inverse, x))
    )
    cells, status = cg(operator, A.rmatvec(values), rtol=1e-4, maxiter=3000, M=guess)
    if status:
        raise RuntimeError(f"least squares did not converge for width {grids.width:g}")
    return np.asarray(cells).reshape(shape)
