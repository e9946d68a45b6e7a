"""Exact noise for integer counts under any move, as in the toolkit's own releases."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deltahist.noise import discrete_laplace

#: A move takes one point from one count and adds it to another.
SENSITIVITY = 2


def any_move(epsilon: float | Fraction, shape: int | Sequence[int], *, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw discrete Laplace noise of scale 2/ε for disjoint counts."""
    return discrete_laplace(SENSITIVITY / Fraction(epsilon), shape, rng=rng)


def add_noise(counts: NDArray[np.int64], epsilon: float | Fraction, *, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return disjoint counts with noise of scale 2/ε."""
    return counts + any_move(epsilon, counts.shape, rng=rng)
