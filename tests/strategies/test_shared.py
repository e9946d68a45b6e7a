"""What holds for every strategy; the examples drive it."""

import json

import numpy as np
import pytest
from examples import STRATEGIES, random_domain
from scipy.sparse.linalg import aslinearoperator

from deltahist.strategies import Strategy, from_description


def some(name, number=15, seed=1):
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
        assert np.array_equal(Strategy.matrix(A).toarray(), dense)
        # A kernel's entries have up to 28 binary digits.
        big = rng.integers(0, 2 ** (28 if name == "Spectral" else 40), domain.size)
        assert (A @ big).dtype == dense.dtype == A.dtype == np.int64


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
    for _, domain, A in some(name, 30):
        full = np.linalg.matrix_rank(A.matrix().toarray()) == domain.size
        # Saying no of a strategy that happens to be of full rank on a tiny grid is safe; saying yes must be right.
        assert full if A.determines_cells else True
        if domain.ndim == 1 and name != "CutAugmented":
            assert bool(A.determines_cells) == full
