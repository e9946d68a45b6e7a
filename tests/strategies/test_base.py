"""A strategy of somebody else needs an operator only: it is priced, published, decoded and answered like ours."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import deltahist as dh
from deltahist.strategies.base import Group, Strategy, read_shares, whole_shares


@dataclass(frozen=True, eq=False)
class Explicit(Strategy):
    """Any whole numbers, as a matrix."""

    domain: dh.Domain
    rows: Any
    divided: tuple[Group, ...] | None = None

    @property
    def shape(self):
        return self.rows.shape

    @property
    def groups(self):
        return self.divided or super().groups

    def _matmat(self, X):
        return self.rows @ X

    def _rmatmat(self, X):
        return self.rows.T @ X


DOMAIN = dh.Domain((0, 0, 3, 4), (3, 4))
NEAR = dh.Neighbourhood(DOMAIN, 1, "boundary")
ROWS = np.concatenate([np.eye(12, dtype=np.int64), np.random.default_rng(1).integers(-3, 4, (5, 12))])
COUNTS = np.arange(12).reshape(3, 4)


@pytest.mark.parametrize("norm", [1, 2])
def test_it_is_priced_by_the_definition(norm):
    parts = (
        Group("cells", slice(0, 12), Fraction(1, 3)),
        Group("others", np.arange(16, 11, -1), Fraction(2)),
    )
    A = Explicit(DOMAIN, ROWS, parts)
    share = np.array([1 / 3] * 12 + [2] * 5)
    columns = [ROWS[:, v] - (ROWS[:, u] if u >= 0 else 0) for u, v in NEAR.edges().tolist()]
    expected = max((np.abs(share * c) ** norm).sum() for c in columns)
    found = dh.sensitivity(A, NEAR, norm=norm)
    assert float(found if norm == 1 else found.squared) == pytest.approx(expected)


def test_its_rank_is_looked_at_when_it_says_nothing():
    release = dh.publish(COUNTS, NEAR, Explicit(DOMAIN, ROWS[:11]), 1.0)
    assert dh.list_facts(release)["determines_cells"] is False
    table = dh.answer(release, dh.workloads.boxes([[0, 0, 1, 1], [2, 3, 3, 4]]))
    assert table["unresolved"].tolist() == [0, 1]


def test_shares_are_exact():
    assert read_shares(None, 2, "level") == (1, 1)
    assert read_shares((0.1, Fraction(1, 3)), 2, "level")[1] == Fraction(1, 3)
    assert whole_shares([Fraction(1, 6), Fraction(3, 4)]) == ([2, 9], 12)
    for bad in ((0, 1), (1,), (1, -1), (1, float("nan")), (1, None)):
        with pytest.raises(dh.InputError):
            read_shares(bad, 2, "level")
