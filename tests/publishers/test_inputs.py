"""What `publish` is given: numbers of any library, and counts that are not counts."""

from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.strategies.base import Group, Strategy

LINE = dh.Domain((0, 8), (8,))
NEAR = dh.Neighbourhood(LINE, 1)
COUNTS = np.arange(8)


@pytest.mark.parametrize("kind", [int, float, Fraction, np.int64, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("budget", ["epsilon", "rho"])
def test_a_budget_is_the_same_from_any_library(kind, budget):
    A = dh.strategies.Hierarchical(LINE)
    plain, other = (
        dh.publish(COUNTS, NEAR, A, rng=np.random.default_rng(1), **{budget: value}) for value in (3, kind(3))
    )
    assert other.laws == plain.laws
    assert np.array_equal(other.values, plain.values)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.float32, np.float64])
def test_shares_are_the_same_from_any_library(kind):
    shares = np.array([1, 2, 3, 4], dtype=kind)
    # A budget of many digits, so that whole numbers of 64 bits would overflow.
    plain, other = (
        dh.publish(
            COUNTS, NEAR, dh.strategies.Hierarchical(LINE, 2, given), 0.1, rng=np.random.default_rng(1)
        )
        for given in ((1, 2, 3, 4), tuple(shares))
    )
    assert other.laws == plain.laws
    assert np.array_equal(other.values, plain.values)


@pytest.mark.parametrize("kind", [int, float, Fraction, np.int64, np.float32, np.float64])
def test_a_delta_of_any_library_can_be_saved(kind, tmp_path):
    near = dh.Neighbourhood(LINE, kind(2))
    release = dh.publish(COUNTS, near, dh.strategies.Identity(LINE), 1.0)
    release.save(tmp_path / "r.parquet")
    assert dh.Release.load(tmp_path / "r.parquet").neighbourhood.radius == near.radius


@pytest.mark.parametrize(
    "bad", [np.inf, -np.inf, np.nan, 1e300, 2.0**63, -1.0, 0.5, np.uint64(2**63), 2**64], ids=str
)
def test_counts_that_no_int64_holds_are_refused(bad):
    counts = np.array([bad] + [bad] * 7)
    with pytest.raises(dh.InputError, match="counts"):
        dh.publish(counts, NEAR, dh.strategies.Identity(LINE), 1.0)


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int32, np.uint64, np.float32, list])
def test_counts_of_any_whole_type_are_taken(kind):
    counts = COUNTS.tolist() if kind is list else COUNTS.astype(kind)
    release = dh.publish(counts, NEAR, dh.strategies.Cumulative(LINE), 500.0, weak_protection_accepted=True)
    assert release.total == 28
    assert release.values.dtype == np.int64
    assert np.allclose(release.cells(), COUNTS, atol=1)


def test_all_draws_of_a_release_are_fresh():
    A = dh.strategies.Identity(LINE)
    first, second = (dh.publish(COUNTS, NEAR, A, 0.001).values for _ in range(2))
    # Two equal draws of scale 2,000 have a probability of 1/4,000 each; eight of them never happen.
    assert (first != second).any()


@pytest.mark.parametrize(
    "rows",
    [
        [slice(0, 7)],
        [slice(0, 8), slice(7, 8)],
        [slice(0, 4), slice(5, 8)],
        [np.array([0, 1, 2, 3, 4, 5, 6, 6])],
        [np.arange(8), slice(0, 0), np.array([3])],
        [],
    ],
    ids=str,
)
def test_groups_that_leave_out_or_repeat_draws_are_refused(rows):
    """Values that no group names would once have been published with whatever was in memory."""

    class Broken(dh.strategies.Identity):
        @property
        def groups(self):
            return tuple(Group(str(i), r) for i, r in enumerate(rows))

        edge_cost = Strategy.edge_cost

    with pytest.raises(dh.InputError, match="groups of Broken name"):
        dh.publish(COUNTS, NEAR, Broken(LINE), 1.0)


@pytest.mark.parametrize(
    "rows", [[slice(0, 8)], [slice(0, 8, 2), slice(1, 8, 2)], [np.arange(8)[::-1]]], ids=str
)
def test_groups_may_hold_the_draws_in_any_order(rows):
    class Sound(dh.strategies.Identity):
        @property
        def groups(self):
            return tuple(Group(str(i), r) for i, r in enumerate(rows))

        edge_cost = Strategy.edge_cost

    assert len(dh.publish(COUNTS, NEAR, Sound(LINE), 1.0).values) == 8


def test_a_strategy_of_another_domain_is_refused():
    other = dh.strategies.Identity(dh.Domain((0, 9), (9,)))
    with pytest.raises(dh.InputError, match="different domains"):
        dh.publish(COUNTS, NEAR, other, 1.0)
