"""Strategy: a measurement of counts as an integer linear operator, and the registry of all strategies by name."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from deltahist._memory import check_memory
from deltahist.decode.base import Decoder, general_decoder
from deltahist.errors import InputError, as_printed_fraction, check_positive, check_whole
from deltahist.space.domain import Domain

if TYPE_CHECKING:
    import scipy.sparse
    from scipy.sparse.linalg import LinearOperator

    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.workloads import Workload


#: The first cell of every block along each axis, for one grid.
Starts = tuple[NDArray[np.int64], ...]
#: What indexes an array of draws, or of released values.
Members = slice | NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """Noise draws of one scale (`Strategy.groups`), or released values of one meaning (`Strategy.parts`).

    Where noise is added row by row, draw j is that of row j and of value j, and the two are the same.

    Parameters
    ----------
    name : of the group, as text.
    members : which draws, or values: a slice or an index array; `noise[group.members]` belongs to the group.
    share : the draws count this much when ε is divided: noise of scale Δ / (share · ε), where Δ is the
        largest sum over edges of share · |change|.
    unit : points that a draw of one counts.
    """

    name: str
    members: Members
    share: Fraction = Fraction(1)
    unit: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        for field, value in (("share", self.share), ("unit", self.unit)):
            if not isinstance(value, Fraction) or value <= 0:
                raise InputError(f"{field} of group {self.name!r} is {value!r}: it must be a fraction above zero")


class Strategy:
    """A strategy A: k integer rows over the N cells, and how noise enters. A workload has no noise.

    A strategy is a frozen dataclass and a linear operator, which scipy's `aslinearoperator` takes: `A @ counts.ravel()`
    measures, `A.T @ y` is the adjoint, both exact in int64. A new one needs only

    - `domain`, a field,
    - `shape`, a property (k, N),
    - `_matmat(x)` for x of shape (N, m) and `_rmatmat(y)` for y of shape (k, m), in the dtype of the input,

    and is then already measured, priced and decoded correctly by the general (dense) methods. Two optional
    methods make it fast: `edge_cost` (a closed form of the sensitivity) and `groups` (shares of ε); `candidates` says
    what planning should try, `texts` and `named` how it is asked for in words. `register` makes it known, so that its
    releases load again; `check_strategy` looks whether all of it is right (docs/internals/adding-a-strategy.md).

    Noise is added row by row, y = A c + η, unless the strategy says otherwise: then y = A c + R(η), where R
    takes `draws` numbers to k, and `changes` gives for every edge e of the neighbourhood the whole numbers U_e
    for which R(η + U_e) = R(η) + A E_e exactly, whatever η. That is all that privacy needs
    (docs/privacy/factorisation.md).
    Source: 2014, section 5.2 (the matrix A); Li et al. 2010 for the term.

    >>> import numpy as np, deltahist as dh
    >>> A = dh.strategies.Hierarchical(dh.Domain((0, 1), (4,)))
    >>> (A @ np.array([5, 0, 3, 2])).tolist()
    [10, 5, 5, 5, 0, 3, 2]
    """

    domain: Domain
    #: Rows and cells (k, N).
    shape: tuple[int, int]
    #: Whether the rows determine every cell; None if not known without looking at the rank.
    determines_cells: ClassVar[bool | None] = None
    #: Whether the noise leaves the number of points as it is, so that a release gives it away.
    keeps_total: bool = False

    #: Of the entries of A.
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int64)

    @property
    def name(self) -> str:
        """Name for tables and release files."""
        return type(self).__name__

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups of noise draws, each with its share of ε; together they hold every draw once."""
        return (Group("all rows", slice(0, self.shape[0])),)

    @property
    def parts(self) -> tuple[Group, ...]:
        """The groups of released values; the same as `groups` where noise is added row by row."""
        return self.groups

    @property
    def draws(self) -> int:
        """Number of noise draws in all; which of them a group has is `Group.members`."""
        return self.shape[0]

    @property
    def row_by_row(self) -> bool:
        """Whether every released value has a noise draw of its own, in the rows' order: R is the identity."""
        return type(self).scatter is Strategy.scatter

    @property
    def scatters_linearly(self) -> bool:
        """Whether R(η + ζ) = R(η) + R(ζ) exactly; not known of an R that is not the identity, unless it says so."""
        return self.row_by_row

    def scatter(self, noise: NDArray[Any]) -> NDArray[Any]:
        """Return R(η) (k,) of noise draws η (draws,): whole numbers exactly; of floats the linear part of R."""
        return noise

    def scatter_groups(self, noise: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """Return R(η) as an array of its own, from the draws of each group, whole numbers of 32 or 64 bits."""
        return self.scatter(join_groups([group.members for group in self.groups], noise))

    def gather(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the adjoint of the linear part of R: weights of draws, from weights (k,) of the values."""
        return weights

    def changes(self, near: Neighbourhood) -> scipy.sparse.csr_array:
        """Return U (draws, M): by how much each draw must differ to make up for an edge; the definition of cost."""
        rows, edges = self.matrix(), near.incidence()
        check_memory(48 * rows.nnz * max(1, edges.nnz // max(1, self.domain.size)), "the matrix A E")
        return (rows @ edges).tocsr()

    def decoder_class(self) -> type[Decoder]:
        """Return the class of the decoder: a general one, dense or iterative, unless the strategy has its own."""
        return general_decoder(self.domain)

    def edge_cost(self, near: Neighbourhood, norm: int) -> Fraction | int | None:
        """Return the exact largest sum over an edge's column of (share · |entry of A E|)^norm; None: no closed form."""
        return None

    def check_points(self, number: float) -> None:
        """Raise InputError if values of this number of points might not fit 64 bits."""

    def measure(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return exact answers (k,) to the rows, from counts (domain.shape, int64)."""
        return np.asarray(self._matmat(counts.reshape(-1, 1)))[:, 0]

    def matrix(self) -> scipy.sparse.csr_array:
        """Return the rows as an explicit sparse int64 matrix (k, N); for small domains and tests."""
        import scipy.sparse

        size, step = self.domain.size, 512
        blocks = []
        for start in range(0, size, step):
            columns = np.zeros((size, min(step, size - start)), dtype=np.int64)
            columns[np.arange(start, start + columns.shape[1]), np.arange(columns.shape[1])] = 1
            blocks.append(scipy.sparse.csr_array(self._matmat(columns)))
        return scipy.sparse.csr_array(scipy.sparse.hstack(blocks))

    def describe(self) -> dict[str, Any]:
        """Describe the strategy as JSON: the class name and every field but the domain."""
        out: dict[str, Any] = {"strategy": type(self).__name__}
        for field in fields(self):  # type: ignore[arg-type]
            if field.name != "domain":
                out[field.name] = _plain(getattr(self, field.name))
        return out

    @classmethod
    def restore(cls, domain: Domain, **parameters: Any) -> Strategy:
        """Return the strategy of a description, whose parameters come from an untrusted file."""
        return cls(domain, **parameters)  # type: ignore[call-arg]

    #: How the strategy is asked for in words: "hierarchical[:b]"; what comes before [ or : is its name there.
    texts: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def named(cls, near: Neighbourhood, text: str, norm: int) -> Strategy:
        """Return the strategy for a text such as "hierarchical:8" (`numbers_of` reads the numbers behind the colon).

        Parameters
        ----------
        near : the neighbourhood. text : in small letters. norm : 1 for Laplace, 2 for Gaussian noise.
        """
        numbers_of(text, 0)
        return cls(near.domain)  # type: ignore[call-arg]

    @classmethod
    def candidates(cls, near: Neighbourhood, workload: Workload, norm: int) -> Iterator[tuple[str, Strategy]]:
        """Yield labels and strategies that planning should try; none unless a subclass says which.

        Public figures only: neighbourhood, workload and kind of noise (norm 1 Laplace, 2 Gaussian).
        """
        return iter(())

    def matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return A x: (k,) of a vector (N,), (k, m) of a matrix (N, m)."""
        return _multiply(self._matmat, x, self.shape[1])

    def rmatvec(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return Aᵀ y: (N,) of a vector (k,), (N, m) of a matrix (k, m)."""
        return _multiply(self._rmatmat, y, self.shape[0])

    # The names that scipy and Python have for the same.
    matmat = __matmul__ = matvec
    rmatmat = rmatvec

    @property
    def T(self) -> LinearOperator:
        """Aᵀ, as one of scipy's linear operators."""
        from scipy.sparse.linalg import LinearOperator

        return LinearOperator(
            shape=self.shape[::-1],
            matvec=self.rmatvec,
            rmatvec=self.matvec,
            matmat=self.rmatvec,
            rmatmat=self.matvec,
            dtype=self.dtype,
        )

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define _matmat")

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define _rmatmat")


def join_groups(members: Sequence[Members], noise: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Return the draws of all groups as one new array."""
    drawn = np.empty(sum(map(len, noise)), dtype=np.int64)
    for some, part in zip(members, noise, strict=True):
        drawn[some] = part
    return drawn


def check_groups(strategy: Strategy) -> None:
    """Raise InputError unless groups hold every noise draw once, and parts every released value."""
    number, different = _count_members(strategy.groups, strategy.draws)
    if not number == different == strategy.draws:
        raise InputError(
            f"groups of {strategy.name} name {number:,} noise draws, {different:,} different ones: they must "
            f"hold each of {strategy.draws:,} once, or values would be published without noise of their own"
        )
    if type(strategy).parts is Strategy.parts and strategy.row_by_row:
        return  # the parts are the groups, and the values have these draws
    values = strategy.shape[0]
    try:
        complete = _count_members(strategy.parts, values) == (values, values)
    except IndexError:
        complete = False
    if not complete:
        raise InputError(
            f"parts of {strategy.name} must hold each of the {values:,} released values once (one that "
            "overrides scatter names its values by `parts`, its noise draws by `groups`)"
        )


def _count_members(groups: Sequence[Group], number: int) -> tuple[int, int]:
    """Return how many members groups name, and how many different ones, of `number` members."""
    slices = [group.members for group in groups if isinstance(group.members, slice)]
    if len(slices) == len(groups) and all(each.step in (None, 1) for each in slices):
        spans = [range(number)[each] for each in slices]
        last = different = 0
        for span in sorted(spans, key=lambda span: span.start):
            different += max(0, span.stop - max(last, span.start))
            last = max(last, span.stop)
        return sum(map(len, spans)), different
    named = np.zeros(number, dtype=bool)
    total = 0
    for group in groups:
        total += len(named[group.members])
        named[group.members] = True
    return total, int(named.sum())


def _multiply(product: Callable[[NDArray[Any]], NDArray[Any]], x: NDArray[Any], size: int) -> NDArray[Any]:
    """Return a product with a matrix (size, m), or with a vector (size,) as a vector."""
    x = np.asarray(x)
    if x.ndim not in (1, 2) or len(x) != size:
        raise InputError(f"array has shape {x.shape}: it must be a vector or a matrix with {size:,} rows")
    found = np.asarray(product(x.reshape(size, -1)))
    return found.reshape(len(found), *x.shape[1:])


def numbers_of(text: str, most: int) -> list[int]:
    """Return the numbers behind a text's colon; InputError unless they are whole, above 0, and few enough."""
    rest = text.partition(":")[2]
    try:
        found = [int(part) for part in rest.split(",")] if rest else []
    except ValueError:
        found = [0] * (most + 1)
    if len(found) > most:
        raise InputError(f"strategy is {text!r}: after the colon there must be at most {most} whole number(s)")
    return [check_whole(parameter=n) for n in found]


def read_shares(shares: Sequence[float | Fraction] | None, number: int, what: str) -> tuple[Fraction, ...]:
    """Return shares of ε as exact fractions, one per group; all one when None.

    Raises InputError unless there are `number` of them, each above zero.
    """
    if shares is None:
        return (Fraction(1),) * number
    if len(shares) != number:
        raise InputError(f"shares has {len(shares)} numbers: there must be {number}, one for each {what}")
    # A float is read as the decimal that it prints as: 0.1 is a tenth.
    return tuple(as_printed_fraction(check_positive(share=s)) for s in shares)


def whole_shares(shares: Sequence[Fraction]) -> tuple[list[int], int]:
    """Return shares as whole numbers over one denominator."""
    denominator = math.lcm(*(s.denominator for s in shares))
    return [int(s * denominator) for s in shares], denominator


def sum_blocks(cube: NDArray[Any], starts: Starts) -> NDArray[Any]:
    """Return sums over blocks along the leading axes, exact for integers; trailing axes are kept."""
    for axis, first in enumerate(starts):
        n = cube.shape[axis]
        if len(first) == n:
            continue
        if cube.dtype in (bool, np.int64, np.float64) and np.array_equal(first, np.arange(0, n, 2)):
            # Pairs, of which maps are halved again and again: `reduceat` takes twenty times as long.
            cells = np.moveaxis(cube, axis, 0)
            sums = np.array(cells[::2], dtype=np.int64 if cube.dtype == bool else cube.dtype)
            sums[: n // 2] += cells[1::2]
            cube = np.moveaxis(sums, 0, axis)
        else:
            cube = np.add.reduceat(cube, first, axis=axis)
    return cube


def spread_blocks(cube: NDArray[Any], starts: Starts, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the adjoint of `sum_blocks`: every cell gets its block's value."""
    for axis, (first, n) in enumerate(zip(starts, shape, strict=True)):
        if len(first) < n:
            cube = np.repeat(cube, np.diff(first, append=n), axis=axis)
    return cube


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


#: Entry points by which installed packages make their strategies known.
ENTRY_POINTS = "deltahist.strategies"
_KNOWN: dict[str, type[Strategy]] = {}
_Kind = TypeVar("_Kind", bound=type[Strategy])


def register(strategy: _Kind) -> _Kind:
    """Make a class of strategies known, so that its releases load and it is planned with; a class decorator.

    An installed package does the same by an entry point of the group "deltahist.strategies".

    Raises
    ------
    InputError
        If it is no strategy, or its name is taken.

    >>> import dataclasses, numpy as np, deltahist as dh
    >>> @dh.register
    ... @dataclasses.dataclass(frozen=True, eq=False)
    ... class Doubled(dh.Strategy):
    ...     domain: dh.Domain
    ...     @property
    ...     def shape(self):
    ...         return self.domain.size, self.domain.size
    ...     def _matmat(self, x):
    ...         return 2 * x
    ...     _rmatmat = _matmat
    >>> near = dh.Neighbourhood(dh.Domain((0, 1), (4,)), delta=0.25)
    >>> int(dh.sensitivity(Doubled(near.domain), near))
    4
    """
    if not (isinstance(strategy, type) and issubclass(strategy, Strategy)):
        raise InputError(f"strategy is {strategy!r}: it must be a subclass of deltahist.Strategy")
    name = strategy.__name__
    taken = _words_of(*_KNOWN.values()) | _KNOWN
    for word in (name, *_words_of(strategy)):
        owner = taken.get(word, strategy)
        if (owner.__module__, owner.__qualname__) != (strategy.__module__, strategy.__qualname__):
            raise InputError(
                f"strategy {name} of {strategy.__module__} cannot be registered: {word!r} is "
                f"{owner.__qualname__} of {owner.__module__} already; give it another name"
            )
    _KNOWN[name] = strategy
    return strategy


def strategies() -> dict[str, type[Strategy]]:
    """Return every known strategy by class name: the package's own, registered ones, and entry points'."""
    _load_entry_points()
    return dict(_KNOWN)


def is_own(strategy: Strategy) -> bool:
    """Return whether a strategy's class is the package's own, whose tests have checked it."""
    return type(strategy).__module__.partition(".")[0] == __name__.partition(".")[0]


@functools.cache
def _load_entry_points() -> None:
    for point in entry_points(group=ENTRY_POINTS):
        register(point.load())


def texts() -> str:
    """Return all texts that `named` takes, for help and messages."""
    return ", ".join(text for cls in strategies().values() for text in cls.texts)


def _words_of(*strategies: type[Strategy]) -> dict[str, type[Strategy]]:
    return {text.partition("[")[0].partition(":")[0]: cls for cls in strategies for text in cls.texts}


def named(text: str, near: Neighbourhood, *, norm: int = 1) -> Strategy:
    """Return the strategy of a text such as "flow" or "hierarchical:8"; lengths are in cells.

    Parameters
    ----------
    near : the neighbourhood. norm : 1 for Laplace, 2 for Gaussian noise.

    Raises
    ------
    InputError
        On an unknown name or parameters that do not fit.

    >>> import deltahist as dh
    >>> named("hierarchical:8", dh.Neighbourhood(Domain((0, 1), (64,)), 0.1)).name
    'Hierarchical'
    """
    return kind_named(text).named(near, text.strip().lower(), norm)


def kind_named(text: str) -> type[Strategy]:
    """Return the kind of strategy that a text names; InputError on an unknown name."""
    _load_entry_points()
    known = _words_of(*_KNOWN.values())
    name = text.strip().lower().partition(":")[0]
    if name not in known:
        raise InputError(f"strategy is {text!r}: it must be auto, {texts()}, with lengths in cells")
    return known[name]


def from_description(domain: Domain, description: dict[str, Any]) -> Strategy:
    """Return the strategy that `Strategy.describe` described.

    Raises
    ------
    InputError
        If the name is unknown or a parameter does not fit.
    """
    parameters = dict(description)
    name = parameters.pop("strategy", None)
    if name not in _KNOWN:
        _load_entry_points()
    if name not in _KNOWN:
        raise InputError(
            f"strategy is {name!r}: it must be one of {', '.join(_KNOWN)} (a file of a newer version, or of a strategy "
            "from another package? import that package first, or let it have an entry point)"
        )
    for key, value in parameters.items():
        if key == "shares" and value is not None:
            parameters[key] = tuple(Fraction(s) for s in value)
        elif isinstance(value, list):
            parameters[key] = _tuples(value)
    try:
        return _KNOWN[name].restore(domain, **parameters)
    except TypeError as problem:
        raise InputError(f"strategy {name} has unknown or missing parameters: {problem}") from None


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
