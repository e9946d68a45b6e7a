"""Checks of a strategy: everything that publishing, pricing and decoding rely on, against the plain definitions."""

from __future__ import annotations

import json

import numpy as np

from deltahist.decode import Decoder, decoder
from deltahist.errors import InputError
from deltahist.mechanisms.histogram import explicit_edge_cost
from deltahist.privacy import Gaussian
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import all_ranges
from deltahist.strategies.base import Strategy, check_groups, from_description

#: Cells up to which a strategy is compared with its matrix, and its cost with the definition over all edges.
_MOST_CELLS = 2048
#: Rows up to which the number of points is sought in them.
_MOST_ROWS = 400
#: Edges that are looked at one by one, where noise does not enter row by row.
_EDGES = 2000
#: Queries whose stated error is compared with the error that the coefficients give.
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
    check_foreign(strategy)
    check_groups(strategy)
    small = strategy.domain.size <= _MOST_CELLS
    if small:
        _check_matrix(strategy)
        # What holds for the shortest and for the longest moves that are promised anything.
        for _, relation in dict.fromkeys((near.relations[0], near.relations[-1])):
            _check_changes(strategy, relation)
    if strategy.shape[0] <= _MOST_ROWS:
        _check_total(strategy)
    _check_description(strategy)
    if small:
        _check_decoder(strategy)


def check_foreign(strategy: Strategy) -> None:
    """Check a class that is not the package's own, before `publish` trusts it.

    Raises InputError on answers that are no whole numbers or not linear, a wrong adjoint, or noise that does not enter
    as said.
    """
    _check_answers(strategy)
    rng = np.random.default_rng(13)
    x = rng.integers(-9, 10, (strategy.shape[1], 1))
    y = rng.integers(-9, 10, (strategy.shape[0], 1))
    back = strategy._rmatmat(y)
    _require(back.shape == x.shape, strategy, f"_rmatmat gives the shape {back.shape}; it must be {x.shape}")
    same = int((strategy._matmat(x) * y).sum()) == int((x * back).sum())
    _require(same, strategy, "_rmatmat is not the adjoint of _matmat; ⟨Ax, y⟩ must be ⟨x, Aᵀy⟩ to decode")
    released = strategy.scatter(rng.integers(-99, 100, strategy.draws))
    _require(
        released.shape == (strategy.shape[0],) and np.issubdtype(released.dtype, np.integer),
        strategy,
        f"scatter gives type {released.dtype} and shape {released.shape}; noise must enter as "
        f"{strategy.shape[0]:,} integers",
    )
    noise, weights = rng.normal(size=strategy.draws), rng.normal(size=strategy.shape[0])
    entered, back = strategy.scatter(noise), strategy.gather(weights)
    apart = abs(float(entered @ weights) - float(noise @ back))
    near = apart <= 1e-9 * float(np.abs(entered) @ np.abs(weights) + 1)
    _require(near, strategy, "gather is not the adjoint of scatter; errors of answers would be wrong")


def _check_answers(strategy: Strategy) -> None:
    """Raise InputError unless a strategy's answers to whole numbers are whole numbers, of its shape, and linear."""
    rows, cells = strategy.shape
    expected = strategy.domain.size
    _require(cells == expected, strategy, f"its shape is ({rows}, {cells}); it must be (k, {expected})")
    counts = np.random.default_rng(11).integers(0, 5, (cells, 2))
    found = strategy._matmat(counts)
    _require(
        found.shape == (rows, 2) and np.issubdtype(found.dtype, np.integer),
        strategy,
        f"answers to whole numbers have type {found.dtype} and shape {found.shape}; they must be integers of shape "
        f"({rows}, 2), or a release would not be exact (fractional entries?)",
    )
    measured = strategy.measure(counts[:, 0].reshape(strategy.domain.shape))
    same = measured.shape == (rows,) and bool((measured == found[:, 0]).all())
    _require(same, strategy, "measure differs from _matmat; what is released must be what is priced")
    x, y = np.random.default_rng(12).integers(0, _LARGEST, (2, cells, 1))
    own = strategy._matmat(x)
    same = bool((strategy._matmat(x + 3 * y) == own + 3 * strategy._matmat(y)).all())
    _require(same, strategy, "A(x + 3y) differs from Ax + 3Ay; rows must be linear (rounded entries?)")
    same = np.allclose(strategy._matmat(x.astype(np.float64)), own, rtol=1e-9)
    _require(same, strategy, "answers to floats differ from those to whole numbers; decoding needs both")


def _check_matrix(strategy: Strategy) -> None:
    plain = strategy._matmat(np.eye(strategy.domain.size, dtype=np.int64))
    same = (strategy.matrix().toarray() == plain).all()
    _require(same, strategy, "matrix() differs from the answers to single cells; they must be the same rows")
    same = (strategy._rmatmat(plain) == plain.T @ plain).all()
    _require(same, strategy, "AᵀA by its methods differs from that of its matrix; decoding would be wrong")


def _check_changes(strategy: Strategy, near: Neighbourhood) -> None:
    changes, edges = strategy.changes(near).toarray(), near.incidence().toarray()
    moved = strategy.matrix().toarray() @ edges
    if strategy.row_by_row:
        wrong = np.flatnonzero((changes != moved).any(axis=0)).tolist()
    else:
        rng = np.random.default_rng(15)
        draws = rng.integers(-99, 100, strategy.draws)
        before = strategy.scatter(draws)
        some = rng.permutation(edges.shape[1])[:_EDGES]
        wrong = [e for e in some if (strategy.scatter(draws + changes[:, e]) != before + moved[:, e]).any()]
    _require(
        not len(wrong),
        strategy,
        f"changes(near) does not make up for edge {wrong[:1]}; R(η + U) must be R(η) + A E exactly, or nothing is "
        "private",
    )
    for norm in (1, 2):
        stated = strategy.edge_cost(near, norm)
        if stated is not None:
            true = explicit_edge_cost(strategy, near, norm)
            _require(
                stated >= true,
                strategy,
                f"edge_cost(near, {norm}) is {stated}; an edge costs {true}: noise would be too small, and nothing "
                "would be private",
            )


def _check_total(strategy: Strategy) -> None:
    """Raise InputError if some combination of the values is the number of points, free of noise, and that is denied."""
    rows = strategy.matrix().toarray().T.astype(np.float64)
    entered = np.stack([strategy.gather(w) for w in np.eye(strategy.shape[0])], axis=1)
    system, wanted = np.concatenate([rows, entered]), np.zeros(len(rows) + len(entered))
    wanted[: len(rows)] = 1.0
    weight = np.linalg.lstsq(system, wanted, rcond=None)[0]
    _require(
        strategy.keeps_total or np.abs(system @ weight - wanted).max() >= 1e-9,
        strategy,
        "some combination of its values is the number of points without noise; keeps_total must be True, or the number "
        "is given away where it is not public",
    )


def _check_description(strategy: Strategy) -> None:
    again = from_description(strategy.domain, json.loads(json.dumps(strategy.describe())))
    x = np.random.default_rng(16).integers(0, 99, (strategy.domain.size, 1))
    same = again.shape == strategy.shape and bool((again._matmat(x) == strategy._matmat(x)).all())
    same &= [g.share for g in again.groups] == [g.share for g in strategy.groups]
    _require(same, strategy, "its description makes another strategy; its releases would not load")


def _check_decoder(strategy: Strategy) -> None:
    # Groups that differ by more than their shares: a decoder that forgets the noise is seen.
    laws = [Gaussian((i + 2) / g.share**2) for i, g in enumerate(strategy.groups)]
    rng = np.random.default_rng(17)
    found = decoder(strategy, laws, total_known=False)
    kind = type(found).__name__
    query, values = rng.normal(size=strategy.domain.size), rng.normal(size=strategy.shape[0])
    own = found.solve(values)
    apart = abs(float(own @ query) - float(found.adjoint(query) @ values))
    near = apart <= 1e-6 * (float(np.abs(own) @ np.abs(query)) + 1)
    _require(near, strategy, f"adjoint of {kind} is not that of its solve; stated errors would be wrong")
    cells = rng.integers(0, 9, strategy.domain.size)
    exact = strategy.measure(cells.reshape(strategy.domain.shape)).astype(float)
    unbiased = not strategy.determines_cells or np.allclose(found.solve(exact), cells, atol=1e-6)
    _require(unbiased, strategy, f"{kind} does not give the counts back; without noise it must, or it is biased")
    work = all_ranges(strategy.domain).sample(_QUERIES)
    told, queries = found.moments(work), work.matrix(strategy.domain).toarray()
    noise = np.array([strategy.gather(found.coefficients(q)) for q in queries])
    true = (noise * noise) @ found.draw_variance
    right = told.note != "exact" or np.allclose(told.variance, true, rtol=1e-6, atol=1e-9 * true.max())
    _require(right, strategy, f"{kind} states other errors than its own coefficients give; they must be the same")
    field, drawn = found.field(values, None), found.noise(np.random.default_rng(18)).shape
    _require(
        drawn == field.shape, strategy, f"noise of {kind} has shape {drawn}; it must be its field's, {field.shape}"
    )
    # The general metric is of the domain, and not simulated here.
    metric = None if type(found).metric is Decoder.metric else found.metric()
    grid = strategy.domain.shape if metric is None else metric.grid
    _require(
        grid == field.shape,
        strategy,
        f"metric of {kind} is of a grid {grid}, its field of {field.shape}; a decoder whose field is larger than the "
        "domain must give its metric",
    )
    inside = field if metric is None else field[metric.inside]
    same = np.allclose(inside, found.estimate(values, None), atol=1e-6)
    _require(same, strategy, f"field of {kind} does not hold its estimates; it must, where the domain is")


def _require(true: bool | np.bool_, strategy: Strategy, text: str) -> None:
    if not true:
        raise InputError(f"strategy {strategy.name}: {text}")
