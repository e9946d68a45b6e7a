"""Quadratic forms over edges agree with their tables."""

import numpy as np
import pytest
import scipy.sparse

from deltahist.decode.forms import IndependentIncrements, IntervalForms, iterate_query_boxes
from deltahist.space.workloads import Pieces
from deltahist.strategies.flow.decoder import Diagonal, Sides, estimated_flow
from deltahist.strategies.flow.noise import LineEstimator
from deltahist.strategies.product import FourthPowers, PrefixForm, _Haar, _Sums


def forms():
    rng = np.random.default_rng(5)
    yield "diagonal", Diagonal(rng.random(7))
    yield "overlap", IndependentIncrements(rng.random(9).cumsum())
    for n in (1, 2, 3, 7, 8, 13):
        yield f"suffix sums of {n}", PrefixForm(_Sums(n, True))
        yield f"prefix sums of {n}", PrefixForm(_Sums(n, False))
        yield f"Haar of {n}", PrefixForm(_Haar(n))
    for n, widths in ((1, ()), (5, ()), (9, (2,)), (12, (3,)), (20, (2, 5))):
        line = LineEstimator(n, widths, 1.0, 1.7, tuple(rng.random(len(widths)) + 0.5))
        for name, form in zip(("side", "before", "behind"), estimated_flow(line, 1.0, 1.7, line.sums), strict=True):
            yield f"{name} of {n} with sums {widths}", form


FORMS = dict(forms())


def test_a_form_is_its_table():
    for name in FORMS:
        form, rng = FORMS[name], np.random.default_rng(len(name))
        i, j = np.divmod(np.arange(form.size**2), form.size)
        table = form.entries_at(i, j).reshape(form.size, -1)
        assert np.allclose(table, table.T)
        assert form.trace() == pytest.approx(np.trace(table), abs=1e-12)
        for weight in (np.ones(form.size), rng.normal(size=form.size)):
            assert form.value_at(weight) == pytest.approx(weight @ table @ weight, abs=1e-9)


def some_intervals(n, seed):
    """Whole cells, then parts of a cell down to a millionth, then any; the cells of each."""
    rng = np.random.default_rng(seed)
    low, high = np.sort(rng.uniform(0, n, (2, 300)), axis=0)
    low[:100], high[:100] = (
        np.floor(low[:100]),
        np.floor(low[:100]) + rng.integers(1, 1 + n - np.floor(low[:100])),
    )
    high[100:150] = low[100:150] + (np.ceil(low[100:150]) - low[100:150]) * 10 ** -rng.uniform(0, 6, 50)
    return low, high, np.clip(high[:, None] - np.arange(n), 0, 1) - np.clip(low[:, None] - np.arange(n), 0, 1)


def test_a_form_of_intervals_is_that_of_their_cells():
    """By definition qᵀ V q, V the differences of G."""
    for name in FORMS:
        form = FORMS[name]
        low, high, cells = some_intervals(form.size - 1, len(name))
        i, j = np.divmod(np.arange(form.size**2), form.size)
        covariance = np.diff(np.diff(form.entries_at(i, j).reshape(form.size, -1), axis=0), axis=1)
        expected = np.einsum("mi,ij,mj->m", cells, covariance, cells)
        for some in (slice(0, 100), slice(None)):
            intervals = Pieces.of(low[some], high[some])
            assert np.allclose(form.evaluate_pieces(intervals), expected[some], rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(
    ("n", "widths"), [(1, ()), (2, ()), (9, (2,)), (12, (3,)), (50, (7,)), (60, (4, 20)), (300, (6, 60))]
)
@pytest.mark.parametrize("centred", [False, True])
def test_polynomials_between_knots_are_the_forms_of_a_line(n, widths, centred):
    line = LineEstimator(n, widths, 1.0, 1.7, (0.8, 0.3)[: len(widths)], centred)
    rim, flow = Diagonal(np.pad(np.ones(n - 1), 1)), estimated_flow(line, 1.0, 1.7, line.sums)
    low, high, _ = some_intervals(n, n)
    for some in (slice(0, 100), slice(None)):
        found = Sides(rim, flow, line.knots, None).evaluate_intervals(low[some], high[some])
        intervals = Pieces.of(low[some], high[some])
        assert np.allclose(found, [form.evaluate_pieces(intervals) for form in (rim, *flow)], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("blocks", [False, True])
def test_the_mean_over_all_intervals_needs_no_table(blocks):
    for name in FORMS:
        form = FORMS[name]
        n = form.size - 1
        edges = None
        if blocks:
            n = 3 * n
            edges = np.interp(np.arange(n + 1), np.linspace(0, n, form.size), np.arange(form.size))
        feature = IntervalForms([form], edges)
        first, last = np.triu_indices(n)
        plain = feature(first.astype(float), last.astype(float) + 1).mean()
        assert feature.mean_over_intervals(n) == pytest.approx(plain, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("factor", [_Sums(9, True), _Sums(9, False), _Haar(9), _Haar(1)])
def test_prefixes_are_columns_of_the_inverse(factor):
    n = factor.n
    expected = factor.solve_transpose(np.tril(np.ones((n + 1, n)), -1).T)
    rows, entries = factor.prefixes
    found = np.zeros((n, n + 1))
    np.add.at(found, (rows, np.arange(n + 1)[:, None]), entries)
    assert np.allclose(found, expected)
    low, high = np.triu_indices(n + 1, 1)
    fourth = FourthPowers(PrefixForm(factor))(low.astype(float), high.astype(float))
    assert np.allclose(fourth, ((expected[:, high] - expected[:, low]) ** 4).sum(axis=0))


def test_moves_of_queries_stay_on_the_grid_and_in_their_boxes():
    """Two queries side by side in one array, one of them shorter: behind the rim of its box there is only room."""
    shape, rows = (6, 7), np.zeros((2, 6, 7))
    rows[0, 2:5, 1:6] = rows[1, 0:3, 4:7] = 1.0
    (around,) = iterate_query_boxes(scipy.sparse.csr_array(rows.reshape(2, -1)), shape)
    found = around.zero_outside(np.ones_like(around.shares), 0, 1)
    for kept, low, high in zip(found, around.low, around.high, strict=True):
        along = []
        for first, last, n, size in zip(low, high, shape, kept.shape, strict=True):
            place = np.arange(size) + first - 1
            inside = (place >= 0) & (place + 1 < n) & (place + 1 <= last)
            along.append(np.where((place > last) & (np.arange(size) < size - 1), 1, inside))
        assert np.array_equal(kept, np.multiply.outer(*along))
