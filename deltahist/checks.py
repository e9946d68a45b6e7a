"""Check strategies against the definitions that publishing, pricing and decoding rely on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from deltahist.decode import make_decoder
from deltahist.errors import InputError
from deltahist.laws import Gaussian
from deltahist.mechanisms.histogram import Mechanism, explicit_edge_cost, sensitivity
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.space.workloads import all_ranges
from deltahist.strategies.base import Strategy, check_groups, from_description


def check_strategy(strategy: Strategy, near: Neighbourhood) -> None:
    """Check that publishing, pricing and decoding can rely on a strategy. Raises InputError on the first failure.

    - Answers must be exact integers and linear in the counts, and adjoints must be correct.
    - Each noise draw must be in exactly one group, and noise must enter as `scatter`, `gather` and `changes` describe.
    - In both norms, the stated cost of an edge must not be less than its cost computed from the matrix.
    - The description must restore the same strategy.
    - The decoder must be unbiased and state its true error.

    Above 2,048 cells, the checks omit the matrix, `changes`, costs and the decoder, so check a small domain too.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 1), (6,)), delta=0.5)
    >>> dh.check_strategy(dh.strategies.Hierarchical(near.domain), near)
    """
    _require(strategy, [(strategy.domain == near.domain, "its domain must be that of the neighbourhood")])
    check_foreign(strategy)
    check_groups(strategy)
    small = strategy.domain.size <= 2048
    if small:
        _require(strategy, _check_matrix(strategy))
        # Check the shortest and the longest protected moves.
        for _, relation in dict.fromkeys((near.relations[0], near.relations[-1])):
            _require(strategy, _check_changes(strategy, relation))
    if strategy.shape[0] <= 400:
        _require(strategy, _check_total(strategy))
    _require(strategy, _check_description(strategy))
    if small:
        _require(strategy, _check_decoder(strategy))


def check_foreign(strategy: Strategy, mechanism: Mechanism | None = None) -> None:
    """Check a strategy from another package, and its mechanism if given, before `publish` relies on them.

    Raises InputError unless answers are linear, answers and noise are integers, and adjoints and sensitivity are right.
    """
    _require(strategy, _check_answers(strategy))
    _require(strategy, _check_noise(strategy))
    if mechanism is not None:
        same = mechanism.sensitivity == sensitivity(strategy, mechanism.neighbourhood, norm=mechanism.norm)
        _require(strategy, [(same, "its sensitivity has changed since the mechanism was made")])


def _require(strategy: Strategy, checks: Iterable[tuple[Any, str]]) -> None:
    """Raise InputError on the first check that fails. Later checks, which rely on earlier ones, are not run."""
    for holds, text in checks:
        if not holds:
            raise InputError(f"strategy {strategy.name}: {text}")


def _check_answers(strategy: Strategy) -> Iterator[tuple[Any, str]]:
    """Check that answers to integers are integers, have the right shape, and are linear."""
    rows, cells = strategy.shape
    expected = strategy.domain.size
    yield cells == expected, f"its shape is ({rows}, {cells}); it must be (k, {expected})"
    counts = np.random.default_rng(11).integers(0, 5, (cells, 2))
    found = strategy._matmat(counts)
    yield (
        found.shape == (rows, 2) and np.issubdtype(found.dtype, np.integer),
        f"answers to integers have type {found.dtype} and shape {found.shape}; they must be integers of shape "
        f"({rows}, 2), or a release would not be exact (fractional entries?)",
    )
    measured = strategy.measure(counts[:, 0].reshape(strategy.domain.shape))
    same = measured.shape == (rows,) and (measured == found[:, 0]).all()
    yield same, "measure differs from _matmat; the released answers must be the priced ones"
    x, y = np.random.default_rng(12).integers(0, 1 << 20, (2, cells, 1))
    own = strategy._matmat(x)
    same = (strategy._matmat(x + 3 * y) == own + 3 * strategy._matmat(y)).all()
    yield same, "A(x + 3y) differs from Ax + 3Ay; rows must be linear (rounded entries?)"
    same = np.allclose(strategy._matmat(x.astype(np.float64)), own, rtol=1e-9)
    yield same, "answers to floats differ from those to integers; decoding relies on both"


def _check_noise(strategy: Strategy) -> Iterator[tuple[Any, str]]:
    """Check that adjoints are correct, and that noise enters as integers."""
    rng = np.random.default_rng(13)
    x = rng.integers(-9, 10, (strategy.shape[1], 1))
    y = rng.integers(-9, 10, (strategy.shape[0], 1))
    back = strategy._rmatmat(y)
    yield back.shape == x.shape, f"_rmatmat returns the shape {back.shape}; it must be {x.shape}"
    same = int((strategy._matmat(x) * y).sum()) == int((x * back).sum())
    yield same, "_rmatmat is not the adjoint of _matmat; ⟨Ax, y⟩ must be ⟨x, Aᵀy⟩ to decode"
    released = strategy.scatter(rng.integers(-99, 100, strategy.draws))
    yield (
        released.shape == (strategy.shape[0],) and np.issubdtype(released.dtype, np.integer),
        f"scatter returns type {released.dtype} and shape {released.shape}; it must return {strategy.shape[0]:,} "
        "integers",
    )
    noise, weights = rng.normal(size=strategy.draws), rng.normal(size=strategy.shape[0])
    entered, back = strategy.scatter(noise), strategy.gather(weights)
    apart = abs(float(entered @ weights) - float(noise @ back))
    near = apart <= 1e-9 * float(np.abs(entered) @ np.abs(weights) + 1)
    yield near, "gather is not the adjoint of scatter; errors of answers would be wrong"


def _check_matrix(strategy: Strategy) -> Iterator[tuple[Any, str]]:
    plain = strategy._matmat(np.eye(strategy.domain.size, dtype=np.int64))
    same = (strategy.matrix().toarray() == plain).all()
    yield same, "matrix() differs from the answers to single cells; they must be the same rows"
    same = (strategy._rmatmat(plain) == plain.T @ plain).all()
    yield same, "AᵀA from its methods differs from that of its matrix; decoding would be wrong"


def _check_changes(strategy: Strategy, near: Neighbourhood) -> Iterator[tuple[Any, str]]:
    changes, edges = strategy.changes(near).toarray(), near.incidence().toarray()
    moved = strategy.matrix().toarray() @ edges
    if strategy.row_by_row:
        wrong = np.flatnonzero((changes != moved).any(axis=0)).tolist()
    else:
        rng = np.random.default_rng(15)
        draws = rng.integers(-99, 100, strategy.draws)
        before = strategy.scatter(draws)
        some = rng.permutation(edges.shape[1])[:2000]
        wrong = [e for e in some if (strategy.scatter(draws + changes[:, e]) != before + moved[:, e]).any()]
    yield not wrong, f"changes(near) does not offset edge {wrong[:1]}; R(η + U) must be R(η) + A E exactly"
    for norm in (1, 2):
        stated = strategy.edge_cost(near, norm)
        if stated is not None:
            true = explicit_edge_cost(strategy, near, norm)
            yield stated >= true, f"edge_cost(near, {norm}) is {stated}; an edge costs {true}: noise would be too small"


def _check_total(strategy: Strategy) -> Iterator[tuple[Any, str]]:
    """Check that `keeps_total` is True if a combination of the values is the exact number of points."""
    rows = strategy.matrix().toarray().T.astype(np.float64)
    entered = np.stack([strategy.gather(w) for w in np.eye(strategy.shape[0])], axis=1)
    system, wanted = np.concatenate([rows, entered]), np.zeros(len(rows) + len(entered))
    wanted[: len(rows)] = 1.0
    weight = np.linalg.lstsq(system, wanted, rcond=None)[0]
    yield (
        strategy.keeps_total or np.abs(system @ weight - wanted).max() >= 1e-9,
        "a combination of its values is the exact number of points; keeps_total must be True, or releases reveal the "
        "number even if it is not public",
    )


def _check_description(strategy: Strategy) -> Iterator[tuple[Any, str]]:
    again = from_description(strategy.domain, json.loads(json.dumps(strategy.describe())))
    x = np.random.default_rng(16).integers(0, 99, (strategy.domain.size, 1))
    same = again.shape == strategy.shape and (again._matmat(x) == strategy._matmat(x)).all()
    same = same and [g.share for g in again.groups] == [g.share for g in strategy.groups]
    yield same, "its description restores a different strategy; its releases would not load"


def _check_decoder(strategy: Strategy) -> Iterator[tuple[Any, str]]:
    # Let the noise of groups differ by more than their shares do, to expose a decoder that ignores the noise.
    laws = [Gaussian((i + 2) / g.share**2) for i, g in enumerate(strategy.groups)]
    rng = np.random.default_rng(17)
    found = make_decoder(strategy, laws, total_known=False)
    kind = type(found).__name__
    query, values = rng.normal(size=strategy.domain.size), rng.normal(size=strategy.shape[0])
    own = found.solve(values)
    apart = abs(float(own @ query) - float(found.solve_adjoint(query) @ values))
    near = apart <= 1e-6 * (float(np.abs(own) @ np.abs(query)) + 1)
    yield near, f"solve_adjoint of {kind} is not the adjoint of its solve; stated errors would be wrong"
    cells = rng.integers(0, 9, strategy.domain.size)
    exact = strategy.measure(cells.reshape(strategy.domain.shape)).astype(float)
    unbiased = not strategy.determines_cells or np.allclose(found.solve(exact), cells, atol=1e-6)
    yield unbiased, f"{kind} does not recover the counts without noise; it must, or it is biased"
    work = all_ranges(strategy.domain).sample(50)
    stated, queries = found.moments(work), work.matrix(strategy.domain).toarray()
    noise = np.array([strategy.gather(found.answer_coefficients(q)) for q in queries])
    true = (noise * noise) @ found.draw_variance
    right = stated.note != "exact" or np.allclose(stated.variance, true, rtol=1e-6, atol=1e-9 * true.max())
    yield right, f"the errors that {kind} states differ from those of its coefficients; they must be equal"
