"""Noise on every cell and on overlapping smooth sums of cells, which makes even long moves cheap."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode import forms
from deltahist.decode.base import Asked, Decoder, Moments
from deltahist.decode.forms import BlockPower, FloatArray, IntArray, multiply_rows, sum_intervals
from deltahist.decode.projection import Metric
from deltahist.errors import InputError, check_choice, check_whole
from deltahist.laws import Law
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import AllRanges, Boxes, RegionCover, Regions, Span, Workload, count_up_to
from deltahist.strategies.base import Group, Strategy, read_numbers, read_shares
from deltahist.strategies.flow.tuning import find_minimum

#: The number of array entries (boxes × waves, or regions × products of waves) that fit in the processor's cache.
_TOGETHER = 1 << 18
#: The largest number of tents along an axis. Their eigenvectors need dense linear algebra.
MOST_TENTS = 4128


@dataclass(frozen=True, eq=False)
class Tents(Strategy):
    """Measure every cell, and also tents over the cells: products of B-splines that are centred every few cells.

    A short move hardly changes the tents, and a move of any length changes only its two cells and the tents over them.
    With shares a for the cells and h for the tents, every move costs at most 2 (a + h). The least-squares estimates
    take smooth parts of the map from the tents and finer parts from the cells.
    Sources: docs/internals/theory.md, section 7, and docs/privacy/tents.md (costs).

    Parameters
    ----------
    spacing : the distance in cells between tents' centres, as one number or one per axis. The default suits all ranges.
    degree : the degree of the B-splines: 1 for hats, 2 or 3 for smoother and wider tents.
    shares : the shares of ε for the cells and for the tents (equal by default).

    Raises InputError if a spacing leads to too many tents or to weights that are too large.

    >>> import math, deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (64, 64)), delta=1 / 64, limits=[(math.inf, 2)])
    >>> A = Tents.tuned(near)
    >>> A.apart, A.degree, [round(float(dh.sensitivity(A, n)), 1) for n in (near, near.anywhere())]
    ((5, 5), 3, [1.0, 1.9])
    """

    domain: Domain
    spacing: int | tuple[int, ...] | None = None
    degree: int = 3
    shares: tuple[Fraction, ...] | None = None

    determines_cells: ClassVar[bool] = True
    texts: ClassVar[tuple[str, ...]] = ("tents[:spacing[,degree]]",)
    most_axes: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_choice((1, 2, 3), degree=self.degree)
        if max(self.tents) > MOST_TENTS or not 0 < self.scale <= 1 << 40:
            raise InputError(
                f"spacing is {self.apart} at degree {self.degree}: there must be at most {MOST_TENTS:,} tents along an "
                "axis (increase the spacing), and weights over a cell may add up to at most 2^40 (reduce the spacing)"
            )
        _ = self.groups  # raises InputError if shares are invalid

    @classmethod
    def tuned(
        cls,
        near: Neighbourhood,
        workload: Workload | None = None,
        *,
        spacing: int | tuple[int, ...] | None = None,
        degree: int | None = None,
    ) -> Tents:
        """Return tents that keep a neighbourhood's promises, with nearly the least expected error on a workload.

        If all moves cost the same, the shares accept 5% more error of unbiased answers, because that lowers the error
        of non-negative estimates (docs/internals/theory.md, section 8).

        Parameters
        ----------
        near : the neighbourhood and its limits.
        workload : the queries (all ranges by default). Regions are replaced by boxes of equal area.
        spacing, degree : the spacing and degree, or None to choose the best. Shares are optimal for Laplace noise only.

        >>> import deltahist as dh
        >>> near = dh.Neighbourhood(dh.Domain((0, 1), (50,)), delta=0.02)
        >>> Tents.tuned(near.anywhere(), spacing=10, degree=1).spacing
        (10,)
        """
        apart = None if spacing is None else cls(near.domain, spacing, 1 if degree is None else degree).apart
        search = TentSearch(near, workload)
        degrees = (3, 2, 1) if degree is None else (degree,)
        found = [search.descend_from_guess(d) if apart is None else search.best_shares(apart, d) for d in degrees]
        best = min(found, key=lambda choice: (round(choice.error, 9), choice.degree))
        shares = tuple(Fraction(max(round(1000 * share), 1), 1000) for share in best.shares)
        return cls(near.domain, best.spacing, best.degree, shares)

    @classmethod
    def from_text(cls, near: Neighbourhood, text: str, norm: int) -> Tents:
        spacing, degree, *_ = (*read_numbers(text, 2), None, None)
        return cls.tuned(near, spacing=spacing, degree=degree)

    @classmethod
    def accepted_excess(cls, near: Neighbourhood) -> float:
        # Measured in the plane, where every move costs the same: docs/internals/theory.md, section 8.
        equal = near.delta_ground >= near.diameter or any(each.any and each.factor == 1 for each in near.profile)
        return 1.05 if near.domain.ndim == 2 and equal else 1.0

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        if norm == 1 and near.domain.size > 1:
            try:
                tents = cls.tuned(near, workload)
            except InputError:  # too many tents on a very long line
                return
            apart = dict.fromkeys(map(str, tents.apart))
            yield f"Tents ({' × '.join(apart)} cells apart, degree {tents.degree})", tents

    @functools.cached_property
    def apart(self) -> tuple[int, ...]:
        """The distance in cells between centres of tents along each axis, at most the axis's length."""
        shape, given = self.domain.shape, self.spacing
        if given is None:
            given = tuple(round(1.5 * n ** (1 / 3)) for n in shape)
        elif not isinstance(given, list | tuple):
            given = (given,) * len(shape)
        return tuple(min(n, check_whole(spacing=s)) for s, n in zip(given, shape, strict=True))

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"spacing": [*self.apart]}

    @functools.cached_property
    def lattices(self) -> tuple[Lattice, ...]:
        """The tents along each axis."""
        return tuple(make_lattice(n, s, self.degree) for n, s in zip(self.domain.shape, self.apart, strict=True))

    @functools.cached_property
    def scale(self) -> int:
        """The sum of the weights of all tents over a cell."""
        return math.prod(axis.scale for axis in self.lattices)

    @functools.cached_property
    def tents(self) -> tuple[int, ...]:
        """The number of tents along each axis."""
        return tuple(axis.size for axis in self.lattices)

    @functools.cached_property
    def shape(self) -> tuple[int, int]:
        return (self.domain.size + math.prod(self.tents), self.domain.size)

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        (cells, tents), size = read_shares(self.shares, 2, "group: cells and tents"), self.domain.size
        unit, name = Fraction(1, self.scale), f"tents {' × '.join(map(str, self.apart))} cells apart"
        return (Group("cells", slice(0, size), cells), Group(name, slice(size, self.shape[0]), tents * unit, unit))

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        tents = apply_along_axes([axis.matrix for axis in self.lattices], X.reshape(*self.domain.shape, -1))
        return np.concatenate([X, tents.reshape(-1, X.shape[1])])

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        tents = X[self.domain.size :].reshape(*self.tents, -1)
        cells = apply_along_axes([axis.transpose for axis in self.lattices], tents)
        return X[: self.domain.size] + cells.reshape(-1, X.shape[1])

    @property
    def point_limit(self) -> int:  # type: ignore[override]
        return (1 << 62) // self.scale

    def decoder_class(self) -> type[Decoder]:
        return TentsDecoder

    def edge_cost(self, near: Neighbourhood, norm: int) -> Fraction | None:
        if norm == 2:
            return None
        (cells, tents), denominator = self.whole_shares
        each = (n * cells + change * tents for n, change in largest_changes(self.lattices, near))
        return Fraction(max(each, default=0), denominator)


class TentsDecoder(Decoder):
    """Least-squares estimates ĉ = y₁ + Tᵀ (r⁻¹ + T Tᵀ)⁻¹ (y₂ − T y₁) from released cells y₁ and tents y₂.

    r is the noise variance of a cell divided by the noise variance of a tent. T Tᵀ is a product over the axes, so the
    eigenvectors of its small factors invert r⁻¹ + T Tᵀ (docs/internals/theory.md, section 7).
    """

    strategy: Tents
    has_closed_form = True

    def __init__(self, strategy: Strategy, laws: Sequence[Law], total_known: bool) -> None:
        super().__init__(strategy, laws, total_known)
        self._lattices = self.strategy.lattices
        #: The variance of a cell's noise, and r in points. r is at most 10¹², because cells do not help beyond that.
        self._cells, tents = self.laws[0].variance(), self.laws[1].variance() / self.strategy.scale**2
        self._precision = self._cells / max(tents, self._cells / 1e12) if self._cells > 0 else 0.0

    def _invert_gram(self, tents: FloatArray) -> FloatArray:
        """Return (r⁻¹ + T Tᵀ)⁻¹ times an array over the tents."""
        values, vectors = zip(*(axis.gram_eigen for axis in self._lattices), strict=True)
        factor = self._precision / (1 + self._precision * outer_product(values))
        return apply_along_axes(vectors, factor * apply_along_axes([each.T for each in vectors], tents))

    def _to_tents(self, cells: FloatArray) -> FloatArray:
        """Multiply cells (N,) by T, and return an array over the tents, in points."""
        field = apply_along_axes([axis.matrix for axis in self._lattices], cells.reshape(self.domain.shape))
        return np.asarray(field / self.strategy.scale)

    def _to_cells(self, tents: FloatArray) -> FloatArray:
        """Multiply an array over the tents by Tᵀ, and return cells (N,), in points."""
        return apply_along_axes([axis.transpose for axis in self._lattices], tents / self.strategy.scale).ravel()

    def solve(self, values: FloatArray) -> FloatArray:
        return self.estimate_cells(values, None).ravel()

    def estimate_cells(self, values: NDArray[Any], total: int | None) -> FloatArray:
        # To match the total, adjust the few tents instead of the many cells, which saves memory.
        cells, tents = values[: self.domain.size], values[self.domain.size :]
        field = self._invert_gram(tents.reshape(self.strategy.tents) / self.strategy.scale - self._to_tents(cells))
        if self.total_known and total is not None:
            _, onto, spread = self._covariance_parts
            sums = outer_product([axis.matrix.sum(axis=1) / axis.scale for axis in self._lattices])
            found = float(cells.sum(dtype=np.float64)) + float((field * sums).sum())
            if spread > 0:
                ones = apply_along_axes([axis.tent_waves for axis in self._lattices], onto)
                field = field + ones * (self.strategy.scale * (total - found) / spread)
        out = self._to_cells(field)
        out += cells
        return out.reshape(self.domain.shape)

    def solve_adjoint(self, query: FloatArray) -> FloatArray:
        tents = self._invert_gram(self._to_tents(query))
        return np.concatenate([query - self._to_cells(tents), tents.ravel() / self.strategy.scale])

    @functools.cached_property
    def _covariance_parts(self) -> tuple[FloatArray, FloatArray, float]:
        return split_covariance(self._lattices, self._precision)

    def box_variance(self, spans: Sequence[Span]) -> FloatArray:
        out, (known, onto, spread) = np.zeros(len(spans[0][0])), self._covariance_parts
        step = max(1, _TOGETHER // sum(known.shape))
        for some in (slice(i, i + step) for i in range(0, len(out), step)):
            boxes = [(low[some], high[some]) for low, high in spans]
            asked = [sum_intervals(axis.wave_sums, *span) for axis, span in zip(self._lattices, boxes, strict=True)]
            taken = _sum_waves([each**2 for each in asked], known)
            if self.total_known:
                # Half of the waves are odd about the middle of the axis, so they do not contribute to the total.
                held = [np.abs(axis.wave_sums[-1]) > 1e-9 for axis in self._lattices]
                seen = [each[:, waves] for each, waves in zip(asked, held, strict=True)]
                taken += _sum_waves(seen, onto[np.ix_(*held)]) ** 2 / spread
            size = math.prod((BlockPower(1, 2)(*span) for span in boxes), start=np.ones(len(taken)))
            out[some] = self._cells * (size - taken)
        return out

    def moments(self, work: Asked) -> Moments:
        if isinstance(work, Boxes | AllRanges) or self.domain.ndim == 1:
            return super().moments(work)
        cover = work if isinstance(work, RegionCover) else RegionCover.of_rows(work, self.domain.shape)
        area = np.bincount(cover.whole, (cover.high - cover.low).prod(axis=1), cover.number)
        out = np.asarray(self._cells * (area + np.bincount(cover.owner, cover.share**2, cover.number)), float)
        known, onto, spread = self._covariance_parts
        ends = np.searchsorted(cover.whole, np.arange(cover.number + 1)).tolist()
        (of_x, of_y), before = (axis.tent_waves for axis in self._lattices), [a.wave_sums for a in self._lattices]
        together = max(1, _TOGETHER // known.size)
        tents = _spread_cut_cells(cover, self._lattices)
        for around in forms.iterate_query_boxes(tents, self.strategy.tents, together):
            seen = around.apply_factors(of_x, of_y)
            for place, query in enumerate(around.some.tolist()):
                some = slice(ends[query], ends[query + 1])
                x, y = (b[cover.high[some, a]] - b[cover.low[some, a]] for a, b in enumerate(before))
                seen[place] += x.T @ y
            taken = np.einsum("kij,ij->k", seen**2, known)
            if self.total_known:
                taken += np.einsum("kij,ij->k", seen, onto) ** 2 / spread
            out[around.some] -= self._cells * taken
        out[out < self.rounding_floor] = 0.0
        return Moments(out, self.bound_kurtosis(out), note=self.note)

    def mean_variance(self, work: AllRanges) -> float:
        return self._cells * max(0.0, TentError(self._lattices, None, self.total_known).mean_variance(self._precision))

    def box_kurtosis(self, spans: Sequence[Span], variance: FloatArray) -> FloatArray:
        return self.bound_kurtosis(variance)

    def noise_metric(self) -> Metric:
        """Return the exact metric of the noise, before a known total adjusts it."""
        values = outer_product([np.append(axis.wave_values, 0.0) for axis in self._lattices])
        variance, shape = self._cells / (1 + self._precision * values), self.domain.shape
        waves = tuple(np.diff(axis.wave_sums, axis=0) for axis in self._lattices)
        return TentMetric(variance, shape, False, tuple(slice(0, n) for n in shape), waves)

    @property
    def rounding_floor(self) -> float:
        return 1e-12 * self._cells * self.domain.size


@dataclass(frozen=True, eq=False)
class TentMetric(Metric):
    """The metric of tents, with their waves (n, w) along each axis. The last variance applies to everything else."""

    waves: tuple[FloatArray, ...]

    def filter(self, field: NDArray[Any], factor: NDArray[Any]) -> NDArray[Any]:
        other = factor.flat[-1]
        found = apply_along_axes([axis.T for axis in self.waves], field)
        found *= factor[(slice(-1),) * found.ndim] - other
        return np.asarray(other * field + apply_along_axes(self.waves, found))

    @property
    def cell_variance(self) -> float:
        known, other = self.variance[(slice(-1),) * self.variance.ndim], float(self.variance.flat[-1])
        return other + float((known - other).sum()) / math.prod(self.grid)


def _spread_cut_cells(cover: RegionCover, lattices: Sequence[Lattice]) -> RegionCover:
    """Return T q as shares of tents, where q is the part of each query in the cells that it cuts."""
    over = list(zip(lattices, (cover.x, cover.y), strict=True))
    first, weights = [axis.first[cell] for axis, cell in over], [axis.weights[cell] for axis, cell in over]
    begins = np.flatnonzero(np.diff(cover.owner, prepend=-1))
    query = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(cover.owner)))
    # The tents of a query range from the first to the last tent over its cells.
    low = [np.minimum.reduceat(each, begins) for each in first]
    wide, tall = (np.maximum.reduceat(f, begins) - a + w.shape[1] for f, a, w in zip(first, low, weights, strict=True))
    number = wide * tall
    start = (np.cumsum(number) - number)[query] + (first[0] - low[0][query]) * tall[query] + first[1] - low[1][query]
    found, tall_of = np.zeros(number.sum()), tall[query]
    for i, along in enumerate(weights[0].T):
        row, share = start + i * tall_of, cover.share * along
        for j, across in enumerate(weights[1].T):
            found += np.bincount(row + j, share * across, len(found))
    owner = np.repeat(np.arange(len(begins)), number)
    x, y = np.divmod(count_up_to(number), tall[owner])
    # Tents before the first or after the last one have weight zero.
    held, shape = found != 0, tuple(axis.size for axis in lattices)
    tents = ((x + low[0][owner]) * shape[1] + y + low[1][owner])[held]
    return RegionCover.of_cells(cover.number, shape, cover.owner[begins][owner][held], tents, found[held])


def _sum_waves(asked: Sequence[FloatArray], field: FloatArray) -> FloatArray:
    """Return, for each query (m,), the sum over waves of `field` times the query's coefficients along each axis."""
    # Contiguous arrays make the order of summation independent of the number of queries.
    first, *rest = map(np.ascontiguousarray, asked)
    return np.einsum("mw,mw->m", multiply_rows(first, field), *rest) if rest else np.einsum("mw,w->m", first, field)


class Choice(NamedTuple):
    """A choice of tents, with its best shares and its mean variance for a budget of one."""

    error: float
    spacing: tuple[int, ...]
    degree: int
    shares: tuple[float, float]


class TentSearch:
    """Search for the tents with the least error. No choice is evaluated twice."""

    def __init__(self, near: Neighbourhood, workload: Workload | None) -> None:
        self.near, self.shape = near, near.domain.shape
        if isinstance(workload, Regions):
            workload = workload.boxes()
        self.boxes = workload.take_evenly(1000).spans(near.domain) if isinstance(workload, Boxes) else None
        if isinstance(workload, AllRanges):
            workload.check(near.domain)
        # Use at most 12 relations of a profile, mostly for short moves, because limits on long moves hardly matter.
        every = near.relations
        some = np.unique(np.geomspace(1, len(every), 12).round().astype(int)) - 1
        self.relations = [every[i] for i in some.tolist()]
        #: The best choice per spacing and degree (infinite error if there are too many tents or they are too large).
        self.best_shares = functools.cache(self._find_shares)

    def descend_from_guess(self, degree: int) -> Choice:
        """Search for the best choice at a degree, by coarse and then fine steps along all axes or along single axes."""
        reach = self.near.frontier.max(axis=0, initial=1).tolist()
        guess = {1: 1.5, 2: 1.4, 3: 1.3}[degree]
        start = [round(guess * n ** (1 / 3) * min(r, 16) ** 0.28) for n, r in zip(self.shape, reach, strict=True)]
        best, axes = self.best_shares(self._clip_spacing(start), degree), range(len(self.shape))
        alike = len(set(zip(self.shape, reach, strict=True))) == 1
        alone = [] if alike else [tuple(int(i == axis) for i in axes) for axis in axes]
        for factor, direction, up in itertools.product((1.35, 1.12), [(1,) * len(axes), *alone], (True, False)):
            while True:
                further = [
                    s if not d else max(s + 1, round(s * factor)) if up else min(s - 1, round(s / factor))
                    for s, d in zip(best.spacing, direction, strict=True)
                ]
                other = self.best_shares(self._clip_spacing(further), degree)
                if other.error >= best.error:
                    break
                best = other
        return best

    def _clip_spacing(self, spacing: Sequence[int]) -> tuple[int, ...]:
        return tuple(max(1, min(s, n)) for s, n in zip(spacing, self.shape, strict=True))

    def _find_shares(self, spacing: tuple[int, ...], degree: int) -> Choice:
        lattices = [make_lattice(n, s, degree) for n, s in zip(self.shape, spacing, strict=True)]
        scale = math.prod(axis.scale for axis in lattices)
        many = any(n // s + degree > MOST_TENTS for n, s in zip(self.shape, spacing, strict=True))
        if many or scale > 1 << 34:  # 2^34 leaves room for 268 million points
            return Choice(math.inf, spacing, degree, (1.0, 1.0))
        # The largest changes in cells and tents for each relation, divided by the relation's factor.
        costs = [
            (n / factor, change / scale / factor)
            for factor, relation in ((float(factor), relation) for factor, relation in self.relations)
            for n, change in largest_changes(lattices, relation)
        ]
        if not costs:  # a single cell without arrivals has nothing to protect
            return Choice(0.0, spacing, degree, (1.0, 1.0))
        error = TentError(lattices, self.boxes, self.near.fixed_membership, 40)

        def largest_cost(ratio: float) -> float:  # if the cells' share is one
            return max(cells + ratio * tents for cells, tents in costs)

        def variance(power: float) -> float:
            ratio = math.exp(power)
            return 2 * largest_cost(ratio) ** 2 * error.mean_variance(ratio**2)

        least, power = find_minimum(variance, -4.0, 3.0, 0.1)  # ln (tents' share / cells' share)
        # Non-negative estimates remove much of the noise in cells, so a larger share of the tents lowers their error.
        excess = Tents.accepted_excess(self.near)
        while excess > 1 and power < 3 and variance(power + 0.04) <= excess**2 * least:
            power += 0.04
        ratio = math.exp(power)
        unit = largest_cost(ratio)
        return Choice(least, spacing, degree, (1 / unit, ratio / unit))


def split_covariance(lattices: Sequence[Lattice], precision: float) -> tuple[FloatArray, FloatArray, float]:
    """Return k and V1 for every product of waves, and 1ᵀV1, if cells have variance one.

    `precision` is r in docs/internals/theory.md, section 7. Tents add up to one, so V1 is a combination of waves.
    """
    precise = precision * outer_product([axis.wave_values for axis in lattices])
    ones = outer_product([axis.wave_sums[-1] for axis in lattices])
    onto = ones / (1 + precise)
    return precise / (1 + precise), onto, float((ones * onto).sum())


class TentError:
    """The mean variance over boxes (None: all ranges) for cells of variance one, with `waves` waves for the total."""

    def __init__(
        self, lattices: Sequence[Lattice], boxes: Sequence[Span] | None, total_known: bool, waves: int | None = None
    ) -> None:
        self.lattices, self.boxes, self.total_known = lattices, boxes is not None, total_known
        self.smooth = [np.argsort(-np.abs(axis.wave_sums[-1]), kind="stable")[:waves] for axis in lattices]
        if boxes is None:
            self.plain = math.prod((axis.n + 2) / 3 for axis in lattices)
            self.squared = outer_product([axis.mean_squares for axis in lattices])
            self.asked = [axis.mean_products(some) for axis, some in zip(lattices, self.smooth, strict=True)]
        else:
            asked = [sum_intervals(axis.wave_sums, *span) for axis, span in zip(lattices, boxes, strict=True)]
            self.plain = float(np.prod([BlockPower(1, 2)(*span) for span in boxes], axis=0).mean())
            rows = [a**2 for a in asked]
            self.squared = (rows[0].T @ rows[1] if len(rows) > 1 else rows[0].sum(axis=0)) / len(rows[0])
            self.asked = [a[:, some] for a, some in zip(asked, self.smooth, strict=True)]

    def mean_variance(self, precision: float) -> float:
        """Return the mean variance if `precision` is the tents' precision divided by the cells'."""
        known, onto, spread = split_covariance(self.lattices, precision)
        out = self.plain - float((known * self.squared).sum())
        if self.total_known:
            smooth = onto[np.ix_(*self.smooth)]
            # The mean of (qᵀV1)²
            taken = _sum_waves(self.asked, smooth) ** 2 if self.boxes else smooth * apply_along_axes(self.asked, smooth)
            out -= float(taken.mean() if self.boxes else taken.sum()) / spread
        return out


class Lattice:
    """The matrix T (m, n) of one axis: m tents, centred every `spacing` cells, over n cells.

    A tent is a centred B-spline of degree 1, 2 or 3 whose knots are `spacing` cells apart. One tent is centred in the
    middle of the axis, and some tents are centred beyond its ends. The integer weights over any cell add up to `scale`.

    >>> tents = Lattice(5, 2, 1)
    >>> tents.scale, tents.matrix.toarray().tolist()
    (2, [[2, 1, 0, 0, 0], [0, 1, 2, 1, 0], [0, 0, 0, 1, 2]])
    """

    def __init__(self, n: int, spacing: int, degree: int) -> None:
        self.n, self.spacing = n, spacing
        first, weights = np.zeros(1, dtype=np.int64), np.ones((1, 1), dtype=np.int64)
        if n > 1:  # measure places in half cells from the middle of the axis
            place, apart, order = 2 * np.arange(n) - (n - 1), 2 * spacing, degree + 1
            first = (place - order * spacing) // apart + 1
            centres = apart * (first[:, None] + np.arange(order))
            weights = _evaluate_spline(np.abs(place[:, None] - centres), apart, degree)
        #: The first tent over each cell (n,), and the weights (n, degree + 1) of this tent and those after it.
        self.first, self.weights = first - first[0], weights // np.gcd.reduce(weights, axis=None)
        #: The sum of the weights over any cell.
        self.scale = int(self.weights[0].sum())

    @functools.cached_property
    def size(self) -> int:
        """The number of tents m."""
        return int(self.first[-1]) + int(np.flatnonzero(self.weights[-1])[-1]) + 1

    @property
    def _tents(self) -> IntArray:
        """The tents over every cell (n, degree + 1), in the order of `weights`."""
        return np.minimum(self.first[:, None] + np.arange(self.weights.shape[1]), self.size - 1)

    @functools.cached_property
    def matrix(self) -> scipy.sparse.csr_array:
        """T (m, n) in int64."""
        some = self.weights > 0
        places = self._tents[some], np.nonzero(some)[0]
        return scipy.sparse.csr_array((self.weights[some], places), shape=(self.size, self.n))

    @functools.cached_property
    def transpose(self) -> scipy.sparse.csr_array:
        """Tᵀ (n, m) in int64."""
        return self.matrix.T.tocsr()

    @functools.cached_property
    def gram_eigen(self) -> tuple[FloatArray, FloatArray]:
        """The eigenvalues (m,) of T Tᵀ / scale² in decreasing order, and the eigenvectors (m, m)."""
        # Use NumPy's solver, because importing SciPy's would take as long as reading a small release.
        tents, weights, size = self._tents, self.weights.astype(np.float64), self.size
        pairs = (tents[:, :, None] * size + tents[:, None, :]).ravel()
        both = np.bincount(pairs, (weights[:, :, None] * weights[:, None, :]).ravel(), size**2)
        values, vectors = np.linalg.eigh(both.reshape(size, size) / self.scale**2)
        return np.maximum(values[::-1], 0.0), np.ascontiguousarray(vectors[:, ::-1])

    @functools.cached_property
    def wave_values(self) -> FloatArray:
        """The non-zero eigenvalues (w,) of TᵀT / scale² in decreasing order. The eigenvectors of TᵀT are the waves."""
        values = self.gram_eigen[0]
        return values[values > 1e-12 * values[0]]

    @functools.cached_property
    def tent_waves(self) -> FloatArray:
        """The coefficients (m, w) of the tents in each wave, such that q · wave = T q · column."""
        values = self.wave_values
        return self.gram_eigen[1][:, : len(values)] / (self.scale * np.sqrt(values))

    @functools.cached_property
    def wave_sums(self) -> FloatArray:
        """The prefix sums of the waves (n + 1, w)."""
        vectors, above = self.tent_waves, self._tents
        sums = np.zeros((self.n + 1, vectors.shape[1]))
        for start in range(0, self.n, 256):  # few enough for the processor's cache
            some = slice(start, start + 256)
            part = sums[1:][some]
            for tents, weights in zip(above[some].T, self.weights[some].T, strict=True):
                part += weights[:, None] * vectors[tents]
        np.cumsum(sums, axis=0, out=sums)
        return sums

    @functools.cached_property
    def mean_squares(self) -> FloatArray:
        """The mean of (q · wave)² over all intervals q of whole cells, for every wave (w,)."""
        sums = self.wave_sums
        return forms.mean_increment_product(np.einsum("ew,ew->w", sums, sums), sums.sum(axis=0) ** 2, self.n)

    def mean_products(self, some: IntArray) -> FloatArray:
        """Return the mean (w, w) of (q · wave)(q · other wave) over all intervals q, for some of the waves."""
        sums = self.wave_sums[:, some]
        whole = sums.sum(axis=0)
        return forms.mean_increment_product(sums.T @ sums, np.multiply.outer(whole, whole), self.n)

    def weights_at_ends(self, far: int) -> tuple[IntArray, IntArray]:
        """Return the weights (positions, tents) at both ends of moves by `far` cells, for tents over the first end."""
        start = np.arange(min(self.spacing, self.n - far))  # distinct positions relative to the tents
        u, v = self.weights[start], np.zeros((len(start), self.weights.shape[1]), dtype=np.int64)
        behind = self.first[start + far] - self.first[start]
        for tent in range(v.shape[1]):
            some = tent >= behind
            v[some, tent] = self.weights[start + far][some, tent - behind[some]]
        return u, v


#: Share equal lattices between axes and strategies, because the lattice of a large map takes hundreds of megabytes.
make_lattice = functools.lru_cache(maxsize=2)(Lattice)


def apply_along_axes(matrices: Sequence[Any], field: NDArray[Any]) -> NDArray[Any]:
    """Apply one matrix along each of an array's first axes, and return the result."""
    axes = list(enumerate(matrices))
    # If the array grows, process its first axis last, to avoid transposing a large array.
    for axis, matrix in reversed(axes) if matrices[0].shape[0] > matrices[0].shape[1] else axes:
        cube = np.moveaxis(field, axis, 0)
        flat = matrix @ cube.reshape(len(cube), -1)
        field = np.moveaxis(flat.reshape(-1, *cube.shape[1:]), 0, axis)
    return field


def outer_product(factors: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the outer product of one array per axis."""
    return np.asarray(functools.reduce(np.multiply.outer, factors))


def _evaluate_spline(away: IntArray, apart: int, degree: int) -> IntArray:
    """Return the centred B-spline with this knot distance, scaled by apart, 8 apart² or 6 apart³ (degree 1, 2 or 3)."""
    if degree == 1:
        return np.maximum(apart - away, 0)
    if degree == 2:
        return np.where(2 * away <= apart, 6 * apart**2 - 8 * away**2, np.maximum(3 * apart - 2 * away, 0) ** 2)
    inner = 4 * apart**3 - 6 * apart * away**2 + 3 * away**3
    return np.where(away <= apart, inner, np.maximum(2 * apart - away, 0) ** 3)


def largest_changes(lattices: Sequence[Lattice], near: Neighbourhood) -> list[tuple[int, int]]:
    """For the most expensive move and arrival, return the number of cells and the weight of tents that each changes."""
    out = []
    if near.frontier.any():
        out.append((2, largest_change(lattices, near)))
    if near.source_cells.any():
        out.append((1, math.prod(axis.scale for axis in lattices)))
    return out


def largest_change(lattices: Sequence[Lattice], near: Neighbourhood) -> int:
    """Return the largest Σ |T(u) − T(v)| over moves u → v, where T(u) are the weights of the tents over u.

    The sum never decreases as the ends move apart, so it is enough to try the longest displacements from every position
    relative to the tents. The weights over each end add up to W, so the sum is 2 (W − Σ min(T(u), T(v))).
    """
    whole = math.prod(lattice.scale for lattice in lattices)
    least = whole
    for move in near.frontier.tolist():
        if any(d >= lattice.spacing * lattice.weights.shape[1] for d, lattice in zip(move, lattices, strict=True)):
            return 2 * whole  # no tent covers both ends
        ends = [lattice.weights_at_ends(d) for lattice, d in zip(lattices, move, strict=True)]
        shared = np.zeros([len(u) for u, _ in ends], dtype=np.int64)
        for tent in np.ndindex(*(u.shape[1] for u, _ in ends)):
            here, there = (outer_product([uv[end][:, i] for uv, i in zip(ends, tent, strict=True)]) for end in (0, 1))
            shared += np.minimum(here, there)
        least = min(least, int(shared.min()))
    return 2 * (whole - least)
