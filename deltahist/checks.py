"""Checks of a strategy: everything that publishing, pricing and decoding rely on, against the plain definitions."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deltahist.decode import Decoder, decoder
from deltahist.errors import InputError
from deltahist.mechanisms.calibration import explicit_edge_cost
from deltahist.privacy import Law
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import all_ranges
from deltahist.strategies.base import Group, Strategy
from deltahist.strategies.registry import from_description

#: Cells up to which a strategy is compared with its matrix, and its cost with the definition over all edges.
_MOST_CELLS = 2048
#: Rows up to which it is looked whether the number of points can be told from them.
_MOST_ROWS = 400
#: Edges that are looked at one by one, where noise does not enter row by row.
_EDGES = 2000
#: Queries whose stated error is compared with what the coefficients give.
_QUERIES = 50
#: Entries of random counts, which a release of counts of this size must still measure exactly.
_LARGEST = 1 << 20


def check_strategy(strategy: Strategy, near: Neighbourhood) -> None:
    """Compare a strategy with the plain definitions, and name the first difference.

    Looked at are: whole-number answers, exact and linear; the adjoint; groups that hold every noise draw once; noise
    that enters as said (`scatter`, `gather`, `changes`); the sensitivity in both norms against all edges; the matrix
    and the gram matrix; a description that makes the same strategy again; and a decoder that is unbiased, knows
    its error, and has its estimates in the field from which non-negative ones are found.

    On more than 2,048 cells random counts stand for the matrix, and the sensitivity is not compared: check the same
    class on a small domain as well.

    Parameters
    ----------
    strategy, near : on one and the same domain.

    Raises
    ------
    InputError
        On the first check that fails; the message says which, and what it means.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 1), (6,)), delta=0.5)
    >>> dh.check_strategy(dh.strategies.Hierarchical(near.domain), near)
    """
    if strategy.domain != near.domain:
        raise InputError("the strategy and the neighbourhood are on different domains: they must share one")
    small = strategy.domain.size <= _MOST_CELLS
    _check_answers(strategy)
    _check_linear(strategy)
    _check_adjoint(strategy)
    check_groups(strategy)
    _check_noise(strategy)
    if small:
        _check_matrix(strategy)
        # What holds for the shortest and for the longest moves that are promised anything.
        for _, relation in dict.fromkeys((near.relations[0], near.relations[-1])):
            _check_cost(strategy, relation)
    if strategy.shape[0] <= _MOST_ROWS:
        _check_total(strategy)
    _check_round_trip(strategy)
    if small:
        _check_decoder(strategy)


def check_groups(strategy: Strategy) -> None:
    """Raise InputError unless groups hold every noise draw once, and parts every released value."""
    number, different = _held(strategy.groups, strategy.draws)
    if not number == different == strategy.draws:
        raise InputError(
            f"groups of {strategy.name} name {number:,} noise draws, {different:,} different ones: they must "
            f"hold each of {strategy.draws:,} once, or values would be published without noise of their own"
        )
    if type(strategy).parts is Strategy.parts and strategy.row_by_row:
        return  # the parts are the groups, and the values have these draws
    values = strategy.shape[0]
    try:
        complete = _held(strategy.parts, values) == (values, values)
    except IndexError:
        complete = False
    if not complete:
        raise InputError(
            f"parts of {strategy.name} must hold each of the {values:,} released values once (one that "
            "overrides scatter names its values by `parts`, its noise draws by `groups`)"
        )


def _held(groups: Sequence[Group], number: int) -> tuple[int, int]:
    """Return how many members groups name, and how many different ones, of `number` members."""
    held, named = np.zeros(number, dtype=bool), 0
    for group in groups:
        named += len(held[group.members])
        held[group.members] = True
    return named, int(held.sum())


def check_foreign(strategy: Strategy) -> None:
    """Check a class that is not the package's own, before `publish` trusts it; one pass or two each.

    Raises InputError on answers that are no whole numbers, a wrong adjoint, or noise that does not enter as said.
    """
    _check_answers(strategy)
    _check_adjoint(strategy)
    _check_noise(strategy)


def _check_answers(strategy: Strategy) -> None:
    """Raise InputError unless a strategy's answers to whole numbers are whole numbers, of its shape."""
    rng = np.random.default_rng(11)
    rows, cells = strategy.shape
    if cells != strategy.domain.size:
        raise _wrong(strategy, f"its shape is ({rows}, {cells})", f"it must be (k, {strategy.domain.size})")
    counts = rng.integers(0, 5, (cells, 2))
    found = strategy._matmat(counts)
    if found.shape != (rows, 2) or not np.issubdtype(found.dtype, np.integer):
        raise _wrong(
            strategy,
            f"answers to whole numbers have type {found.dtype} and shape {found.shape}",
            f"they must be integers of shape ({rows}, 2), or a release would not be exact (fractional entries?)",
        )
    measured = strategy.measure(counts[:, 0].reshape(strategy.domain.shape))
    if measured.shape != (rows,) or (measured != found[:, 0]).any():
        raise _wrong(strategy, "measure differs from _matmat", "what is released must be what is priced")


def _check_linear(strategy: Strategy) -> None:
    rng = np.random.default_rng(12)
    x, y = rng.integers(0, _LARGEST, (2, strategy.domain.size, 1))
    apart = strategy._matmat(x) + 3 * strategy._matmat(y)
    if (strategy._matmat(x + 3 * y) != apart).any():
        raise _wrong(strategy, "A(x + 3y) differs from Ax + 3Ay", "rows must be linear (rounded entries?)")
    floats = strategy._matmat(x.astype(np.float64))
    if not np.allclose(floats, strategy._matmat(x), rtol=1e-9):
        raise _wrong(strategy, "answers to floats differ from those to whole numbers", "decoding needs both")


def _check_adjoint(strategy: Strategy) -> None:
    """Raise InputError unless ⟨Ax, y⟩ = ⟨x, Aᵀy⟩ exactly for random whole numbers."""
    rng = np.random.default_rng(13)
    x = rng.integers(-9, 10, (strategy.shape[1], 1))
    y = rng.integers(-9, 10, (strategy.shape[0], 1))
    back = strategy._rmatmat(y)
    if back.shape != x.shape:
        raise _wrong(strategy, f"_rmatmat gives the shape {back.shape}", f"it must be {x.shape}")
    if int((strategy._matmat(x) * y).sum()) != int((x * back).sum()):
        raise _wrong(
            strategy,
            "_rmatmat is not the adjoint of _matmat",
            "⟨Ax, y⟩ must be ⟨x, Aᵀy⟩, or decoding is wrong",
        )


def _check_noise(strategy: Strategy) -> None:
    rng = np.random.default_rng(14)
    draws = rng.integers(-99, 100, strategy.draws)
    released = strategy.scatter(draws)
    if released.shape != (strategy.shape[0],) or not np.issubdtype(released.dtype, np.integer):
        raise _wrong(
            strategy,
            f"scatter gives type {released.dtype} and shape {released.shape}",
            f"noise must enter as {strategy.shape[0]:,} integers",
        )
    noise, weights = rng.normal(size=strategy.draws), rng.normal(size=strategy.shape[0])
    entered = strategy.scatter(noise)
    ways = float(entered @ weights), float(noise @ strategy.gather(weights))
    if abs(ways[0] - ways[1]) > 1e-9 * float(np.abs(entered) @ np.abs(weights) + 1):
        raise _wrong(strategy, "gather is not the adjoint of scatter", "errors of answers would be wrong")


def _check_matrix(strategy: Strategy) -> None:
    rows = strategy.matrix()
    cells = np.eye(strategy.domain.size, dtype=np.int64)
    plain = strategy._matmat(cells)
    if (rows.toarray() != plain).any():
        raise _wrong(
            strategy, "matrix() differs from the answers to single cells", "they must be the same rows"
        )
    gram = strategy._rmatmat(plain)
    if (gram != plain.T @ plain).any():
        raise _wrong(
            strategy, "AᵀA by its methods differs from that of its matrix", "decoding would be wrong"
        )


def _check_cost(strategy: Strategy, near: Neighbourhood) -> None:
    changes, edges = strategy.changes(near).toarray(), near.incidence().toarray()
    moved = strategy.matrix().toarray() @ edges
    if type(strategy).scatter is Strategy.scatter:
        wrong = np.flatnonzero((changes != moved).any(axis=0)).tolist()
    else:
        rng = np.random.default_rng(15)
        draws = rng.integers(-99, 100, strategy.draws)
        before = strategy.scatter(draws)
        some = rng.permutation(edges.shape[1])[:_EDGES]
        wrong = [e for e in some if (strategy.scatter(draws + changes[:, e]) != before + moved[:, e]).any()]
    if len(wrong):
        raise _wrong(
            strategy,
            f"changes(near) does not make up for edge {wrong[0]}",
            "R(η + U) must be R(η) + A E exactly, or nothing is private",
        )
    for norm in (1, 2):
        said = strategy.edge_cost(near, norm)
        if said is None:
            continue
        true = explicit_edge_cost(strategy, near, norm)
        if said < true:
            raise _wrong(
                strategy,
                f"edge_cost(near, {norm}) is {said}",
                f"an edge costs {true}: noise would be too small, and nothing would be private",
            )


def _check_total(strategy: Strategy) -> None:
    """Whether some combination of the values is the number of points, free of noise."""
    rows = strategy.matrix().toarray().T.astype(np.float64)
    entered = np.stack([strategy.gather(w) for w in np.eye(strategy.shape[0])], axis=1)
    system, wanted = np.concatenate([rows, entered]), np.zeros(len(rows) + len(entered))
    wanted[: len(rows)] = 1.0
    weight = np.linalg.lstsq(system, wanted, rcond=None)[0]
    if np.abs(system @ weight - wanted).max() < 1e-9 and not strategy.keeps_total:
        raise _wrong(
            strategy,
            "some combination of its values is the number of points without noise",
            "keeps_total must be True, or the number is given away where it is not public",
        )


def _check_round_trip(strategy: Strategy) -> None:
    description = json.loads(json.dumps(strategy.describe()))
    again = from_description(strategy.domain, description)
    x = np.random.default_rng(16).integers(0, 99, (strategy.domain.size, 1))
    same = again.shape == strategy.shape and (again._matmat(x) == strategy._matmat(x)).all()
    if not same or [g.share for g in again.groups] != [g.share for g in strategy.groups]:
        raise _wrong(strategy, "its description makes another strategy", "its releases would not load")


def _check_decoder(strategy: Strategy) -> None:
    # Groups that differ by more than their shares: a decoder that forgets the noise is seen.
    laws = [Law("gaussian", (i + 2) / g.share**2) for i, g in enumerate(strategy.groups)]
    rng = np.random.default_rng(17)
    found = decoder(strategy, laws, total_known=False)
    kind = type(found).__name__
    query, values = rng.normal(size=strategy.domain.size), rng.normal(size=strategy.shape[0])
    own = found.solve(values)
    ways = float(own @ query), float(found.adjoint(query) @ values)
    if abs(ways[0] - ways[1]) > 1e-6 * (float(np.abs(own) @ np.abs(query)) + 1):
        raise _wrong(strategy, f"adjoint of {kind} is not that of its solve", "stated errors would be wrong")
    cells = rng.integers(0, 9, strategy.domain.size)
    exact = strategy.measure(cells.reshape(strategy.domain.shape))
    if strategy.determines_cells and not np.allclose(found.solve(exact.astype(float)), cells, atol=1e-6):
        raise _wrong(
            strategy, f"{kind} does not give the counts back", "without noise it must, or it is biased"
        )
    work = all_ranges(strategy.domain).sample(_QUERIES)
    told, queries = found.moments(work), work.matrix(strategy.domain).toarray()
    noise = np.array([strategy.gather(found.coefficients(q)) for q in queries])
    true = (noise * noise) @ found.draw_variance
    if told.note == "exact" and not np.allclose(told.variance, true, rtol=1e-6, atol=1e-9 * true.max()):
        raise _wrong(
            strategy, f"{kind} states other errors than its own coefficients give", "they must be the same"
        )
    _check_field(strategy, found, values)


def _check_field(strategy: Strategy, found: Decoder, values: NDArray[np.float64]) -> None:
    kind, field = type(found).__name__, found.field(values, None)
    noise = found.noise(np.random.default_rng(18))
    if noise.shape != field.shape:
        raise _wrong(strategy, f"noise of {kind} has shape {noise.shape}", f"its field has {field.shape}")
    # The general metric is of the domain, and not simulated here.
    metric = None if type(found).metric is Decoder.metric else found.metric()
    grid = strategy.domain.shape if metric is None else metric.grid
    if grid != field.shape:
        raise _wrong(
            strategy,
            f"metric of {kind} is of a grid {grid}, its field of {field.shape}",
            "a decoder whose field is larger than the domain must give its metric",
        )
    cells = field if metric is None else field[metric.inside]
    if not np.allclose(cells, found.estimate(values, None), atol=1e-6):
        raise _wrong(strategy, f"field of {kind} does not hold its estimates", "it must, where the domain is")


def _wrong(strategy: Strategy, what: str, rule: str) -> InputError:
    return InputError(f"strategy {strategy.name}: {what}; {rule}")
