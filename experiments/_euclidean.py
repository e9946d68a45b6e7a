"""Real-valued noise of density ∝ e^(−ε|v|) in n dimensions, for simulations and pictures. Releases use `noise`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.noise import paths
from deltahist.noise.exact import Words, open_words

#: Number of rows per block, so that their arrays fit in the processor's cache.
_BLOCK = 1 << 14

Rows = NDArray[np.float64]
Rng = np.random.Generator | None


@dataclass(frozen=True)
class Euclidean:
    """Noise of density ∝ e^(−ε|v|) in n dimensions, for all levels ε > 0 at once. For n = 1 it is Laplace noise.

    A level is a rate, 1/scale: a larger level means less noise. Values are float64, and exact up to rounding.

    >>> noise, rng = Euclidean(2), np.random.default_rng(1)
    >>> first = noise.start(0.5, 4, rng=rng)
    >>> second = noise.refine(first, 0.5, 0.6, rng=rng)
    >>> (first == second).all(axis=1)  # few jumps between such close levels
    array([ True, False, False,  True])
    """

    dimension: int

    def start(self, level: float, rows: int, *, rng: Rng = None) -> Rows:
        """Draw noise (rows, n) at a level."""
        words, slots = open_words(rng), paths.first_value_slots(self.dimension) + paths.normal_slots(self.dimension)

        def draw(part: Rows) -> None:
            part[:] = paths.first_value(self.dimension, _uniforms(words, len(part), slots)).value / level

        return _in_blocks(np.empty((rows, self.dimension)), draw)

    def refine(self, values: ArrayLike, level: float, finer: float, *, rng: Rng = None) -> Rows:
        """Return noise at level `finer` given values (rows, n) at `level`; rows without a jump stay the same."""
        words = open_words(rng)
        return _in_blocks(np.array(values, dtype=float), lambda part: self._refined(part, level, finer, words))

    def tighten(self, values: ArrayLike, level: float, coarser: float, *, rng: Rng = None) -> Rows:
        """Return noise at level `coarser` given only the values (rows, n) at `level`."""
        words = open_words(rng)
        return _in_blocks(np.array(values, dtype=float), lambda part: self._tightened(part, level, coarser, words))

    def jumps(self, value: ArrayLike, level: float, finer: float, *, rng: Rng = None) -> tuple[Rows, Rows]:
        """Return all jumps of one vector (n,) from `level` up to `finer`: levels (K,) and the values (K, n) above them.

        >>> levels, values = Euclidean(3).jumps([1, 0, 0], 1, 10, rng=np.random.default_rng(3))
        >>> levels.round(1), values.shape
        (array([2.4, 2.9, 3.3, 3.6, 5.2, 5.9, 6.4, 9.3]), (8, 3))
        """
        met: list[tuple[float, Rows]] = []
        self._refined(np.array([value], dtype=float), level, finer, open_words(rng), met)
        return np.array([e for e, _ in met]), np.array([v for _, v in met]).reshape(-1, self.dimension)

    def _refined(
        self, rows: Rows, low: float, high: float, words: Words, met: list[tuple[float, Rows]] | None = None
    ) -> None:
        """Change the rows in place, in rounds, until none jumps any more. Record the jumps if there is one row."""
        going, level = np.arange(len(rows)), np.full(len(rows), float(low))
        while len(going):
            first, second = paths.next_level_above(
                level * paths.vector_lengths(rows[going]), _uniforms(words, len(going), 2)
            )
            level = level * np.minimum(first, second)
            stay = level <= high
            going, level, by_size = going[stay], level[stay], (second < first)[stay]
            uniforms = _uniforms(words, len(going), paths.UP_SLOTS + paths.normal_slots(self.dimension))
            factor = level[:, None]
            rows[going] = paths.jump_up(factor * rows[going], by_size, uniforms).jump.value / factor
            if met is not None and len(going):
                met.append((float(level[0]), rows[0].copy()))

    def _tightened(self, rows: Rows, high: float, low: float, words: Words) -> None:
        going, level = np.arange(len(rows)), np.full(len(rows), float(high))
        while len(going):
            level = level * paths.next_level_below(self.dimension, _uniforms(words, len(going), 1))
            stay = level >= low
            going, level = going[stay], level[stay]
            uniforms = _uniforms(words, len(going), paths.DOWN_SLOTS + paths.normal_slots(self.dimension))
            rows[going] += paths.jump_down(self.dimension, uniforms).value / level[:, None]


def _in_blocks(rows: Rows, change: Callable[[Rows], None]) -> Rows:
    """Change rows in place, a block at a time."""
    for first in range(0, len(rows), _BLOCK):
        change(rows[first : first + _BLOCK])
    return rows


def _uniforms(words: Words, rows: int, slots: int) -> paths.Uniforms:
    return paths.Uniforms(words(rows * slots).reshape(rows, slots, 1))
