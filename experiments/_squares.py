"""Random square queries on the stand-in data sets, and the equi-width histogram that answers them (section 5.4.2).

Errors are exact where possible: the mean square error of an answer is its squared bias on these points plus its noise
variance, both computed rather than simulated. The noise is continuous Laplace noise, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import datasets
import deltahist as dh
from deltahist.space.workloads import Boxes, Span, box_sums

UNIT = dh.Domain((0, 0, 1, 1), (1, 1))
#: Bin widths of the baseline: "from 0.0025 to 0.04 with a step of 0.0025".
WIDTHS = tuple(round(0.0025 * i, 4) for i in range(1, 17))
SEED = 2014
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StandIn:
    """A stand-in for one of the paper's data sets, with the values of δ that the paper tries on it."""

    dataset: int
    what: str
    points: Callable[[], NDArray[np.float64]]
    deltas: tuple[float, ...]


STAND_INS = (
    StandIn(1, "Twitter users, world", datasets.twitter_like_world, (0.001, 0.0001)),
    StandIn(2, "Twitter users, North America", datasets.twitter_like_north_america, (0.001, 0.0001)),
    StandIn(3, "tags indoors", datasets.indoor_like, (0.01, 0.001)),
)


@dataclass(frozen=True, eq=False)
class Squares:
    """Random squares inside [0, 1]², equally many of each size, and the true number of points in each."""

    sizes: tuple[float, ...]
    boxes: Boxes
    truth: Floats

    @classmethod
    def of(cls, points: Floats, sizes: Sequence[float], number: int) -> Squares:
        """Draw the squares from a fixed seed and count the points."""
        parts = [dh.workloads.random_squares(s, number, UNIT, seed=SEED).corners for s in sizes]
        boxes = Boxes(np.concatenate(parts))
        return cls(tuple(sizes), boxes, true_counts(points, boxes.corners))

    def mean(self, figures: Floats) -> Floats:
        """Return the mean per size (sizes,) of figures per query (queries,)."""
        return np.asarray(figures.reshape(len(self.sizes), -1).mean(axis=1))


def true_counts(points: Floats, corners: Floats) -> Floats:
    """Return the number of points in each box [west, east) × [south, north)."""
    x, y = points[np.argsort(points[:, 0])].T
    first, last = np.searchsorted(x, corners[:, 0]), np.searchsorted(x, corners[:, 2])
    inside = [
        np.count_nonzero((y[i:j] >= south) & (y[i:j] < north))
        for i, j, south, north in zip(first, last, corners[:, 1], corners[:, 3], strict=True)
    ]
    return np.array(inside, dtype=np.float64)


def block_counts(cells: NDArray[np.int64], starts: Sequence[NDArray[np.int64]], shape: Sequence[int]) -> Floats:
    """Return the points per block of one grid from the points' cells (n, 2), without building an array of all cells."""
    x, y = (
        (np.searchsorted(first, np.arange(n), side="right") - 1)[cells[:, axis]]
        for axis, (first, n) in enumerate(zip(starts, shape, strict=True))
    )
    nx, ny = (len(first) for first in starts)
    return np.bincount(x * ny + y, minlength=nx * ny).reshape(nx, ny).astype(np.float64)


def block_spans(spans: Sequence[Span], starts: Sequence[NDArray[np.int64]], shape: Sequence[int]) -> list[Span]:
    """Convert spans in cells to spans in blocks, linearly within each block; blocks may differ in width."""
    out = []
    for (low, high), first, n in zip(spans, starts, shape, strict=True):
        edges, place = np.append(first, n), np.arange(len(first) + 1)
        out.append((np.interp(low, edges, place), np.interp(high, edges, place)))
    return out


def grid_answers(
    cells: NDArray[np.int64], starts: Sequence[NDArray[np.int64]], shape: Sequence[int], spans: Sequence[Span]
) -> tuple[Floats, Floats]:
    """Return one grid's answers by shares of area, eq. (8), and the sums of squared shares, both (queries,).

    The variance of an answer is its sum of squared shares times the noise variance of a block.
    """
    within = block_spans(spans, starts, shape)
    answers = box_sums(block_counts(cells, starts, shape), within)
    return answers, squared_shares(*within[0]) * squared_shares(*within[1])


def squared_shares(low: Floats, high: Floats) -> Floats:
    """Return the sum over unit blocks of the squared share that lies in [low, high)."""
    first, last = np.ceil(low), np.floor(high)
    apart = (first - low) ** 2 + (last - first) + (high - last) ** 2
    return np.where(first > last, (high - low) ** 2, apart)


def equi_width(points: Floats, squares: Squares, width: float, epsilon: float = 1.0) -> tuple[Floats, Floats]:
    """Return squared bias and noise variance per size of an equi-width histogram with Laplace noise of scale 2/ε.

    If the width does not divide 1, the last bins lie partly outside the square.
    """
    domain = dh.Domain((0, 0, 1, 1), cell=width)
    starts = tuple(np.arange(n) for n in domain.shape)
    answers, shares = grid_answers(domain.locate(points), starts, domain.shape, squares.boxes.spans(domain))
    sensitivity = 2.0
    return squares.mean((answers - squares.truth) ** 2), squares.mean(2 * (sensitivity / epsilon) ** 2 * shares)
