"""What holds for every strategy; the examples drive it."""

import json

import numpy as np
import pytest
from examples import STRATEGIES, random_domain, random_neighbourhood
from scipy.sparse.linalg import aslinearoperator

import deltahist as dh
from deltahist.strategies import Strategy, from_description


def some(name, number=30, seed=1):
    rng = np.random.default_rng([seed, len(name)])
    for _ in range(number):
        domain = random_domain(rng, most=(20, 7))
        yield rng, domain, STRATEGIES[name](rng, domain)


@pytest.mark.parametrize("name", STRATEGIES)
def test_operator_equals_its_matrix(name):
    for rng, domain, A in some(name):
        dense = A.matrix().toarray()
        assert dense.shape == A.shape
        x, X = rng.integers(-9, 9, domain.size), rng.integers(-9, 9, (domain.size, 3))
        y, Y = rng.integers(-9, 9, A.shape[0]), rng.integers(-9, 9, (A.shape[0], 3))
        assert np.array_equal(A @ x, dense @ x)
        assert np.array_equal(A @ X, dense @ X)
        assert np.array_equal(A.T @ y, dense.T @ y)
        assert np.array_equal(A.T @ Y, dense.T @ Y)
        assert np.array_equal(aslinearoperator(A).H @ y, dense.T @ y)
        assert np.array_equal(A.measure(x.reshape(domain.shape)), dense @ x)


@pytest.mark.parametrize("name", STRATEGIES)
def test_whole_numbers_stay_whole(name):
    for rng, domain, A in some(name, 5):
        # A kernel's entries have up to 28 binary digits.
        big = rng.integers(0, 2 ** (28 if name == "Spectral" else 40), domain.size)
        assert (A @ big).dtype == np.int64
        assert A.matrix().dtype == np.int64
        assert A.dtype == np.int64


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_general_matrix_equals_the_special_one(name):
    for _, _, A in some(name, 8):
        assert np.array_equal(Strategy.matrix(A).toarray(), A.matrix().toarray())


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_description_makes_the_strategy_again(name):
    for _, domain, A in some(name):
        again = from_description(domain, json.loads(json.dumps(A.describe())))
        assert type(again) is type(A)
        assert again.describe() == A.describe()
        assert np.array_equal(again.matrix().toarray(), A.matrix().toarray())
        assert [g.share for g in again.groups] == [g.share for g in A.groups]


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_is_said_of_determining_cells_is_the_rank(name):
    for _, domain, A in some(name, 60):
        full = np.linalg.matrix_rank(A.matrix().toarray()) == domain.size
        # Saying no of a strategy that happens to be of full rank on a tiny grid is safe; saying yes must be right.
        assert full if A.determines_cells else True
        if domain.ndim == 1 and name != "CutAugmented":
            assert bool(A.determines_cells) == full


@pytest.mark.parametrize("name", STRATEGIES)
def test_rows_of_opposite_sign_cost_the_same(name):
    class Negative(Strategy):
        def __init__(self, A):
            self.A, self.domain = A, A.domain

        @property
        def shape(self):
            return self.A.shape

        @property
        def groups(self):
            return self.A.groups

        def _matmat(self, X):
            return -self.A._matmat(X)

        def _rmatmat(self, X):
            return -self.A._rmatmat(X)

    for rng, domain, A in some(name, 8):
        near = random_neighbourhood(rng, domain)
        assert dh.sensitivity(Negative(A), near) == dh.sensitivity(A, near) >= 0


def test_unknown_strategies_and_parameters_are_named():
    domain = dh.Domain((0, 1), (4,))
    with pytest.raises(dh.InputError, match="'Magic'"):
        from_description(domain, {"strategy": "Magic"})
    with pytest.raises(dh.InputError, match="unknown or missing"):
        from_description(domain, {"strategy": "Identity", "colour": 3})
