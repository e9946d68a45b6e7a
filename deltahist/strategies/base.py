"""The base class of strategies, and the registry of their names. A strategy measures counts with an integer matrix."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from importlib.metadata import entry_points
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.decode.base import MOST_DENSE, Decoder, DenseDecoder, IterativeDecoder
from deltahist.errors import InputError, as_printed_fraction, check_memory, check_positive, check_whole
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import Workload

#: The first cell of every block along each axis, for one grid.
Starts = tuple[NDArray[np.int64], ...]
#: An index into an array of draws, or of released values.
Members = slice | NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """Noise draws with the same scale (`Strategy.groups`), or released values with the same meaning (`Strategy.parts`).

    When noise is added row by row, groups and parts are the same, because draw j is added to the answer to row j.

    Parameters
    ----------
    name : the name shown to readers.
    members : a slice or an index array that selects the draws or values.
    share : the group's share of ε. The noise scale is Δ / (share · ε), where Δ is the maximum of Σ share · |change|.
    unit : the number of points that one unit of a draw represents.
    """

    name: str
    members: Members
    share: Fraction = Fraction(1)
    unit: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        for field, value in (("share", self.share), ("unit", self.unit)):
            if not isinstance(value, Fraction) or value <= 0:
                raise InputError(f"{field} of group {self.name!r} is {value!r}: it must be a positive Fraction")


class Strategy(abc.ABC):
    """An integer matrix A with k rows and a column for each of N cells, and a method that adds noise to its answers.

    A strategy is a frozen dataclass that scipy's `aslinearoperator` accepts. `A @ counts.ravel()` returns the answers,
    and `A.T @ y` applies the adjoint, both exactly in int64. A new strategy needs only the field `domain`, the methods
    `_matmat` and `_rmatmat` and, unless the matrix has one row per cell, the property `shape`. All other methods have
    general (dense) implementations. Override `edge_cost` for speed. Set `texts` and override `candidates` and
    `from_text`, so that planning and users can find the strategy. See CONTRIBUTING.md.

    Unless the strategy overrides `scatter`, noise is added row by row: y = A c + η. With `scatter`, y = A c + R(η),
    where R maps `draws` numbers to k numbers. For every edge e, `changes` returns integers U_e for which
    R(η + U_e) = R(η) + A E_e holds exactly for all η. This suffices for privacy (docs/privacy/factorisation.md).
    Source: 2014, section 5.2, for the matrix A, and Li et al. 2010 for the term "strategy".

    >>> import numpy as np, deltahist as dh
    >>> A = dh.strategies.Hierarchical(dh.Domain((0, 1), (4,)))
    >>> (A @ np.array([5, 0, 3, 2])).tolist()
    [10, 5, 5, 5, 0, 3, 2]
    """

    domain: Domain
    #: Whether the rows determine every cell, or None if the rank must be computed to find out.
    determines_cells: ClassVar[bool | None] = None
    #: Whether noise leaves the number of points unchanged, in which case a release reveals it.
    keeps_total: bool = False
    #: Whether the strategy supports neighbourhoods that are defined by the edges of a graph.
    on_graphs: ClassVar[bool] = False
    #: The largest number of axes that the strategy supports.
    most_axes: ClassVar[int] = 3
    #: Answers for fewer points than this fit in 64 bits, with room for noise.
    point_limit: ClassVar[int] = 1 << 62
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int64)
    #: The names that users type, such as "hierarchical[:b]" (the name ends at [ or :).
    texts: ClassVar[tuple[str, ...]] = ()

    @functools.cached_property
    def shape(self) -> tuple[int, int]:
        """The number of rows, k, and the number of cells, N. By default, they are equal."""
        return (self.domain.size, self.domain.size)

    @property
    def name(self) -> str:
        """The name used in tables and release files."""
        return type(self).__name__

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups of noise draws, each with its share of ε. Every draw is in exactly one group."""
        return (Group("all rows", slice(0, self.shape[0])),)

    @property
    def whole_shares(self) -> tuple[list[int], int]:
        """The groups' shares as integers, and their common denominator."""
        denominator = math.lcm(*(group.share.denominator for group in self.groups))
        return [int(group.share * denominator) for group in self.groups], denominator

    @property
    def parts(self) -> tuple[Group, ...]:
        """The groups of released values, which equal `groups` when noise is added row by row."""
        return self.groups

    @property
    def draws(self) -> int:
        """The number of noise draws."""
        return self.shape[0]

    @property
    def row_by_row(self) -> bool:
        """Whether R is the identity, so that draw j is added to the answer to row j."""
        return type(self).scatter is Strategy.scatter

    @property
    def scatters_linearly(self) -> bool:
        """Whether R(η + ζ) = R(η) + R(ζ) exactly. A strategy whose own `scatter` is linear can override this."""
        return self.row_by_row

    def scatter(self, noise: NDArray[Any]) -> NDArray[Any]:
        """Return the k numbers R(η) for noise draws η, exactly for integers. For floats, return R's linear part."""
        return noise

    def scatter_groups(self, noise: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """Return R(η) as a new array, given the draws of each group as 32-bit or 64-bit integers."""
        return self.scatter(join_groups([group.members for group in self.groups], noise))

    def gather(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert the weights of the k released values to weights of the draws, with the adjoint of R's linear part."""
        return weights

    def changes(self, near: Neighbourhood) -> scipy.sparse.csr_array:
        """Return U, which determines the sensitivity. Its column e is the change in the draws that hides edge e."""
        rows, edges = self.matrix(), near.incidence()
        check_memory(48 * rows.nnz * max(1, edges.nnz // max(1, self.domain.size)), "the matrix A E")
        return (rows @ edges).tocsr()

    def decoder_class(self) -> type[Decoder]:
        """Return the decoder class. The default, dense on small domains and otherwise iterative, suits any matrix."""
        return DenseDecoder if self.domain.size <= MOST_DENSE else IterativeDecoder

    def edge_cost(self, near: Neighbourhood, norm: int) -> Fraction | int | None:
        """Return the exact maximum over edges of Σ (share · |entry of A E|)^norm, or None if no closed form exists."""
        return None

    def check_points(self, number: float) -> None:
        """Raise InputError if answers to this many points might not fit in 64 bits."""
        if number >= self.point_limit:  # the message omits the number, which is private
            raise InputError(
                f"counts have more points than strategy {self.name} can measure: there must be fewer than "
                f"{self.point_limit:,} (try a different strategy or larger cells)"
            )

    def measure(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the k exact answers A c for 64-bit integer counts c, which have the shape of the domain."""
        self.check_points(float(counts.sum(dtype=np.float64)))
        return np.asarray(self._matmat(counts.reshape(-1, 1)))[:, 0]

    def matrix(self) -> scipy.sparse.csr_array:
        """Return A as a sparse int64 matrix with k rows and N columns, for small domains and tests."""
        size, step = self.domain.size, 512
        blocks = []
        for start in range(0, size, step):
            columns = np.eye(size, min(step, size - start), -start, dtype=np.int64)
            blocks.append(scipy.sparse.csr_array(self._matmat(columns)))
        return scipy.sparse.csr_array(scipy.sparse.hstack(blocks))

    def describe(self) -> dict[str, Any]:
        """Describe the strategy as JSON-ready data that holds its class name and every field except the domain."""
        names = [field.name for field in fields(self) if field.name != "domain"]  # type: ignore[arg-type]
        out = {name: _convert_to_json(getattr(self, name)) for name in names}
        if (shares := getattr(self, "shares", None)) is not None:
            out["shares"] = [str(share) for share in read_shares(shares, len(shares), "group")]
        return {"strategy": type(self).__name__, **out}

    @classmethod
    def restore(cls, domain: Domain, **parameters: Any) -> Strategy:
        """Return the strategy that has these parameters. Their description may come from an untrusted file."""
        return cls(domain, **parameters)  # type: ignore[call-arg]

    @classmethod
    def from_text(cls, near: Neighbourhood, text: str, norm: int) -> Strategy:
        """Return the strategy for lower-case text such as "hierarchical:8", for Laplace (norm 1) or Gaussian noise."""
        read_numbers(text, 0)
        return cls(near.domain)  # type: ignore[call-arg]

    @classmethod
    def suits(cls, near: Neighbourhood) -> bool:
        """Return whether the strategy supports a neighbourhood's edges and number of axes."""
        return (near.on_grid or cls.on_graphs) and near.domain.ndim <= cls.most_axes

    @classmethod
    def accepted_excess(cls, near: Neighbourhood) -> float:
        """Return by what factor tuning may raise unbiased answers' least error to improve non-negative estimates."""
        return 1.0

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        """Yield labels and strategies for planning, from public data only, for Laplace (norm 1) or Gaussian noise."""
        return iter(())

    def matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return A x, which has shape (k,) for a vector x of N numbers, and (k, m) for a matrix of shape (N, m)."""
        return self._multiply(x, adjoint=False)

    def rmatvec(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return Aᵀ y, which has shape (N,) for a vector y of k numbers, and (N, m) for a matrix of shape (k, m)."""
        return self._multiply(y, adjoint=True)

    # Aliases that scipy and Python expect.
    matmat = __matmul__ = matvec
    rmatmat = rmatvec

    @property
    def T(self) -> scipy.sparse.linalg.LinearOperator:
        """Aᵀ as a scipy `LinearOperator`."""
        return scipy.sparse.linalg.LinearOperator(
            self.shape[::-1], self.rmatvec, self.matvec, self.rmatvec, self.dtype, self.matvec
        )

    def _multiply(self, x: NDArray[Any], adjoint: bool) -> NDArray[Any]:
        x, size = np.asarray(x), self.shape[0 if adjoint else 1]
        columns = x.reshape(size, *x.shape[1:]).reshape(size, -1)  # NumPy raises if the number of rows is wrong
        found = np.asarray((self._rmatmat if adjoint else self._matmat)(columns))
        return found.reshape(len(found), *x.shape[1:])

    @abc.abstractmethod
    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return A X, of shape (k, m) and in the dtype of X, for a matrix X of shape (N, m)."""

    @abc.abstractmethod
    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return Aᵀ X, of shape (N, m) and in the dtype of X, for a matrix X of shape (k, m)."""


def _convert_to_json(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_convert_to_json(v) for v in value]
    return str(value) if isinstance(value, Fraction) else value.item() if isinstance(value, np.generic) else value


def join_groups(members: Sequence[Members], noise: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Return a new array that holds each group's draws at the places that `members` gives."""
    joined = np.empty(sum(map(len, noise)), dtype=np.int64)
    for some, part in zip(members, noise, strict=True):
        joined[some] = part
    return joined


def check_groups(strategy: Strategy) -> None:
    """Raise InputError unless every noise draw is in exactly one group and every released value is in one part."""
    lists = [("groups", strategy.groups, strategy.draws, "noise draw")]
    if type(strategy).parts is not Strategy.parts or not strategy.row_by_row:
        lists.append(("parts", strategy.parts, strategy.shape[0], "released value"))
    for name, groups, number, member in lists:
        if not _cover_once(groups, number):  # values without a draw would be published without noise
            raise InputError(
                f"{name} of {strategy.name} must contain each of the {number:,} {member}s exactly once (`groups` lists "
                "noise draws, and `parts` lists released values if the strategy overrides `scatter`)"
            )


def _cover_once(groups: Sequence[Group], number: int) -> bool:
    named, total = np.zeros(number, dtype=bool), 0
    try:
        for group in groups:
            total += len(named[group.members])
            named[group.members] = True
    except IndexError:
        return False
    return total == number and bool(named.all())


def read_shares(shares: Sequence[float | Fraction] | None, number: int, what: str) -> tuple[Fraction, ...]:
    """Return `number` positive shares of ε as exact fractions (1 by default). `what` says what each share is for."""
    if shares is None:
        return (Fraction(1),) * number
    if len(shares) != number:
        raise InputError(f"shares has {len(shares)} numbers: it must have {number}, one for each {what}")
    # Read each float as its printed decimal: 0.1 is exactly a tenth.
    return tuple(as_printed_fraction(check_positive(share=s)) for s in shares)


def sum_blocks(cube: NDArray[Any], starts: Starts) -> NDArray[Any]:
    """Sum an array over the blocks of its leading axes, and keep its trailing axes. Sums of integers are exact."""
    for axis, first in enumerate(starts):
        n = cube.shape[axis]
        if len(first) == n:
            continue
        if cube.dtype in (bool, np.int64, np.float64) and np.array_equal(first, np.arange(0, n, 2)):
            # Web maps add pairs of cells at every zoom level. For pairs, `reduceat` is twenty times slower.
            cells = np.moveaxis(cube, axis, 0)
            sums = np.array(cells[::2], dtype=np.int64 if cube.dtype == bool else cube.dtype)
            sums[: n // 2] += cells[1::2]
            cube = np.moveaxis(sums, 0, axis)
        else:
            cube = np.add.reduceat(cube, first, axis=axis)
    return cube


def spread_blocks(cube: NDArray[Any], starts: Starts, shape: tuple[int, ...]) -> NDArray[Any]:
    """Give every cell the value of its block. This is the adjoint of `sum_blocks`."""
    for axis, (first, n) in enumerate(zip(starts, shape, strict=True)):
        if len(first) < n:
            cube = np.repeat(cube, np.diff(first, append=n), axis=axis)
    return cube


_KNOWN: dict[str, type[Strategy]] = {}
_Kind = TypeVar("_Kind", bound=type[Strategy])


def register(strategy: _Kind) -> _Kind:
    """Register a strategy class (as a call or a decorator), so that planning tries it and its releases can be loaded.

    A package can instead declare entry points in "deltahist.strategies". Raises InputError if a name is already used.

    >>> import dataclasses, numpy as np, deltahist as dh
    >>> @dh.register
    ... @dataclasses.dataclass(frozen=True, eq=False)
    ... class Doubled(dh.Strategy):
    ...     domain: dh.Domain
    ...     def _matmat(self, x):
    ...         return 2 * x
    ...     _rmatmat = _matmat
    >>> near = dh.Neighbourhood(dh.Domain((0, 1), (4,)), delta=0.25)
    >>> int(dh.sensitivity(Doubled(near.domain), near))
    4
    """
    name = strategy.__name__
    taken = _find_words(*_KNOWN.values()) | _KNOWN
    for word in (name, *_find_words(strategy)):
        owner = taken.get(word, strategy)
        if (owner.__module__, owner.__qualname__) != (strategy.__module__, strategy.__qualname__):
            raise InputError(
                f"strategy {name} of {strategy.__module__} needs a different name: {word!r} already means "
                f"{owner.__qualname__} of {owner.__module__}"
            )
    _KNOWN[name] = strategy
    return strategy


def strategies() -> dict[str, type[Strategy]]:
    """Return all strategy classes by name, including those that were registered or declared as entry points."""
    _load_entry_points()
    return dict(_KNOWN)


def is_own(strategy: Strategy) -> bool:
    """Return whether a strategy's class is part of this package (and therefore tested here)."""
    return type(strategy).__module__.partition(".")[0] == __name__.partition(".")[0]


@functools.cache
def _load_entry_points() -> None:
    for point in entry_points(group="deltahist.strategies"):
        register(point.load())


def _find_words(*strategies: type[Strategy]) -> dict[str, type[Strategy]]:
    return {text.partition("[")[0].partition(":")[0]: cls for cls in strategies for text in cls.texts}


def parse_strategy(text: str, near: Neighbourhood, *, norm: int = 1) -> Strategy:
    """Return the strategy for a text such as "flow" or "hierarchical:8", for Laplace (norm 1) or Gaussian noise.

    Raises InputError if the name is unknown, a parameter is wrong or the strategy does not suit the neighbourhood.

    >>> import deltahist as dh
    >>> parse_strategy("hierarchical:8", dh.Neighbourhood(Domain((0, 1), (64,)), 0.1)).name
    'Hierarchical'
    """
    found = find_strategy_class(text)
    if not found.suits(near):
        names = ", ".join(each for cls in strategies().values() if cls.suits(near) for each in cls.texts)
        raise InputError(f"strategy is {text!r}: on a graph or in 3-D, it must be one of {names}")
    return found.from_text(near, text.strip().lower(), norm)


def find_strategy_class(text: str) -> type[Strategy]:
    """Return the strategy class for a text such as "hierarchical:8". Raises InputError if the name is unknown."""
    known = _find_words(*strategies().values())
    word = text.strip().lower().partition(":")[0]
    if word not in known:
        every = ", ".join(each for cls in _KNOWN.values() for each in cls.texts)
        raise InputError(f"strategy is {text!r}: it must be auto or one of {every} (lengths are in cells)")
    return known[word]


def read_numbers(text: str, most: int) -> list[int]:
    """Return the positive integers after the colon in a text. Raises InputError if one is wrong or more than `most`."""
    parts = [part.strip() for part in text.partition(":")[2].split(",")] if ":" in text else []
    if len(parts) > most or not all(part.isdecimal() for part in parts):
        raise InputError(f"strategy is {text!r}: at most {most} whole number(s) may follow the colon")
    return [check_whole(parameter=int(part)) for part in parts]


def from_description(domain: Domain, description: dict[str, Any]) -> Strategy:
    """Restore a strategy from a description made by `Strategy.describe`. Raises InputError if its name is unknown."""
    parameters = {key: _convert_to_tuples(value) for key, value in description.items()}
    name = parameters.pop("strategy", None)
    if name not in _KNOWN and name not in strategies():  # loading entry points is slow
        raise InputError(
            f"strategy is {name!r}: it must be one of {', '.join(_KNOWN)} (first import the package that defines it, "
            "or update deltahist if the file is from a newer version)"
        )
    if parameters.get("shares") is not None:
        parameters["shares"] = tuple(Fraction(s) for s in parameters["shares"])
    return _KNOWN[name].restore(domain, **parameters)


def _convert_to_tuples(value: Any) -> Any:
    return tuple(_convert_to_tuples(v) for v in value) if isinstance(value, list) else value
