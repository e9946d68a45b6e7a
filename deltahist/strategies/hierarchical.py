"""Nested grids of any block sizes, decoded by one pass up and one pass down (Hay et al. 2010)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from deltahist.decode.base import MOST_DENSE, Asked, Decoder, DenseDecoder, Moments, rows_of
from deltahist.decode.forms import BlockPower, FloatArray, PublicTotal, SumOfProducts, apply_range_gram
from deltahist.errors import check_whole
from deltahist.laws import Law
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import AllRanges, Workload
from deltahist.strategies.base import Starts, Strategy, read_numbers, spread_blocks, sum_blocks
from deltahist.strategies.grids import Grids


@dataclass(frozen=True, eq=False)
class Hierarchical(Grids):
    """Nested grids with blocks of 1, b, b², ... cells per side, up to the whole domain: H_n (Hay et al. 2010).

    Source: 2014, section 5.4.1 (but its Figure 2 prints the identity instead of H_n).

    Parameters
    ----------
    branching : b (at least 2), the number of blocks along each axis that form one block of the next coarser level.
    shares : one share of ε per level, from the whole domain down to the cells (equal by default).

    >>> A = Hierarchical(Domain((0, 1), (4,)), branching=2)
    >>> A.matrix().toarray().tolist()
    [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    """

    domain: Domain
    branching: int = 2
    shares: tuple[Fraction, ...] | None = None
    texts: ClassVar[tuple[str, ...]] = ("hierarchical[:b]",)
    on_graphs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_whole(least=2, branching=self.branching)
        super().__post_init__()

    @functools.cached_property
    def widths(self) -> tuple[int, ...]:
        """The side length of a block at each level, in cells, from the whole domain down to 1."""
        widths = [1]
        while widths[0] < max(self.domain.shape):
            widths.insert(0, widths[0] * int(self.branching))
        return tuple(widths)

    @functools.cached_property
    def starts(self) -> tuple[Starts, ...]:  # type: ignore[override]
        return tuple(tuple(np.arange(0, n, min(width, n)) for n in self.domain.shape) for width in self.widths)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(f"blocks of {min(w, max(self.domain.shape))} cells a side" for w in self.widths)

    def decoder_class(self) -> type[Decoder]:
        return TreeDecoder

    @classmethod
    def from_text(cls, near: Neighbourhood, text: str, norm: int) -> Hierarchical:
        return cls(near.domain, *read_numbers(text, 1))  # type: ignore[arg-type]

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        for branching in (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 32):
            if branching < max(near.domain.shape):
                yield f"Hierarchical (branching {branching})", cls(near.domain, branching)


class TreeDecoder(Decoder):
    """Least squares on nested grids, by one pass up from the cells and one pass down from the whole domain.

    The pass up combines a block's own value y of variance v with its children's sum S = Σ z of variance V_S into z = S
    + t (y − S), where t = V_S / (v + V_S). z has variance u = v V_S / (v + V_S). Let x be a block's final estimate (z
    for the whole domain). The pass down divides the difference x − S among the block's children in proportion to their
    variances u: x_child = z_child + u_child / V_S · (x − S).
    """

    strategy: Hierarchical

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        super().__init__(strategy, laws, total_known)
        self.level_variance = [law.variance() for law in laws]
        #: Whether all blocks of a level have the same size. Small trees with mixed sizes also have exact errors.
        pairs, widths = itertools.product(self.strategy.widths, self.domain.shape), self.strategy.widths
        self.regular = all(n % min(w, n) == 0 and (w <= n or n in widths) for w, n in pairs)
        self._small = not self.regular and self.domain.size <= MOST_DENSE

    @functools.cached_property
    def _children(self) -> list[Starts]:
        """For each level and axis, the first child of every block, as an index among the next level's blocks."""
        levels = itertools.pairwise(self.strategy.starts)
        return [tuple(np.searchsorted(fine, coarse) for coarse, fine in zip(a, b, strict=True)) for a, b in levels]

    @functools.cached_property
    def _variances(self) -> tuple[list[FloatArray], list[FloatArray]]:
        """V_S of the blocks on every level except the last, and u of the blocks on every level."""
        of_sums: list[FloatArray] = []
        of_best = [np.full(self.strategy.blocks[-1], self.level_variance[-1])]
        for own, children in zip(self.level_variance[-2::-1], reversed(self._children), strict=True):
            of_sums.insert(0, sum_blocks(of_best[0], children))
            of_best.insert(0, own * of_sums[0] / (own + of_sums[0]) if own > 0 else np.zeros_like(of_sums[0]))
        return of_sums, of_best

    def _get_trust(self, level: int) -> FloatArray:
        """Return t for each block of a level, or 0 where both variances are zero in floating point."""
        of_sums = self._variances[0][level]
        return _divide(of_sums, self.level_variance[level] + of_sums)

    def solve(self, values: FloatArray) -> FloatArray:
        groups = zip(self.strategy.groups, self.strategy.blocks, strict=True)
        own = [values[group.members].reshape(blocks) for group, blocks in groups]
        of_sums, of_best = self._variances
        sums: list[FloatArray] = []
        best = [np.asarray(own[-1], dtype=np.float64)]
        for level in range(len(of_sums) - 1, -1, -1):
            sums.insert(0, sum_blocks(best[0], self._children[level]))
            best.insert(0, sums[0] + self._get_trust(level) * (own[level] - sums[0]))
        cells = best[0]
        for level, total in enumerate(sums):
            surplus, fine = _divide(cells - total, of_sums[level]), best[level + 1]
            cells = fine + of_best[level + 1] * spread_blocks(surplus, self._children[level], fine.shape)
        return cells.ravel()

    def solve_adjoint(self, query: FloatArray) -> FloatArray:
        """Reverse and transpose the passes of `solve`, to turn weights of x into weights of z and S, and then of y."""
        of_sums, of_best = self._variances
        levels, on_cells = len(of_sums), query.reshape(self.domain.shape)
        on_estimate: list[FloatArray] = [np.zeros(0)] * (levels + 1)
        on_sum: list[FloatArray] = [np.zeros(0)] * levels
        # x_child = z_child + u_child / V_S · (x − S), from the cells up
        for level in range(levels - 1, -1, -1):
            passed = sum_blocks(of_best[level + 1] * on_cells, self._children[level])
            on_estimate[level + 1], on_cells = on_cells, _divide(passed, of_sums[level])
            on_sum[level] = -on_cells
        on_estimate[0] = on_cells
        # z = S + t (y − S), where S is the children's sum, from the whole domain down
        on_values = []
        for level in range(levels):
            trust = self._get_trust(level)
            on_values.append((on_estimate[level] * trust).ravel())
            on_sum[level] = on_sum[level] + on_estimate[level] * (1 - trust)
            fine = on_estimate[level + 1]
            on_estimate[level + 1] = fine + spread_blocks(on_sum[level], self._children[level], fine.shape)
        return np.concatenate([*on_values, on_estimate[levels].ravel()])

    @property
    def has_closed_form(self) -> bool:
        return not self._small and self.box_cumulant(2) is not None

    def moments(self, work: Asked) -> Moments:
        return self._dense.moments(work) if self._small else super().moments(work)

    def answer_variance(self, work: Asked) -> FloatArray:
        if not self._small:
            return super().answer_variance(work)
        queries = rows_of(work, self.domain).toarray().T.reshape(*self.domain.shape, -1)
        axes = tuple(range(self.domain.ndim))
        out = np.zeros(queries.shape[-1])
        for weight, share, starts in self._covariance_levels:
            out += (sum_blocks(queries * share[..., None], starts) ** 2 * weight[..., None]).sum(axis=axes)
        if self.total_known:
            total = self._with_total
            out -= np.tensordot(total.along, queries, (axes, axes)) ** 2 / total.spread
        return np.maximum(out, 0.0)

    def mean_variance(self, work: AllRanges) -> float:
        if not self._small:
            return super().mean_variance(work)
        out = 0.0
        for weight, share, starts in self._covariance_levels:
            both = share
            for axis, first in enumerate(starts):
                both = np.moveaxis(apply_range_gram(np.moveaxis(both, axis, 0), first), 0, axis)
            out += float((sum_blocks(share * both, starts) * weight).sum())
        return max(0.0, out - (self._with_total.mean_reduction() if self.total_known else 0.0))

    @functools.cached_property
    def _covariance_levels(self) -> list[tuple[FloatArray, FloatArray, Starts]]:
        """For each level, the weights a of its blocks, each cell's share g of its block, and the blocks' first cells.

        The covariance of the cells is V = Σ_b a_b g_b g_bᵀ over all blocks b (docs/internals/theory.md, section 3). g
        is the product of u_child / V_S down the tree, and a is u − V_S.
        """
        out: list[tuple[FloatArray, FloatArray, Starts]] = []
        share, (of_sums, of_best) = np.ones(self.domain.shape), self._variances
        for level in range(len(of_sums), -1, -1):
            weight = of_best[level] - (of_sums[level] if level < len(of_sums) else 0.0)
            out.insert(0, (weight, share, self.strategy.starts[level]))
            if level:
                part = _divide(np.ones_like(of_sums[level - 1]), of_sums[level - 1])
                own = of_best[level] * spread_blocks(part, self._children[level - 1], of_best[level].shape)
                share = share * spread_blocks(own, self.strategy.starts[level], self.domain.shape)
        return out

    @property
    def _with_total(self) -> PublicTotal:
        """The variance that a public total removes. V1 is Σ u g over the blocks of the first level."""
        _, share, starts = self._covariance_levels[0]
        return PublicTotal(share * spread_blocks(self._variances[1][0], starts, self.domain.shape))

    @functools.cached_property
    def _dense(self) -> DenseDecoder:
        return DenseDecoder(self.strategy, self.laws, self.total_known)

    @property
    def note(self) -> str:  # type: ignore[override]
        if self.regular or self._small:
            return "exact"
        return "a bound: blocks at the upper edges count as whole blocks"

    def box_cumulant(self, order: int) -> SumOfProducts | None:
        """Return V = Σ_l (1/λ_l − 1/λ_{l+1}) P_l, where P_l averages over blocks (docs/internals/theory.md, section 3).

        λ_l is Σ_{m ≥ l} S_m/σ_m² for blocks of S_m cells. 1/λ_l is 0 beyond the last level, and also for the whole
        domain if the total is known. For a box q, qᵀP_l q S_l is the product over axes of `BlockPower(width, 2)`.

        Blocks that extend beyond the domain's upper edges count as whole blocks with unknown counts outside. In fact,
        the counts outside are zero. Using this fact could only lower the variance, so the result never understates it.
        """
        if order == 4 or min(self.level_variance) <= 0:
            return None
        sides = self.strategy.widths
        # Limit the sides to the smallest side of a block that contains the axis.
        widths = [[min(w, min(s for s in sides if s >= n)) for w in sides] for n in self.domain.shape]
        cells = np.prod(np.array(widths, dtype=np.float64), axis=0)  # S_l, coarse to fine
        precision = np.cumsum((cells / np.array(self.level_variance))[::-1])[::-1]
        inverse = np.append(1 / precision, 0.0)
        if self.total_known:
            inverse[0] = 0.0
        steps = (inverse[:-1] - inverse[1:]) / cells
        return [(step, tuple(BlockPower(w[level], 2) for w in widths)) for level, step in enumerate(steps)]


def _divide(figure: FloatArray, variance: FloatArray) -> FloatArray:
    """Divide figures by variances, and return 0 where the variance is zero."""
    return np.divide(figure, variance, out=np.zeros_like(variance), where=variance > 0)
